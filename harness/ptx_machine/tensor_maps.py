"""Tensor maps (PTX ISA 5.5): those that the host makes and tensormap.replace writes, and where a copy's elements lie by one.

Where a box lies in the tensor and what is outside of it are the emulated GPU's own rules (`memory.tensor_maps.Descriptor`). In
shared memory a box is dense, with the units of 16 bytes of each row exchanged as its swizzle says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bitverdict.harness.emulator.memory.tensor_maps import Descriptor, HostDescriptor, check_alignment, check_sign
from bitverdict.harness.ptx_machine.program import StatementReader, ThreadStep, fault, instruction

if TYPE_CHECKING:
    from bitverdict.harness.ptx_machine.threads import Active, Threads

TYPES = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32", "tf32", "tf32")  # elements, by CUDA's number
DEVICE_TYPES = (0, 1, 2, 3, 4, 5, 6, 7, 10, 8, 9, 11, 12)  # CUDA's number, by that of tensormap.replace.elemtype
SWIZZLES = (0, 1, 3, 7)  # bits of the row within its 8 that are exchanged into units of 16 bytes: none, 32, 64, 128 bytes


def swizzle_addresses(addresses: np.ndarray, mode: int) -> np.ndarray:
    """Where the bytes at `addresses` of shared memory lie under swizzle `mode` of a tensor map."""
    return addresses ^ ((addresses >> 7 & SWIZZLES[mode]) << 4)


@dataclass(frozen=True)
class TensorMap:
    """A tensor, outermost axis first, and the box that a copy takes of it. `is_padded`: a tensor of bytes with two elements of 4
    bits each, whose coordinates and box count these; 16 of them take 16 bytes of shared memory (.b4x16_p64)."""

    tensor: Descriptor
    box: tuple[int, ...]
    swizzle: int
    kind: str  # of its elements, as PTX writes it
    is_padded: bool = False


@dataclass(eq=False)
class TensorMapFields:
    """What tensormap.replace has written so far of a tensor map in shared memory."""

    fields: dict[tuple[str, int], int] = field(default_factory=dict)

    def read(self, step: ThreadStep) -> TensorMap:
        def field_values(name: str, count: int) -> list[int]:
            if missing := [place for place in range(count) if (name, place) not in self.fields]:
                raise fault("illegal instruction", f"a tensor map whose {name} {missing[0]} was never replaced", step)
            return [self.fields[name, place] for place in range(count)]

        rank = self.fields.get(("rank", 0), 0) + 1
        kind = TYPES[DEVICE_TYPES[self.fields.get(("elemtype", 0), 0)]]
        size = 4 if kind == "tf32" else DTYPES_OF[kind]
        if any(step_size != 1 for step_size in field_values("element_stride", rank)):
            raise fault("not modelled", "a tensor map with element strides", step)
        strides = (1, *(stride // size for stride in field_values("global_stride", rank - 1)))
        (address,) = field_values("global_address", 1)
        nan = bool(self.fields.get(("fill_mode", 0), 0))
        tensor = Descriptor(address, tuple(field_values("global_dim", rank)[::-1]), strides[::-1], size, nan, kind == "tf32")
        return TensorMap(tensor, tuple(field_values("box_dim", rank)[::-1]), self.fields.get(("swizzle_mode", 0), 0), kind)


DTYPES_OF = {kind: int("".join(filter(str.isdigit, kind))) // 8 for kind in TYPES if kind != "tf32"}  # bytes of an element


def host_map(tensor: Descriptor, meta: Mapping[str, object]) -> TensorMap:
    """The tensor map that Triton's driver makes of a host descriptor, by what its compiler says of it."""
    box, swizzle, kind = cast(Sequence[int], meta["block_size"]), cast(int, meta["swizzle"]), cast(int, meta["elem_type"])
    if meta.get("fp4_padded"):
        return TensorMap(tensor, tuple(box), swizzle, "u8", is_padded=True)
    return TensorMap(tensor, tuple(box), swizzle, TYPES[DEVICE_TYPES[kind]])


def map_of_argument(tensor: Descriptor, value: HostDescriptor) -> TensorMap:
    """The tensor map of a host descriptor that a launch of PTX is given: of Gluon, whose layout has the swizzle, or of Triton."""
    size = getattr(getattr(value, "layout", None), "swizzle_byte_width", 0)
    dtype = str(value.base.dtype).removeprefix("torch.")
    names = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "float64": "f64", "int32": "s32", "int64": "s64"}
    return TensorMap(tensor, tuple(value.block_shape), (0, 32, 64, 128).index(size), names.get(dtype, f"u{8 * tensor.itemsize}"))


@dataclass(frozen=True)
class Box:
    """Elements of `size` bytes: where they lie in global memory (`inside` the tensor, None: all), and at which byte of the CTA's
    shared memory. Outside lies `padding` (bytes of one element)."""

    addresses: np.ndarray
    inside: np.ndarray | None
    size: int
    places: np.ndarray
    padding: np.ndarray
    kind: str
    tensor: Descriptor | None = None


class _OperationName:
    """What the rules of tensor maps ask of an operation: its name, its place and its text."""

    def __init__(self, step: ThreadStep) -> None:
        self.name, self.location, self.brief = step.statement.opcode, step.place, str(step.statement)


@dataclass(frozen=True)
class CopyStart:
    """Where a copy begins in its tensor: `coordinates` innermost first, as written; of im2col how far pixels are moved, outermost
    first; of gather4 and scatter4 a column and four rows."""

    mode: str
    coordinates: Sequence[int]
    moves: Sequence[int]

    def addresses(self, tensor: Descriptor, box: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray | None]:
        """As `Descriptor.box`."""
        if "4" in self.mode:
            return tensor.rows(np.array(self.coordinates[1:]), self.coordinates[0], box[-1])
        if self.mode == "im2col" and self.moves:
            return tensor.columns(self.coordinates[::-1], self.moves, *box)
        return tensor.box(self.coordinates[::-1], box)


def tensor_box(machine: Threads, step: ThreadStep, address: int, start: CopyStart, own: int, loads: bool) -> Box:
    tensor_map = machine.tensor_maps.get(address)
    if tensor_map is None:
        raise fault("illegal instruction", f"{step.statement.opcode} through {address:#x}, where no tensor map lies", step)
    operation_name: Any = _OperationName(step)
    tensor = tensor_map.tensor if loads else tensor_map.tensor.store_view
    box = tensor_map.box
    if tensor_map.is_padded:
        column = start.coordinates[0]
        start = replace(start, coordinates=(column if column % 2 else column // 2, *start.coordinates[1:]))
        box = *box[:-1], box[-1] // 2
    check_alignment(operation_name, start.coordinates[0], tensor.itemsize)
    if not loads:
        check_sign(operation_name, start.coordinates[::-1], "coordinates")
    if own & 127 or (box[-1] * tensor.itemsize) & 15:
        raise fault(
            "misaligned address", f"{step.statement.opcode} at byte {own} of shared memory: must be a multiple of 128", step
        )
    addresses, inside = start.addresses(tensor, box)
    padding = np.zeros(tensor.itemsize, np.uint8)
    if loads and inside is not None:
        padding = np.ascontiguousarray(tensor.padding(operation_name, np.dtype(f"u{tensor.itemsize}"))).reshape(1).view(np.uint8)
    elements = np.arange(addresses.size)
    elements = elements // 8 * 16 + elements % 8 if tensor_map.is_padded else elements
    places = swizzle_addresses(own + tensor.itemsize * elements, tensor_map.swizzle)
    flat = None if inside is None else inside.reshape(-1)
    return Box(addresses.reshape(-1), flat, tensor.itemsize, places, padding, tensor_map.kind, tensor)


@instruction("tensormap")
def _tensor_map(reader: StatementReader) -> ThreadStep | None:
    """tensormap.replace in shared memory, and tensormap.cp_fenceproxy to global memory, where copies find it."""
    names, operands, statement = reader.modifiers, reader.operands, reader.statement
    if names[0] == "cp_fenceproxy":
        target, source = reader.address(operands[0]), reader.address(operands[1])

        def publish(active: Active, step: ThreadStep) -> None:
            machine = active.machine
            places = zip(active.threads.tolist(), active.read(target[0]).tolist(), active.read(source[0]).tolist(), strict=True)
            for thread, place, own in places:
                fields = machine.map_fields.get((int(machine.cta[thread]), own + source[1] & 0xFFFFFFFF))
                if fields is not None:
                    machine.tensor_maps[place + target[1]] = TensorMapFields(dict(fields.fields)).read(step)

        reads = tuple(base for base, _ in (target, source) if isinstance(base, str))
        return ThreadStep(statement, reads, (), lambda: None, execute=publish)
    if names[:2] != ["replace", "tile"] or "shared::cta" not in names:
        return None
    name, (base, offset) = names[2], reader.address(operands[0])
    place = int(operands[1], 0) if len(operands) > 2 else 0
    value = reader.operand(operands[-1], names[-1])

    def replace(active: Active, step: ThreadStep) -> None:
        machine = active.machine
        words = active.read(base).tolist(), active.read(value).tolist()
        for thread, own, word in zip(active.threads.tolist(), *words, strict=True):
            fields = machine.map_fields.setdefault((int(machine.cta[thread]), own + offset & 0xFFFFFFFF), TensorMapFields())
            fields.fields[name, place] = word

    reads = tuple(each for each in (base, value) if isinstance(each, str))
    return ThreadStep(statement, reads, (), lambda: None, execute=replace)


__all__ = ["DTYPES_OF", "Box", "CopyStart", "TensorMap", "TensorMapFields", "host_map", "swizzle_addresses", "tensor_box"]

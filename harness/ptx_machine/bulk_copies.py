"""Copies of the async proxy: cp.async.bulk, tiles through tensor maps, their groups (PTX ISA 9.7.9.25 to 9.7.9.28, 5.5).

Where a box lies in the tensor and what is outside of it are the emulated GPU's own rules (`memory.tensor_maps.Descriptor`). In
shared memory a box is dense, with the units of 16 bytes of each row exchanged as its swizzle says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bitverdict.harness.emulator.async_rules import TMA_LOAD, TMA_STORE, rule_of
from bitverdict.harness.emulator.memory.tensor_maps import Descriptor, check_alignment, check_sign
from bitverdict.harness.emulator.ptx.opcodes import DTYPES, UnknownOpcode, Words
from bitverdict.harness.ptx_machine.access import check_flight, load_global, other_end, raise_race, store_global
from bitverdict.harness.ptx_machine.atomics import operation_of
from bitverdict.harness.ptx_machine.mbarriers import BulkWrite, barrier_at
from bitverdict.harness.ptx_machine.program import StatementReader, ThreadStep, fault, instruction

if TYPE_CHECKING:
    from bitverdict.harness.ptx_machine.threads import Active, Threads

_CACHES = ("L2::cache_hint",)
TYPES = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32", "tf32", "tf32")  # elements, by CUDA's number
DEVICE_TYPES = (0, 1, 2, 3, 4, 5, 6, 7, 10, 8, 9, 11, 12)  # CUDA's number, by that of tensormap.replace.elemtype
SWIZZLES = {
    0: 0,
    1: 1,
    2: 3,
    3: 7,
}  # bits of the row within its 8 that are exchanged into units of 16 bytes: none, 32, 64, 128 bytes


def swizzle_addresses(addresses: np.ndarray, mode: int) -> np.ndarray:
    """Where the bytes at `addresses` of shared memory lie under swizzle `mode` of a tensor map."""
    return addresses ^ ((addresses >> 7 & SWIZZLES[mode]) << 4)


@dataclass(frozen=True)
class TensorMap:
    """A tensor, outermost axis first, and the box that a copy takes of it."""

    tensor: Descriptor
    box: tuple[int, ...]
    swizzle: int
    kind: str  # of its elements, as PTX writes it


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
    if meta.get("fp4_padded") or meta.get("is_im2col"):
        raise fault_of_map("padded fp4 elements" if meta.get("fp4_padded") else "im2col mode")
    box, swizzle, kind = cast(Sequence[int], meta["block_size"]), cast(int, meta["swizzle"]), cast(int, meta["elem_type"])
    return TensorMap(tensor, tuple(box), swizzle, TYPES[DEVICE_TYPES[kind]])


def fault_of_map(what: str) -> UnknownOpcode:
    return UnknownOpcode(f"a tensor map with {what} is not executed here")


@dataclass(eq=False)
class BulkGroupRead:
    """What a bulk store of `thread` reads of shared memory, until its group has been waited for."""

    step: ThreadStep
    thread: int
    group: int
    units: np.ndarray
    number: int


def _operand_parts(text: str) -> list[str]:
    """The parts of "[%rd1, {%r1, %r2}]"."""
    inside = text.strip()[1:-1]
    head, brace, rest = inside.partition("{")
    parts = [head.strip().rstrip(",").strip()]
    return parts + [part.strip() for part in rest.rstrip("} ").split(",")] if brace else parts


@instruction("cp")
def _bulk(reader: StatementReader) -> ThreadStep | None:
    """cp.async.bulk and cp.reduce.async.bulk, of bytes and of tiles, their groups and waits."""
    names, statement = reader.modifiers, reader.statement
    if "bulk" not in names or "prefetch" in names:
        return None
    if "commit_group" in names:
        return ThreadStep(statement, (), (), lambda: None, execute=_commit)
    if "wait_group" in names:
        reader.accept("async", "bulk", "wait_group", "read")
        return ThreadStep(statement, (), (), lambda: None, execute=_wait, options=int(reader.operands[0], 0))
    reduces = names[0] == "reduce"
    operation = (
        next((name for name in names if name in ("add", "min", "max", "and", "or", "xor", "inc", "dec")), "") if reduces else ""
    )
    rank = next((name for name in names if name in ("1d", "2d", "3d", "4d", "5d")), "")
    kinds = tuple(name for name in names if not rank and name in DTYPES_OF)
    reader.accept(
        "async", "bulk", "reduce", "tensor", rank, "tile", "global", "shared::cta", "shared::cluster", "bulk_group",
        "mbarrier::complete_tx::bytes", operation, *kinds, *_CACHES,
    )  # fmt: skip
    if (rank == "") != ("tensor" not in names) or (reduces and not operation):
        return None
    operands = list(reader.operands)
    if "L2::cache_hint" in names:
        operands.pop()
    if len(operands) < 2 or not (names[-1] == "bulk_group" or "bulk_group" in names or "mbarrier::complete_tx::bytes" in names):
        return None
    loads = "mbarrier::complete_tx::bytes" in names
    far, near = (operands[1], operands[0]) if loads else (operands[0], operands[1])
    shared = reader.address(near)
    base, *starts = _operand_parts(far)
    tensor = reader.address(f"[{base}]")
    coordinates = [reader.operand(text, "s32") for text in starts]
    barrier = reader.address(operands[-1]) if loads else (np.zeros(1, np.uint32), 0)
    size = None if rank else reader.operand(operands[2], "u32")
    if rank and len(coordinates) != int(rank[0]):
        return None

    def execute(active: Active, step: ThreadStep) -> None:
        machine = active.machine

        def addresses(place: tuple[str | Words, int]) -> list[int]:
            return (active.read(place[0]).astype(np.int64) + place[1]).tolist()

        at = [active.read(each).view(np.int32).tolist() for each in coordinates]
        sizes = [0] * len(active.threads) if size is None else active.read(size).tolist()
        copies = zip(active.threads.tolist(), addresses(shared), addresses(tensor), addresses(barrier), sizes, strict=True)
        for number, (thread, own, far_address, barrier_address, count) in enumerate(copies):
            if rank:
                box = _box(machine, step, thread, far_address, [words[number] for words in at][::-1], own & 0xFFFFFFFF, loads)
            else:
                if (far_address | own | count) & 15:
                    raise fault("misaligned address", f"{step.statement.opcode} of {count} bytes: all are multiples of 16", step)
                unit = DTYPES_OF[kinds[0]] if kinds else 16
                positions = np.arange(count // unit)
                box = _Box(
                    far_address + unit * positions,
                    None,
                    unit,
                    (own & 0xFFFFFFFF) + unit * positions,
                    np.zeros(unit, np.uint8),
                    "u8",
                )
            if loads:
                _load(machine, step, thread, box, barrier_address & 0xFFFFFFFF)
            else:
                _store(machine, step, thread, box, operation, kinds[0] if kinds else box.kind)

    registers = (shared[0], tensor[0], barrier[0], size, *coordinates)
    reads = tuple(each for each in registers if isinstance(each, str))
    return ThreadStep(statement, reads, (), lambda: None, execute=execute, size=32)


@dataclass(frozen=True)
class _Box:
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


def _box(machine: Threads, step: ThreadStep, thread: int, address: int, starts: Sequence[int], own: int, loads: bool) -> _Box:
    tensor_map = machine.tensor_maps.get(address)
    if tensor_map is None:
        raise fault("illegal instruction", f"{step.statement.opcode} through {address:#x}, where no tensor map lies", step)
    operation_name: Any = _OperationName(step)
    tensor = tensor_map.tensor if loads else tensor_map.tensor.store_view
    check_alignment(operation_name, starts[-1], tensor.itemsize)
    if not loads:
        check_sign(operation_name, starts, "coordinates")
    if own & 127 or (tensor_map.box[-1] * tensor.itemsize) & 15:
        raise fault(
            "misaligned address", f"{step.statement.opcode} at byte {own} of shared memory: must be a multiple of 128", step
        )
    addresses, inside = tensor.box(starts, tensor_map.box)
    padding = np.zeros(tensor.itemsize, np.uint8)
    if loads and inside is not None:
        padding = np.ascontiguousarray(tensor.padding(operation_name, np.dtype(f"u{tensor.itemsize}"))).reshape(1).view(np.uint8)
    places = swizzle_addresses(own + tensor.itemsize * np.arange(prod(tensor_map.box)), tensor_map.swizzle)
    flat = None if inside is None else inside.reshape(-1)
    return _Box(addresses.reshape(-1), flat, tensor.itemsize, places, padding, tensor_map.kind, tensor)


def _bytes_at(offsets: np.ndarray, size: int) -> np.ndarray:
    return (offsets[:, None] + np.arange(size)).reshape(-1)


def _shared_units(machine: Threads, step: ThreadStep, thread: int, box: _Box, verb: str) -> tuple[np.ndarray, np.ndarray]:
    """(offsets in all of shared memory of each element, the units that they lie in)."""
    space = machine.shared
    offsets = space.flat_offsets(step, np.full(len(box.places), thread), box.places, box.size, verb)
    return offsets, np.unique(space.units(offsets, box.size))


def hold_to_proxy(machine: Threads, step: ThreadStep, threads: np.ndarray, units: np.ndarray, verb: str) -> None:
    """A race where one of `threads` lets the async proxy touch its one of `units` and there are generic writes of which it does not
    know that they are over and fenced."""
    judge = machine.shared.judge
    if conflict := judge.with_writer(threads, units, judge.shadow.slots(units)):
        raise_race(machine, step, conflict, "shared memory", verb, judge)
    if conflict := judge.unfenced_write(threads, units):
        message = (
            f"{step.statement.opcode} {verb} byte {conflict.unit * judge.unit} of shared memory through the async proxy, which was "
            "written through the generic one: no fence.proxy.async between them"
        )
        raise fault("race", message, step, rule=rule_of("ordinary store"), **other_end(conflict.other_step))


def _load(machine: Threads, step: ThreadStep, thread: int, box: _Box, barrier_address: int) -> None:
    space, cta = machine.shared, int(machine.cta[thread])
    barrier = barrier_at(machine, step, cta, barrier_address)
    offsets, units = _shared_units(machine, step, thread, box, "write")
    check_flight(machine, step, units, "write")
    hold_to_proxy(machine, step, np.full(len(units), thread), units, "writes")
    if conflict := space.judge.write(step, np.full(len(units), thread), units * space.judge.unit, space.judge.unit):
        raise_race(machine, step, conflict, "shared memory", "writes", space.judge)
    words = np.empty((len(box.places), box.size), np.uint8)
    words[:] = box.padding
    inside = np.arange(len(box.places)) if box.inside is None else np.flatnonzero(box.inside)
    if len(inside):
        loaded = load_global(machine, step, np.full(len(inside), thread), box.addresses[inside], 1, box.size)
        loaded = box.tensor.loaded_values(loaded, None) if box.tensor else loaded
        words[inside] = np.ascontiguousarray(loaded).view(np.uint8).reshape(len(inside), -1)
    number = machine.new_flight(step)
    space.in_flight[units] = number
    barrier.flights.append(BulkWrite(step, _bytes_at(offsets, box.size), words.reshape(-1), units, number))


def _store(machine: Threads, step: ThreadStep, thread: int, box: _Box, operation: str, kind: str) -> None:
    space = machine.shared
    offsets, units = _shared_units(machine, step, thread, box, "read")
    check_flight(machine, step, units, "read")
    hold_to_proxy(machine, step, np.full(len(units), thread), units, "reads")
    inside = np.arange(len(box.places)) if box.inside is None else np.flatnonzero(box.inside)
    held = space.raw.reshape(-1)[offsets[inside, None] + np.arange(box.size)]  # (elements, bytes)
    if len(inside):
        unit = min(box.size, 8)
        words = np.ascontiguousarray(held).view(DTYPES[8 * unit])
        threads = np.full(len(inside), thread)
        if operation:
            compute = operation_of(operation, kind)
            words = compute(load_global(machine, step, threads, box.addresses[inside], 1, box.size), words)
        store_global(machine, step, threads, box.addresses[inside], words)
    number = machine.new_flight(step)
    space.is_read[units] = number
    machine.bulk_reads.append(BulkGroupRead(step, thread, int(machine.bulk_committed[thread]), units, number))


def _commit(active: Active, step: ThreadStep) -> None:
    active.machine.bulk_committed[active.threads] += 1


def _wait(active: Active, step: ThreadStep) -> None:
    """cp.async.bulk.wait_group: what the bulk stores of these threads read may be overwritten, but for the last groups'."""
    machine, remaining_reads = active.machine, []
    waits = np.zeros(machine.lanes, bool)
    waits[active.threads] = True
    for read in machine.bulk_reads:
        if not waits[read.thread] or read.group >= machine.bulk_committed[read.thread] - step.options:
            remaining_reads.append(read)
            continue
        end_read(machine, read.step, read.thread, read.units, read.number)
    machine.bulk_reads = remaining_reads


def end_read(machine: Threads, step: ThreadStep, thread: int, units: np.ndarray, number: int) -> None:
    """An operation of the async proxy that has been waited for by `thread` has read `units`: from here on as if by that thread."""
    space = machine.shared
    space.is_read[units[space.is_read[units] == number]] = 0
    del space.steps[number]
    space.judge.read(step, np.full(len(units), thread), units * space.judge.unit, space.judge.unit)


def refuse_unfinished(machine: Threads) -> None:
    """No CTA ends before what its bulk operations use of its shared memory has been read and written."""
    space = machine.shared
    unfinished = [step for step in space.steps.values() if "bulk" in step.statement.opcode]
    if unfinished:
        step = unfinished[0]
        loads = "complete_tx::bytes" in step.statement.opcode
        message = f"the CTA ends while {step.statement.opcode} is in flight: it was not waited for"
        raise fault("race", message, step, rule=(TMA_LOAD if loads else TMA_STORE).rule.sentence)


# -- tensor maps in memory ----------------------------------------------------------------------------------------------------
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


__all__ = ["TensorMap", "end_read", "hold_to_proxy", "host_map", "refuse_unfinished", "swizzle_addresses"]

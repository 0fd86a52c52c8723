"""Tensor descriptors that a program makes for itself, in scratch memory, and their fence (PTX ISA 9.7.9.27, tensormap.replace;
9.7.13.4, fence.proxy.tensormap)."""

from __future__ import annotations

from bitverdict.harness.emulator.advice import Advice, Note
from bitverdict.harness.emulator.execution.cta import Cta
from bitverdict.harness.emulator.faults import EmulatedFault
from bitverdict.harness.emulator.frontend.translator import NotModelled, Translator, lowers
from bitverdict.harness.emulator.memory.tensor_maps import ALIGNMENT, Descriptor, PlacedDescriptor
from bitverdict.harness.emulator.mlir_reader import Operation

SCRATCH = 1 << 62  # addresses that no tensor has
SPREAD_FP4 = 14  # Triton's element type of fp4 that lands one a byte: sizes count nibbles, coordinates bytes


@lowers("ttg.global_scratch_alloc")
def scratch(t: Translator, op: Operation) -> None:
    t.assign(op, SCRATCH + 4096 * t.scratch_number(op))


@lowers("ttng.tensormap_create")
def create(t: Translator, op: Operation) -> None:
    place, base, _box, sizes, strides, steps = t.operands(op, "place", "base", "box*", "sizes*", "strides*", "steps*")
    pointer = t.require_type(op, op.inputs[1])
    spread = op.integer("elem_type") == SPREAD_FP4
    if op.integer("interleave_layout", 0) or len(sizes) != len(strides) + 1:
        raise NotModelled(op, "interleaved")
    t.machine(op, make, place, base, sizes, strides, steps, pointer.itemsize, spread, op.integer("fill_mode", 0) == 1)


def make(
    m: Cta, op: Operation, place: int, base: int, sizes: tuple[int, ...], strides: tuple[int, ...], steps: tuple[int, ...],
    itemsize: int, spread: bool, nan: bool,
) -> None:  # fmt: skip
    """Encode: sizes innermost first, strides of the others in bytes.

    As measured on an H200 (docs/tma_limits.md): a base off a multiple of 16 bytes is a misaligned address; of a stride the
    descriptor holds whole units of 16 bytes, what is over is dropped and rows are looked for too early. The rest that the hardware
    cannot hold traps as an illegal instruction (assumed)."""
    if base % ALIGNMENT and not spread:
        raise EmulatedFault(
            "misaligned address",
            f"{op.name} with base {base:#x}: must be a multiple of {ALIGNMENT} bytes",
            op.location,
            {"operation": op.brief},
        )
    if not spread and any(stride % ALIGNMENT for stride in strides):
        m.notes.add(Note(Advice.STRIDE_CUT, op.location))
        strides = tuple(stride // ALIGNMENT * ALIGNMENT for stride in strides)
    violations = [f"stride {stride}" for stride in strides if spread and stride % 32]
    violations += [f"base {base:#x}"] if spread and base % 32 else []
    violations += [f"size {size}" for size in sizes if size < 1]
    violations += [f"innermost size {sizes[0]}"] if spread and sizes[0] % 128 else []
    violations += [f"element step {step}" for step in steps if step != 1]
    if violations:
        raise EmulatedFault(
            "illegal instruction",
            f"{op.name} with {', '.join(violations)}: sizes must be at least 1, fp4 beside fp8 in rows of whole 128 "
            "with base and strides in multiples of 32 bytes",
            op.location,
            {"operation": op.brief},
        )
    inner = sizes[0] // 2 if spread else sizes[0]
    shape = (*reversed(sizes[1:]), inner)
    made = Descriptor(base, shape, (*(stride // itemsize for stride in reversed(strides)), 1), itemsize, nan)
    m.tensor_maps[place] = made
    m.unfenced_maps.add(place)


@lowers("ttng.tensormap_fenceproxy_acquire")
def acquire(t: Translator, op: Operation) -> None:
    (place,) = t.operands(op, "place")
    t.machine(op, fence_map, place)


def fence_map(m: Cta, op: Operation, place: int) -> None:
    m.unfenced_maps.discard(place)


@lowers("ttng.reinterpret_tensor_descriptor")
def as_descriptor(t: Translator, op: Operation) -> None:
    (place,) = t.operands(op, "place")
    t.machine(op, descriptor_at, place)


def descriptor_at(m: Cta, _op: Operation, place: int) -> PlacedDescriptor:
    return PlacedDescriptor(m.tensor_maps, m.unfenced_maps, place)

"""TMA that combines a tile of shared memory with one of global memory (PTX ISA, cp.reduce.async.bulk.tensor).

Each element is updated by a relaxed atomic of scope gpu. The order of updates of one element is open: of a sum of floats one order
is taken, with an advice. PTX says nothing of subnormals and NaN. An H100 keeps subnormals of every type, where `atom.add.f32`
counts them as zeros, and the smaller or larger of two floats leaves NaN out (256 pairs of special operands each, 2026-11-22).
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from bitverdict.harness.emulator.advice import Advice, Note
from bitverdict.harness.emulator.async_rules import TMA_REDUCE
from bitverdict.harness.emulator.execution.cta import Cta
from bitverdict.harness.emulator.frontend.lowerings.atomics import on_unsigned_words
from bitverdict.harness.emulator.frontend.lowerings.floats import extremum
from bitverdict.harness.emulator.frontend.translator import NotModelled, Translator, lowers
from bitverdict.harness.emulator.memory.onchip import View
from bitverdict.harness.emulator.memory.real_shadows import ShadowWords
from bitverdict.harness.emulator.memory.real_updates import RealUpdate, combine_unknowns
from bitverdict.harness.emulator.memory.tensor_maps import AnyDescriptor, check_alignment, check_sign
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.mlir_types import Type
from bitverdict.harness.emulator.numerics.real_values import EXTREMES, add
from bitverdict.harness.emulator.numerics.scalar_ops import binary

ADD, MIN, MAX, INC, DEC, BITWISE_AND, BITWISE_OR, XOR = range(1, 9)  # DescriptorReduceKind of TritonAttrDefs.td
_BITS: dict[int, Callable] = {BITWISE_AND: np.bitwise_and, BITWISE_OR: np.bitwise_or, XOR: np.bitwise_xor}


@lowers("ttng.async_tma_reduce")
def reduce(t: Translator, op: Operation) -> None:
    kind, what = t.operand(op, -1), op.integer("kind")
    descriptor, starts, source = t.operands(op, "descriptor", "starts*", "source")
    if what == ADD and kind.is_float:
        t.emit("{}", t.calls(rounds, op))
    signed = not re.search(r"xui\d+", op.operand_types[0])
    t.machine(op, combine, descriptor, starts, source, _update(op, kind, what, signed))


def _update(op: Operation, kind: Type, update_kind: int, is_signed: bool) -> Callable:
    """What becomes of a word there and one of the tile."""
    if kind.format in ("fp32", "fp16", "bf16"):
        if update_kind == ADD:
            return binary(np.add, kind.format)
        if update_kind in (MIN, MAX) and kind.format != "fp32":
            return extremum(kind.format, keep_nan=False, largest=update_kind == MAX)
    elif not kind.is_float and kind.bits in (32, 64):
        if update_kind == ADD:
            return np.add
        if update_kind in _BITS:
            return _BITS[update_kind]
        if update_kind in (MIN, MAX):
            function = np.maximum if update_kind == MAX else np.minimum
            return function if is_signed else on_unsigned_words(function)
        if update_kind == INC and kind.bits == 32:
            return on_unsigned_words(lambda there, most: np.where(there >= most, np.uint32(0), there + np.uint32(1)))
        if update_kind == DEC and kind.bits == 32:
            return on_unsigned_words(lambda there, most: np.where((there == 0) | (there > most), most, there - np.uint32(1)))
    raise NotModelled(op, f"of kind {update_kind} on {kind.element}")


def _real_update(op: Operation, count: int, shadow_words: ShadowWords | None) -> RealUpdate:
    """What the combination leaves of real values: of integers the smaller or larger of two that are known is no matter of these."""
    kind, reduction_kind = op.inputs[-1], op.integer("kind")
    element = kind.element if kind is not None else ""
    if kind is None or not kind.is_float:
        return RealUpdate(element, count, shadow_words, combine_unknowns, exact=True)
    return RealUpdate(
        element,
        count,
        shadow_words,
        {ADD: add, MIN: EXTREMES["arith.minnumf"], MAX: EXTREMES["arith.maxnumf"]}[reduction_kind],
        exact=reduction_kind != ADD,
    )


def rounds(m: Cta, op: Operation) -> None:
    m.notes.add(Note(Advice.ATOMIC_SUM, op.location))


def combine(m: Cta, op: Operation, descriptor: AnyDescriptor, starts: tuple[int, ...], source: View, update: Callable) -> None:
    """A tile of shared memory is combined with that of global memory at `starts`, where it lies inside the tensor, and in what is
    left of a row's last 16 bytes."""
    tensor_map = descriptor.tensor_map(op)
    check_alignment(op, starts[-1], tensor_map.itemsize)
    check_sign(op, starts, "coordinates")
    sizes = (*(1,) * (len(starts) - len(source.shape)), *source.shape)
    addresses, inside = tensor_map.store_view.box(starts, sizes)
    agent = m.state.agent
    flight = m.onchip.begin(op, TMA_REDUCE, reads=(source,))
    landings = m.memory.issue_update(op, addresses, inside, source.dtype.itemsize, agent)

    def land() -> None:
        reals = None
        if m.launch.real_access is not None:
            reals = _real_update(op, addresses.size, source.shadow_words())
        m.memory.land_update(landings, source.get().reshape(addresses.shape), update, reals)

    m.flights.issue(flight, land)
    agent.groups.commit(TMA_REDUCE.group)
    m.tma.note_issue(landings)

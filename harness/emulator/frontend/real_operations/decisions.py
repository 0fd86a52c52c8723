"""Where a program decides by floats: comparisons, conversions to integers, bit casts, and what chooses by their results."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bitverdict.harness.emulator.frontend.carried_reals import CarriedReals, carries
from bitverdict.harness.emulator.frontend.lowerings.floats import outcome
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.numerics import real_decisions
from bitverdict.harness.emulator.numerics.scalar_ops import int_from_float


@carries("arith.cmpf")
def compare(r: CarriedReals, op: Operation) -> None:
    run = partial(outcome, op.integer("predicate"))
    r.hold(op, r.t.calls(real_decisions.comparison_taint, op, r.t.value(op.results[0]), run, *r.reals_of(op)))


@carries("arith.fptosi", "arith.fptoui")
def to_integer(r: CarriedReals, op: Operation) -> None:
    run = int_from_float(None, r.t.result(op).bits, is_signed=op.name == "arith.fptosi")
    r.hold(op, r.t.calls(real_decisions.to_integer, op, r.t.value(op.results[0]), run, *r.reals_of(op)))


BITCASTS = ("arith.bitcast", "tt.bitcast")
_KEEP = (
    "arith.xori", "arith.select", "tt.reduce", "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "tt.join",
    "tt.split", "tt.gather", "ttg.convert_layout",
)  # fmt: skip
"""What makes words of whole words: exclusive ors exchange two (`tl.sort`)."""
_CHANGE = "arith."
"""What else computes with bits may round by hand."""


@carries(*BITCASTS)
def bitcast(r: CarriedReals, op: Operation) -> None:
    t, source, target = r.t, r.t.operand(op, 0), r.t.result(op)
    (carried_value,) = r.reals_of(op)
    if not source.is_float and not target.is_float:
        r.hold(op, carried_value)
        return
    if source.is_float and source.format == target.format:
        r.hold(op, carried_value)
        return
    if source.is_float:
        carried_value = t.calls(real_decisions.bits_of, op, t.value(op.operands[0]), source.format, carried_value)
    if target.is_float and _of_changed_bits(t.defined, op.operands[0]):
        r.hold(op, t.calls(real_decisions.from_changed_bits, op, t.value(op.results[0]), target.format, carried_value))
        return
    r.hold(
        op,
        t.apply(real_decisions.from_bits, t.value(op.results[0]), target.format, carried_value)
        if target.is_float
        else carried_value,
    )


@carries("tti.experimental_fpsan_embed")
def embed_floats(r: CarriedReals, op: Operation) -> None:
    """A payload hangs on a rounding where its float is not its real value."""
    r.hold(op, r.t.calls(real_decisions.bits_of, op, r.t.value(op.operands[0]), r.t.operand(op, 0).format, *r.reals_of(op)))


@carries("tti.experimental_fpsan_unembed")
def unembed_payloads(r: CarriedReals, op: Operation) -> None:
    """The float is the word that it is: no payload stands for a number that was rounded."""
    r.hold(op, r.t.apply(real_decisions.from_bits, r.t.value(op.results[0]), r.t.result(op).format, *r.reals_of(op)))


def _of_changed_bits(defined: dict[str, Operation], name: str) -> bool:
    """Whether the integer `name` is computed from bits of a float, and is not just these."""
    worklist, visited_names = [(name, False)], set[tuple[str, bool]]()
    while worklist:
        name, is_changed = each = worklist.pop()
        op = defined.get(name)
        if op is None or each in visited_names:
            continue
        visited_names.add(each)
        if op.name in BITCASTS and is_changed:
            return True
        if op.name not in BITCASTS and (op.name in _KEEP or op.name.startswith(_CHANGE)):
            operands = op.operands[1:] if op.name == "arith.select" else op.operands
            worklist += [(operand, is_changed or op.name not in _KEEP) for operand in operands]
    return False


@carries("arith.select")
def select(r: CarriedReals, op: Operation) -> None:
    t, batches = r.t, r.t.batches
    condition, taint = t.value(op.operands[0]), r.real_of(op.operands[0])
    yes, false_value = r.real_of(op.operands[1]), r.real_of(op.operands[2])
    axes = len(t.result(op).shape)
    if t.operand(op, 0).kind == "scalar" and axes and batches is not None and op.operands[0] in batches.varying:
        condition = t.apply(broadcast_condition, condition, axes)
        taint = taint and t.apply(broadcast_condition, taint, axes)
    if t.result(op).is_float:
        r.hold(op, t.apply(real_decisions.choose_real, condition, taint, yes, false_value))
    elif op.results[0] in r.carried:
        same: Any = False if taint is None else t.code("{} == {}", *(t.value(name) for name in op.operands[1:]))
        r.hold(op, t.apply(real_decisions.chosen_words, condition, taint, yes, false_value, same))


def broadcast_condition(condition: np.ndarray | None, axes: int) -> np.ndarray | None:
    """`condition` (count,), of each of several programs, against tensors of `axes` axes."""
    return None if condition is None else np.reshape(condition, (-1, *[1] * axes))


@carries("arith.andi", "arith.ori")
def carry_logic(r: CarriedReals, op: Operation) -> None:
    """Of truth values one that is sure may settle it."""
    if op.results[0] not in r.carried:
        return
    if r.t.result(op).bits != 1:
        r.hold(op, r.taints(op.operands))
        return
    words = tuple(map(r.t.value, op.operands))
    r.hold(op, r.t.apply(real_decisions.combine_logic, *words, *r.reals_of(op), op.name == "arith.ori"))

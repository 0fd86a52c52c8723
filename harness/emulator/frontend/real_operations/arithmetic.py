"""Constants, arithmetic and conversions of floats."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bitverdict.harness.emulator.frontend.carried_reals import CarriedReals, carries
from bitverdict.harness.emulator.frontend.lowerings.integers import constant_word
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.numerics import real_constants, real_conversions, real_values
from bitverdict.harness.emulator.numerics.real_values import Real

_BY_NAME: dict[str, Callable[..., Real]] = {
    "arith.addf": real_values.add, "arith.subf": real_values.subtract, "arith.mulf": real_values.multiply,
    "arith.divf": real_values.divide, "tt.precise_divf": real_values.divide, "tt.approx_divf": real_values.divide,
    "math.fma": real_values.fma, "arith.negf": real_values.negative, "math.absf": real_values.absolute,
    "math.sqrt": real_values.square_root, "tt.precise_sqrt": real_values.square_root, **real_values.EXTREMES,
}  # fmt: skip


@carries(*_BY_NAME)
def arithmetic(r: CarriedReals, op: Operation) -> None:
    r.hold(op, r.t.apply(_BY_NAME[op.name], *r.each(op)))


@carries("arith.constant")
def constant(r: CarriedReals, op: Operation) -> None:
    kind = r.t.result(op)
    if not kind.is_float:
        r.hold(op, None)
        return
    found = real_constants.constant(constant_word(op, kind), kind.format)
    r.hold(op, real_values.taken(lambda part: np.broadcast_to(part, kind.shape), found))


@carries("arith.extf", "arith.truncf", "tt.fp_to_fp")
def convert(r: CarriedReals, op: Operation) -> None:
    """A conversion rounds, and the mathematics does not; unless the reference declares it."""
    target = r.t.result(op)
    (given,) = r.each(op)
    if target.format in r.declared and target.bits < r.t.operand(op, 0).bits:
        r.hold(op, r.t.calls(real_conversions.declared, op, given, target.format))
    else:
        r.hold(op, given)


@carries("arith.sitofp", "arith.uitofp")
def from_integer(r: CarriedReals, op: Operation) -> None:
    value, (taint,) = r.t.value(op.operands[0]), r.each(op)
    signed = op.name == "arith.sitofp"
    r.hold(op, r.t.apply(real_conversions.from_integer, value, taint, r.t.operand(op, 0).bits, signed))

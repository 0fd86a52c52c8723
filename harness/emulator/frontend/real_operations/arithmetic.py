"""Constants, arithmetic and conversions of floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bitverdict.harness.emulator.frontend.carried_reals import CarriedReals, carries
from bitverdict.harness.emulator.frontend.lowerings.integers import constant_word
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.numerics import real_constants, real_conversions, real_values
from bitverdict.harness.emulator.numerics.real_values import Real

_BY_NAME: dict[str, Callable[..., Real]] = {
    "arith.addf": real_values.add, "arith.subf": real_values.subtract, "arith.divf": real_values.divide,
    "tt.precise_divf": real_values.divide, "tt.approx_divf": real_values.divide, "math.fma": real_values.fma,
    "arith.negf": real_values.negative, "math.absf": real_values.absolute, "math.sqrt": real_values.square_root,
    "tt.precise_sqrt": real_values.square_root, **real_values.EXTREMES,
}  # fmt: skip


@carries(*_BY_NAME)
def arithmetic(r: CarriedReals, op: Operation) -> None:
    r.hold(op, r.t.apply(_BY_NAME[op.name], *r.reals_of(op)))


@carries("arith.mulf")
def product(r: CarriedReals, op: Operation) -> None:
    """A product by what Triton made of a division by a constant, its reciprocal, is the quotient: a third of 6 is 2."""
    for operand, other in (op.operands, reversed(op.operands)):
        if (divisor := _divisor(r, operand)) is not None:
            r.hold(op, r.t.apply(real_values.divide, r.real_of(other), divisor))
            return
    r.hold(op, r.t.apply(real_values.multiply, *r.reals_of(op)))


def _divisor(r: CarriedReals, name: str) -> Any:
    """The Real of the constant whose reciprocal the value `name` is; None where it is none."""
    definition = r.t.defined.get(name)
    while definition is not None and definition.name == "tt.splat":
        definition = r.t.defined.get(definition.operands[0])
    if definition is None or definition.name != "tt.approx_divf":
        return None
    one, divisor = map(r.t.defined.get, definition.operands)
    if any(each is None or each.name != "arith.constant" for each in (one, divisor)):
        return None
    assert one is not None
    kind = r.t.result(one)
    return r.real_of(definition.operands[1]) if kind.kind == "scalar" and constant_word(one, kind) == 1 else None


@carries("arith.constant")
def constant(r: CarriedReals, op: Operation) -> None:
    kind = r.t.result(op)
    if not kind.is_float:
        r.hold(op, None)
        return
    found = real_constants.constant(constant_word(op, kind), kind.format)
    r.hold(op, real_values.move_real(lambda part: np.broadcast_to(part, kind.shape), found))


@carries("arith.extf", "arith.truncf", "tt.fp_to_fp")
def convert(r: CarriedReals, op: Operation) -> None:
    """A conversion rounds, and the mathematics does not; unless the reference declares it."""
    target = r.t.result(op)
    (given,) = r.reals_of(op)
    if target.format in r.declared and target.bits < r.t.operand(op, 0).bits:
        r.hold(op, r.t.calls(real_conversions.round_declared, op, given, target.format, r.t.arch))
    else:
        r.hold(op, given)


@carries("arith.sitofp", "arith.uitofp")
def from_integer(r: CarriedReals, op: Operation) -> None:
    value, (taint,) = r.t.value(op.operands[0]), r.reals_of(op)
    signed = op.name == "arith.sitofp"
    r.hold(op, r.t.apply(real_conversions.from_integer, value, taint, r.t.operand(op, 0).bits, signed))


@carries("ub.poison")
def poison(r: CarriedReals, op: Operation) -> None:
    """Nothing is known of it, and nothing is said unless it is used."""
    kind = r.t.result(op)
    r.hold(op, real_values.unknown(np.zeros(kind.shape)) if kind.is_float else np.ones(kind.shape, np.bool_))

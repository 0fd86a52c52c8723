"""Reductions and scans."""

from __future__ import annotations

import numpy as np

from bitverdict.harness.emulator.frontend.carried_reals import CarriedReals, carries
from bitverdict.harness.emulator.frontend.lowerings.reductions import only
from bitverdict.harness.emulator.frontend.real_operations.shapes import differs
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.numerics import real_values
from bitverdict.harness.emulator.numerics.real_values import Real

_EXTREMES = {
    "arith.maxnumf": np.fmax, "arith.minnumf": np.fmin, "arith.maximumf": np.maximum, "arith.minimumf": np.minimum,
}  # fmt: skip


def largest(real: Real, axis: int, ufunc: np.ufunc) -> Real:
    """The extreme along `axis`: off by no more than the worst of its elements."""
    return Real(ufunc.reduce(real.value, axis), None if real.error is None else np.maximum.reduce(real.error, axis))


@carries("tt.reduce")
def reduce(r: CarriedReals, op: Operation) -> None:
    alone, axis = only(op), op.integer("axis") + differs(r, op)
    if alone is None or len(op.results) != 1 or not r.t.operand(op, 0).is_float:
        r.lost(op)
        return
    (given,) = r.each(op)
    if alone.name == "arith.addf":
        r.hold(op, r.t.apply(real_values.summed, given, axis))
    elif alone.name in _EXTREMES:
        r.hold(op, r.t.apply(largest, given, axis, _EXTREMES[alone.name]))
    else:
        r.lost(op)

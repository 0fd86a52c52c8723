"""Comparisons and logic: bools, and where they hang.

`hangs`: the operands are nearer than float64's running errors, so the mathematics is not known. `loose`: the intervals of the words
meet, so implementations may differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bitverdict.reference.tracing.arrays import Traced, array, either, pair
from bitverdict.reference.tracing.dtypes import BOOL
from bitverdict.reference.tracing.results import errors, if_any, integers, overlaps, real, spread
from bitverdict.reference.tracing.state import Trace, operation

COMPARISONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "equal": np.equal,
    "not_equal": np.not_equal,
}


def compared(trace: Trace, name: str, x1: Any, x2: Any) -> Traced:
    left, right = pair(trace, x1, x2)
    if not left.is_float and not right.is_float:
        if left.dtype.kind == "integer" == right.dtype.kind:
            value = COMPARISONS[name](left.value, right.value)  # NumPy compares int64 with uint64 by value
            return Traced(trace, BOOL, np.asarray(value), hangs=spread(value.shape, left.hangs, right.hangs),
                          loose=spread(value.shape, left.loose, right.loose))  # fmt: skip
        return integers(trace, COMPARISONS[name], left, right, BOOL)
    left, right = real(left), real(right)
    with np.errstate(invalid="ignore"):
        value = np.asarray(COMPARISONS[name](left.value, right.value))
        hangs = loose = None
        if left.error is not None or right.error is not None:
            hangs = np.abs(left.value - right.value) <= errors(left) + errors(right)
            hangs = if_any(hangs | ~np.isfinite(errors(left) + errors(right)))
        if left.low is not None or right.low is not None:
            loose = overlaps(left.ends, right.ends) | (np.isnan(left.ends[0]) != np.isnan(left.value))
        loose = either(if_any(loose), left.open, right.open)
    return Traced(trace, BOOL, value, hangs=hangs, loose=None if loose is None else np.broadcast_to(loose, value.shape))


def _put_comparison(name: str) -> None:
    @operation(name)
    def function(trace: Trace, x1: Any, x2: Any) -> Traced:
        return compared(trace, name, x1, x2)

    function.__doc__ = f"{name}(x1, x2): hanging where the operands are nearer than their errors."


for _name in COMPARISONS:
    _put_comparison(_name)


for _name in COMPARISONS:
    _put_comparison(_name)


def logic(trace: Trace, function: Callable, left: Traced, right: Traced) -> Traced:
    """Logic of bools: undecided where both values of an undecided operand matter."""
    value = np.asarray(function(left.value, right.value))

    def open_where(one: np.ndarray | None, other: np.ndarray | None) -> np.ndarray | None:
        if one is None and other is None:
            return None
        mask = np.zeros(value.shape, bool)
        for change_left in [False, True] if one is not None else [False]:
            for change_right in [False, True] if other is not None else [False]:
                a = left.value ^ (one if change_left and one is not None else False)
                b = right.value ^ (other if change_right and other is not None else False)
                mask = mask | (function(a, b) != value)
        return if_any(mask)

    return Traced(trace, BOOL, value, hangs=open_where(left.hangs, right.hangs), loose=open_where(left.loose, right.loose))


def _put_logic(name: str, function: Callable) -> None:
    @operation(name)
    def found(trace: Trace, x1: Any, x2: Any) -> Traced:
        return logic(trace, function, truth(array(trace, x1)), truth(array(trace, x2)))

    found.__doc__ = f"{name}(x1, x2) of bools."


_put_logic("logical_and", np.logical_and)


_put_logic("logical_or", np.logical_or)


_put_logic("logical_xor", np.logical_xor)


def truth(x: Traced) -> Traced:
    """As bool: whether it is not zero."""
    return x if x.dtype.kind == "bool" else compared(x.trace, "not_equal", x, 0)


@operation("logical_not")
def logical_not(trace: Trace, x: Any) -> Traced:
    """not x."""
    x = truth(array(trace, x))
    return Traced(trace, BOOL, ~x.value, hangs=x.hangs, loose=x.loose)


def _put_test(name: str, function: Callable) -> None:
    @operation(name)
    def found(trace: Trace, x: Any) -> Traced:
        x = array(trace, x)
        if not x.is_float:
            return Traced(trace, BOOL, np.full(x.shape, name == "isfinite"))
        value = function(x.value)
        low, high = x.ends
        loose = None if x.low is None else if_any((function(low) != value) | (function(high) != value))
        hangs = None if x.error is None else if_any(np.isinf(x.error))
        return Traced(trace, BOOL, value, hangs=hangs, loose=either(loose, x.open))

    found.__doc__ = f"{name}(x)."


_put_test("isnan", np.isnan)


_put_test("isinf", np.isinf)


_put_test("isfinite", np.isfinite)

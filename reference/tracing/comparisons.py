"""Comparisons and logic: bools, and where they hang.

`hangs`: the operands are nearer than float64's running errors, so the mathematics is not known. `loose`: the intervals of the words
meet, so implementations may differ.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bitverdict.reference.tracing.arrays import Operand, TracedArray, array, pair, union_masks
from bitverdict.reference.tracing.dtypes import BOOL
from bitverdict.reference.tracing.results import errors, integers, nonempty_mask, overlaps, real, spread
from bitverdict.reference.tracing.state import Trace, operation

COMPARISONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "equal": np.equal,
    "not_equal": np.not_equal,
}


def compare(trace: Trace, name: str, x1: Operand, x2: Operand) -> TracedArray:
    left, right = pair(trace, x1, x2)
    if not left.is_float and not right.is_float:
        if left.dtype.kind == "integer" == right.dtype.kind:
            value = COMPARISONS[name](left.value, right.value)  # NumPy compares int64 with uint64 by value
            return TracedArray(trace, BOOL, np.asarray(value), hangs=spread(value.shape, left.hangs, right.hangs),
                          words_differ=spread(value.shape, left.words_differ, right.words_differ))  # fmt: skip
        return integers(trace, COMPARISONS[name], left, right, BOOL)
    left, right = real(left), real(right)
    with np.errstate(invalid="ignore"):
        value = np.asarray(COMPARISONS[name](left.value, right.value))
        hangs = words_differ = None
        if left.error is not None or right.error is not None:
            hangs = np.abs(left.value - right.value) <= errors(left) + errors(right)
            hangs = nonempty_mask(hangs | ~np.isfinite(errors(left) + errors(right)))
        if left.low is not None or right.low is not None:
            words_differ = overlaps(left.ends, right.ends) | (np.isnan(left.ends[0]) != np.isnan(left.value))
        words_differ = union_masks(nonempty_mask(words_differ), left.open, right.open)
    return TracedArray(
        trace, BOOL, value, hangs=hangs, words_differ=None if words_differ is None else np.broadcast_to(words_differ, value.shape)
    )


def _put_comparison(name: str) -> None:
    @operation(name)
    def function(trace: Trace, x1: Operand, x2: Operand) -> TracedArray:
        return compare(trace, name, x1, x2)

    function.__doc__ = f"{name}(x1, x2): hanging where the operands are nearer than their errors."


for _name in COMPARISONS:
    _put_comparison(_name)


for _name in COMPARISONS:
    _put_comparison(_name)


def logic(trace: Trace, function: Callable[..., np.ndarray], left: TracedArray, right: TracedArray) -> TracedArray:
    """Logic of bools: undecided where both values of an undecided operand matter."""
    value = np.asarray(function(left.value, right.value))

    def open_where(left_mask: np.ndarray | None, right_mask: np.ndarray | None) -> np.ndarray | None:
        if left_mask is None and right_mask is None:
            return None
        mask = np.zeros(value.shape, bool)
        for change_left in [False, True] if left_mask is not None else [False]:
            for change_right in [False, True] if right_mask is not None else [False]:
                a = left.value ^ (left_mask if change_left and left_mask is not None else False)
                b = right.value ^ (right_mask if change_right and right_mask is not None else False)
                mask = mask | (function(a, b) != value)
        return nonempty_mask(mask)

    return TracedArray(
        trace,
        BOOL,
        value,
        hangs=open_where(left.hangs, right.hangs),
        words_differ=open_where(left.words_differ, right.words_differ),
    )


def _put_logic(name: str, function: Callable[..., np.ndarray]) -> None:
    @operation(name)
    def traced_logic(trace: Trace, x1: Operand, x2: Operand) -> TracedArray:
        return logic(trace, function, truth(array(trace, x1)), truth(array(trace, x2)))

    traced_logic.__doc__ = f"{name}(x1, x2) of bools."


_put_logic("logical_and", np.logical_and)


_put_logic("logical_or", np.logical_or)


_put_logic("logical_xor", np.logical_xor)


def truth(x: TracedArray) -> TracedArray:
    """As bool: whether it is not zero."""
    return x if x.dtype.kind == "bool" else compare(x.trace, "not_equal", x, 0)


@operation("logical_not")
def logical_not(trace: Trace, x: Operand) -> TracedArray:
    """not x."""
    x = truth(array(trace, x))
    return TracedArray(trace, BOOL, ~x.value, hangs=x.hangs, words_differ=x.words_differ)


def _put_test(name: str, function: Callable[..., np.ndarray]) -> None:
    @operation(name)
    def traced_test(trace: Trace, x: Operand) -> TracedArray:
        x = array(trace, x)
        if not x.is_float:
            return TracedArray(trace, BOOL, np.full(x.shape, name == "isfinite"))
        value = function(x.value)
        low, high = x.ends
        loose = None if x.low is None else nonempty_mask((function(low) != value) | (function(high) != value))
        hangs = None if x.error is None else nonempty_mask(np.isinf(x.error))
        return TracedArray(trace, BOOL, value, hangs=hangs, words_differ=union_masks(loose, x.open))

    traced_test.__doc__ = f"{name}(x)."


_put_test("isnan", np.isnan)


_put_test("isinf", np.isinf)


_put_test("isfinite", np.isfinite)

"""The largest and smallest along axes, and whether any or all are true."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bitverdict.reference.tracing.arrays import Operand, TracedArray, array
from bitverdict.reference.tracing.comparisons import truth
from bitverdict.reference.tracing.dtypes import BOOL
from bitverdict.reference.tracing.reductions import Axis, axes_of, sum
from bitverdict.reference.tracing.results import nonempty_mask, undecided_beside_nan
from bitverdict.reference.tracing.state import Trace, operation


def _extreme(trace: Trace, function: Callable[..., np.ndarray], x: Operand, axis: Axis, keepdims: bool) -> TracedArray:
    x = array(trace, x)
    axes = axes_of(x, axis)

    def reduce_axes(part: np.ndarray) -> np.ndarray:
        return np.asarray(function(part, axis=axes, keepdims=keepdims))

    def reduce_mask(mask: np.ndarray | None) -> np.ndarray | None:
        return None if mask is None else np.asarray(mask.any(axis=axes, keepdims=keepdims))

    result = TracedArray(
        trace,
        x.dtype,
        reduce_axes(x.value),
        hangs=reduce_mask(x.hangs),
        words_differ=reduce_mask(x.words_differ),
        open=reduce_mask(x.open),
    )
    if not x.is_float:
        return result
    if x.error is not None:
        result.error = x.error.max(axis=axes, keepdims=keepdims)
    if x.low is not None:
        result.low, result.high = reduce_axes(x.ends[0]), reduce_axes(x.ends[1])
    nan = np.isnan(x.value)
    return undecided_beside_nan(result, nan.any(axis=axes, keepdims=keepdims) & ~nan.all(axis=axes, keepdims=keepdims))


@operation("max")
def max_(trace: Trace, x: Operand, /, *, axis: Axis = None, keepdims: bool = False) -> TracedArray:
    """The largest; nothing is decided beside a NaN."""
    return _extreme(trace, np.max, x, axis, keepdims)


@operation("min")
def min_(trace: Trace, x: Operand, /, *, axis: Axis = None, keepdims: bool = False) -> TracedArray:
    """The smallest; nothing is decided beside a NaN."""
    return _extreme(trace, np.min, x, axis, keepdims)


def _of_bools(
    trace: Trace, function: Callable[..., np.ndarray], x: Operand, axis: Axis, keepdims: bool, decides: bool
) -> TracedArray:
    """`any` or `all`: an element that is `decides` and sure decides alone."""
    x = truth(array(trace, x))
    axes = axes_of(x, axis)
    value = np.asarray(function(x.value, axis=axes, keepdims=keepdims))

    def mask(open_: np.ndarray | None) -> np.ndarray | None:
        if open_ is None:
            return None
        sure = ((x.value == decides) & ~open_).any(axis=axes, keepdims=keepdims)
        return nonempty_mask(open_.any(axis=axes, keepdims=keepdims) & ~sure)

    return TracedArray(trace, BOOL, value, hangs=mask(x.hangs), words_differ=mask(x.words_differ))


@operation("any")
def reduce_any(trace: Trace, x: Operand, /, *, axis: Axis = None, keepdims: bool = False) -> TracedArray:
    """Whether an element is true."""
    return _of_bools(trace, np.any, x, axis, keepdims, True)


@operation("all")
def reduce_all(trace: Trace, x: Operand, /, *, axis: Axis = None, keepdims: bool = False) -> TracedArray:
    """Whether all elements are true."""
    return _of_bools(trace, np.all, x, axis, keepdims, False)


@operation("count_nonzero")
def count_nonzero(trace: Trace, x: Operand, /, *, axis: Axis = None, keepdims: bool = False) -> TracedArray:
    """How many elements are not zero."""
    return sum(trace, truth(array(trace, x)), axis=axis, keepdims=keepdims)

"""The largest and smallest along axes, and whether any or all are true."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bitverdict.reference.tracing.arrays import Traced, array
from bitverdict.reference.tracing.comparisons import truth
from bitverdict.reference.tracing.dtypes import BOOL
from bitverdict.reference.tracing.reductions import Axis, axes_of, sum
from bitverdict.reference.tracing.results import if_any, undecided_beside_nan
from bitverdict.reference.tracing.state import Trace, operation


def _extreme(trace: Trace, function: Callable, x: Any, axis: Axis, keepdims: bool) -> Traced:
    x = array(trace, x)
    axes = axes_of(x, axis)

    def each(part: np.ndarray) -> np.ndarray:
        return np.asarray(function(part, axis=axes, keepdims=keepdims))

    def any_of(mask: np.ndarray | None) -> np.ndarray | None:
        return None if mask is None else np.asarray(mask.any(axis=axes, keepdims=keepdims))

    found = Traced(trace, x.dtype, each(x.value), hangs=any_of(x.hangs), loose=any_of(x.loose), open=any_of(x.open))
    if not x.is_float:
        return found
    if x.error is not None:
        found.error = x.error.max(axis=axes, keepdims=keepdims)
    if x.low is not None:
        found.low, found.high = each(x.ends[0]), each(x.ends[1])
    nan = np.isnan(x.value)
    return undecided_beside_nan(found, nan.any(axis=axes, keepdims=keepdims) & ~nan.all(axis=axes, keepdims=keepdims))


@operation("max")
def max_(trace: Trace, x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Traced:
    """The largest; nothing is decided beside a NaN."""
    return _extreme(trace, np.max, x, axis, keepdims)


@operation("min")
def min_(trace: Trace, x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Traced:
    """The smallest; nothing is decided beside a NaN."""
    return _extreme(trace, np.min, x, axis, keepdims)


def _of_bools(trace: Trace, function: Callable, x: Any, axis: Axis, keepdims: bool, decides: bool) -> Traced:
    """`any` or `all`: an element that is `decides` and sure decides alone."""
    x = truth(array(trace, x))
    axes = axes_of(x, axis)
    value = np.asarray(function(x.value, axis=axes, keepdims=keepdims))

    def mask(open_: np.ndarray | None) -> np.ndarray | None:
        if open_ is None:
            return None
        sure = ((x.value == decides) & ~open_).any(axis=axes, keepdims=keepdims)
        return if_any(open_.any(axis=axes, keepdims=keepdims) & ~sure)

    return Traced(trace, BOOL, value, hangs=mask(x.hangs), loose=mask(x.loose))


@operation("any")
def any_(trace: Trace, x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Traced:
    """Whether an element is true."""
    return _of_bools(trace, np.any, x, axis, keepdims, True)


@operation("all")
def all_(trace: Trace, x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Traced:
    """Whether all elements are true."""
    return _of_bools(trace, np.all, x, axis, keepdims, False)


@operation("count_nonzero")
def count_nonzero(trace: Trace, x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Traced:
    """How many elements are not zero."""
    return sum(trace, truth(array(trace, x)), axis=axis, keepdims=keepdims)

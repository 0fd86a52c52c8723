"""Sums and products of the first elements along an axis, each in any order (`reductions.py`)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bitverdict.reference.tracing.accumulation import MARGIN, widen_ends
from bitverdict.reference.tracing.arrays import Operand, TracedArray, array
from bitverdict.reference.tracing.dtypes import BY_FORMAT, DType, DTypeLike, Untraceable
from bitverdict.reference.tracing.reductions import lowest_bits
from bitverdict.reference.tracing.results import V, settle_result
from bitverdict.reference.tracing.state import OPERATIONS, Trace, operation


@operation("cumulative_sum")
def cumulative_sum(
    trace: Trace, x: Operand, /, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> TracedArray:
    """Sums of the first 1, 2, ... n elements, each in any order."""
    x, axis = _one_axis(array(trace, x), axis, "cumulative_sum")
    if not x.is_float:
        found = _whole_scan(trace, np.cumsum, x, axis, dtype)
    else:
        found = _scan_of_floats(trace, x, axis)
    return _with_initial(trace, found, axis, 0) if include_initial else found


@operation("cumulative_prod")
def cumulative_prod(
    trace: Trace, x: Operand, /, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> TracedArray:
    """Products of the first 1, 2, ... n elements."""
    x, axis = _one_axis(array(trace, x), axis, "cumulative_prod")
    if not x.is_float:
        result = _whole_scan(trace, np.cumprod, x, axis, dtype)
    else:
        parts, total = [], None
        for place in range(x.shape[axis]):
            one = x.map_elements(lambda each: np.take(each, [place], axis))
            total = one if total is None else OPERATIONS["multiply"](trace, total, one)
            parts.append(total)
        result = OPERATIONS["concat"](trace, parts, axis=axis)
    return _with_initial(trace, result, axis, 1) if include_initial else result


def _one_axis(x: TracedArray, axis: int | None, name: str) -> tuple[TracedArray, int]:
    if axis is None and x.ndim != 1:
        raise Untraceable(name, f"of an array of {x.ndim} axes without axis=")
    return x, 0 if axis is None else axis % x.ndim


def _whole_scan(
    trace: Trace, function: Callable[..., np.ndarray], x: TracedArray, axis: int, dtype: DTypeLike | None
) -> TracedArray:
    wide: DType = BY_FORMAT["uint64" if x.dtype.name.startswith("u") else "int64"]
    masks = [None if mask is None else np.logical_or.accumulate(mask, axis=axis) for mask in (x.hangs, x.words_differ)]
    found = TracedArray(trace, wide, function(x.value.astype(wide.storage_type), axis=axis), hangs=masks[0], words_differ=masks[1])
    return found if dtype is None else OPERATIONS["astype"](trace, found, dtype)


def _scan_of_floats(trace: Trace, x: TracedArray, axis: int) -> TracedArray:
    how = trace.accumulation
    shape = [1] * x.ndim
    shape[axis] = -1
    n = np.arange(1, x.shape[axis] + 1, dtype=np.float64).reshape(shape)
    with np.errstate(all="ignore"):
        value = np.cumsum(x.value, axis=axis)
        size = np.cumsum(np.abs(x.value), axis=axis) * (1 + n * V)
        error = (n - 1) * V * size + (0.0 if x.error is None else np.cumsum(x.error, axis=axis) * (1 + n * V))
        low, high = (np.cumsum(end, axis=axis) for end in x.ends)
        reach = np.cumsum(np.maximum(np.abs(x.ends[0]), np.abs(x.ends[1])), axis=axis) * np.exp(n * how.unit)
        low, high = widen_ends(low, high, 0.0, (n * V + MARGIN) * reach)
        trace.note("cumulative_sum")
        exact = np.zeros(value.shape, bool)
        if x.low is None and x.error is None:
            unit = np.ldexp(1.0, np.clip(np.minimum.accumulate(lowest_bits(x.value), axis=axis), -1000, 900))
            exact = size * how.unit < unit
            error = np.where(size * V < unit, 0.0, error)
            low, high = np.where(exact, value, low), np.where(exact, value, high)
        lost = np.where(exact, 0.0, np.maximum(n - 2, 0) * how.unit * (1 + 2.0**-20) * np.minimum(reach, how.largest))
        low, high = how.outward(*widen_ends(low, high, 0.0, np.where(np.isnan(lost), 0.0, lost)))
        over = reach >= how.largest
        low, high = np.where(over, -np.inf, low), np.where(over, np.inf, high)
        open_ = None if x.open is None else np.logical_or.accumulate(x.open, axis=axis)
        bad = np.logical_or.accumulate(~np.isfinite(x.value), axis=axis)
        found = settle_result(
            trace, value, error, (low, high), (TracedArray(trace, x.dtype, np.where(bad, np.inf, 0.0), open=open_),)
        )
    return found


def _with_initial(trace: Trace, found: TracedArray, axis: int, first: int) -> TracedArray:
    shape = list(found.shape)
    shape[axis] = 1
    start = TracedArray(trace, found.dtype, np.full(shape, first, found.dtype.storage_type))
    return OPERATIONS["concat"](trace, [start, found], axis=axis)

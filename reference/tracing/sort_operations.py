"""Order: sorted elements, and the places of elements, which hang where two intervals meet."""

from __future__ import annotations

from typing import Any

import numpy as np

from bitverdict.reference.tracing.arrays import Operand, TracedArray, array, union_masks
from bitverdict.reference.tracing.dtypes import BY_FORMAT
from bitverdict.reference.tracing.movement import reshape, squeeze
from bitverdict.reference.tracing.results import around, errors, mark_unknown, overlaps
from bitverdict.reference.tracing.state import OPERATIONS, Trace, operation


def _along(x: TracedArray, axis: int, descending: bool) -> Any:
    return (lambda part: np.flip(np.sort(part, axis=axis), axis)) if descending else (lambda part: np.sort(part, axis=axis))


@operation("sort")
def sort(trace: Trace, x: Operand, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> TracedArray:
    """Sorted: the k-th least of the words lies between the k-th least of their ends."""
    x = array(trace, x)
    function = _along(x, axis, descending)
    result = TracedArray(trace, x.dtype, function(x.value))
    if x.error is not None:
        result.error = np.broadcast_to(x.error.max(axis=axis, keepdims=True), x.shape)
    if x.low is not None:
        result.low, result.high = function(x.ends[0]), function(x.ends[1])
    for name in ("hangs", "words_differ", "open"):
        mask = getattr(x, name)
        if mask is not None:
            setattr(result, name, np.broadcast_to(mask.any(axis=axis, keepdims=True), x.shape))
    if x.is_float and np.isnan(x.value).any():
        result = mark_unknown(result, *2 * (np.isnan(x.value).any(axis=axis, keepdims=True),))
    return result


@operation("argsort")
def argsort(trace: Trace, x: Operand, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> TracedArray:
    """The order of the elements; equal ones in their own order, unless not stable: then they hang. An element hangs that may
    change places with a neighbour."""
    x = array(trace, x)
    axis = axis % x.ndim
    if descending:
        order = np.flip(x.shape[axis] - 1 - np.argsort(np.flip(x.value, axis), axis=axis, kind="stable"), axis)
    else:
        order = np.argsort(x.value, axis=axis, kind="stable")
    result = TracedArray(trace, BY_FORMAT["int64"], order.astype(np.int64))
    value = np.take_along_axis(x.value, order, axis)
    if x.is_float and x.error is not None:
        off = np.take_along_axis(x.error, order, axis)
        result.hangs = _meets_neighbour(*around(value, off), axis, descending)
    if x.is_float and x.low is not None:
        low, high = (np.take_along_axis(end, order, axis) for end in x.ends)
        result.words_differ = _meets_neighbour(low, high, axis, descending)
    if not stable:
        ties = _meets_neighbour(value, value, axis, descending, ties=True)
        result.hangs, result.words_differ = union_masks(result.hangs, ties), union_masks(result.words_differ, ties)
    unknown = union_masks(x.open, x.words_differ, np.isnan(x.value) if x.is_float and np.isnan(x.value).any() else None)
    if unknown is not None:
        result.words_differ = union_masks(result.words_differ, np.broadcast_to(unknown.any(axis=axis, keepdims=True), x.shape))
    if x.hangs is not None:
        result.hangs = union_masks(result.hangs, np.broadcast_to(x.hangs.any(axis=axis, keepdims=True), x.shape))
    return result


def _meets_neighbour(low: np.ndarray, high: np.ndarray, axis: int, descending: bool, ties: bool = False) -> np.ndarray:
    """Which of the sorted elements have an interval that meets that of another: of all before, or all after."""
    if descending:
        return np.flip(_meets_neighbour(np.flip(low, axis), np.flip(high, axis), axis, False, ties), axis)
    low, high = np.moveaxis(low, axis, -1), np.moveaxis(high, axis, -1)
    before = np.maximum.accumulate(high, axis=-1)[..., :-1]
    after = np.minimum.accumulate(low[..., ::-1], axis=-1)[..., ::-1][..., 1:]
    meet = before >= after
    if not ties:
        same = (low[..., :-1] == high[..., :-1]) & (low[..., 1:] == high[..., 1:]) & (low[..., 1:] == low[..., :-1])
        meet = meet & ~(same & (before == high[..., :-1]) & (after == low[..., 1:]))
    mask = np.zeros(low.shape, bool)
    mask[..., 1:] |= meet
    mask[..., :-1] |= meet
    return np.moveaxis(mask, -1, axis)


def _place(trace: Trace, x: Operand, axis: int | None, keepdims: bool, largest: bool) -> TracedArray:
    x = array(trace, x)
    if axis is None:
        shape = (1,) * x.ndim if keepdims else ()
        return reshape(trace, _place(trace, reshape(trace, x, (-1,)), 0, False, largest), shape)
    axis = axis % x.ndim
    pick = np.argmax if largest else np.argmin
    place = np.asarray(pick(x.value, axis=axis, keepdims=True))
    result = TracedArray(trace, BY_FORMAT["int64"], place.astype(np.int64))
    others = np.moveaxis(np.arange(x.shape[axis]).reshape([-1] + [1] * (x.ndim - 1)), 0, axis) != place

    def rivals(low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Whether another element may be the one: an exact tie is decided by the first place."""
        best = np.take_along_axis(low, place, axis), np.take_along_axis(high, place, axis)
        reaches: np.ndarray = (high >= best[0] if largest else low <= best[1]) & others & overlaps((low, high), best)
        return np.asarray(reaches.any(axis=axis, keepdims=True))

    if x.is_float and x.error is not None:
        result.hangs = rivals(*around(x.value, x.error))
    if x.is_float and x.low is not None:
        result.words_differ = rivals(*x.ends)
    nan = np.isnan(x.value).any(axis=axis, keepdims=True) if x.is_float else None
    for name, masks in (("hangs", (x.hangs, nan)), ("words_differ", (x.words_differ, x.open, nan))):
        for mask in masks:
            if mask is not None and mask.any():
                setattr(result, name, union_masks(getattr(result, name), mask.any(axis=axis, keepdims=True)))
    return result if keepdims else squeeze(trace, result, axis)


@operation("argmax")
def argmax(trace: Trace, x: Operand, /, *, axis: int | None = None, keepdims: bool = False) -> TracedArray:
    """Where the largest lies, the first of equal ones; hanging where another may be as large."""
    return _place(trace, x, axis, keepdims, True)


@operation("argmin")
def argmin(trace: Trace, x: Operand, /, *, axis: int | None = None, keepdims: bool = False) -> TracedArray:
    """Where the smallest lies, the first of equal ones; hanging where another may be as small."""
    return _place(trace, x, axis, keepdims, False)


@operation("searchsorted")
def searchsorted(trace: Trace, x1: Operand, x2: Operand, /, *, side: str = "left", sorter: Operand | None = None) -> TracedArray:
    """Where x2 belongs in the sorted x1: hanging where an element of x1 may lie on either side."""
    left, right = array(trace, x1), array(trace, x2)
    if sorter is not None:
        left = OPERATIONS["take"](trace, left, sorter)

    def places(sorted_: np.ndarray, sought: np.ndarray) -> np.ndarray:
        return np.asarray(np.searchsorted(sorted_, sought, side=side))  # type: ignore[call-overload]

    result = TracedArray(trace, BY_FORMAT["int64"], places(left.value, right.value).astype(np.int64))
    if left.error is not None or right.error is not None:
        one, other = around(left.value, errors(left)), around(right.value, errors(right))
        result.hangs = places(np.sort(one[1]), other[0]) != places(np.sort(one[0]), other[1])
    if left.low is not None or right.low is not None:
        result.words_differ = places(np.sort(left.ends[1]), right.ends[0]) != places(np.sort(left.ends[0]), right.ends[1])
    for name in ("hangs", "words_differ"):
        if getattr(left, name) is not None or getattr(right, name) is not None:
            setattr(result, name, np.ones(result.shape, bool))
    return result

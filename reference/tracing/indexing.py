"""Elements by their indices. What an index chooses that hangs on a rounding is unknown."""

from __future__ import annotations

from typing import Any

import numpy as np

from bitverdict.reference.tracing.arrays import Operand, TracedArray, array, union_masks
from bitverdict.reference.tracing.dtypes import Untraceable
from bitverdict.reference.tracing.results import mark_unknown
from bitverdict.reference.tracing.state import Trace, operation


def _indices(key: object) -> tuple[Any, list[TracedArray]]:
    """A key of NumPy, and the traced arrays in it."""
    parts, index_arrays = [], []
    for part in key if isinstance(key, tuple) else (key,):
        if isinstance(part, TracedArray):
            if part.is_float:
                raise Untraceable("array.__getitem__", "by floats")
            if part.dtype.kind == "bool" and (part.hangs is not None or part.words_differ is not None or part.ndim):
                raise Untraceable("array.__getitem__", "by a mask: its shape depends on values; use where")
            index_arrays.append(part)
            parts.append(part.value)
        else:
            parts.append(part)
    return tuple(parts), index_arrays


@operation("__getitem__")
def getitem(trace: Trace, x: TracedArray, key: object) -> TracedArray:
    """Slices, integers, None, ..., and arrays of integers."""
    parts, traced = _indices(key)
    result = x.map_elements(lambda each: np.asarray(each[parts]))
    for index in traced:
        if index.hangs is not None or index.words_differ is not None:
            whole = tuple(each.any() for each in (index.hangs, index.words_differ) if each is not None)
            mask = np.full(result.shape, any(whole))
            result = mark_unknown(
                result, mask if index.hangs is not None else None, mask if index.words_differ is not None else None
            )
    return result


@operation("take")
def take(trace: Trace, x: Operand, indices: Operand, /, *, axis: int | None = None) -> TracedArray:
    """Elements at `indices` along an axis."""
    x, indices = array(trace, x), array(trace, indices)
    if axis is None and x.ndim != 1:
        raise Untraceable("take", f"of an array of {x.ndim} axes without axis=")
    axis = 0 if axis is None else axis % x.ndim
    length = x.shape[axis]
    out_of_range = (indices.value >= length) | (indices.value < -length)
    safe = np.where(out_of_range, 0, indices.value).astype(np.int64)
    result = x.map_elements(lambda each: np.take(each, safe, axis))
    shape = [1] * axis + list(safe.shape) + [1] * (x.ndim - axis - 1)

    def spread(mask: np.ndarray | None) -> np.ndarray | None:
        return None if mask is None else mask.reshape(shape)

    unknown = out_of_range if out_of_range.any() else None
    return mark_unknown(result, spread(union_masks(indices.hangs, unknown)), spread(union_masks(indices.words_differ, unknown)))


@operation("take_along_axis")
def take_along_axis(trace: Trace, x: Operand, indices: Operand, /, *, axis: int = -1) -> TracedArray:
    """Along an axis the elements that an array of indices of the same shape names."""
    x, indices = array(trace, x), array(trace, indices)
    found = x.map_elements(lambda each: np.take_along_axis(each, indices.value.astype(np.int64), axis))
    return mark_unknown(found, indices.hangs, indices.words_differ)

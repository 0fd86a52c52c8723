"""Elements by their indices. What an index chooses that hangs on a rounding is unknown."""

from __future__ import annotations

from typing import Any

import numpy as np

from bitverdict.reference.tracing.arrays import Traced, array, either
from bitverdict.reference.tracing.results import marked
from bitverdict.reference.tracing.state import Trace, operation
from bitverdict.reference.tracing.untraceable import Untraceable


def _indices(key: Any) -> tuple[Any, list[Traced]]:
    """A key of NumPy, and the traced arrays in it."""
    parts, traced = [], []
    for part in key if isinstance(key, tuple) else (key,):
        if isinstance(part, Traced):
            if part.is_float:
                raise Untraceable("array.__getitem__", "by floats")
            if part.dtype.kind == "bool" and (part.hangs is not None or part.loose is not None or part.ndim):
                raise Untraceable("array.__getitem__", "by a mask: its shape hangs on values; use where")
            traced.append(part)
            parts.append(part.value)
        else:
            parts.append(part)
    return tuple(parts), traced


@operation("__getitem__")
def getitem(trace: Trace, x: Traced, key: Any) -> Traced:
    """Slices, integers, None, ..., and arrays of integers."""
    parts, traced = _indices(key)
    found = x.moved(lambda each: np.asarray(each[parts]))
    for index in traced:
        if index.hangs is not None or index.loose is not None:
            whole = tuple(each.any() for each in (index.hangs, index.loose) if each is not None)
            mask = np.full(found.shape, any(whole))
            found = marked(found, mask if index.hangs is not None else None, mask if index.loose is not None else None)
    return found


@operation("take")
def take(trace: Trace, x: Any, indices: Any, /, *, axis: int | None = None) -> Traced:
    """Elements at `indices` along an axis."""
    x, indices = array(trace, x), array(trace, indices)
    if axis is None and x.ndim != 1:
        raise Untraceable("take", f"of an array of {x.ndim} axes without axis=")
    axis = 0 if axis is None else axis % x.ndim
    length = x.shape[axis]
    wrong = (indices.value >= length) | (indices.value < -length)
    safe = np.where(wrong, 0, indices.value).astype(np.int64)
    found = x.moved(lambda each: np.take(each, safe, axis))
    shape = [1] * axis + list(safe.shape) + [1] * (x.ndim - axis - 1)

    def spread(mask: np.ndarray | None) -> np.ndarray | None:
        return None if mask is None else mask.reshape(shape)

    wrong = wrong if wrong.any() else None
    return marked(found, spread(either(indices.hangs, wrong)), spread(either(indices.loose, wrong)))


@operation("take_along_axis")
def take_along_axis(trace: Trace, x: Any, indices: Any, /, *, axis: int = -1) -> Traced:
    """Along an axis the elements that an array of indices of the same shape names."""
    x, indices = array(trace, x), array(trace, indices)
    found = x.moved(lambda each: np.take_along_axis(each, indices.value.astype(np.int64), axis))
    return marked(found, indices.hangs, indices.loose)

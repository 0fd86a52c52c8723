"""Operations that move elements: shapes, joins, indices, sorting, and types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bitverdict.reference.tracing.arrays import Traced, array, constant, either
from bitverdict.reference.tracing.dtypes import BOOL, BY_FORMAT, DType, dtype_of, promoted
from bitverdict.reference.tracing.elementwise import errors, overlaps, truth, where
from bitverdict.reference.tracing.extensions import kept_in
from bitverdict.reference.tracing.real_arithmetic import float_type, real
from bitverdict.reference.tracing.state import OPERATIONS, Trace, operation
from bitverdict.reference.tracing.untraceable import Untraceable

FIELDS = ("value", "error", "low", "high", "open", "hangs", "loose", "unchanged")


@operation("reshape")
def reshape(trace: Trace, x: Any, /, shape: Any, *, copy: bool | None = None) -> Traced:
    """Same elements in row-major order."""
    return array(trace, x).moved(lambda each: each.reshape(shape))


@operation("permute_dims")
def permute_dims(trace: Trace, x: Any, /, axes: Sequence[int]) -> Traced:
    """Axes in another order."""
    return array(trace, x).moved(lambda each: np.transpose(each, axes))


@operation("matrix_transpose")
def matrix_transpose(trace: Trace, x: Any, /) -> Traced:
    """The last two axes exchanged."""
    return array(trace, x).moved(lambda each: np.swapaxes(each, -1, -2))


@operation("moveaxis")
def moveaxis(trace: Trace, x: Any, source: Any, destination: Any, /) -> Traced:
    """Axes moved to other places."""
    return array(trace, x).moved(lambda each: np.moveaxis(each, source, destination))


@operation("expand_dims")
def expand_dims(trace: Trace, x: Any, /, *, axis: int = 0) -> Traced:
    """With an axis of length 1."""
    return array(trace, x).moved(lambda each: np.expand_dims(each, axis))


@operation("squeeze")
def squeeze(trace: Trace, x: Any, /, axis: Any) -> Traced:
    """Without axes of length 1."""
    return array(trace, x).moved(lambda each: np.squeeze(each, axis))


@operation("broadcast_to")
def broadcast_to(trace: Trace, x: Any, /, shape: Any) -> Traced:
    """Repeated along axes of length 1 and new ones."""
    return array(trace, x).moved(lambda each: np.broadcast_to(each, shape))


@operation("broadcast_arrays")
def broadcast_arrays(trace: Trace, *arrays: Any) -> list[Traced]:
    """All to the shape that they have together."""
    shape = np.broadcast_shapes(*(array(trace, each).shape for each in arrays))
    return [broadcast_to(trace, each, shape) for each in arrays]


@operation("flip")
def flip(trace: Trace, x: Any, /, *, axis: Any = None) -> Traced:
    """Back to front."""
    return array(trace, x).moved(lambda each: np.flip(each, axis))


@operation("roll")
def roll(trace: Trace, x: Any, /, shift: Any, *, axis: Any = None) -> Traced:
    """Moved round along an axis."""
    return array(trace, x).moved(lambda each: np.roll(each, shift, axis))


@operation("repeat")
def repeat(trace: Trace, x: Any, repeats: Any, /, *, axis: int | None = None) -> Traced:
    """Each element several times."""
    times = repeats.value if isinstance(repeats, Traced) else repeats
    return array(trace, x).moved(lambda each: np.repeat(each, times, axis))


@operation("tile")
def tile(trace: Trace, x: Any, repetitions: Any, /) -> Traced:
    """The whole several times."""
    return array(trace, x).moved(lambda each: np.tile(each, repetitions))


@operation("tril")
def tril(trace: Trace, x: Any, /, *, k: int = 0) -> Traced:
    """Zero above a diagonal."""
    return _masked(trace, x, lambda shape: np.tril(np.ones(shape, bool), k))


@operation("triu")
def triu(trace: Trace, x: Any, /, *, k: int = 0) -> Traced:
    """Zero below a diagonal."""
    return _masked(trace, x, lambda shape: np.triu(np.ones(shape, bool), k))


def _masked(trace: Trace, x: Any, mask: Any) -> Traced:
    x = array(trace, x)
    return where(trace, Traced(trace, BOOL, mask(x.shape[-2:])), x, constant(trace, 0, x.dtype))


@operation("concat")
def concat(trace: Trace, arrays: Sequence[Any], /, *, axis: int | None = 0) -> Traced:
    """One after another along an axis."""
    given = [array(trace, each) for each in arrays]
    if axis is None:
        given, axis = [reshape(trace, each, (-1,)) for each in given], 0
    return _together(trace, given, lambda parts: np.concatenate(parts, axis))


@operation("stack")
def stack(trace: Trace, arrays: Sequence[Any], /, *, axis: int = 0) -> Traced:
    """Side by side along a new axis."""
    return _together(trace, [array(trace, each) for each in arrays], lambda parts: np.stack(parts, axis))


def _together(trace: Trace, given: list[Traced], function: Any) -> Traced:
    dtype = given[0].dtype
    for each in given[1:]:
        dtype = promoted(dtype, each.dtype)
    if dtype.kind == "float" and any(each.dtype != dtype for each in given):
        given = [real(each) for each in given]
        dtype = float_type(trace)
    found = Traced(trace, dtype, function([each.value for each in given]).astype(dtype.stored, copy=False))
    for name in FIELDS[1:]:
        fields = [getattr(each, name) for each in given]
        if any(field is not None for field in fields):
            blank = [_blank(each, name) if field is None else field for each, field in zip(given, fields, strict=True)]
            setattr(found, name, function(blank))
    return found


def _blank(x: Traced, name: str) -> np.ndarray:
    return x.value if name in ("low", "high") else np.zeros(x.shape, np.float64 if name == "error" else bool)


@operation("unstack")
def unstack(trace: Trace, x: Any, /, *, axis: int = 0) -> tuple[Traced, ...]:
    """The slices along an axis."""
    x = array(trace, x)
    return tuple(x.moved(lambda each: np.take(each, place, axis)) for place in range(x.shape[axis]))


@operation("meshgrid")
def meshgrid(trace: Trace, *arrays: Any, indexing: str = "xy") -> list[Traced]:
    """Coordinates of a grid."""
    given = [array(trace, each) for each in arrays]
    order = [1, 0, *range(2, len(given))] if indexing == "xy" and len(given) > 1 else list(range(len(given)))
    shape = [given[place].size for place in order]
    found = []
    for place, each in enumerate(given):
        form = [1] * len(given)
        form[order.index(place)] = -1
        found.append(broadcast_to(trace, reshape(trace, each, form), shape))
    return found


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


def _unknown(found: Traced, hangs: np.ndarray | None, loose: np.ndarray | None) -> Traced:
    """`found`, where an index that chose its elements hangs."""
    if hangs is not None and hangs.any():
        hangs = np.broadcast_to(hangs, found.shape)
        if found.is_float:
            found.error = np.where(hangs, np.inf, errors(found))
        else:
            found.hangs = either(found.hangs, hangs)
    if loose is not None and loose.any():
        loose = np.broadcast_to(loose, found.shape)
        if found.is_float:
            found.open = either(found.open, loose)
        else:
            found.loose = either(found.loose, loose)
    return found


@operation("__getitem__")
def getitem(trace: Trace, x: Traced, key: Any) -> Traced:
    """Slices, integers, None, ..., and arrays of integers."""
    parts, traced = _indices(key)
    found = x.moved(lambda each: np.asarray(each[parts]))
    for index in traced:
        if index.hangs is not None or index.loose is not None:
            whole = tuple(each.any() for each in (index.hangs, index.loose) if each is not None)
            mask = np.full(found.shape, any(whole))
            found = _unknown(found, mask if index.hangs is not None else None, mask if index.loose is not None else None)
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
    return _unknown(found, spread(either(indices.hangs, wrong)), spread(either(indices.loose, wrong)))


@operation("take_along_axis")
def take_along_axis(trace: Trace, x: Any, indices: Any, /, *, axis: int = -1) -> Traced:
    """Along an axis the elements that an array of indices of the same shape names."""
    x, indices = array(trace, x), array(trace, indices)
    found = x.moved(lambda each: np.take_along_axis(each, indices.value.astype(np.int64), axis))
    return _unknown(found, indices.hangs, indices.loose)


@operation("astype")
def astype(trace: Trace, x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Traced:
    """To another type. To a float type: no more than that an implementation may hold it so (`kept_in`); `round_to` is mathematics.
    To integers: toward zero, hanging where a whole number lies inside the error."""
    x, found = array(trace, x), dtype_of(dtype)
    if found == x.dtype:
        return x
    if found.kind == "float":
        if not x.is_float:
            return real(x)
        return kept_in(trace, x, found.format) if found.format not in ("fp64", "fp32", "tf32") else x
    if found.kind == "bool":
        return truth(x)
    if x.is_float:
        whole = OPERATIONS["trunc"](trace, x)
        hangs = None if whole.error is None else np.isinf(whole.error)
        loose = either(whole.open, None if whole.low is None else whole.low != whole.high)
        limits = np.iinfo(np.dtype(found.stored))
        beyond = ~((whole.value >= float(limits.min)) & (whole.value < float(limits.max) + 1))
        if beyond.any():  # what a conversion of such a number gives is the target's own
            hangs, loose = either(hangs, beyond), either(loose, beyond)
        with np.errstate(invalid="ignore"):
            return Traced(trace, found, np.where(beyond, 0.0, whole.value).astype(found.stored), hangs=hangs, loose=loose)
    return Traced(trace, found, x.value.astype(found.stored), hangs=x.hangs, loose=x.loose, unchanged=x.unchanged)


def _along(x: Traced, axis: int, descending: bool) -> Any:
    return (lambda part: np.flip(np.sort(part, axis=axis), axis)) if descending else (lambda part: np.sort(part, axis=axis))


@operation("sort")
def sort(trace: Trace, x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Traced:
    """Sorted: the k-th least of the words lies between the k-th least of their ends."""
    x = array(trace, x)
    function = _along(x, axis, descending)
    found = Traced(trace, x.dtype, function(x.value))
    if x.error is not None:
        found.error = np.broadcast_to(x.error.max(axis=axis, keepdims=True), x.shape)
    if x.low is not None:
        found.low, found.high = function(x.ends[0]), function(x.ends[1])
    for name in ("hangs", "loose", "open"):
        mask = getattr(x, name)
        if mask is not None:
            setattr(found, name, np.broadcast_to(mask.any(axis=axis, keepdims=True), x.shape))
    if x.is_float and np.isnan(x.value).any():
        found = _unknown(found, *2 * (np.isnan(x.value).any(axis=axis, keepdims=True),))
    return found


@operation("argsort")
def argsort(trace: Trace, x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Traced:
    """The order of the elements; equal ones in their own order, unless not stable: then they hang. An element hangs that may
    change places with a neighbour."""
    x = array(trace, x)
    axis = axis % x.ndim
    if descending:
        order = np.flip(x.shape[axis] - 1 - np.argsort(np.flip(x.value, axis), axis=axis, kind="stable"), axis)
    else:
        order = np.argsort(x.value, axis=axis, kind="stable")
    found = Traced(trace, BY_FORMAT["int64"], order.astype(np.int64))
    value = np.take_along_axis(x.value, order, axis)
    if x.is_float and x.error is not None:
        off = np.take_along_axis(x.error, order, axis)
        found.hangs = _near(value - off, value + off, axis, descending)
    if x.is_float and x.low is not None:
        low, high = (np.take_along_axis(end, order, axis) for end in x.ends)
        found.loose = _near(low, high, axis, descending)
    if not stable:
        ties = _near(value, value, axis, descending, ties=True)
        found.hangs, found.loose = either(found.hangs, ties), either(found.loose, ties)
    unknown = either(x.open, x.loose, np.isnan(x.value) if x.is_float and np.isnan(x.value).any() else None)
    if unknown is not None:
        found.loose = either(found.loose, np.broadcast_to(unknown.any(axis=axis, keepdims=True), x.shape))
    if x.hangs is not None:
        found.hangs = either(found.hangs, np.broadcast_to(x.hangs.any(axis=axis, keepdims=True), x.shape))
    return found


def _near(low: np.ndarray, high: np.ndarray, axis: int, descending: bool, ties: bool = False) -> np.ndarray:
    """Which of the sorted elements have an interval that meets that of another: of all before, or all after."""
    if descending:
        return np.flip(_near(np.flip(low, axis), np.flip(high, axis), axis, False, ties), axis)
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


def _place(trace: Trace, x: Any, axis: int | None, keepdims: bool, largest: bool) -> Traced:
    x = array(trace, x)
    if axis is None:
        shape = (1,) * x.ndim if keepdims else ()
        return reshape(trace, _place(trace, reshape(trace, x, (-1,)), 0, False, largest), shape)
    axis = axis % x.ndim
    pick = np.argmax if largest else np.argmin
    place = np.asarray(pick(x.value, axis=axis, keepdims=True))
    found = Traced(trace, BY_FORMAT["int64"], place.astype(np.int64))
    others = np.moveaxis(np.arange(x.shape[axis]).reshape([-1] + [1] * (x.ndim - 1)), 0, axis) != place

    def rivals(low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Whether another element may be the one: an exact tie is decided by the first place."""
        best = np.take_along_axis(low, place, axis), np.take_along_axis(high, place, axis)
        return ((high >= best[0] if largest else low <= best[1]) & others & overlaps((low, high), best)).any(
            axis=axis, keepdims=True
        )

    if x.is_float and x.error is not None:
        found.hangs = rivals(x.value - x.error, x.value + x.error)
    if x.is_float and x.low is not None:
        found.loose = rivals(*x.ends)
    nan = np.isnan(x.value).any(axis=axis, keepdims=True) if x.is_float else None
    for name, masks in (("hangs", (x.hangs, nan)), ("loose", (x.loose, x.open, nan))):
        for mask in masks:
            if mask is not None and mask.any():
                setattr(found, name, either(getattr(found, name), mask.any(axis=axis, keepdims=True)))
    return found if keepdims else squeeze(trace, found, axis)


@operation("argmax")
def argmax(trace: Trace, x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Traced:
    """Where the largest lies, the first of equal ones; hanging where another may be as large."""
    return _place(trace, x, axis, keepdims, True)


@operation("argmin")
def argmin(trace: Trace, x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Traced:
    """Where the smallest lies, the first of equal ones; hanging where another may be as small."""
    return _place(trace, x, axis, keepdims, False)


@operation("result_type")
def result_type(trace: Trace, *given: Any) -> DType:
    """The type that operands of these types have together."""
    types = [each.dtype if isinstance(each, Traced) else dtype_of(each) for each in given if not isinstance(each, (int, float))]
    found = types[0]
    for each in types[1:]:
        found = promoted(found, each)
    return found

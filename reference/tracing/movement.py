"""Operations that move elements: shapes and joins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bitverdict.reference.tracing.arrays import Traced, array, constant
from bitverdict.reference.tracing.choices import where
from bitverdict.reference.tracing.dtypes import BOOL, promoted
from bitverdict.reference.tracing.results import float_type, real
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


@operation("diff")
def diff(trace: Trace, x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Traced:
    """Each element less the one before it, `n` times."""
    found = concat(trace, [each for each in (prepend, array(trace, x), append) if each is not None], axis=axis)
    for _ in range(n):
        places = np.arange(found.shape[axis])
        one, other = (found.moved(lambda each, at=at: np.take(each, at, axis)) for at in (places[1:], places[:-1]))
        found = OPERATIONS["subtract"](trace, one, other)
    return found


@operation("linalg.diagonal")
def diagonal(trace: Trace, x: Any, /, *, offset: int = 0) -> Traced:
    """The diagonals of the last two axes."""
    return array(trace, x).moved(lambda each: np.diagonal(each, offset, -2, -1))


@operation("linalg.trace")
def trace_of(trace: Trace, x: Any, /, *, offset: int = 0, dtype: Any = None) -> Traced:
    """Sum of the diagonal of the last two axes."""
    return OPERATIONS["sum"](trace, diagonal(trace, x, offset=offset), axis=-1, dtype=dtype)


@operation("linalg.vector_norm")
def vector_norm(trace: Trace, x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Traced:
    """Root of the sum of squares; of `ord` 1 and infinity the sum and the largest of the magnitudes."""
    size = OPERATIONS["abs"](trace, array(trace, x))
    if ord == 2:
        squares = OPERATIONS["multiply"](trace, size, size)
        return OPERATIONS["sqrt"](trace, OPERATIONS["sum"](trace, squares, axis=axis, keepdims=keepdims))
    if ord in (1, np.inf):
        return OPERATIONS["sum" if ord == 1 else "max"](trace, size, axis=axis, keepdims=keepdims)
    raise Untraceable("linalg.vector_norm", f"with ord={ord}")


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

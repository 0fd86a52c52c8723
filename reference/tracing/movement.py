"""Operations that move elements: shapes and joins."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bitverdict.reference.tracing.arrays import Operand, TracedArray, array, constant
from bitverdict.reference.tracing.choices import where
from bitverdict.reference.tracing.dtypes import BOOL, Axes, DTypeLike, Shape, Untraceable, promote
from bitverdict.reference.tracing.results import float_type, real
from bitverdict.reference.tracing.state import OPERATIONS, Trace, operation

FIELDS = ("value", "error", "low", "high", "open", "hangs", "words_differ", "no_write_mask")


@operation("reshape")
def reshape(trace: Trace, x: Operand, /, shape: Shape, *, copy: bool | None = None) -> TracedArray:
    """Same elements in row-major order."""
    return array(trace, x).map_elements(lambda each: each.reshape(shape))


@operation("permute_dims")
def permute_dims(trace: Trace, x: Operand, /, axes: Sequence[int]) -> TracedArray:
    """Axes in another order."""
    return array(trace, x).map_elements(lambda each: np.transpose(each, axes))


@operation("matrix_transpose")
def matrix_transpose(trace: Trace, x: Operand, /) -> TracedArray:
    """The last two axes exchanged."""
    return array(trace, x).map_elements(lambda each: np.swapaxes(each, -1, -2))


@operation("moveaxis")
def moveaxis(trace: Trace, x: Operand, source: int | tuple[int, ...], destination: int | tuple[int, ...], /) -> TracedArray:
    """Axes moved to other places."""
    return array(trace, x).map_elements(lambda each: np.moveaxis(each, source, destination))


@operation("expand_dims")
def expand_dims(trace: Trace, x: Operand, /, *, axis: int = 0) -> TracedArray:
    """With an axis of length 1."""
    return array(trace, x).map_elements(lambda each: np.expand_dims(each, axis))


@operation("squeeze")
def squeeze(trace: Trace, x: Operand, /, axis: Axes) -> TracedArray:
    """Without axes of length 1."""
    return array(trace, x).map_elements(lambda each: np.squeeze(each, axis))


@operation("broadcast_to")
def broadcast_to(trace: Trace, x: Operand, /, shape: Shape) -> TracedArray:
    """Repeated along axes of length 1 and new ones."""
    return array(trace, x).map_elements(lambda each: np.broadcast_to(each, shape))


@operation("broadcast_arrays")
def broadcast_arrays(trace: Trace, *arrays: Operand) -> list[TracedArray]:
    """All to the shape that they have together."""
    shape = np.broadcast_shapes(*(array(trace, each).shape for each in arrays))
    return [broadcast_to(trace, each, shape) for each in arrays]


@operation("flip")
def flip(trace: Trace, x: Operand, /, *, axis: Axes = None) -> TracedArray:
    """Back to front."""
    return array(trace, x).map_elements(lambda each: np.flip(each, axis))


@operation("roll")
def roll(trace: Trace, x: Operand, /, shift: int | tuple[int, ...], *, axis: Axes = None) -> TracedArray:
    """Moved round along an axis."""
    return array(trace, x).map_elements(lambda each: np.roll(each, shift, axis))


@operation("repeat")
def repeat(trace: Trace, x: Operand, repeats: TracedArray | int, /, *, axis: int | None = None) -> TracedArray:
    """Each element several times."""
    times = repeats.value if isinstance(repeats, TracedArray) else repeats
    return array(trace, x).map_elements(lambda each: np.repeat(each, times, axis))


@operation("tile")
def tile(trace: Trace, x: Operand, repetitions: Shape, /) -> TracedArray:
    """The whole several times."""
    return array(trace, x).map_elements(lambda each: np.tile(each, repetitions))


@operation("tril")
def tril(trace: Trace, x: Operand, /, *, k: int = 0) -> TracedArray:
    """Zero above a diagonal."""
    return _apply_mask(trace, x, lambda shape: np.tril(np.ones(shape, bool), k))


@operation("triu")
def triu(trace: Trace, x: Operand, /, *, k: int = 0) -> TracedArray:
    """Zero below a diagonal."""
    return _apply_mask(trace, x, lambda shape: np.triu(np.ones(shape, bool), k))


def _apply_mask(trace: Trace, x: Operand, mask: Callable[[tuple[int, ...]], np.ndarray]) -> TracedArray:
    x = array(trace, x)
    return where(trace, TracedArray(trace, BOOL, mask(x.shape[-2:])), x, constant(trace, 0, x.dtype))


@operation("concat")
def concat(trace: Trace, arrays: Sequence[Operand], /, *, axis: int | None = 0) -> TracedArray:
    """One after another along an axis."""
    given = [array(trace, each) for each in arrays]
    if axis is None:
        given, axis = [reshape(trace, each, (-1,)) for each in given], 0
    return _join_arrays(trace, given, lambda parts: np.concatenate(parts, axis))


@operation("stack")
def stack(trace: Trace, arrays: Sequence[Operand], /, *, axis: int = 0) -> TracedArray:
    """Side by side along a new axis."""
    return _join_arrays(trace, [array(trace, each) for each in arrays], lambda parts: np.stack(parts, axis))


def _join_arrays(trace: Trace, arrays: list[TracedArray], function: Callable[..., np.ndarray]) -> TracedArray:
    dtype = arrays[0].dtype
    for part in arrays[1:]:
        dtype = promote(dtype, part.dtype)
    if dtype.kind == "float" and any(part.dtype != dtype for part in arrays):
        arrays = [real(part) for part in arrays]
        dtype = float_type(trace)
    result = TracedArray(trace, dtype, function([part.value for part in arrays]).astype(dtype.storage_type, copy=False))
    for name in FIELDS[1:]:
        fields = [getattr(part, name) for part in arrays]
        if any(field is not None for field in fields):
            blank = [_blank(part, name) if field is None else field for part, field in zip(arrays, fields, strict=True)]
            setattr(result, name, function(blank))
    return result


def _blank(x: TracedArray, name: str) -> np.ndarray:
    return x.value if name in ("low", "high") else np.zeros(x.shape, np.float64 if name == "error" else bool)


@operation("unstack")
def unstack(trace: Trace, x: Operand, /, *, axis: int = 0) -> tuple[TracedArray, ...]:
    """The slices along an axis."""
    x = array(trace, x)
    return tuple(x.map_elements(lambda each: np.take(each, place, axis)) for place in range(x.shape[axis]))


@operation("diff")
def diff(
    trace: Trace, x: Operand, /, *, axis: int = -1, n: int = 1, prepend: Operand | None = None, append: Operand | None = None
) -> TracedArray:
    """Each element less the one before it, `n` times."""
    joined_array = concat(trace, [each for each in (prepend, array(trace, x), append) if each is not None], axis=axis)
    for _ in range(n):
        places = np.arange(joined_array.shape[axis])
        one = joined_array.map_elements(lambda each: np.take(each, places[1:], axis))
        other = joined_array.map_elements(lambda each: np.take(each, places[:-1], axis))
        joined_array = OPERATIONS["subtract"](trace, one, other)
    return joined_array


@operation("linalg.diagonal")
def diagonal(trace: Trace, x: Operand, /, *, offset: int = 0) -> TracedArray:
    """The diagonals of the last two axes."""
    return array(trace, x).map_elements(lambda each: np.diagonal(each, offset, -2, -1))


@operation("linalg.trace")
def trace_of(trace: Trace, x: Operand, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> TracedArray:
    """Sum of the diagonal of the last two axes."""
    return OPERATIONS["sum"](trace, diagonal(trace, x, offset=offset), axis=-1, dtype=dtype)


@operation("linalg.vector_norm")
def vector_norm(trace: Trace, x: Operand, /, *, axis: Axes = None, keepdims: bool = False, ord: float = 2) -> TracedArray:
    """Root of the sum of squares; of `ord` 1 and infinity the sum and the largest of the magnitudes."""
    size = OPERATIONS["abs"](trace, array(trace, x))
    if ord == 2:
        squares = OPERATIONS["multiply"](trace, size, size)
        return OPERATIONS["sqrt"](trace, OPERATIONS["sum"](trace, squares, axis=axis, keepdims=keepdims))
    if ord in (1, np.inf):
        return OPERATIONS["sum" if ord == 1 else "max"](trace, size, axis=axis, keepdims=keepdims)
    raise Untraceable("linalg.vector_norm", f"with ord={ord}")


@operation("meshgrid")
def meshgrid(trace: Trace, *arrays: Operand, indexing: str = "xy") -> list[TracedArray]:
    """Coordinates of a grid."""
    given = [array(trace, axis_array) for axis_array in arrays]
    order = [1, 0, *range(2, len(given))] if indexing == "xy" and len(given) > 1 else list(range(len(given)))
    shape = [given[place].size for place in order]
    found = []
    for place, axis_array in enumerate(given):
        form = [1] * len(given)
        form[order.index(place)] = -1
        found.append(broadcast_to(trace, reshape(trace, axis_array, form), shape))
    return found

"""Operators that move elements and compute nothing: views, indices, padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bitverdict.harness.contracts.torch_mathematics import windows
from bitverdict.harness.contracts.torch_mathematics.operators.rules import NoRule, is_array, rule

if TYPE_CHECKING:
    from bitverdict.reference.array_api import Array, ArrayNamespace


@rule("view", "_unsafe_view", "reshape", "_reshape_copy", "view_copy")
def _view(xp: ArrayNamespace, x: Array, shape: Sequence[int]) -> Array:
    return xp.reshape(x, tuple(shape))


@rule("permute", "permute_copy")
def _permute(xp: ArrayNamespace, x: Array, axes: Sequence[int]) -> Array:
    return xp.permute_dims(x, tuple(axis % x.ndim for axis in axes))


@rule("transpose")
def _transpose(xp: ArrayNamespace, x: Array, first: int, second: int) -> Array:
    axes = list(range(x.ndim))
    axes[first], axes[second] = axes[second], axes[first]
    return xp.permute_dims(x, tuple(axes))


@rule("t")
def _t(xp: ArrayNamespace, x: Array) -> Array:
    return x if x.ndim < 2 else xp.permute_dims(x, (1, 0))


@rule("expand", "expand_copy")
def _expand(xp: ArrayNamespace, x: Array, shape: Sequence[int], **_: object) -> Array:
    added = len(shape) - x.ndim
    return xp.broadcast_to(x, tuple(x.shape[axis - added] if size == -1 else size for axis, size in enumerate(shape)))


@rule("unsqueeze", "unsqueeze_copy")
def _unsqueeze(xp: ArrayNamespace, x: Array, axis: int) -> Array:
    return xp.expand_dims(x, axis=axis)


@rule("squeeze", "squeeze_copy")
def _squeeze(xp: ArrayNamespace, x: Array, axis: int | Sequence[int] | None = None) -> Array:
    asked = range(x.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    ones = tuple(each % x.ndim for each in asked if x.ndim and x.shape[each] == 1)
    return xp.squeeze(x, axis=ones) if ones else x


@rule("cat")
def _cat(xp: ArrayNamespace, arrays: Sequence[Array], axis: int = 0) -> Array:
    return xp.concat([each for each in arrays if tuple(each.shape) != (0,)], axis=axis)


@rule("stack")
def _stack(xp: ArrayNamespace, arrays: Sequence[Array], axis: int = 0) -> Array:
    return xp.stack(list(arrays), axis=axis)


def along(x: Array, axis: int, index: object) -> tuple:
    return (slice(None),) * (axis % x.ndim) + (index,)


@rule("slice", "slice_copy")
def _slice(xp: ArrayNamespace, x: Array, axis: int = 0, start: int | None = None, stop: int | None = None, step: int = 1) -> Array:
    return x[along(x, axis, slice(*slice(start, stop, step).indices(x.shape[axis])))]


@rule("select", "select_copy")
def _select(xp: ArrayNamespace, x: Array, axis: int, index: int) -> Array:
    return x[along(x, axis, index)]


@rule("split", "split_with_sizes", "split_copy", "split_with_sizes_copy")
def _split(xp: ArrayNamespace, x: Array, sizes: int | Sequence[int], axis: int = 0) -> list[Array]:
    length = x.shape[axis]
    starts = list(range(0, length, sizes)) if isinstance(sizes, int) else [sum(sizes[:place]) for place in range(len(sizes))]
    ends = [*starts[1:], length]
    return [x[along(x, axis, slice(start, end))] for start, end in zip(starts, ends, strict=True)]


@rule("index_select")
def _index_select(xp: ArrayNamespace, x: Array, axis: int, index: Array) -> Array:
    return xp.take(x, index, axis=axis)


@rule("embedding")
def _embedding(xp: ArrayNamespace, table: Array, index: Array, *_: object) -> Array:
    flat = xp.take(table, xp.reshape(index, (-1,)), axis=0)
    return xp.reshape(flat, (*index.shape, table.shape[1]))


@rule("gather")
def _gather(xp: ArrayNamespace, x: Array, axis: int, index: Array, **_: object) -> Array:
    return xp.take_along_axis(
        x[tuple(slice(size) if at != axis % x.ndim else slice(None) for at, size in enumerate(index.shape))], index, axis=axis
    )


@rule("index")
def _index(xp: ArrayNamespace, x: Array, indices: Sequence[object]) -> Array:
    return x[tuple(slice(None) if each is None else each for each in indices)]


@rule("flip")
def _flip(xp: ArrayNamespace, x: Array, axes: Sequence[int]) -> Array:
    return xp.flip(x, axis=tuple(axes))


@rule("roll")
def _roll(xp: ArrayNamespace, x: Array, shifts: Sequence[int], axes: Sequence[int] = ()) -> Array:
    return xp.roll(x, tuple(shifts) if axes else shifts[0], axis=tuple(axes) if axes else None)


@rule("repeat")
def _repeat(xp: ArrayNamespace, x: Array, times: Sequence[int]) -> Array:
    return xp.tile(x, tuple(times))


@rule("constant_pad_nd")
def _pad(xp: ArrayNamespace, x: Array, pads: Sequence[int], value: float = 0) -> Array:
    for place in range(len(pads) // 2):
        axis = x.ndim - 1 - place
        x = windows.pad_axis(xp, x, axis, pads[2 * place], pads[2 * place + 1], value)
    return x


@rule("tril")
def _tril(xp: ArrayNamespace, x: Array, diagonal: int = 0) -> Array:
    return xp.tril(x, k=diagonal)


@rule("triu")
def _triu(xp: ArrayNamespace, x: Array, diagonal: int = 0) -> Array:
    return xp.triu(x, k=diagonal)


@rule("diagonal", "diagonal_copy")
def _diagonal(xp: ArrayNamespace, x: Array, offset: int = 0, first: int = 0, second: int = 1) -> Array:
    if {first % x.ndim, second % x.ndim} != {x.ndim - 2, x.ndim - 1}:
        raise NoRule("no rule for diagonal of other than the last two axes")
    return xp.linalg.diagonal(x, offset=offset if first % x.ndim < second % x.ndim else -offset)


@rule("slice_scatter")
def _slice_scatter(
    xp: ArrayNamespace, x: Array, part: Array, axis: int = 0, start: int | None = None, stop: int | None = None, step: int = 1
) -> Array:
    first, last, step = slice(start, stop, step).indices(x.shape[axis])
    if step != 1:
        raise NoRule("no rule for slice_scatter with a step")
    return xp.concat([x[along(x, axis, slice(0, first))], part, x[along(x, axis, slice(max(first, last), None))]], axis=axis)


@rule("select_scatter")
def _select_scatter(xp: ArrayNamespace, x: Array, part: Array, axis: int, index: int) -> Array:
    index %= x.shape[axis]
    return _slice_scatter(xp, x, xp.expand_dims(part, axis=axis), axis, index, index + 1)


@rule("scatter")
def _scatter(xp: ArrayNamespace, x: Array, axis: int, index: Array, source: Array, **_: object) -> Array:
    """x (..., length, ...) with source (or one number) at index along `axis`; the last of two at one place."""
    places = xp.reshape(xp.arange(x.shape[axis]), tuple(-1 if at == axis % x.ndim else 1 for at in range(x.ndim)))
    if any(index.shape[at] != x.shape[at] for at in range(x.ndim) if at != axis % x.ndim):
        raise NoRule("no rule for scatter of fewer rows than there are")
    for at in range(index.shape[axis]):
        one = along(x, axis, slice(at, at + 1))
        new = source[one] if is_array(source) else xp.asarray(source, dtype=x.dtype)
        x = xp.where(index[one] == places, new, x)
    return x

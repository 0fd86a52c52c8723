"""Operators that write parts of a tensor into a copy of it, as a backward pass does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitverdict.harness.contracts.torch_mathematics.no_rule import NoRule
from bitverdict.harness.contracts.torch_mathematics.operators.rules import is_array, rule
from bitverdict.harness.contracts.torch_mathematics.operators.shapes import along

if TYPE_CHECKING:
    from bitverdict.reference.array_api import Array, ArrayNamespace


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

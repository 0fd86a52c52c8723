"""Operators along an axis: sums, extremes, scans, sorting, softmax, norms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bitverdict.harness.contracts.torch_mathematics.operators.rules import rule
from bitverdict.harness.contracts.torch_mathematics.operators.shapes import along

if TYPE_CHECKING:
    from bitverdict.reference.array_api import Array, ArrayNamespace


def _axes(axis: int | Sequence[int] | None) -> int | tuple[int, ...] | None:
    if axis is None or (not isinstance(axis, int) and not len(axis)):
        return None
    return axis if isinstance(axis, int) else tuple(axis)


@rule("sum")
def _sum(xp: ArrayNamespace, x: Array, axis: int | Sequence[int] | None = None, keepdim: bool = False, **_: object) -> Array:
    return xp.sum(x, axis=_axes(axis), keepdims=keepdim)


@rule("mean")
def _mean(xp: ArrayNamespace, x: Array, axis: int | Sequence[int] | None = None, keepdim: bool = False, **_: object) -> Array:
    return xp.mean(x, axis=_axes(axis), keepdims=keepdim)


@rule("prod")
def _prod(xp: ArrayNamespace, x: Array, axis: int | Sequence[int] | None = None, keepdim: bool = False, **_: object) -> Array:
    return xp.prod(x, axis=_axes(axis), keepdims=keepdim)


@rule("amax")
def _amax(xp: ArrayNamespace, x: Array, axis: int | Sequence[int] | None = None, keepdim: bool = False) -> Array:
    return xp.max(x, axis=_axes(axis), keepdims=keepdim)


@rule("amin")
def _amin(xp: ArrayNamespace, x: Array, axis: int | Sequence[int] | None = None, keepdim: bool = False) -> Array:
    return xp.min(x, axis=_axes(axis), keepdims=keepdim)


@rule("max")
def _max(xp: ArrayNamespace, x: Array, axis: int | Sequence[int] | None = None, keepdim: bool = False) -> Any:
    if axis is None:
        return xp.max(x)
    return xp.max(x, axis=axis, keepdims=keepdim), xp.argmax(x, axis=axis, keepdims=keepdim)


@rule("min")
def _min(xp: ArrayNamespace, x: Array, axis: int | Sequence[int] | None = None, keepdim: bool = False) -> Any:
    if axis is None:
        return xp.min(x)
    return xp.min(x, axis=axis, keepdims=keepdim), xp.argmin(x, axis=axis, keepdims=keepdim)


@rule("argmax")
def _argmax(xp: ArrayNamespace, x: Array, axis: int | None = None, keepdim: bool = False) -> Array:
    return xp.argmax(x, axis=axis, keepdims=keepdim)


@rule("argmin")
def _argmin(xp: ArrayNamespace, x: Array, axis: int | None = None, keepdim: bool = False) -> Array:
    return xp.argmin(x, axis=axis, keepdims=keepdim)


@rule("any")
def _any_element(xp: ArrayNamespace, x: Array, axis: int | Sequence[int] | None = None, keepdim: bool = False) -> Array:
    return xp.any(xp.astype(x, xp.bool), axis=_axes(axis), keepdims=keepdim)


@rule("all")
def _all_elements(xp: ArrayNamespace, x: Array, axis: int | Sequence[int] | None = None, keepdim: bool = False) -> Array:
    return xp.all(xp.astype(x, xp.bool), axis=_axes(axis), keepdims=keepdim)


@rule("var")
def _var(
    xp: ArrayNamespace, x: Array, axis: int | Sequence[int] | None = None, *, correction: float = 1, keepdim: bool = False
) -> Array:
    return xp.var(x, axis=_axes(axis), correction=1 if correction is None else correction, keepdims=keepdim)


@rule("cumsum")
def _cumsum(xp: ArrayNamespace, x: Array, axis: int, **_: object) -> Array:
    return xp.cumulative_sum(x, axis=axis)


@rule("cumprod")
def _cumprod(xp: ArrayNamespace, x: Array, axis: int, **_: object) -> Array:
    return xp.cumulative_prod(x, axis=axis)


@rule("sort")
def _sort(xp: ArrayNamespace, x: Array, axis: int = -1, descending: bool = False, **_: object) -> tuple[Array, Array]:
    return xp.sort(x, axis=axis, descending=descending), xp.argsort(x, axis=axis, descending=descending)


@rule("topk")
def _topk(xp: ArrayNamespace, x: Array, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Array, Array]:
    values, places = _sort(xp, x, axis, largest)
    return values[along(x, axis, slice(0, k))], places[along(x, axis, slice(0, k))]


@rule("_softmax")
def _softmax(xp: ArrayNamespace, x: Array, axis: int, half_to_float: bool = False) -> Array:
    raised = xp.exp(x - xp.max(x, axis=axis, keepdims=True))
    return raised / xp.sum(raised, axis=axis, keepdims=True)


@rule("_log_softmax")
def _log_softmax(xp: ArrayNamespace, x: Array, axis: int, half_to_float: bool = False) -> Array:
    shifted = x - xp.max(x, axis=axis, keepdims=True)
    return shifted - xp.log(xp.sum(xp.exp(shifted), axis=axis, keepdims=True))


@rule("linalg_vector_norm")
def _vector_norm(
    xp: ArrayNamespace, x: Array, order: float = 2, axis: int | Sequence[int] | None = None, keepdim: bool = False, **_: object
) -> Array:
    axis, size = _axes(axis), xp.abs(x)
    if order == 2:
        return xp.sqrt(xp.sum(x * x, axis=axis, keepdims=keepdim))
    if order == 1:
        return xp.sum(size, axis=axis, keepdims=keepdim)
    if math.isinf(order):
        return (xp.max if order > 0 else xp.min)(size, axis=axis, keepdims=keepdim)
    return xp.pow(
        xp.sum(xp.pow(size, xp.asarray(order, dtype=x.dtype)), axis=axis, keepdims=keepdim), xp.asarray(1 / order, dtype=x.dtype)
    )

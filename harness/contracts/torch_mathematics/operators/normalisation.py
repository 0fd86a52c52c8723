"""Operators that normalise: by layer, by group, by batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bitverdict.harness.contracts.torch_mathematics.operators.rules import rule

if TYPE_CHECKING:
    from bitverdict.reference.array_api import Array, ArrayNamespace


def _normalise_axes(xp: ArrayNamespace, x: Array, axis: tuple[int, ...], epsilon: float) -> tuple[Array, Array, Array]:
    mean = xp.mean(x, axis=axis, keepdims=True)
    centred = x - mean
    inverse = 1.0 / xp.sqrt(xp.mean(centred * centred, axis=axis, keepdims=True) + epsilon)
    return centred * inverse, mean, inverse


def _scale_and_shift(x: Array, weight: Array | None, bias: Array | None) -> Array:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


@rule("native_layer_norm")
def _layer_norm(
    xp: ArrayNamespace, x: Array, shape: Sequence[int], weight: Array | None, bias: Array | None, epsilon: float
) -> tuple[Array, Array, Array]:
    made, mean, inverse = _normalise_axes(xp, x, tuple(range(x.ndim - len(shape), x.ndim)), epsilon)
    return _scale_and_shift(made, weight, bias), mean, inverse


@rule("native_group_norm")
def _group_norm(
    xp: ArrayNamespace,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    n: int,
    channels: int,
    spatial: int,
    groups: int,
    epsilon: float,
) -> tuple[Array, Array, Array]:
    made, mean, inverse = _normalise_axes(xp, xp.reshape(x, (n, groups, -1)), (2,), epsilon)  # (n, groups, ...)
    return (
        _scale_and_shift(xp.reshape(made, tuple(x.shape)), by_channel(xp, weight, x), by_channel(xp, bias, x)),
        xp.reshape(mean, (n, groups)),
        xp.reshape(inverse, (n, groups)),
    )


@rule("_native_batch_norm_legit_no_training")
def _batch_norm(
    xp: ArrayNamespace,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    mean: Array,
    variance: Array,
    momentum: float,
    epsilon: float,
) -> tuple[Array, Array, Array]:
    inverse = 1.0 / xp.sqrt(by_channel(xp, variance, x) + epsilon)
    made = (x - by_channel(xp, mean, x)) * inverse
    empty = xp.zeros((0,), dtype=x.dtype)
    return _scale_and_shift(made, by_channel(xp, weight, x), by_channel(xp, bias, x)), empty, empty


@rule("native_batch_norm")
def _native_batch_norm(
    xp: ArrayNamespace,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    mean: Array,
    variance: Array,
    training: bool,
    momentum: float,
    epsilon: float,
) -> tuple[Array, Array, Array]:
    if training:
        return _batch_norm_of_the_batch(xp, x, weight, bias, epsilon)
    return _batch_norm(xp, x, weight, bias, mean, variance, momentum, epsilon)


@rule("_native_batch_norm_legit")
def _batch_norm_of_the_batch(
    xp: ArrayNamespace, x: Array, weight: Array | None, bias: Array | None, *rest: float
) -> tuple[Array, Array, Array]:
    made, mean, inverse = _normalise_axes(xp, x, (0, *range(2, x.ndim)), rest[-1])
    return (
        _scale_and_shift(made, by_channel(xp, weight, x), by_channel(xp, bias, x)),
        xp.reshape(mean, (-1,)),
        xp.reshape(inverse, (-1,)),
    )


def by_channel(xp: ArrayNamespace, x: Array | None, like: Array) -> Any:
    return None if x is None else xp.reshape(x, (1, -1, *[1] * (like.ndim - 2)))

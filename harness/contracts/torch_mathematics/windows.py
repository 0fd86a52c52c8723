"""Convolutions and pools as products and reductions over windows: (N, C, *spatial) by functions of the array API."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from bitverdict.reference.array_api import Array, ArrayNamespace


Sizes: TypeAlias = int | Sequence[int]
"""Of each spatial axis, or of all."""


def int_list(given: int | Sequence[int], count: int) -> list[int]:
    """`given`, an integer or a list of one or `count`, as `count` integers."""
    values = [given] if isinstance(given, int) else list(given)
    return values * count if len(values) == 1 else values


def pad_axis(xp: ArrayNamespace, x: Array, axis: int, before: int, after: int, value: float = 0.0) -> Array:
    """`x` with `before` and `after` elements `value` along `axis`; where they are negative, with so many less."""
    length = x.shape[axis]
    cut = (slice(None),) * axis + (slice(max(-before, 0), length - max(-after, 0)),)
    parts = [
        xp.full((*x.shape[:axis], count, *x.shape[axis + 1 :]), value, dtype=x.dtype) if count > 0 else None
        for count in (before, after)
    ]
    return xp.concat([each for each in (parts[0], x[cut], parts[1]) if each is not None], axis=axis)


def _windows(xp: ArrayNamespace, x: Array, size: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> list[Array]:
    """For each place in a window of `size` the elements of all windows there: each (N, C, *out)."""
    spatial = x.shape[2:]
    out = [
        (length - (count - 1) * step - 1) // jump + 1
        for length, count, jump, step in zip(spatial, size, stride, dilation, strict=True)
    ]
    return [
        x[
            (
                slice(None),
                slice(None),
                *(
                    slice(place * step, place * step + (count - 1) * jump + 1, jump)
                    for place, step, jump, count in zip(places, dilation, stride, out, strict=True)
                ),
            )
        ]
        for places in itertools.product(*map(range, size))
    ]


def convolution(
    xp: ArrayNamespace, x: Array, weight: Array, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int
) -> Array:
    """Cross-correlation of x (N, C, *spatial) with weight (O, C / groups, *size): (N, O, *out)."""
    count = x.ndim - 2
    stride, padding, dilation = int_list(stride, count), int_list(padding, count), int_list(dilation, count)
    for axis, pad in enumerate(padding, 2):
        x = pad_axis(xp, x, axis, pad, pad) if pad else x
    n, size, outputs = x.shape[0], weight.shape[2:], weight.shape[0]
    found = xp.stack(_windows(xp, x, size, stride, dilation), axis=2)  # (N, C, places, *out)
    out = found.shape[3:]
    per_group = (x.shape[1] // groups) * math.prod(size)
    columns = xp.reshape(found, (n, groups, per_group, math.prod(out)))  # (N, groups, C / groups * places, out)
    factors = xp.reshape(weight, (groups, outputs // groups, per_group))  # (groups, O / groups, C / groups * places)
    return xp.reshape(xp.matmul(factors, columns), (n, outputs, *out))


def transposed_operands(
    xp: ArrayNamespace,
    x: Array,
    weight: Array,
    stride: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
    output_padding: int | Sequence[int],
    groups: int,
) -> tuple[Array, Array, list[int]]:
    """(x, weight, padding) of the plain convolution with stride 1 that is the transposed one of x with weight
    (C, O / groups, *size): zeros between the elements, the window mirrored."""
    count = x.ndim - 2
    stride, padding, dilation, output_pads = (int_list(each, count) for each in (stride, padding, dilation, output_padding))
    for axis, by in enumerate(stride, 2):
        x = _spread(xp, x, axis, by) if by > 1 else x
    channels, per_group, size = weight.shape[0], weight.shape[1], weight.shape[2:]
    mirrored = xp.flip(weight, axis=tuple(range(2, weight.ndim)))
    grouped = xp.reshape(mirrored, (groups, channels // groups, per_group, *size))
    swapped = xp.permute_dims(grouped, (0, 2, 1, *range(3, grouped.ndim)))  # (groups, O / groups, C / groups, *size)
    for axis, (length, step, pad, end) in enumerate(zip(size, dilation, padding, output_pads, strict=True), 2):
        around = step * (length - 1) - pad
        x = pad_axis(xp, x, axis, around, around + end)
    return x, xp.reshape(swapped, (groups * per_group, channels // groups, *size)), [0] * count


def _spread(xp: ArrayNamespace, x: Array, axis: int, by: int) -> Array:
    """`x` with by - 1 zeros between its elements along `axis`."""
    zeros = xp.zeros((*x.shape[: axis + 1], by - 1, *x.shape[axis + 1 :]), dtype=x.dtype)
    apart = xp.concat([xp.expand_dims(x, axis=axis + 1), zeros], axis=axis + 1)
    whole = xp.reshape(apart, (*x.shape[:axis], x.shape[axis] * by, *x.shape[axis + 1 :]))
    return whole[(slice(None),) * axis + (slice(0, (x.shape[axis] - 1) * by + 1),)]


def pool_windows(
    xp: ArrayNamespace,
    x: Array,
    size: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes | None,
    around: float,
    reduce: Callable,
) -> Array:
    """x ((N,) C, *spatial) reduced over windows, `around` where they hang over."""
    count = len(size) if not isinstance(size, int) else x.ndim - 2
    batch = x.ndim == count + 2
    x = x if batch else xp.expand_dims(x, axis=0)
    size = int_list(size, count)
    stride = (
        int_list(stride, count)
        if not isinstance(stride, int) and len(stride)
        else size
        if not isinstance(stride, int)
        else [stride] * count
    )
    for axis, pad in enumerate(int_list(padding, count), 2):
        x = pad_axis(xp, x, axis, pad, pad, around) if pad else x
    found = reduce(xp.stack(_windows(xp, x, size, stride, int_list(1 if dilation is None else dilation, count)), axis=0), axis=0)
    return found if batch else xp.squeeze(found, axis=0)

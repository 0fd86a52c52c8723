"""Products of matrices, convolutions, and windows that pool."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bitverdict.harness.contracts.torch_mathematics import windows
from bitverdict.harness.contracts.torch_mathematics.operators.normalisation import by_channel
from bitverdict.harness.contracts.torch_mathematics.operators.rules import NoRule, rule

if TYPE_CHECKING:
    from bitverdict.reference.array_api import Array, ArrayNamespace


@rule("mm", "bmm", "matmul", "mv", "dot")
def _mm(xp: ArrayNamespace, a: Array, b: Array) -> Array:
    return xp.matmul(a, b)


@rule("addmm", "baddbmm", "addmv")
def _addmm(xp: ArrayNamespace, c: Array, a: Array, b: Array, *, beta: float = 1, alpha: float = 1) -> Array:
    product = xp.matmul(a, b)
    return (c if beta == 1 else c * beta) + (product if alpha == 1 else product * alpha)


@rule("convolution")
def _convolution(
    xp: ArrayNamespace,
    x: Array,
    weight: Array,
    bias: Array | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Array:
    if transposed:
        x, weight, padding = windows.transposed_operands(xp, x, weight, stride, padding, dilation, output_padding, groups)
        stride = [1] * len(stride)
    made = windows.convolution(xp, x, weight, stride, padding, dilation, groups)
    return made if bias is None else made + by_channel(xp, bias, made)


@rule("avg_pool2d", "avg_pool1d", "avg_pool3d")
def _avg_pool(
    xp: ArrayNamespace,
    x: Array,
    size: windows.Sizes,
    stride: windows.Sizes = (),
    padding: windows.Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> Array:
    if ceil_mode:
        raise NoRule("no rule for avg_pool with ceil_mode")
    sums = windows.pool_windows(xp, x, size, stride, padding, None, 0.0, xp.sum)
    if divisor is not None or count_include_pad:
        return sums / (divisor or math.prod(windows.int_list(size, sums.ndim - 2)))
    return sums / windows.pool_windows(xp, xp.ones_like(x), size, stride, padding, None, 0.0, xp.sum)


@rule("max_pool2d_with_indices", "max_pool3d_with_indices")
def _max_pool(
    xp: ArrayNamespace,
    x: Array,
    size: windows.Sizes,
    stride: windows.Sizes = (),
    padding: windows.Sizes = 0,
    dilation: windows.Sizes = 1,
    ceil_mode: bool = False,
) -> tuple[Array, Any]:
    if ceil_mode:
        raise NoRule("no rule for max_pool with ceil_mode")
    return windows.pool_windows(xp, x, size, stride, padding, dilation, -math.inf, xp.max), None

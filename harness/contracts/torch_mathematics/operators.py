"""ATen operators by their mathematics, in functions of the array API standard: name without overload -> rule `(xp, *arguments)`.

A rule takes what the operator takes, tensors as arrays of `xp`, and gives what it gives. Its formula is torch's documented one.
Dtypes, memory formats and devices are no mathematics. They are not looked at, but where a float becomes an integer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bitverdict.harness.contracts.torch_mathematics import windows
from bitverdict.harness.contracts.torch_mathematics.no_rule import NoRule

Array = Any
RULES: dict[str, Callable] = {}


def _rule(*names: str) -> Callable[[Callable], Callable]:
    def kept(function: Callable) -> Callable:
        RULES.update({f"aten.{name}": function for name in names})
        return function

    return kept


def _elementwise(torch_name: str, name: str) -> None:
    RULES[f"aten.{torch_name}"] = lambda xp, *arrays: getattr(xp, name)(*_arrays(xp, arrays))


for _name in (
    "abs exp expm1 log log1p log2 log10 sqrt sin cos tan tanh sinh cosh asin acos atan asinh acosh atanh floor ceil round "
    "trunc sign maximum minimum remainder square logical_and logical_or logical_not logical_xor bitwise_and bitwise_or "
    "bitwise_not bitwise_xor isnan isinf isfinite erf"
).split():
    _elementwise(_name, _name)
for _name, _standard in {
    "neg": "negative", "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
    "atan2": "atan2", "bitwise_left_shift": "bitwise_left_shift", "bitwise_right_shift": "bitwise_right_shift",
}.items():  # fmt: skip
    _elementwise(_name, _standard)
for _name in ("alias", "clone", "detach", "detach_copy", "lift_fresh_copy", "lift_fresh"):
    RULES[f"aten.{_name}"] = lambda xp, x, **_: x


def _arrays(xp: Any, given: Sequence[Any]) -> list[Array]:
    """`given` as arrays: numbers take the dtype of the first array."""
    first = next((each for each in given if _is_array(each)), None)
    return [each if _is_array(each) else xp.asarray(each, dtype=_dtype_of(xp, each, first)) for each in given]


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape")


def _dtype_of(xp: Any, number: Any, like: Any) -> Any:
    floating = like is not None and xp.isdtype(like.dtype, "real floating")
    if isinstance(number, bool):
        return xp.bool
    return like.dtype if like is not None and (floating or isinstance(number, int)) else None


# -- arithmetic -------------------------------------------------------------------------------------------------------
@_rule("add")
def _add(xp: Any, a: Array, b: Any, *, alpha: float = 1) -> Array:
    return a + (b if alpha == 1 else b * alpha)


@_rule("sub")
def _sub(xp: Any, a: Array, b: Any, *, alpha: float = 1) -> Array:
    return a - (b if alpha == 1 else b * alpha)


@_rule("rsub")
def _rsub(xp: Any, a: Array, b: Any, alpha: float = 1) -> Array:
    return b - (a if alpha == 1 else a * alpha)


@_rule("mul")
def _mul(xp: Any, a: Array, b: Any) -> Array:
    return a * b


@_rule("div")
def _div(xp: Any, a: Array, b: Any, *, rounding_mode: str | None = None) -> Array:
    quotient = a / b
    return quotient if rounding_mode is None else xp.floor(quotient) if rounding_mode == "floor" else xp.trunc(quotient)


@_rule("pow")
def _pow(xp: Any, x: Any, exponent: Any) -> Array:
    """A small whole exponent is a product of factors, whatever sign `x` has; one half is a square root."""
    if _is_array(exponent) or not _is_array(x):
        return xp.pow(*_arrays(xp, (x, exponent)))
    if exponent in (0.5, -0.5):
        return xp.sqrt(x) if exponent > 0 else 1.0 / xp.sqrt(x)
    if exponent == int(exponent) and 0 < abs(exponent) <= 8:
        made = x
        for _ in range(abs(int(exponent)) - 1):
            made = made * x
        return made if exponent > 0 else 1.0 / made
    return xp.pow(*_arrays(xp, (x, exponent)))


@_rule("fmod")
def _fmod(xp: Any, a: Array, b: Any) -> Array:
    """The remainder that has the sign of `a`: of floats a rounding may be near a multiple, which the truncation tells."""
    a, b = _arrays(xp, (a, b))
    rest = xp.remainder(xp.abs(a), xp.abs(b))
    return xp.where(a < 0, -rest, rest)


@_rule("reciprocal")
def _reciprocal(xp: Any, x: Array) -> Array:
    return 1.0 / x


@_rule("rsqrt")
def _rsqrt(xp: Any, x: Array) -> Array:
    return 1.0 / xp.sqrt(x)


@_rule("sigmoid")
def _sigmoid(xp: Any, x: Array) -> Array:
    return 1.0 / (1.0 + xp.exp(-x))


@_rule("relu")
def _relu(xp: Any, x: Array) -> Array:
    return xp.maximum(x, xp.zeros_like(x))


@_rule("gelu")
def _gelu(xp: Any, x: Array, approximate: str = "none") -> Array:
    if approximate == "tanh":
        return 0.5 * x * (1.0 + xp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1.0 + xp.erf(x * math.sqrt(0.5)))


@_rule("leaky_relu")
def _leaky_relu(xp: Any, x: Array, slope: float = 0.01) -> Array:
    return xp.where(x > 0, x, x * slope)


@_rule("elu")
def _elu(xp: Any, x: Array, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Array:
    return xp.where(x > 0, x * scale, xp.expm1(x * input_scale) * (alpha * scale))


@_rule("clamp", "hardtanh")
def _clamp(xp: Any, x: Array, low: Any = None, high: Any = None) -> Array:
    x = x if low is None else xp.maximum(*_arrays(xp, (x, low)))
    return x if high is None else xp.minimum(*_arrays(xp, (x, high)))


@_rule("clamp_min")
def _clamp_min(xp: Any, x: Array, low: Any) -> Array:
    return _clamp(xp, x, low)


@_rule("clamp_max")
def _clamp_max(xp: Any, x: Array, high: Any) -> Array:
    return _clamp(xp, x, None, high)


@_rule("where")
def _where(xp: Any, condition: Array, a: Any, b: Any) -> Array:
    return xp.where(condition, *_arrays(xp, (a, b)))


@_rule("masked_fill")
def _masked_fill(xp: Any, x: Array, mask: Array, value: Any) -> Array:
    return xp.where(mask, *_arrays(xp, (value, x)))


@_rule("_to_copy", "to", "convert_element_type")
def _to_copy(xp: Any, x: Array, *, dtype: torch.dtype | None = None, **_: Any) -> Array:
    if dtype is None or (dtype.is_floating_point and xp.isdtype(x.dtype, "real floating")):
        return x  # a rounding, if any: what may be kept narrower is told by the dtype that torch gives it
    return xp.astype(x, _dtype(xp, dtype))


def _dtype(xp: Any, dtype: torch.dtype | None) -> Any:
    """The dtype of `xp` that computes what torch's does: every float is a float64."""
    if dtype is None or dtype.is_floating_point:
        return xp.float64
    return getattr(xp, str(dtype).removeprefix("torch."))


# -- creation ---------------------------------------------------------------------------------------------------------
@_rule("full")
def _full(xp: Any, shape: Sequence[int], value: Any, *, dtype: torch.dtype | None = None, **_: Any) -> Array:
    return xp.full(tuple(shape), value, dtype=_dtype(xp, dtype) if dtype is not None or isinstance(value, float) else None)


@_rule("full_like")
def _full_like(xp: Any, x: Array, value: Any, **_: Any) -> Array:
    return xp.full(tuple(x.shape), value, dtype=x.dtype)


@_rule("zeros_like", "new_zeros")
def _zeros_like(xp: Any, x: Array, shape: Sequence[int] | None = None, **_: Any) -> Array:
    return xp.zeros(tuple(x.shape if shape is None else shape), dtype=x.dtype)


@_rule("ones_like")
def _ones_like(xp: Any, x: Array, **_: Any) -> Array:
    return xp.ones(tuple(x.shape), dtype=x.dtype)


@_rule("zeros")
def _zeros(xp: Any, shape: Sequence[int], *, dtype: torch.dtype | None = None, **_: Any) -> Array:
    return xp.zeros(tuple(shape), dtype=_dtype(xp, dtype))


@_rule("ones")
def _ones(xp: Any, shape: Sequence[int], *, dtype: torch.dtype | None = None, **_: Any) -> Array:
    return xp.ones(tuple(shape), dtype=_dtype(xp, dtype))


@dataclass(frozen=True)
class Unwritten:
    """A tensor that was allocated and not filled: it has a shape and no values. A rule that asks for some ends in an error."""

    shape: tuple[int, ...]
    dtype: Any


@_rule("empty", "empty_permuted", "empty_strided")
def _empty(xp: Any, shape: Sequence[int], *_: Any, dtype: torch.dtype | None = None, **__: Any) -> Unwritten:
    return Unwritten(tuple(shape), _dtype(xp, dtype))


@_rule("empty_like")
def _empty_like(xp: Any, x: Array, *, dtype: torch.dtype | None = None, **_: Any) -> Unwritten:
    return Unwritten(tuple(x.shape), x.dtype if dtype is None else _dtype(xp, dtype))


@_rule("copy")
def _copy(xp: Any, x: Array, new: Array, non_blocking: bool = False) -> Array:
    return xp.broadcast_to(new, tuple(x.shape))


@_rule("scalar_tensor")
def _scalar_tensor(xp: Any, value: Any, *, dtype: torch.dtype | None = None, **_: Any) -> Array:
    return xp.asarray(value, dtype=_dtype(xp, dtype) if dtype is not None else None)


@_rule("arange")
def _arange(xp: Any, start: Any, stop: Any = None, step: Any = 1, *, dtype: torch.dtype | None = None, **_: Any) -> Array:
    start, stop = (0, start) if stop is None else (start, stop)
    return xp.arange(start, stop, step, dtype=_dtype(xp, dtype) if dtype is not None else None)


# -- reductions -------------------------------------------------------------------------------------------------------
def _axes(axis: Any) -> Any:
    if axis is None or (not isinstance(axis, int) and not len(axis)):
        return None
    return axis if isinstance(axis, int) else tuple(axis)


@_rule("sum")
def _sum(xp: Any, x: Array, axis: Any = None, keepdim: bool = False, **_: Any) -> Array:
    return xp.sum(x, axis=_axes(axis), keepdims=keepdim)


@_rule("mean")
def _mean(xp: Any, x: Array, axis: Any = None, keepdim: bool = False, **_: Any) -> Array:
    return xp.mean(x, axis=_axes(axis), keepdims=keepdim)


@_rule("prod")
def _prod(xp: Any, x: Array, axis: Any = None, keepdim: bool = False, **_: Any) -> Array:
    return xp.prod(x, axis=_axes(axis), keepdims=keepdim)


@_rule("amax")
def _amax(xp: Any, x: Array, axis: Any = None, keepdim: bool = False) -> Array:
    return xp.max(x, axis=_axes(axis), keepdims=keepdim)


@_rule("amin")
def _amin(xp: Any, x: Array, axis: Any = None, keepdim: bool = False) -> Array:
    return xp.min(x, axis=_axes(axis), keepdims=keepdim)


@_rule("max")
def _max(xp: Any, x: Array, axis: Any = None, keepdim: bool = False) -> Any:
    if axis is None:
        return xp.max(x)
    return xp.max(x, axis=axis, keepdims=keepdim), xp.argmax(x, axis=axis, keepdims=keepdim)


@_rule("min")
def _min(xp: Any, x: Array, axis: Any = None, keepdim: bool = False) -> Any:
    if axis is None:
        return xp.min(x)
    return xp.min(x, axis=axis, keepdims=keepdim), xp.argmin(x, axis=axis, keepdims=keepdim)


@_rule("argmax")
def _argmax(xp: Any, x: Array, axis: int | None = None, keepdim: bool = False) -> Array:
    return xp.argmax(x, axis=axis, keepdims=keepdim)


@_rule("argmin")
def _argmin(xp: Any, x: Array, axis: int | None = None, keepdim: bool = False) -> Array:
    return xp.argmin(x, axis=axis, keepdims=keepdim)


@_rule("any")
def _any(xp: Any, x: Array, axis: Any = None, keepdim: bool = False) -> Array:
    return xp.any(xp.astype(x, xp.bool), axis=_axes(axis), keepdims=keepdim)


@_rule("all")
def _all(xp: Any, x: Array, axis: Any = None, keepdim: bool = False) -> Array:
    return xp.all(xp.astype(x, xp.bool), axis=_axes(axis), keepdims=keepdim)


@_rule("var")
def _var(xp: Any, x: Array, axis: Any = None, *, correction: float = 1, keepdim: bool = False) -> Array:
    return xp.var(x, axis=_axes(axis), correction=1 if correction is None else correction, keepdims=keepdim)


@_rule("cumsum")
def _cumsum(xp: Any, x: Array, axis: int, **_: Any) -> Array:
    return xp.cumulative_sum(x, axis=axis)


@_rule("cumprod")
def _cumprod(xp: Any, x: Array, axis: int, **_: Any) -> Array:
    return xp.cumulative_prod(x, axis=axis)


@_rule("sort")
def _sort(xp: Any, x: Array, axis: int = -1, descending: bool = False, **_: Any) -> tuple[Array, Array]:
    return xp.sort(x, axis=axis, descending=descending), xp.argsort(x, axis=axis, descending=descending)


@_rule("topk")
def _topk(xp: Any, x: Array, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Array, Array]:
    values, places = _sort(xp, x, axis, largest)
    return values[_along(x, axis, slice(0, k))], places[_along(x, axis, slice(0, k))]


@_rule("_softmax")
def _softmax(xp: Any, x: Array, axis: int, half_to_float: bool = False) -> Array:
    raised = xp.exp(x - xp.max(x, axis=axis, keepdims=True))
    return raised / xp.sum(raised, axis=axis, keepdims=True)


@_rule("_log_softmax")
def _log_softmax(xp: Any, x: Array, axis: int, half_to_float: bool = False) -> Array:
    shifted = x - xp.max(x, axis=axis, keepdims=True)
    return shifted - xp.log(xp.sum(xp.exp(shifted), axis=axis, keepdims=True))


@_rule("linalg_vector_norm")
def _vector_norm(xp: Any, x: Array, order: float = 2, axis: Any = None, keepdim: bool = False, **_: Any) -> Array:
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


# -- normalisation ----------------------------------------------------------------------------------------------------
def _normalised(xp: Any, x: Array, axis: tuple[int, ...], epsilon: float) -> tuple[Array, Array, Array]:
    mean = xp.mean(x, axis=axis, keepdims=True)
    centred = x - mean
    inverse = 1.0 / xp.sqrt(xp.mean(centred * centred, axis=axis, keepdims=True) + epsilon)
    return centred * inverse, mean, inverse


def _scaled(x: Array, weight: Any, bias: Any) -> Array:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


@_rule("native_layer_norm")
def _layer_norm(xp: Any, x: Array, shape: Sequence[int], weight: Any, bias: Any, epsilon: float) -> tuple[Array, Array, Array]:
    made, mean, inverse = _normalised(xp, x, tuple(range(x.ndim - len(shape), x.ndim)), epsilon)
    return _scaled(made, weight, bias), mean, inverse


@_rule("native_group_norm")
def _group_norm(
    xp: Any, x: Array, weight: Any, bias: Any, n: int, channels: int, spatial: int, groups: int, epsilon: float
) -> tuple[Array, Array, Array]:
    made, mean, inverse = _normalised(xp, xp.reshape(x, (n, groups, -1)), (2,), epsilon)  # (n, groups, ...)
    return (
        _scaled(xp.reshape(made, tuple(x.shape)), _by_channel(xp, weight, x), _by_channel(xp, bias, x)),
        xp.reshape(mean, (n, groups)),
        xp.reshape(inverse, (n, groups)),
    )


@_rule("_native_batch_norm_legit_no_training")
def _batch_norm(
    xp: Any, x: Array, weight: Any, bias: Any, mean: Array, variance: Array, momentum: float, epsilon: float
) -> tuple[Array, Array, Array]:
    inverse = 1.0 / xp.sqrt(_by_channel(xp, variance, x) + epsilon)
    made = (x - _by_channel(xp, mean, x)) * inverse
    empty = xp.zeros((0,), dtype=x.dtype)
    return _scaled(made, _by_channel(xp, weight, x), _by_channel(xp, bias, x)), empty, empty


@_rule("native_batch_norm")
def _native_batch_norm(
    xp: Any, x: Array, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, momentum: float, epsilon: float
) -> tuple[Array, Array, Array]:
    if training:
        return _batch_norm_of_the_batch(xp, x, weight, bias, epsilon)
    return _batch_norm(xp, x, weight, bias, mean, variance, momentum, epsilon)


@_rule("_native_batch_norm_legit")
def _batch_norm_of_the_batch(xp: Any, x: Array, weight: Any, bias: Any, *rest: Any) -> tuple[Array, Array, Array]:
    made, mean, inverse = _normalised(xp, x, (0, *range(2, x.ndim)), rest[-1])
    return _scaled(made, _by_channel(xp, weight, x), _by_channel(xp, bias, x)), xp.reshape(mean, (-1,)), xp.reshape(inverse, (-1,))


def _by_channel(xp: Any, x: Any, like: Array) -> Any:
    return None if x is None else xp.reshape(x, (1, -1, *[1] * (like.ndim - 2)))


# -- products ---------------------------------------------------------------------------------------------------------
@_rule("mm", "bmm", "matmul", "mv", "dot")
def _mm(xp: Any, a: Array, b: Array) -> Array:
    return xp.matmul(a, b)


@_rule("addmm", "baddbmm", "addmv")
def _addmm(xp: Any, c: Array, a: Array, b: Array, *, beta: float = 1, alpha: float = 1) -> Array:
    product = xp.matmul(a, b)
    return (c if beta == 1 else c * beta) + (product if alpha == 1 else product * alpha)


@_rule("convolution")
def _convolution(
    xp: Any,
    x: Array,
    weight: Array,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Array:
    if transposed:
        x, weight, padding = windows.transposed(xp, x, weight, stride, padding, dilation, output_padding, groups)
        stride = [1] * len(stride)
    made = windows.convolution(xp, x, weight, stride, padding, dilation, groups)
    return made if bias is None else made + _by_channel(xp, bias, made)


@_rule("avg_pool2d", "avg_pool1d", "avg_pool3d")
def _avg_pool(
    xp: Any, x: Array, size: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
    divisor: int | None = None,
) -> Array:  # fmt: skip
    if ceil_mode:
        raise NoRule("no rule for avg_pool with ceil_mode")
    sums = windows.pooled(xp, x, size, stride, padding, None, 0.0, xp.sum)
    if divisor is not None or count_include_pad:
        return sums / (divisor or math.prod(windows.listed(size, sums.ndim - 2)))
    return sums / windows.pooled(xp, xp.ones_like(x), size, stride, padding, None, 0.0, xp.sum)


@_rule("max_pool2d_with_indices", "max_pool3d_with_indices")
def _max_pool(
    xp: Any, x: Array, size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> tuple[Array, Any]:
    if ceil_mode:
        raise NoRule("no rule for max_pool with ceil_mode")
    return windows.pooled(xp, x, size, stride, padding, dilation, -math.inf, xp.max), None


# -- shapes -----------------------------------------------------------------------------------------------------------
@_rule("view", "_unsafe_view", "reshape", "_reshape_copy", "view_copy")
def _view(xp: Any, x: Array, shape: Sequence[int]) -> Array:
    return xp.reshape(x, tuple(shape))


@_rule("permute", "permute_copy")
def _permute(xp: Any, x: Array, axes: Sequence[int]) -> Array:
    return xp.permute_dims(x, tuple(axis % x.ndim for axis in axes))


@_rule("transpose")
def _transpose(xp: Any, x: Array, first: int, second: int) -> Array:
    axes = list(range(x.ndim))
    axes[first], axes[second] = axes[second], axes[first]
    return xp.permute_dims(x, tuple(axes))


@_rule("t")
def _t(xp: Any, x: Array) -> Array:
    return x if x.ndim < 2 else xp.permute_dims(x, (1, 0))


@_rule("expand", "expand_copy")
def _expand(xp: Any, x: Array, shape: Sequence[int], **_: Any) -> Array:
    added = len(shape) - x.ndim
    return xp.broadcast_to(x, tuple(x.shape[axis - added] if size == -1 else size for axis, size in enumerate(shape)))


@_rule("unsqueeze", "unsqueeze_copy")
def _unsqueeze(xp: Any, x: Array, axis: int) -> Array:
    return xp.expand_dims(x, axis=axis)


@_rule("squeeze", "squeeze_copy")
def _squeeze(xp: Any, x: Array, axis: Any = None) -> Array:
    asked = range(x.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    ones = tuple(each % x.ndim for each in asked if x.ndim and x.shape[each] == 1)
    return xp.squeeze(x, axis=ones) if ones else x


@_rule("cat")
def _cat(xp: Any, arrays: Sequence[Array], axis: int = 0) -> Array:
    return xp.concat([each for each in arrays if tuple(each.shape) != (0,)], axis=axis)


@_rule("stack")
def _stack(xp: Any, arrays: Sequence[Array], axis: int = 0) -> Array:
    return xp.stack(list(arrays), axis=axis)


def _along(x: Array, axis: int, index: Any) -> tuple:
    return (slice(None),) * (axis % x.ndim) + (index,)


@_rule("slice", "slice_copy")
def _slice(xp: Any, x: Array, axis: int = 0, start: int | None = None, stop: int | None = None, step: int = 1) -> Array:
    return x[_along(x, axis, slice(*slice(start, stop, step).indices(x.shape[axis])))]


@_rule("select", "select_copy")
def _select(xp: Any, x: Array, axis: int, index: int) -> Array:
    return x[_along(x, axis, index)]


@_rule("split", "split_with_sizes", "split_copy", "split_with_sizes_copy")
def _split(xp: Any, x: Array, sizes: Any, axis: int = 0) -> list[Array]:
    length = x.shape[axis]
    starts = list(range(0, length, sizes)) if isinstance(sizes, int) else [sum(sizes[:place]) for place in range(len(sizes))]
    ends = [*starts[1:], length]
    return [x[_along(x, axis, slice(start, end))] for start, end in zip(starts, ends, strict=True)]


@_rule("index_select")
def _index_select(xp: Any, x: Array, axis: int, index: Array) -> Array:
    return xp.take(x, index, axis=axis)


@_rule("embedding")
def _embedding(xp: Any, table: Array, index: Array, *_: Any) -> Array:
    flat = xp.take(table, xp.reshape(index, (-1,)), axis=0)
    return xp.reshape(flat, (*index.shape, table.shape[1]))


@_rule("gather")
def _gather(xp: Any, x: Array, axis: int, index: Array, **_: Any) -> Array:
    return xp.take_along_axis(
        x[tuple(slice(size) if at != axis % x.ndim else slice(None) for at, size in enumerate(index.shape))], index, axis=axis
    )


@_rule("index")
def _index(xp: Any, x: Array, indices: Sequence[Any]) -> Array:
    return x[tuple(slice(None) if each is None else each for each in indices)]


@_rule("flip")
def _flip(xp: Any, x: Array, axes: Sequence[int]) -> Array:
    return xp.flip(x, axis=tuple(axes))


@_rule("roll")
def _roll(xp: Any, x: Array, shifts: Any, axes: Any = ()) -> Array:
    return xp.roll(x, tuple(shifts) if axes else shifts[0], axis=tuple(axes) if axes else None)


@_rule("repeat")
def _repeat(xp: Any, x: Array, times: Sequence[int]) -> Array:
    return xp.tile(x, tuple(times))


@_rule("constant_pad_nd")
def _pad(xp: Any, x: Array, pads: Sequence[int], value: float = 0) -> Array:
    for place in range(len(pads) // 2):
        axis = x.ndim - 1 - place
        x = windows.padded(xp, x, axis, pads[2 * place], pads[2 * place + 1], value)
    return x


@_rule("tril")
def _tril(xp: Any, x: Array, diagonal: int = 0) -> Array:
    return xp.tril(x, k=diagonal)


@_rule("triu")
def _triu(xp: Any, x: Array, diagonal: int = 0) -> Array:
    return xp.triu(x, k=diagonal)


@_rule("diagonal", "diagonal_copy")
def _diagonal(xp: Any, x: Array, offset: int = 0, first: int = 0, second: int = 1) -> Array:
    if {first % x.ndim, second % x.ndim} != {x.ndim - 2, x.ndim - 1}:
        raise NoRule("no rule for diagonal of other than the last two axes")
    return xp.linalg.diagonal(x, offset=offset if first % x.ndim < second % x.ndim else -offset)


# -- what a backward pass has -----------------------------------------------------------------------------------------
@_rule("slice_scatter")
def _slice_scatter(
    xp: Any, x: Array, part: Array, axis: int = 0, start: int | None = None, stop: int | None = None, step: int = 1
) -> Array:
    first, last, step = slice(start, stop, step).indices(x.shape[axis])
    if step != 1:
        raise NoRule("no rule for slice_scatter with a step")
    return xp.concat([x[_along(x, axis, slice(0, first))], part, x[_along(x, axis, slice(max(first, last), None))]], axis=axis)


@_rule("select_scatter")
def _select_scatter(xp: Any, x: Array, part: Array, axis: int, index: int) -> Array:
    index %= x.shape[axis]
    return _slice_scatter(xp, x, xp.expand_dims(part, axis=axis), axis, index, index + 1)


@_rule("scatter")
def _scatter(xp: Any, x: Array, axis: int, index: Array, source: Any, **_: Any) -> Array:
    """x (..., length, ...) with source (or one number) at index along `axis`; the last of two at one place."""
    places = xp.reshape(xp.arange(x.shape[axis]), tuple(-1 if at == axis % x.ndim else 1 for at in range(x.ndim)))
    if any(index.shape[at] != x.shape[at] for at in range(x.ndim) if at != axis % x.ndim):
        raise NoRule("no rule for scatter of fewer rows than there are")
    for at in range(index.shape[axis]):
        one = _along(x, axis, slice(at, at + 1))
        new = source[one] if _is_array(source) else xp.asarray(source, dtype=x.dtype)
        x = xp.where(index[one] == places, new, x)
    return x

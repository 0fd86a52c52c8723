"""Operators of each element: arithmetic, comparisons, activations, conversions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from bitverdict.harness.contracts.torch_mathematics.operators.rules import RULES, arrays_of, is_array, rule

if TYPE_CHECKING:
    from bitverdict.reference.array_api import Array, ArrayNamespace


def _elementwise(torch_name: str, name: str) -> None:
    RULES[f"aten.{torch_name}"] = lambda xp, *arrays: getattr(xp, name)(*arrays_of(xp, arrays))


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


@rule("add")
def _add(xp: ArrayNamespace, a: Array, b: Array, *, alpha: float = 1) -> Array:
    return a + (b if alpha == 1 else b * alpha)


@rule("sub")
def _sub(xp: ArrayNamespace, a: Array, b: Array, *, alpha: float = 1) -> Array:
    return a - (b if alpha == 1 else b * alpha)


@rule("rsub")
def _rsub(xp: ArrayNamespace, a: Array, b: Array, alpha: float = 1) -> Array:
    return b - (a if alpha == 1 else a * alpha)


@rule("mul")
def _mul(xp: ArrayNamespace, a: Array, b: Array) -> Array:
    return a * b


@rule("div")
def _div(xp: ArrayNamespace, a: Array, b: Array, *, rounding_mode: str | None = None) -> Array:
    quotient = a / b
    return quotient if rounding_mode is None else xp.floor(quotient) if rounding_mode == "floor" else xp.trunc(quotient)


@rule("pow")
def _pow(xp: ArrayNamespace, x: Array, exponent: float) -> Array:
    """A small whole exponent is a product of factors, whatever sign `x` has; one half is a square root."""
    if is_array(exponent) or not is_array(x):
        return xp.pow(*arrays_of(xp, (x, exponent)))
    if exponent in (0.5, -0.5):
        return xp.sqrt(x) if exponent > 0 else 1.0 / xp.sqrt(x)
    if exponent == int(exponent) and 0 < abs(exponent) <= 8:
        made = x
        for _ in range(abs(int(exponent)) - 1):
            made = made * x
        return made if exponent > 0 else 1.0 / made
    return xp.pow(*arrays_of(xp, (x, exponent)))


@rule("fmod")
def _fmod(xp: ArrayNamespace, a: Array, b: Array) -> Array:
    """The remainder that has the sign of `a`: of floats a rounding may be near a multiple, which the truncation tells."""
    a, b = arrays_of(xp, (a, b))
    rest = xp.remainder(xp.abs(a), xp.abs(b))
    return xp.where(a < 0, -rest, rest)


@rule("reciprocal")
def _reciprocal(xp: ArrayNamespace, x: Array) -> Array:
    return 1.0 / x


@rule("rsqrt")
def _rsqrt(xp: ArrayNamespace, x: Array) -> Array:
    return 1.0 / xp.sqrt(x)


@rule("sigmoid")
def _sigmoid(xp: ArrayNamespace, x: Array) -> Array:
    return 1.0 / (1.0 + xp.exp(-x))


@rule("relu")
def _relu(xp: ArrayNamespace, x: Array) -> Array:
    return xp.maximum(x, xp.zeros_like(x))


@rule("gelu")
def _gelu(xp: ArrayNamespace, x: Array, approximate: str = "none") -> Array:
    if approximate == "tanh":
        return 0.5 * x * (1.0 + xp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1.0 + xp.erf(x * math.sqrt(0.5)))


@rule("leaky_relu")
def _leaky_relu(xp: ArrayNamespace, x: Array, slope: float = 0.01) -> Array:
    return xp.where(x > 0, x, x * slope)


@rule("elu")
def _elu(xp: ArrayNamespace, x: Array, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Array:
    return xp.where(x > 0, x * scale, xp.expm1(x * input_scale) * (alpha * scale))


@rule("clamp", "hardtanh")
def _clamp(xp: ArrayNamespace, x: Array, low: Array | None = None, high: Array | None = None) -> Array:
    x = x if low is None else xp.maximum(*arrays_of(xp, (x, low)))
    return x if high is None else xp.minimum(*arrays_of(xp, (x, high)))


@rule("clamp_min")
def _clamp_min(xp: ArrayNamespace, x: Array, low: Array) -> Array:
    return _clamp(xp, x, low)


@rule("clamp_max")
def _clamp_max(xp: ArrayNamespace, x: Array, high: Array) -> Array:
    return _clamp(xp, x, None, high)


@rule("where")
def _where(xp: ArrayNamespace, condition: Array, a: Array, b: Array) -> Array:
    return xp.where(condition, *arrays_of(xp, (a, b)))


@rule("masked_fill")
def _masked_fill(xp: ArrayNamespace, x: Array, mask: Array, value: Array) -> Array:
    return xp.where(mask, *arrays_of(xp, (value, x)))


@rule("_to_copy", "to", "convert_element_type")
def _to_copy(xp: ArrayNamespace, x: Array, *, dtype: torch.dtype | None = None, **_: object) -> Array:
    if dtype is None or (dtype.is_floating_point and xp.isdtype(x.dtype, "real floating")):
        return x  # a rounding, if any: what may be kept narrower is told by the dtype that torch gives it
    return xp.astype(x, dtype_in(xp, dtype))


def dtype_in(xp: ArrayNamespace, dtype: torch.dtype | None) -> Any:
    """The dtype of `xp` that computes what torch's does: every float is a float64."""
    if dtype is None or dtype.is_floating_point:
        return xp.float64
    return getattr(xp, str(dtype).removeprefix("torch."))

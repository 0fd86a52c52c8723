"""Whole numbers and bits: exact, and hanging where a step lies inside the error."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bitverdict.reference.tracing.arrays import Operand, TracedArray, array, pair, union_masks
from bitverdict.reference.tracing.comparisons import logic
from bitverdict.reference.tracing.dtypes import Untraceable
from bitverdict.reference.tracing.function_errors import FUNCTIONS
from bitverdict.reference.tracing.real_arithmetic import add_, product, quotient
from bitverdict.reference.tracing.results import around, float_type, integers, real
from bitverdict.reference.tracing.state import Trace, operation


def _put_bits(name: str, function: Callable[..., np.ndarray], bools: Callable[..., np.ndarray] | None) -> None:
    @operation(name)
    def traced_bits(trace: Trace, x1: Operand, x2: Operand) -> TracedArray:
        left, right = pair(trace, x1, x2)
        if left.is_float or right.is_float:
            raise Untraceable(name, "of floats; xp.bits gives their words")
        if "bool" == left.dtype.kind == right.dtype.kind:
            if bools is None:
                raise Untraceable(name, "of bool arrays")
            return logic(trace, bools, left, right)
        return integers(trace, function, left, right)

    traced_bits.__doc__ = f"{name}(x1, x2) of integers."


for _arguments in (
    ("bitwise_and", np.bitwise_and, np.logical_and), ("bitwise_or", np.bitwise_or, np.logical_or),
    ("bitwise_xor", np.bitwise_xor, np.logical_xor), ("bitwise_left_shift", np.left_shift, None),
    ("bitwise_right_shift", np.right_shift, None),
):  # fmt: skip
    _put_bits(*_arguments)


@operation("bitwise_invert")
def bitwise_invert(trace: Trace, x: Operand) -> TracedArray:
    """All bits of an integer, or a bool, the other way."""
    x = array(trace, x)
    if x.is_float:
        raise Untraceable("bitwise_invert", "of floats")
    return TracedArray(trace, x.dtype, ~x.value, hangs=x.hangs, words_differ=x.words_differ)


def _steps(trace: Trace, name: str, function: Callable[..., np.ndarray], x: Operand) -> TracedArray:
    """A function that is constant between whole numbers: exact, hanging where a step lies inside the error."""
    x = array(trace, x)
    if not x.is_float:
        return x if name != "sign" else TracedArray(trace, x.dtype, np.sign(x.value), hangs=x.hangs, words_differ=x.words_differ)
    value = function(x.value)
    result = TracedArray(trace, x.dtype if x.error is None and x.low is None else float_type(trace), value, open=x.open)
    with np.errstate(invalid="ignore"):
        if x.error is not None:
            low, high = around(x.value, x.error)
            apart = function(low) != function(high)
            hanging = (apart & ~np.isnan(value)) | np.isinf(x.error)
            result.error = np.where(hanging, np.inf, 0.0) if hanging.any() else None
        if x.low is not None:
            result.low, result.high = function(x.low), function(x.high)
            if np.array_equal(result.low, value, equal_nan=True) and np.array_equal(result.high, value, equal_nan=True):
                result.low = result.high = None
    return result


def _put_steps(name: str, function: Callable[..., np.ndarray]) -> None:
    @operation(name)
    def traced_steps(trace: Trace, x: Operand) -> TracedArray:
        return _steps(trace, name, function, x)

    traced_steps.__doc__ = f"{name}(x): exact, and unknown where a step lies inside the error."


_put_steps("floor", np.floor)


_put_steps("ceil", np.ceil)


_put_steps("trunc", np.trunc)


_put_steps("round", np.rint)


_put_steps("sign", np.sign)


@operation("remainder")
def remainder(trace: Trace, x1: Operand, x2: Operand) -> TracedArray:
    """x1 - floor(x1 / x2) x2, with the sign of x2."""
    left, right = pair(trace, x1, x2)
    if not left.is_float and not right.is_float:
        return _by_zero(trace, "remainder", np.remainder, left, right)
    whole = floor_divide(trace, left, right)
    with np.errstate(all="ignore"):
        return add_(trace, "remainder", real(left), product(trace, "remainder", whole, real(right)), -1.0)


@operation("floor_divide")
def floor_divide(trace: Trace, x1: Operand, x2: Operand) -> TracedArray:
    """floor(x1 / x2)."""
    left, right = pair(trace, x1, x2)
    if not left.is_float and not right.is_float:
        return _by_zero(trace, "floor_divide", np.floor_divide, left, right)

    with np.errstate(all="ignore"):
        return _steps(trace, "floor", np.floor, quotient(trace, "floor_divide", real(left), real(right), FUNCTIONS["divide"]))


def _by_zero(trace: Trace, name: str, function: Callable[..., np.ndarray], left: TracedArray, right: TracedArray) -> TracedArray:
    """Integers by integers: nothing is known of a division by zero."""
    found = integers(trace, function, left, right)
    zero = np.broadcast_to(right.value == 0, found.shape)
    if zero.any():
        found.hangs, found.words_differ = union_masks(found.hangs, zero), union_masks(found.words_differ, zero)
    return found

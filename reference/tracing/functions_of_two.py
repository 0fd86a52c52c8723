"""Functions of two real numbers, and what is written with them."""

from __future__ import annotations

import numpy as np

from bitverdict.reference.tracing.accumulation import Ends, widen_ends
from bitverdict.reference.tracing.arrays import Operand, TracedArray, pair
from bitverdict.reference.tracing.choices import absolute, maximum, minimum
from bitverdict.reference.tracing.dtypes import Untraceable
from bitverdict.reference.tracing.function_errors import function_error
from bitverdict.reference.tracing.functions import ACCURACY, monotone
from bitverdict.reference.tracing.real_arithmetic import add, divide, multiply, subtract
from bitverdict.reference.tracing.results import V, around, errors, integers, real, settle_result
from bitverdict.reference.tracing.state import OPERATIONS, Trace, operation


@operation("pow")
def power(trace: Trace, x1: Operand, x2: Operand) -> TracedArray:
    """x1 ** x2; by a small integer, a product; by a half, a root."""

    if isinstance(x2, (int, float)) and isinstance(x1, TracedArray):
        if x2 in (0.5, -0.5):
            root = monotone(trace, "sqrt", real(x1))
            return root if x2 > 0 else divide(trace, 1.0, root)
        if float(x2).is_integer() and 1 <= abs(x2) <= 16 and (x1.is_float or x2 > 0):
            found = x1
            for _ in range(int(abs(x2)) - 1):
                found = multiply(trace, found, x1)
            return found if x2 > 0 else divide(trace, 1.0, found)
    return _general_power(trace, x1, x2)


def _general_power(trace: Trace, x1: Operand, x2: Operand) -> TracedArray:
    """x1 ** x2 = exp(x2 log(x1)) for x1 > 0, monotone in each operand: its extremes lie at the ends."""
    left, right = pair(trace, x1, x2)
    if not left.is_float and not right.is_float:
        if (right.value < 0).any():
            raise Untraceable("pow", "of an integer by a negative one")
        return integers(trace, np.power, left, right)
    left, right = real(left), real(right)
    with np.errstate(all="ignore"):
        value = np.power(left.value, right.value)
        value_error: np.ndarray = ACCURACY * np.abs(value)
        if left.error is not None or right.error is not None:
            boxes = around(left.value, errors(left)), around(right.value, errors(right))
            corners = [np.power(one, other) for one in boxes[0] for other in boxes[1]]
            spread = np.maximum.reduce([np.abs(corner - value) for corner in corners])
            value_error = value_error + np.where(boxes[0][0] > 0, spread, np.inf)
        four = [np.power(a, b) for a in left.ends for b in right.ends]
        low, high = np.minimum.reduce(four), np.maximum.reduce(four)
        exact = left.low is None and right.low is None
        outside = None if exact else left.ends[0] <= 0
        ends: Ends = widen_ends(low, high, ACCURACY)
        trace.note("pow")
        ends = function_error("pow", trace.arch).apply(trace, *ends)
        return settle_result(trace, value, value_error, ends, (left, right), meets=outside)


@operation("square")
def square(trace: Trace, x: Operand) -> TracedArray:
    """x x."""

    return multiply(trace, x, x)


@operation("reciprocal")
def reciprocal(trace: Trace, x: Operand) -> TracedArray:
    """1 / x."""

    return divide(trace, 1.0, x)


@operation("hypot")
def hypot(trace: Trace, x1: Operand, x2: Operand) -> TracedArray:
    """sqrt(x1^2 + x2^2)."""
    left, right = pair(trace, x1, x2)
    left, right = absolute(trace, real(left)), absolute(trace, real(right))
    with np.errstate(all="ignore"):
        value = np.hypot(left.value, right.value)
        error = 8 * V * value + errors(left) + errors(right)
        ends = tuple(np.hypot(a, b) for a, b in zip(left.ends, right.ends, strict=True))
        trace.note("hypot")
        ends = function_error("hypot", trace.arch).apply(trace, *ends)
        return settle_result(trace, value, error, ends, (left, right))


@operation("atan2")
def atan2(trace: Trace, x1: Operand, x2: Operand) -> TracedArray:
    """The angle of (x2, x1): of a box that holds neither the origin nor a negative x2 on the axis, the extremes lie at corners."""
    left, right = pair(trace, x1, x2)
    left, right = real(left), real(right)
    with np.errstate(all="ignore"):
        value = np.arctan2(left.value, right.value)

        def box(one: Ends, other: Ends) -> Ends:
            corners = [np.arctan2(a, b) for a in one for b in other]
            across = (one[0] <= 0) & (one[1] >= 0) & (other[0] <= 0) & ((one[0] != one[1]) | (other[0] != other[1]))
            low, high = np.minimum.reduce(corners), np.maximum.reduce(corners)
            return np.where(across, -np.pi, low), np.where(across, np.pi, high)

        error = ACCURACY * np.abs(value)
        if left.error is not None or right.error is not None:
            low, high = box(around(left.value, errors(left)), around(right.value, errors(right)))
            error = error + np.maximum(high - value, value - low)
        ends = widen_ends(*box(left.ends, right.ends), ACCURACY)
        trace.note("atan2")
        ends = function_error("atan2", trace.arch).apply(trace, *ends)
        return settle_result(trace, value, error, ends, (left, right))


@operation("logaddexp")
def logaddexp(trace: Trace, x1: Operand, x2: Operand) -> TracedArray:
    """log(exp(x1) + exp(x2)), as an implementation writes it: the larger, plus log1p of the exponential of the difference."""
    largest = maximum(trace, x1, x2)
    least = minimum(trace, x1, x2)
    return add(trace, largest, OPERATIONS["log1p"](trace, OPERATIONS["exp"](trace, subtract(trace, least, largest))))

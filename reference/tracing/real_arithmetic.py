"""Sum, difference, product and quotient of traced floats: value, running error, and the words of implementations.

Write u for the unit of the accumulation type (2^-24 of fp32), and v for 2^-53, that of float64.

*Running error.* Of operands within ea and eb of the mathematics, a + b is within ea + eb + v |a + b|, a b within
|a| eb + |b| ea + ea eb + v |a b|, a / b within (ea + |q| eb) / (|b| - eb) + v |q|. A sum of exact operands has the error of its one
rounding, which TwoSum gives (Knuth); a product of two numbers of 24 bits has none.

*Words of a sum.* Exact arithmetic on the ends, then one rounding that may be left out: a product that is contracted into the sum is
one such, and so covers `fma` either way. A chain of + and - over n > 2 terms is a sum in any order (`Chain`): no partial result
leaves X = (G + |s|) / 2, G the sum of magnitudes and s the sum (reference/error_bound.py, step 1), each of the n - 2 roundings
before the last moves it by u X at most, and so it stays within X (1 + u)^(n - 2). Where that may overflow, so may a partial sum.

*Words of a product.* Likewise; a chain of n factors in any order has n - 1 roundings, the last on the whole product, each other at
most u of it. If the exact product is a number of the type, so is each part of it, up to powers of two: nothing is rounded. A part
is at most the product of all factors above one, and overflows where that does; and at least that of all below one: where it is
subnormal, its rounding is an absolute error, multiplied by the factors above one.

*Words of a quotient.* `Function` "divide" of `function_errors.py`. By an exact power of two nothing is lost but in the subnormals.
Where a reciprocal would be subnormal it may be zero, or off by |a| times half the smallest subnormal number. That of a subnormal
divisor may overflow.
"""

from __future__ import annotations

import numpy as np

from bitverdict.reference.tracing.accumulation import MARGIN, Ends, widen_ends
from bitverdict.reference.tracing.arrays import Chain, Operand, TracedArray, pair
from bitverdict.reference.tracing.dtypes import Untraceable
from bitverdict.reference.tracing.function_errors import FUNCTIONS, Function
from bitverdict.reference.tracing.results import (
    V,
    all_finite,
    around,
    certain_nan,
    integers,
    is_narrow,
    real,
    rounded_once,
    settle_result,
    underflow,
)
from bitverdict.reference.tracing.state import Trace, operation


def add_(trace: Trace, name: str, left: TracedArray, right: TracedArray, sign: float) -> TracedArray:
    """left + sign right."""
    a, b = left.value, right.value if sign > 0 else -right.value
    value = a + b
    back = value - a
    residual = np.abs((a - (value - back)) + (b - back))
    error: np.ndarray | None = residual
    if left.error is not None or right.error is not None:
        error = residual + _sum_of(left.error, right.error) * (1 + 2 * V)
    elif not residual.any():
        error = None
    left_chain, right_chain = left.chain, right.chain
    parts = [part for part in (left_chain, right_chain) if part is not None and part.kind == "sum"]
    meets = None
    if left.low is None and right.low is None and not parts:
        raw: Ends | None = None
        chain_ends: Ends = (value, value) if error is None else around(value, error)
    else:
        (al, ah), (bl, bh) = _terms(left), _terms(right)
        if sign < 0:
            bl, bh = -bh, -bl
        chain_ends = raw = al + bl, ah + bh
        if not (all_finite(raw[0]) and all_finite(raw[1])):
            (al, ah), (bl, bh) = left.ends, right.ends if sign > 0 else (-right.ends[1], -right.ends[0])
            meets = ((al == -np.inf) & (bh == np.inf)) | ((ah == np.inf) & (bl == -np.inf))
        raw = widen_ends(*raw, _margin(error, raw))
    count = sum(part.count for part in parts) + 2 - len(parts)
    chain = Chain("sum", count, *chain_ends, (left, right))
    trace.note(name)
    if parts:
        magnitude = chain.magnitude
        unit, farthest = trace.accumulation.unit, np.maximum(np.abs(chain_ends[0]), np.abs(chain_ends[1]))
        reach = (magnitude + farthest) / 2 * (1 + unit) ** (count - 2)
        lost = np.where(_sums_exactly(trace, left, right, magnitude), 0.0, (count - 2) * unit * (1 + MARGIN) * reach)
        lost = lost if error is None else lost + np.where(error > 0, 2 * count * V * magnitude, 0.0)  # float64's own
        lost = np.where(np.isnan(lost), 0.0, np.minimum(lost, count * unit * trace.accumulation.largest))
        raw = widen_ends(*chain_ends, _margin(error, chain_ends), lost)
        rises = (magnitude + chain_ends[1]) / 2 + lost >= trace.accumulation.largest
        falls = (magnitude - chain_ends[0]) / 2 + lost >= trace.accumulation.largest
        if rises.any() or falls.any():
            raw = np.where(falls, -np.inf, raw[0]), np.where(rises, np.inf, raw[1])
            meets = (rises & falls) if meets is None else meets | (rises & falls)
    ends = rounded_once(trace, value, error, raw)
    return settle_result(trace, value, error, ends, (left, right), meets=meets, chain=chain, nan_passes=certain_nan(left, right))


def _margin(error: np.ndarray | None, ends: Ends) -> np.ndarray:
    """What float64 may have lost of the ends, relatively: nothing where both are one exact number."""
    apart = ends[0] != ends[1]
    return np.where(apart if error is None else apart | (error > 0), MARGIN, 0.0)


def _terms(array: TracedArray) -> Ends:
    """The ends that an operand of a sum brings: of a chain without its own roundings."""
    if array.chain is not None and array.chain.kind == "sum":
        return array.chain.low, array.chain.high
    return array.ends


def _sums_exactly(trace: Trace, left: TracedArray, right: TracedArray, magnitude: np.ndarray) -> np.ndarray | bool:
    """Whether all terms are integers whose magnitudes sum to less than 1 / u: then no order rounds."""
    if left.error is not None or right.error is not None:
        return False
    ends = [*_terms(left), *_terms(right)]
    whole: np.ndarray = (magnitude * trace.accumulation.unit < 1) & (ends[0] == ends[1]) & (ends[2] == ends[3])
    whole &= (np.floor(ends[0]) == ends[0]) & (np.floor(ends[2]) == ends[2])
    return whole


def _sum_of(left: np.ndarray | None, right: np.ndarray | None) -> np.ndarray:
    if left is None:
        return np.asarray(right)
    return left if right is None else left + right


@operation("add")
def add(trace: Trace, x1: Operand, x2: Operand) -> TracedArray:
    """x1 + x2."""
    return _arithmetic(trace, "add", x1, x2)


@operation("subtract")
def subtract(trace: Trace, x1: Operand, x2: Operand) -> TracedArray:
    """x1 - x2."""
    return _arithmetic(trace, "subtract", x1, x2)


@operation("multiply")
def multiply(trace: Trace, x1: Operand, x2: Operand) -> TracedArray:
    """x1 x2."""
    return _arithmetic(trace, "multiply", x1, x2)


_WHOLE_NUMBERS = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply}


def _arithmetic(trace: Trace, name: str, x1: Operand, x2: Operand) -> TracedArray:
    left, right = pair(trace, x1, x2)
    if left.is_float or right.is_float:
        left, right = real(left), real(right)
        with np.errstate(all="ignore"):
            if name == "multiply":
                return product(trace, name, left, right)
            if left.scalar and left.value == 0 and name == "add":  # sum() of Python starts so
                return right
            return add_(trace, name, left, right, 1.0 if name == "add" else -1.0)
    if "bool" == left.dtype.kind == right.dtype.kind:
        raise Untraceable(name, "of two bool arrays")
    return integers(trace, _WHOLE_NUMBERS[name], left, right)


def ends_of_product(left: Ends, right: Ends) -> Ends:
    """The least and the largest product of numbers in two intervals."""
    (al, ah), (bl, bh) = left, right
    if al is ah and bl is bh:
        exact = al * bl
        return exact, exact
    if al is ah:
        one, other = al * bl, al * bh
        return np.minimum(one, other), np.maximum(one, other)
    if bl is bh:
        one, other = al * bl, ah * bl
        return np.minimum(one, other), np.maximum(one, other)
    four = al * bl, al * bh, ah * bl, ah * bh
    return np.minimum(np.minimum(four[0], four[1]), np.minimum(four[2], four[3])), np.maximum(
        np.maximum(four[0], four[1]), np.maximum(four[2], four[3])
    )


def product(trace: Trace, name: str, left: TracedArray, right: TracedArray) -> TracedArray:
    """left right; of an array with itself, a square."""
    a, b = left.value, right.value
    value = a * b
    exact = is_narrow(left) and is_narrow(right)
    error = None if exact else error_of_product(left, right, value)
    parts = [part for part in (left.chain, right.chain) if part is not None and part.kind == "product"]
    meets = None
    if exact and not parts:
        raw: Ends | None = None
        chain_ends = value, value
    else:
        factors = _factor_ends(left), _factor_ends(right)
        chain_ends = raw = square_ends(factors[0]) if left is right else ends_of_product(*factors)
        if not (all_finite(raw[0]) and all_finite(raw[1])):
            meets = zero_meets_infinity(left.ends, right.ends)  # once rounded, a part may be zero, or infinite
    count = sum(part.count for part in parts) + 2 - len(parts)
    chain, how = Chain("product", count, *chain_ends, (left, right)), trace.accumulation
    if raw is not None and (error is not None or raw[0] is not raw[1]):
        raw = widen_ends(*raw, _margin(error, raw) * (1 + count / 64))
    trace.note(name)
    if raw is not None and count > 2:
        lost: np.ndarray | float = (count - 2) * how.unit * (1 + MARGIN) * (1 + how.unit) ** count
        if error is None and raw[0] is raw[1]:
            lost = np.where(how.round(value) == value, 0.0, lost)
        raw = widen_ends(*raw, lost)
        beyond = chain.extent(True)
        below = np.where(chain.extent(False) < how.smallest_normal, count * how.smallest_normal * how.unit * beyond, 0.0)
        raw = widen_ends(*raw, 0.0, below) if below.any() else raw
        over = beyond * (1 + how.unit) ** count >= how.largest
        if over.any():
            signs = np.where(over & (raw[1] > 0), np.inf, raw[1]), np.where(over & (raw[0] < 0), -np.inf, raw[0])
            zero = over & _any_zero(chain)
            meets = zero if meets is None else meets | zero
            raw = signs[1], signs[0]
    ends = rounded_once(trace, value, error, raw)
    found = settle_result(trace, value, error, ends, (left, right), meets=meets, chain=chain, nan_passes=certain_nan(left, right))
    found.operand_formats = _narrow_operands(left) | _narrow_operands(right)
    found.has_scales = bool(found.operand_formats)
    return found


def _narrow_operands(array: TracedArray) -> frozenset[str]:
    """Formats of at most 8 bits, of an operand as it was given or of what was scaled already."""
    if array.has_scales:
        return array.operand_formats
    fmt = array.dtype.number
    return frozenset({fmt.name}) if fmt is not None and fmt.width <= 8 and fmt.mantissa_bits and fmt.has_sign else frozenset()


def _any_zero(chain: Chain) -> np.ndarray:
    """Where a factor of a product may be zero."""
    found = np.zeros((), bool)
    for factor in chain.operands:
        inner = factor.chain is not None and factor.chain.kind == "product"
        found = found | (_any_zero(factor.chain) if inner and factor.chain is not None else _holds_zero(factor.ends))
    return found


def _unless_zero(array: TracedArray) -> np.ndarray:
    """0 where the mathematics is known to be zero."""
    return array.value if array.error is None else np.where(array.error > 0, 1.0, array.value)


def error_of_product(left: TracedArray, right: TracedArray, value: np.ndarray) -> np.ndarray:
    """Running error of a product."""
    error: np.ndarray = V * np.abs(value) + underflow(value, _unless_zero(left), _unless_zero(right))
    if left.error is not None:
        error = error + left.error * np.abs(right.value)
    if right.error is not None:
        error = error + right.error * (np.abs(left.value) if left.error is None else np.abs(left.value) + left.error)
    return error


def square_ends(ends: Ends) -> Ends:
    """Of the squares of what lies between."""
    low, high = ends
    if low is high:
        exact = low * low
        return exact, exact
    one, other = low * low, high * high
    return np.where((low <= 0) & (high >= 0), 0.0, np.minimum(one, other)), np.maximum(one, other)


def zero_meets_infinity(left: Ends, right: Ends) -> np.ndarray:
    """Where a zero of one side may be multiplied by an infinity of the other."""

    def meets(zero: Ends, infinity: Ends) -> np.ndarray:
        return (zero[0] <= 0) & (zero[1] >= 0) & (np.isinf(infinity[0]) | np.isinf(infinity[1]))

    result: np.ndarray = meets(left, right) | meets(right, left)
    return result


def _factor_ends(array: TracedArray) -> Ends:
    if array.chain is not None and array.chain.kind == "product":
        return array.chain.low, array.chain.high
    return array.ends


@operation("divide")
def divide(trace: Trace, x1: Operand, x2: Operand) -> TracedArray:
    """x1 / x2 of real numbers; integers become floats."""
    left, right = pair(trace, x1, x2)
    left, right = real(left), real(right)
    with np.errstate(all="ignore"):
        return quotient(trace, "divide", left, right, FUNCTIONS["divide"])


def quotient(trace: Trace, name: str, left: TracedArray, right: TracedArray, rule: Function) -> TracedArray:
    """left / right to within `rule`."""
    a, b = left.value, right.value
    value = a / b
    size = np.abs(value)
    error: np.ndarray | None = V * size + underflow(value, _unless_zero(left))
    if left.error is not None or right.error is not None:
        eb = 0.0 if right.error is None else right.error
        ea = 0.0 if left.error is None else left.error
        room = np.abs(b) - eb
        error = np.where(room > 0, (ea + size * eb) / np.where(room > 0, room, 1.0) * (1 + 2.0**-50), np.inf) + error
        # an overflow of float64 below: a / b is nearer to zero than |a| 2^-1022
        error = np.where(np.isinf(b), np.abs(a) * 2.0**-1022, error) if np.isinf(b).any() else error
    if is_narrow(left) and is_narrow(right):
        whole = (value * b == a) & (value.astype(np.float32) == value)  # 24 bits by 24 bits: the product is exact
        error = np.where(whole, 0.0, np.asarray(error)) if whole.any() else error
    (al, ah), (bl, bh) = left.ends, right.ends
    if bl is bh:
        one, other = (value, value) if al is ah else (al / bl, ah / bl)
        low, high = (one, other) if one is other else (np.minimum(one, other), np.maximum(one, other))
        straddles = None
    else:
        quotients = [al / bl, al / bh] if al is ah else [al / bl, al / bh, ah / bl, ah / bh]
        low, high = np.minimum.reduce(quotients), np.maximum.reduce(quotients)
        signs = np.signbit(bl) != np.signbit(bh)  # of a zero too
        straddles = ((bl < 0) & (bh > 0)) | ((bl == 0) & (bh == 0) & (signs | (np.signbit(b) != np.signbit(bl))))
        if straddles.any():
            low, high = np.where(straddles, -np.inf, low), np.where(straddles, np.inf, high)
        else:
            straddles = None
    meets = None
    if bl is bh and _powers_of_two(b):
        ends = rounded_once(trace, value, None, None) if al is ah else trace.accumulation.outward(low, high)
        error = None if is_narrow(left) and is_narrow(right) and all_finite(value) else error
    else:
        trace.note(name)
        low, high, meets = _by_reciprocal(trace, left.ends, right.ends, *rule.apply(trace, *widen_ends(low, high, MARGIN)))
        ends = low, high
    if not (all_finite(low) and all_finite(high)):
        both = (_holds_zero(left.ends) & _holds_zero(right.ends)) | (_holds_infinity(left.ends) & _holds_infinity(right.ends))
        meets = both if meets is None else meets | both
    given = (b == 0) & (right.error is None) if not all_finite(value) else None
    return settle_result(
        trace, value, error, ends, (left, right), meets=meets, infinite_operands=given, nan_passes=certain_nan(left, right)
    )


def _by_reciprocal(
    trace: Trace, left: Ends, right: Ends, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The quotient [low, high], and where it may be NaN, once a reciprocal may be flushed to zero, or overflow."""
    least_normal = trace.accumulation.smallest_normal
    a = np.maximum(np.abs(left[0]), np.abs(left[1]))
    sizes = np.abs(right[0]), np.abs(right[1])
    reciprocal_flushes, reciprocal_overflows = np.maximum(*sizes) * least_normal >= 1 - 2.0**-16, np.minimum(*sizes) < least_normal
    if reciprocal_flushes.any():
        lost = np.where(reciprocal_flushes & np.isfinite(a), a * least_normal * 2 * trace.accumulation.unit, 0.0)
        low = np.where(reciprocal_flushes & (low >= 0), 0.0, low - lost)
        high = np.where(reciprocal_flushes & (high <= 0), 0.0, high + lost)
    reciprocal_overflows = reciprocal_overflows & ((right[0] != 0) | (right[1] != 0))
    endless = reciprocal_flushes & np.isinf(a)  # an infinity times a reciprocal that is flushed
    if not reciprocal_overflows.any():
        return low, high, endless if endless.any() else None
    meets = endless | (reciprocal_overflows & _holds_zero(left))
    return (
        np.where(reciprocal_overflows & (low < 0), -np.inf, low),
        np.where(reciprocal_overflows & (high > 0), np.inf, high),
        meets,
    )


def _powers_of_two(b: np.ndarray) -> bool:
    return bool((np.abs(np.frexp(b)[0]) == 0.5).all())


def _holds_zero(ends: Ends) -> np.ndarray:
    return (ends[0] <= 0) & (ends[1] >= 0)


def _holds_infinity(ends: Ends) -> np.ndarray:
    return np.isinf(ends[0]) | np.isinf(ends[1])

"""fp64 instructions: add, sub, mul, fma, div, sqrt, rcp with `.rn`, `.rz`, `.rm`, `.rp`. There is no `.ftz` of fp64.

Each takes float64 arrays of equal shape, of one dimension or more, and returns float64. PTX leaves open which NaN comes out.
Here it is what an H100 gives (`tests/hardware_words/h100_own_fp64.npz`): an operand that is NaN, with sign and payload, made
quiet. Of two it is the second of add, sub, mul, min and max, and the first of div. Of `a * b + c` it is b, then c, then a: 4,096
words of an H100 that were looked at, and not kept, show c before a. An invalid operation gives 0xFFF8000000000000. Not settled are
c beside inf * 0, and directed roundings. Here a NaN operand wins over inf * 0, and a rounding changes nothing.
"""

from __future__ import annotations

import numpy as np

from bitverdict.reference.scalar_arithmetic.exact import Rounding, round_to_odd, step_result, two_product, two_sum

UNSCALED_EXPONENTS = (
    400  # exponents between -NEAR and NEAR need no scaling: nothing in a fused multiply-add overflows or is lost below 2^-1074
)
_DOMINANT_EXPONENT = 300  # where one term of a sum is this much larger, only the sign of the other counts
SMALLEST = 2.0**-1022
_QUIET, _INVALID = np.uint64(1 << 51), np.uint64(0xFFF8000000000000)


def add(a: np.ndarray, b: np.ndarray, rounding: Rounding = "rn") -> np.ndarray:
    """a + b."""
    return with_nan(_add(a, b, rounding), b, a)


def subtract(a: np.ndarray, b: np.ndarray, rounding: Rounding = "rn") -> np.ndarray:
    """a - b; a NaN b keeps its sign."""
    return with_nan(_add(a, np.negative(b), rounding), b, a)


def multiply(a: np.ndarray, b: np.ndarray, rounding: Rounding = "rn") -> np.ndarray:
    """a * b."""
    return with_nan(_multiply(a, b, rounding), b, a)


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray, rounding: Rounding = "rn") -> np.ndarray:
    """a * b + c, rounded once."""
    return with_nan(_fma(a, b, c, rounding), b, c, a)


def divide(a: np.ndarray, b: np.ndarray, rounding: Rounding = "rn") -> np.ndarray:
    """a / b."""
    return with_nan(_divide(a, b, rounding), a, b)


def sqrt(a: np.ndarray, rounding: Rounding = "rn") -> np.ndarray:
    """The square root; NaN below -0."""
    return with_nan(_sqrt(a, rounding), a)


def reciprocal(a: np.ndarray, rounding: Rounding = "rn") -> np.ndarray:
    """1 / a."""
    return divide(np.ones_like(a), a, rounding)


def to_fp32(a: np.ndarray) -> np.ndarray:
    """float32 nearest to `a` (ties to even); a NaN keeps its sign and the upper 22 bits of its payload, and is quiet."""
    with np.errstate(all="ignore"):
        result = np.asarray(a, np.float64).astype(np.float32)  # (...)
    nan = np.isnan(result)
    if nan.any():
        words = np.asarray(a, np.float64).view(np.uint64)  # (...)
        sign, payload = words >> np.uint64(32) & np.uint64(1 << 31), words >> np.uint64(29) & np.uint64((1 << 22) - 1)  # (...)
        kept = sign | np.uint64(0x7FC00000) | payload  # (...)
        result = np.where(nan, kept.astype(np.uint32).view(np.float32), result)
    return result


def with_nan(result: np.ndarray, *operands: np.ndarray) -> np.ndarray:
    """`result`, where each NaN is the first of `operands` that is one, made quiet; if none is, that of an invalid operation."""
    nan = np.isnan(result)
    if not nan.any():
        return result
    words = np.asarray(_INVALID)
    for operand in reversed(operands):
        operand = np.asarray(operand, np.float64)  # (...)
        words = np.where(np.isnan(operand), operand.view(np.uint64) | _QUIET, words)
    return np.where(nan, words.view(np.float64), result)[()]


def _add(a: np.ndarray, b: np.ndarray, rounding: Rounding) -> np.ndarray:
    with np.errstate(all="ignore"):
        if rounding == "rn":
            result: np.ndarray = a + b
            return result
        total, error = two_sum(a, b)
        finite = np.isfinite(a) & np.isfinite(b)
        found = step_result(total, np.where(finite, np.where(np.isinf(total), -total, error), 0), rounding)
        return _signed_zero(found, a, b, (total == 0) & (error == 0)) if rounding == "rm" else found


def _multiply(a: np.ndarray, b: np.ndarray, rounding: Rounding) -> np.ndarray:
    with np.errstate(all="ignore"):
        if rounding == "rn":
            result: np.ndarray = a * b
            return result
        product = a * b
        ordinary = np.isfinite(a) & np.isfinite(b) & (a != 0) & (b != 0)
        (left, e), (right, f), (scaled, g) = (np.frexp(np.where(ordinary, each, 1.0)) for each in (a, b, product))
        high, low = two_product(left, right)
        back = np.where(np.isfinite(product), np.ldexp(np.where(product == 0, 0, scaled), _reach(g - e - f)), 0)
        error = np.where(np.isinf(product), -product, (high - back) + low)
        return step_result(product, np.where(ordinary, error, 0), rounding)


def _fma(a: np.ndarray, b: np.ndarray, c: np.ndarray, rounding: Rounding) -> np.ndarray:
    a, b, c = np.broadcast_arrays(a, b, c)
    with np.errstate(all="ignore"):
        if rounding == "rn":
            near = _needs_no_scaling(a) & _needs_no_scaling(b) & (_needs_no_scaling(c) | (c == 0))  # (...)
            if near.all():
                high, low = _fma_parts(a, b, c)
                result: np.ndarray = high + low
                return result
        found, error = _scaled_fma(a, b, c)
        if rounding == "rn":
            return found
        found = step_result(found, error, rounding)
        return _signed_zero(found, a * b, c, (found == 0) & (error == 0)) if rounding == "rm" else found


def _divide(a: np.ndarray, b: np.ndarray, rounding: Rounding) -> np.ndarray:
    with np.errstate(all="ignore"):
        quotient: np.ndarray = a / b
        if rounding == "rn":
            return quotient
        ordinary = np.isfinite(a) & np.isfinite(b) & (a != 0) & (b != 0)
        (left, e), (right, f), (scaled, g) = (
            np.frexp(np.where(ordinary & np.isfinite(each), each, 1.0)) for each in (a, b, quotient)
        )
        high, low = two_product(scaled, right)
        rest = (np.ldexp(left, _reach(e - f - g)) - high) - low  # (...) a - found * b
        error = np.where(np.isinf(quotient), -quotient, np.where(quotient == 0, a * np.sign(b), rest * np.sign(b)))
        return step_result(quotient, np.where(ordinary, error, 0), rounding)


def _sqrt(a: np.ndarray, rounding: Rounding) -> np.ndarray:
    with np.errstate(all="ignore"):
        result: np.ndarray = np.sqrt(a)
        if rounding == "rn":
            return result
        ordinary = np.isfinite(a) & (a > 0)
        value, e = np.frexp(np.where(ordinary, a, 1.0))
        value, e = np.where(e & 1, value / 2, value), e + (e & 1)
        root = np.sqrt(value)
        high, low = two_product(root, root)
        return step_result(result, np.where(ordinary, (value - high) - low, 0), rounding)


def _reach(exponents: np.ndarray) -> np.ndarray:
    result: np.ndarray = np.clip(exponents, -1200, 1000)
    return result


def _needs_no_scaling(values: np.ndarray) -> np.ndarray:
    """Whether the exponent lies between -NEAR and NEAR."""
    exponents = (values.view(np.int64) >> 52 & 0x7FF) - 1023  # (...)
    result: np.ndarray = np.abs(exponents) <= UNSCALED_EXPONENTS
    return result


def _fma_parts(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two numbers whose sum, rounded once, is a * b + c rounded once; the operands need no scaling."""
    high, low = two_product(a, b)
    total, rest = two_sum(c, low)
    found, error = two_sum(high, total)
    return found, round_to_odd(*two_sum(rest, error))


def _scaled_fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """a * b + c to nearest, and the sign of the exact value less that; any operands."""
    unscaled_result = np.where(
        np.isinf(c) & np.isfinite(a) & np.isfinite(b), c, a * b + c
    )  # right where an operand is zero or not finite
    ordinary = np.isfinite(a) & np.isfinite(b) & (a != 0) & (b != 0) & np.isfinite(c)  # (...)
    (left, e), (right, f) = (np.frexp(np.where(ordinary, each, 1.0)) for each in (a, b))
    addend, g = np.frexp(np.where(ordinary, c, 0.0))
    g = np.where(addend == 0, e + f, g)
    apart = np.clip(g - e - f, -_DOMINANT_EXPONENT, _DOMINANT_EXPONENT)  # (...)
    scale = np.where(
        g - e - f > _DOMINANT_EXPONENT, g - _DOMINANT_EXPONENT, e + f
    )  # (...) the true value is 2^scale times what follows
    high, low = two_sum(*_fma_parts(left, right, np.ldexp(addend, apart)))
    _, exponent = np.frexp(high)
    subnormal = (high != 0) & (exponent + scale < -1021)  # (...)
    nearest, rest = _to_quantum(high, low, np.clip(-1074 - scale, -1000, 900))
    high, low = np.where(subnormal, nearest, high), np.where(subnormal, rest, low)
    found = _scale(high, scale)
    low = np.where(np.isinf(found), -found, low)
    return np.where(ordinary, found, unscaled_result), np.where(ordinary, low, 0)


def _scale(values: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """values * 2^exponents where that is exact or overflows."""
    half = exponents // 2
    result: np.ndarray = np.ldexp(np.ldexp(values, half), exponents - half)
    return result


def _to_quantum(high: np.ndarray, low: np.ndarray, exponent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """high + low (|low| at most half a unit of high, |high| at most 2^52 quanta) to a multiple of 2^exponent, and what is lost."""
    quantum = np.ldexp(1.0, exponent)  # (...)
    anchor = np.copysign(np.ldexp(1.0, exponent + 52), high)
    multiple = (anchor + high) - anchor
    rest = high - multiple
    back = (2 * np.abs(rest) == quantum) & (low != 0) & (np.sign(low) == np.sign(rest))  # (...) no tie after all
    multiple = np.where(back, multiple + np.copysign(quantum, rest), multiple)
    multiple = np.where(multiple == 0, np.copysign(0.0, high), multiple)
    left = high - multiple
    return multiple, np.where(left != 0, left, low)


def _signed_zero(found: np.ndarray, a: np.ndarray, b: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """Rounding down, an exact zero of terms of different signs is -0."""
    return np.where(zero & (np.signbit(a) != np.signbit(b)), -0.0, found)

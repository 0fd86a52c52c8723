"""fp32 instructions of the ordinary pipe: add, mul, fma, div, sqrt, rcp with `.rn`, `.rz`, `.rm`, `.rp`, with and without `.ftz`.

Each takes float32 arrays that broadcast and returns float32. A NaN result is 0x7FFFFFFF. `flush` is PTX's `.ftz`: subnormal
operands count as zero of their sign, and a result is flushed when it is below 2^-126 *after rounding to 24 bits with an unbounded
exponent*. Recorded words of an H100 and an H200 (`mul.rn.ftz.f32`, `fma.rn.ftz.f32`, 65,536 products next to 2^-126 each) differ
from rounding to subnormals first in 5,764 places.
"""

from __future__ import annotations

import numpy as np

from bitverdict.reference.scalar_arithmetic.exact import Rounding, round_to_odd, step_result, two_product, two_sum

NAN = np.uint32(0x7FFFFFFF).view(np.float32)
SMALLEST = np.float32(2.0**-126)
_BELOW_FP32, _HALF_FP32 = np.uint64((1 << 29) - 1), np.uint64(1 << 28)  # bits of a float64 that fp32 has not, and half of its last
_HALF_BELOW, _ONE_BELOW = 2.0**-126 * (1 - 2.0**-25), 2.0**-126 * (1 - 2.0**-24)


def add(a: np.ndarray, b: np.ndarray, rounding: Rounding = "rn", flush: bool = False) -> np.ndarray:
    """a + b. A sum of two fp32 numbers that is subnormal is exact."""
    a, b = _operands(flush, a, b)
    with np.errstate(all="ignore"):
        if rounding == "rn":
            result = a + b
        else:
            wide = round_to_odd(*two_sum(a.astype(np.float64), b.astype(np.float64)))
            result = _narrow(wide, rounding)
            if rounding == "rm":
                result = np.where((wide == 0) & (np.signbit(a) != np.signbit(b)), np.float32(-0.0), result)
        return canonical(flush_subnormals(result) if flush else result)


def multiply(a: np.ndarray, b: np.ndarray, rounding: Rounding = "rn", flush: bool = False) -> np.ndarray:
    """a * b."""
    a, b = _operands(flush, a, b)
    with np.errstate(all="ignore"):
        if rounding == "rn":
            result = a * b
            if flush:
                result = flush_subnormals(result)
                edge = np.abs(result) == SMALLEST  # (...) may have been rounded up to it
                if edge.any():
                    lost = edge & (np.abs(a.astype(np.float64) * b.astype(np.float64)) < _HALF_BELOW)
                    result = np.where(lost, np.copysign(np.float32(0), result), result)
            return canonical(result)
        return _finish(a.astype(np.float64) * b.astype(np.float64), rounding, flush)


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray, rounding: Rounding = "rn", flush: bool = False) -> np.ndarray:
    """a * b + c, rounded once."""
    a, b, c = _operands(flush, a, b, c)
    with np.errstate(all="ignore"):
        product, addend = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
        if rounding == "rn" and (result := _rounded_twice(product + addend)) is not None:
            return result
        wide = round_to_odd(*two_sum(product, addend))
        result = _finish(wide, rounding, flush)
        if rounding == "rm":
            result = np.where((wide == 0) & (np.signbit(product) != np.signbit(addend)), np.float32(-0.0), result)
        return result


def _rounded_twice(wide_sums: np.ndarray) -> np.ndarray | None:
    """Sums rounded to float64 rounded again, where that is rounding once: no one is a tie of fp32, or nonzero below 2^-126. None
    where one is."""
    ties = (wide_sums.view(np.uint64) & _BELOW_FP32) == _HALF_FP32  # (...)
    if ties.any():
        return None
    low = np.abs(wide_sums) < SMALLEST  # (...)
    if low.any() and (low & (wide_sums != 0)).any():
        return None
    return canonical(wide_sums.astype(np.float32))


def divide(a: np.ndarray, b: np.ndarray, rounding: Rounding = "rn", flush: bool = False) -> np.ndarray:
    """a / b."""
    a, b = _operands(flush, a, b)
    with np.errstate(all="ignore"):
        if rounding == "rn" and not flush:
            return canonical(a / b)
        left, right = a.astype(np.float64), b.astype(np.float64)
        quotient = left / right
        product, low = two_product(quotient, right)
        error = ((left - product) - low) * right  # (...) the sign of the exact quotient less this one
        ordinary = np.isfinite(quotient) & np.isfinite(right) & (quotient != 0)
        return _finish(round_to_odd(quotient, np.where(ordinary, error, 0)), rounding, flush)


def sqrt(a: np.ndarray, rounding: Rounding = "rn", flush: bool = False) -> np.ndarray:
    """The square root; NaN below -0."""
    (a,) = _operands(flush, a)
    with np.errstate(all="ignore"):
        if rounding == "rn":
            return canonical(np.sqrt(a))
        wide = a.astype(np.float64)
        root = np.sqrt(wide)
        product, low = two_product(root, root)
        error = np.where(np.isfinite(root), (wide - product) - low, 0)
        return _finish(round_to_odd(root, error), rounding, flush)


def reciprocal(a: np.ndarray, rounding: Rounding = "rn", flush: bool = False) -> np.ndarray:
    """1 / a."""
    return divide(np.ones_like(a), a, rounding, flush)


def flush_subnormals(values: np.ndarray) -> np.ndarray:
    """float32 values with subnormals as zero of their sign."""
    tiny = np.abs(values) < SMALLEST
    return np.where(tiny, np.copysign(np.float32(0), values), values) if tiny.any() else values


def canonical(values: np.ndarray) -> np.ndarray:
    """float32 values with every NaN as 0x7FFFFFFF."""
    nan = np.isnan(values)
    return np.where(nan, NAN, values) if nan.any() else values


def convert_from_fp64(values: np.ndarray, rounding: Rounding = "rn", flush: bool = False) -> np.ndarray:
    """cvt.f32.f64: float64 values, each exact or rounded to odd, as float32."""
    with np.errstate(all="ignore"):
        return _finish(values, rounding, flush)


def _operands(flush: bool, *values: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(flush_subnormals(each) for each in values) if flush else values


def _narrow(wide: np.ndarray, rounding: Rounding) -> np.ndarray:
    """float64 that is exact or odd, as float32."""
    found = wide.astype(np.float32)
    if rounding == "rn":
        return found
    return step_result(found, np.where(np.isfinite(wide), wide - found.astype(np.float64), 0), rounding)


def _finish(wide_result: np.ndarray, rounding: Rounding, flush: bool) -> np.ndarray:
    result = canonical(_narrow(wide_result, rounding))
    if not flush:
        return result
    size = np.abs(wide_result)
    if rounding == "rn":
        normal = size >= _HALF_BELOW
    elif rounding == "rz":
        normal = size >= SMALLEST
    else:
        outward = (wide_result > 0) == (rounding == "rp")
        normal = np.where(outward, size > _ONE_BELOW, size >= SMALLEST)
    return np.where(normal | np.isnan(wide_result), result, np.copysign(np.float32(0), wide_result).astype(np.float32))

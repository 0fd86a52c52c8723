"""Real values: what a tile program computes in float64 without rounding, and how far float64 itself may be from that.

Each float of a launch carries a `Real` beside its word. Its `value` follows the same operations as the word, in float64; its
`error` bounds by how much `value` misses the exact result of the same operations on the launch's inputs (running error analysis:
Higham, "Accuracy and Stability of Numerical Algorithms", section 3.3). One operation rounds by at most 2^-53 of its result, or by
the least subnormal. Infinities and NaN follow IEEE 754; where the operands decide them, their error is 0.

An error that is not finite says that nothing is known of the element: an operation that has no rule here, a choice that hangs on
a rounding. Integers and truth values carry a mask instead (`Taint`): True where they hang on a rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any, NamedTuple, TypeAlias

import numpy as np

UNIT = 1.01 * 2.0**-53  # the unit roundoff of float64; the excess covers the rounding of the bounds themselves
LEAST = 2.0**-1074  # the least subnormal: what a result below 2^-1022 may be off by besides
TileValue: TypeAlias = np.ndarray | np.generic | int | float
"""What a variable of a translated tile program holds: the elements of a tensor, or one number."""
Taint: TypeAlias = np.ndarray | None
"""Where an integer or truth value hangs on a rounding, in its shape; None for nowhere."""


class Real(NamedTuple):
    """`value` float64 and `error` float64 of one shape, that of the words. `error` None: exact. Not finite: unknown."""

    value: Any
    error: Any = None


def unknown(value: TileValue) -> Real:
    """A Real of which nothing is known, near `value` (...) float64."""
    return Real(value, np.full(np.shape(value), np.inf))


def move_real(function: Callable[[np.ndarray], np.ndarray], real: Real) -> Real:
    """`real` after `function`, which only moves elements."""
    return Real(function(real.value), None if real.error is None else function(real.error))


def with_taint(real: Real, taint: Taint) -> Real:
    """`real`, unknown where `taint`."""
    if taint is None:
        return real
    return Real(real.value, np.where(taint, np.inf, 0.0 if real.error is None else real.error))


def union_of_taints(*taints: Taint) -> Taint:
    """Where any of `taints` is True."""
    found = None
    for each in taints:
        if each is not None:
            found = each if found is None else found | each
    return found


def errors_of(*reals: Real) -> Any:
    """The sum of the errors of `reals`: 0.0 where all are exact."""
    found: Any = 0.0
    for real in reals:
        if real.error is not None:
            found = found + real.error
    return found


def check_result(value: TileValue, error: np.ndarray, *operands: Real) -> Real:
    """The result `value` with the bound `error`, which holds where both are finite. What is an infinity or a NaN by known operands
    is known; what comes from unknown ones is not."""
    if isfinite(np.add.reduce(error, None)):
        return Real(value, error)
    return special(value, error, np.isfinite(errors_of(*operands)))


def special(value: TileValue, error: Any, known: Any) -> Real:
    """The result `value` with the bound `error`, of operands that decide where `known` what it is. No infinity or NaN is off."""
    bound = np.where(np.isfinite(value), np.where(np.isnan(error), np.inf, error), np.inf)
    return Real(value, np.where(known & ~np.isfinite(value), 0.0, np.where(known, bound, np.inf)))


def _rounding(value: TileValue) -> Any:
    """What one rounding to `value` may lose where no result is subnormal: a fresh array."""
    error = np.abs(value)
    error *= UNIT
    return error


# -- what is exact ------------------------------------------------------------------------------------------------------
def single(value: TileValue) -> bool:
    """Whether `value` are numbers that float32 holds: a product of two such is exact in float64."""
    return bool((np.asarray(value, np.float32) == value).all())


def grid(value: TileValue) -> float:
    """A power of two of which all of `value` are whole multiples; 0.0 where none was found that is worth it."""
    flat = np.asarray(value).reshape(-1)
    for least in (1.0, 2.0**-12, 2.0**-24):  # whole numbers, those of a few places behind the point, fp16
        sample = flat[:64] / least
        if (sample == np.rint(sample)).all():
            scaled = flat / least
            return least if (scaled == np.rint(scaled)).all() else 0.0
    return 0.0


def _underflow(error: np.ndarray, value: TileValue, *operands: Real) -> Any:
    """`error` with what a result may be off by besides that lies below the normal numbers. A zero times anything is a zero."""
    low = np.abs(value) < 2.0**-1000
    if not low.any():
        return error
    for each in operands:
        low = low & (each.value != 0)
    return error + np.where(low, LEAST, 0.0)


# -- arithmetic ---------------------------------------------------------------------------------------------------------
def add(a: Real, b: Real) -> Real:
    return _sum(a.value + b.value, a, b, b.value)


def subtract(a: Real, b: Real) -> Real:
    return _sum(a.value - b.value, a, b, -b.value)


def _sum(value: TileValue, a: Real, b: Real, other: TileValue | None) -> Real:
    """`value`, the rounded sum of the values of `a` and `other`. Of exact operands what was lost is known (Knuth's two-sum)."""
    if a.error is None and b.error is None:
        back = value - a.value
        lost = np.abs((a.value - (value - back)) + (other - back))
        total = np.add.reduce(lost, None)
        if total == 0:
            return Real(value)
        return Real(value, lost) if isfinite(total) else Real(value, np.where(np.isfinite(value), _rounding(value), 0.0))
    error = _rounding(value)
    for each in (a, b):
        if each.error is not None:
            error = error + each.error
    return check_result(value, error, a, b)


def multiply(a: Real, b: Real) -> Real:
    """Off by |a| eb + (|b| + eb) ea, and by one rounding."""
    value = a.value * b.value
    if a.error is None and b.error is None and single(a.value) and single(b.value):
        return Real(value)
    error = _underflow(_rounding(value), value, a, b)
    if a.error is not None:
        scale = np.abs(b.value)
        error = error + a.error * (scale if b.error is None else scale + b.error)
    if b.error is not None:
        error = error + np.abs(a.value) * b.error
    if isfinite(np.add.reduce(error, None)):
        return Real(value, error)
    return special(value, error, _product_known(a, b))


def _product_known(a: Real, b: Real) -> Any:
    """Where the class of the product is known: an infinity times what may be zero has none."""
    known = np.isfinite(errors_of(a, b))
    for one, other in ((a, b), (b, a)):
        if other.error is not None:
            known = known & ~(np.isinf(one.value) & (np.abs(other.value) <= other.error) & (other.error > 0))
    return known


def fma(a: Real, b: Real, c: Real) -> Real:
    return add(multiply(a, b), c)


def divide(a: Real, b: Real) -> Real:
    """|a'/b' - a/b| <= (ea + |a/b| eb) / (|b| - eb). Of exact operands a quotient whose product is the dividend is exact."""
    value = np.divide(a.value, b.value)
    error = _underflow(_rounding(value), value, a)
    if a.error is None and b.error is None:
        if not single(b.value):
            return check_result(value, error, a, b)
        exact = (np.asarray(value, np.float32) == value) & (value * b.value == a.value)
        error = np.where(exact | ~np.isfinite(value), 0.0, error)
        return Real(value, error) if error.any() else Real(value)
    least = np.abs(b.value)
    if b.error is not None:
        least = least - b.error
        error = error + (np.abs(value) * b.error + (0.0 if a.error is None else a.error)) / least
    elif a.error is not None:
        error = error + a.error / least
    if isfinite(np.add.reduce(error, None)) and not (b.error is not None and (least <= 0).any()):
        return Real(value, error)
    lost, off = (0.0 if each.error is None else each.error for each in (a, b))
    zero, sure = np.abs(b.value) <= off, (b.value == 0) & np.equal(off, 0)  # the divisor may be, is
    open_ = (np.abs(a.value) <= lost) & np.greater(lost, 0)  # a dividend that may be zero, or not: NaN or an infinity
    open_ = np.where(sure, open_, zero | (np.isinf(a.value) & (off > 0) & np.isinf(b.value)))
    return special(value, np.where(zero, np.inf, error), np.isfinite(errors_of(a, b)) & ~open_)


def negative(a: Real) -> Real:
    return Real(-a.value, a.error)


def absolute(a: Real) -> Real:
    return Real(np.abs(a.value), a.error)


def _extreme(ufunc: np.ufunc) -> Callable[[Real, Real], Real]:
    def run(a: Real, b: Real) -> Real:
        value = ufunc(a.value, b.value)
        if a.error is None and b.error is None:
            return Real(value)
        return Real(value, np.maximum(0.0 if a.error is None else a.error, 0.0 if b.error is None else b.error))

    return run


EXTREMES: dict[str, Callable[[Real, Real], Real]] = {
    "arith.maximumf": _extreme(np.maximum), "arith.minimumf": _extreme(np.minimum),
    "arith.maxnumf": _extreme(np.fmax), "arith.minnumf": _extreme(np.fmin),
}  # fmt: skip
"""|max(a, b) - max(a', b')| is at most the larger of the two errors."""


def square_root(a: Real) -> Real:
    """|sqrt(a') - sqrt(a)| <= ea / sqrt(a), and <= sqrt(ea) whatever a is; sqrt of what may be negative may be NaN."""
    value = np.sqrt(a.value)
    error = _rounding(value)
    if a.error is None:
        return check_result(value, error, a)
    error = error + np.minimum(np.sqrt(a.error), np.where(value > 0, a.error / value, np.inf))
    unsure = (np.abs(a.value) < a.error) | (np.isnan(value) & (a.value >= -a.error))
    if unsure.any():
        error = np.where(unsure, np.inf, error)
        return special(value, error, np.isfinite(a.error) & ~unsure)
    return check_result(value, error, a)


# -- sums of many -------------------------------------------------------------------------------------------------------
def sum_along(a: Real, axis: int) -> Real:
    """The sum along `axis`, in any order: n - 1 roundings of partial sums, none of which is above the sum of magnitudes."""
    value = np.add.reduce(a.value, axis)
    magnitude = np.add.reduce(np.abs(a.value), axis)
    if a.error is None and exactly(magnitude, grid(a.value)):
        return Real(value)
    error = magnitude * (UNIT * a.value.shape[axis])
    if a.error is not None:
        error = error + np.add.reduce(a.error, axis)
    if isfinite(np.add.reduce(error, None)):
        return Real(value, error)
    known = True if a.error is None else np.isfinite(a.error).all(axis)
    return special(value, error, known)


def exactly(magnitude: np.ndarray, least: float) -> bool:
    """Whether sums of multiples of `least` are exact whose magnitudes add up to `magnitude`: all of them fit in 53 bits."""
    return least > 0 and bool((magnitude < least * 2.0**52).all())


def matrix_product(a: Real, b: Real) -> Real:
    """(..., m, k) by (..., k, n): sums of k products in any order."""
    value = np.matmul(a.value, b.value)
    left, right = np.abs(a.value), np.abs(b.value)
    magnitude = np.matmul(left, right)
    if a.error is None and b.error is None and (least := grid(a.value)) and exactly(magnitude, least * grid(b.value)):
        return Real(value)
    depth = a.value.shape[-1]
    error = magnitude * (UNIT * (depth + 1)) + LEAST * depth
    if a.error is not None:
        error = error + np.matmul(a.error, right if b.error is None else right + b.error)
    if b.error is not None:
        error = error + np.matmul(left, b.error)
    if isfinite(np.add.reduce(error, None)):
        return Real(value, error)
    known_mask = np.ones(value.shape, np.bool_)
    if a.error is not None:
        known_mask &= np.isfinite(a.error).all(-1)[..., :, None]
    if b.error is not None:
        known_mask &= np.isfinite(b.error).all(-2)[..., None, :]
    plain = np.isfinite(a.value).all(-1)[..., :, None] & np.isfinite(b.value).all(-2)[..., None, :]
    value = np.where(plain, value, _with_classes(a.value, b.value))
    return special(value, np.where(np.isfinite(value), error, np.inf), known_mask & np.logical_not(_unsure_class(a, b)))


def _with_classes(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product of matrices in which infinities and NaN are: sums of products by IEEE 754, whatever a BLAS skips."""
    finite_masks = np.isfinite(a), np.isfinite(b)
    product = np.matmul(np.where(finite_masks[0], a, 0.0), np.where(finite_masks[1], b, 0.0))
    signs = np.sign(np.nan_to_num(a)), np.sign(np.nan_to_num(b))
    infinite_masks = np.isinf(a).astype(np.float64), np.isinf(b).astype(np.float64)
    near = np.abs(signs[0]) * finite_masks[0], np.abs(signs[1]) * finite_masks[1]  # finite and not zero
    zeros = (signs[0] == 0).astype(np.float64), (signs[1] == 0).astype(np.float64)
    count = infinite_masks[0] @ infinite_masks[1] + infinite_masks[0] @ near[1] + near[0] @ infinite_masks[1]
    balance = (infinite_masks[0] * signs[0]) @ (signs[1] * (infinite_masks[1] + near[1])) + (near[0] * signs[0]) @ (
        infinite_masks[1] * signs[1]
    )
    nan = np.isnan(a).any(-1)[..., :, None] | np.isnan(b).any(-2)[..., None, :]
    nan = (
        nan
        | (infinite_masks[0] @ (zeros[1] * finite_masks[1]) + (zeros[0] * finite_masks[0]) @ infinite_masks[1] > 0)
        | (np.abs(balance) < count)
    )
    return np.where(nan, np.nan, np.where(count > 0, np.copysign(np.inf, balance), product))


def _unsure_class(a: Real, b: Real) -> Any:
    """Where an infinity meets what may be zero, or not."""
    unsure_mask: Any = False
    for one, other, turned in ((a, b, False), (b, a, True)):
        if other.error is not None and np.isinf(one.value).any():
            open_ = ((np.abs(other.value) <= other.error) & (other.error > 0)).astype(np.float64)
            far = np.isinf(one.value).astype(np.float64)
            unsure_mask = unsure_mask | ((open_ @ far if turned else far @ open_) > 0)
    return unsure_mask

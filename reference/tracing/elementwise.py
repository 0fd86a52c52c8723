"""Elementwise operations that round nothing: comparisons, logic, choices, signs, whole numbers and bits.

What chooses between elements is undecided where it hangs on a rounding: its `hangs` says that the mathematics is not known, to
within float64's running error, and its `loose` that the words of implementations may differ. Under an undecided condition both
branches are joined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bitverdict.reference.tracing.accumulation import Ends
from bitverdict.reference.tracing.arrays import Traced, array, either, pair
from bitverdict.reference.tracing.dtypes import BOOL, promoted
from bitverdict.reference.tracing.real_arithmetic import (
    V,
    _spread,
    all_finite,
    computed,
    float_type,
    integers,
    product,
    quotient,
    real,
    rounded_once,
)
from bitverdict.reference.tracing.state import Trace, operation
from bitverdict.reference.tracing.untraceable import Untraceable

COMPARISONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "equal": np.equal,
    "not_equal": np.not_equal,
}


def errors(array: Traced) -> np.ndarray | float:
    """The running error, 0.0 where there is none."""
    return 0.0 if array.error is None else array.error


def _compared(trace: Trace, name: str, x1: Any, x2: Any) -> Traced:
    left, right = pair(trace, x1, x2)
    if not left.is_float and not right.is_float:
        if left.dtype.kind == "integer" == right.dtype.kind:
            value = COMPARISONS[name](left.value, right.value)  # NumPy compares int64 with uint64 by value
            return Traced(trace, BOOL, np.asarray(value), hangs=_spread(value.shape, left.hangs, right.hangs),
                          loose=_spread(value.shape, left.loose, right.loose))  # fmt: skip
        return integers(trace, COMPARISONS[name], left, right, BOOL)
    left, right = real(left), real(right)
    with np.errstate(invalid="ignore"):
        value = np.asarray(COMPARISONS[name](left.value, right.value))
        hangs = loose = None
        if left.error is not None or right.error is not None:
            hangs = np.abs(left.value - right.value) <= errors(left) + errors(right)
            hangs = _none(hangs | ~np.isfinite(errors(left) + errors(right)))
        if left.low is not None or right.low is not None:
            loose = overlaps(left.ends, right.ends) | (np.isnan(left.ends[0]) != np.isnan(left.value))
        loose = either(_none(loose), left.open, right.open)
    return Traced(trace, BOOL, value, hangs=hangs, loose=None if loose is None else np.broadcast_to(loose, value.shape))


def overlaps(left: Ends, right: Ends) -> np.ndarray:
    """Where two intervals have a number in common, both not one and the same exact number."""
    meet = (left[0] <= right[1]) & (right[0] <= left[1])
    return meet & ~((left[0] == left[1]) & (right[0] == right[1]))


def _none(mask: np.ndarray | None) -> np.ndarray | None:
    return mask if mask is not None and mask.any() else None


def _put_comparison(name: str) -> None:
    @operation(name)
    def function(trace: Trace, x1: Any, x2: Any) -> Traced:
        return _compared(trace, name, x1, x2)

    function.__doc__ = f"{name}(x1, x2): hanging where the operands are nearer than their errors."


for _name in COMPARISONS:
    _put_comparison(_name)


def _put_bits(name: str, function: Callable, bools: Callable | None) -> None:
    @operation(name)
    def found(trace: Trace, x1: Any, x2: Any) -> Traced:
        left, right = pair(trace, x1, x2)
        if left.is_float or right.is_float:
            raise Untraceable(name, "of floats; xp.bits gives their words")
        if "bool" == left.dtype.kind == right.dtype.kind:
            if bools is None:
                raise Untraceable(name, "of bool arrays")
            return _logic(trace, bools, left, right)
        return integers(trace, function, left, right)

    found.__doc__ = f"{name}(x1, x2) of integers."


def _logic(trace: Trace, function: Callable, left: Traced, right: Traced) -> Traced:
    """Logic of bools: undecided where both values of an undecided operand matter."""
    value = np.asarray(function(left.value, right.value))

    def open_where(one: np.ndarray | None, other: np.ndarray | None) -> np.ndarray | None:
        if one is None and other is None:
            return None
        mask = np.zeros(value.shape, bool)
        for change_left in [False, True] if one is not None else [False]:
            for change_right in [False, True] if other is not None else [False]:
                a = left.value ^ (one if change_left and one is not None else False)
                b = right.value ^ (other if change_right and other is not None else False)
                mask = mask | (function(a, b) != value)
        return _none(mask)

    return Traced(trace, BOOL, value, hangs=open_where(left.hangs, right.hangs), loose=open_where(left.loose, right.loose))


for _arguments in (
    ("bitwise_and", np.bitwise_and, np.logical_and), ("bitwise_or", np.bitwise_or, np.logical_or),
    ("bitwise_xor", np.bitwise_xor, np.logical_xor), ("bitwise_left_shift", np.left_shift, None),
    ("bitwise_right_shift", np.right_shift, None),
):  # fmt: skip
    _put_bits(*_arguments)  # type: ignore[arg-type]


def _put_logic(name: str, function: Callable) -> None:
    @operation(name)
    def found(trace: Trace, x1: Any, x2: Any) -> Traced:
        return _logic(trace, function, truth(array(trace, x1)), truth(array(trace, x2)))

    found.__doc__ = f"{name}(x1, x2) of bools."


def truth(x: Traced) -> Traced:
    """As bool: whether it is not zero."""
    return x if x.dtype.kind == "bool" else _compared(x.trace, "not_equal", x, 0)


_put_logic("logical_and", np.logical_and)
_put_logic("logical_or", np.logical_or)
_put_logic("logical_xor", np.logical_xor)


@operation("logical_not")
def logical_not(trace: Trace, x: Any) -> Traced:
    """not x."""
    x = truth(array(trace, x))
    return Traced(trace, BOOL, ~x.value, hangs=x.hangs, loose=x.loose)


@operation("bitwise_invert")
def bitwise_invert(trace: Trace, x: Any) -> Traced:
    """All bits of an integer, or a bool, the other way."""
    x = array(trace, x)
    if x.is_float:
        raise Untraceable("bitwise_invert", "of floats")
    return Traced(trace, x.dtype, ~x.value, hangs=x.hangs, loose=x.loose)


@operation("where")
def where(trace: Trace, condition: Any, x1: Any, x2: Any) -> Traced:
    """x1 where the condition holds, else x2; both joined where it is undecided."""
    condition = truth(array(trace, condition))
    x1, x2 = _kept_as_is(trace, x1, x2), _kept_as_is(trace, x2, x1)
    left, right = pair(trace, x1, x2)
    if left.is_float or right.is_float:
        left, right = real(left), real(right)
        dtype = left.dtype if left.dtype == right.dtype or right.scalar else right.dtype if left.scalar else float_type(trace)
    else:
        dtype = promoted(left.dtype, right.dtype)
    return joined(trace, condition, left, right, dtype)


def _kept_as_is(trace: Trace, given: Any, other: Any) -> Any:
    """`xp.unchanged` as an array of the type of what stands beside it."""
    if type(given).__name__ != "Unchanged":
        return given
    from bitverdict.reference.tracing.extensions import unchanged

    return unchanged(trace, array(trace, other).dtype)


def joined(trace: Trace, condition: Traced, left: Traced, right: Traced, dtype: Any) -> Traced:
    """`where` of operands of one kind."""
    shape = np.broadcast_shapes(condition.shape, left.shape, right.shape)
    takes = condition.value

    def choose(one: Any, other: Any) -> np.ndarray:
        return np.broadcast_to(np.where(takes, one, other), shape)

    def mask(one: np.ndarray | None, other: np.ndarray | None) -> np.ndarray | None:
        if one is None and other is None:
            return None
        return _none(choose(False if one is None else one, False if other is None else other))

    found = Traced(trace, dtype, choose(left.value, right.value).astype(dtype.stored, copy=False))
    found.unchanged = mask(left.unchanged, right.unchanged)
    found.hangs, found.loose = mask(left.hangs, right.hangs), mask(left.loose, right.loose)
    if not left.is_float:
        same = (left.value == right.value) if left.hangs is None is right.hangs else False
        apart = None if condition.hangs is None else condition.hangs & ~np.asarray(same)
        found.hangs = either(found.hangs, None if apart is None else np.broadcast_to(apart, shape))
        same = (left.value == right.value) if left.loose is None is right.loose else False
        apart = None if condition.loose is None else condition.loose & ~np.asarray(same)
        found.loose = either(found.loose, None if apart is None else np.broadcast_to(apart, shape))
        return found
    found.open = mask(left.open, right.open)
    if left.error is not None or right.error is not None:
        found.error = choose(errors(left), errors(right))
    if left.low is not None or right.low is not None:
        (al, ah), (bl, bh) = left.ends, right.ends
        found.low, found.high = choose(al, bl), choose(ah, bh)
    found.kept = left.kept & right.kept
    with np.errstate(invalid="ignore"):
        if condition.hangs is not None:
            apart = np.abs(left.value - right.value) + errors(left) + errors(right)
            apart = np.where(np.isnan(apart), np.where(np.isnan(left.value) & np.isnan(right.value), 0.0, np.inf), apart)
            found.error = np.where(condition.hangs, np.broadcast_to(apart, shape), errors(found))
        if condition.loose is not None:
            (al, ah), (bl, bh) = left.ends, right.ends
            low, high = (found.value, found.value) if found.low is None else (found.low, found.high)
            found.low = np.where(condition.loose, np.broadcast_to(np.minimum(al, bl), shape), np.asarray(low))
            found.high = np.where(condition.loose, np.broadcast_to(np.maximum(ah, bh), shape), np.asarray(high))
            nans = np.isnan(np.broadcast_to(al, shape)) != np.isnan(np.broadcast_to(bl, shape))
            found.open = either(found.open, _none(condition.loose & nans))
            found.low, found.high = (
                np.where(nans & condition.loose, -np.inf, found.low),
                np.where(nans & condition.loose, np.inf, found.high),
            )
    return found


def _signed(trace: Trace, x: Traced, function: Callable[[np.ndarray], np.ndarray]) -> Traced:
    """An operation that is its own on every field but turns the interval round, as negation does."""
    found = x.moved(lambda each: each)
    found.value = function(x.value)
    if x.low is not None:
        found.low, found.high = function(x.high), function(x.low)  # type: ignore[arg-type]
    return found


@operation("negative")
def negative(trace: Trace, x: Any) -> Traced:
    """-x."""
    x = array(trace, x)
    if not x.is_float:
        return Traced(trace, x.dtype, -x.value, hangs=x.hangs, loose=x.loose, scalar=x.scalar)
    found = _signed(trace, x, np.negative)
    found.scalar = x.scalar
    if x.chain is not None and x.chain.kind == "sum":
        from bitverdict.reference.tracing.arrays import Chain

        left, right = (negative(trace, each) for each in x.chain.operands)
        found.chain = Chain("sum", x.chain.count, -x.chain.high, -x.chain.low, (left, right), x.chain.known_magnitude)
    return found


@operation("positive")
def positive(trace: Trace, x: Any) -> Traced:
    """+x."""
    return array(trace, x)


@operation("abs")
def absolute(trace: Trace, x: Any) -> Traced:
    """|x|."""
    x = array(trace, x)
    if not x.is_float:
        return Traced(trace, x.dtype, np.abs(x.value), hangs=x.hangs, loose=x.loose)
    found = x.moved(lambda each: each)
    found.value = np.abs(x.value)
    if x.low is not None:
        low, high = np.abs(x.low), np.abs(x.high)  # type: ignore[arg-type]
        found.low = np.where((x.low < 0) & (x.high > 0), 0.0, np.minimum(low, high))  # type: ignore[operator]
        found.high = np.maximum(low, high)
    return found


def _extreme(trace: Trace, function: Callable, x1: Any, x2: Any) -> Traced:
    left, right = pair(trace, x1, x2)
    if not left.is_float and not right.is_float:
        return integers(trace, function, left, right)
    left, right = real(left), real(right)
    value = function(left.value, right.value)
    found = Traced(trace, float_type(trace), value, open=_spread(value.shape, left.open, right.open))
    if left.dtype == right.dtype or right.scalar:
        found.dtype = left.dtype
    if left.error is not None or right.error is not None:
        found.error = np.broadcast_to(np.maximum(errors(left), errors(right)), value.shape)
    if left.low is not None or right.low is not None:
        found.low, found.high = (function(a, b) for a, b in zip(left.ends, right.ends, strict=True))
    return _unsettled_by_nan(found, np.isnan(left.value) != np.isnan(right.value))


def _unsettled_by_nan(found: Traced, one_is_nan: np.ndarray) -> Traced:
    """IEEE 754 has a maximum that keeps NaN and one that drops it, and kernels have either: nothing is decided there."""
    if one_is_nan.any():
        found.error = np.where(one_is_nan, np.inf, errors(found))
        found.open = either(found.open, one_is_nan)
        low, high = found.ends
        found.low, found.high = np.where(one_is_nan, -np.inf, low), np.where(one_is_nan, np.inf, high)
    return found


@operation("maximum")
def maximum(trace: Trace, x1: Any, x2: Any) -> Traced:
    """The larger; nothing is decided beside a NaN."""
    return _extreme(trace, np.maximum, x1, x2)


@operation("minimum")
def minimum(trace: Trace, x1: Any, x2: Any) -> Traced:
    """The smaller; nothing is decided beside a NaN."""
    return _extreme(trace, np.minimum, x1, x2)


@operation("clip")
def clip(trace: Trace, x: Any, /, min: Any = None, max: Any = None) -> Traced:
    """x held between min and max."""
    found = array(trace, x)
    if min is not None:
        found = maximum(trace, found, min)
    return found if max is None else minimum(trace, found, max)


def _steps(trace: Trace, name: str, function: Callable, x: Any) -> Traced:
    """A function that is constant between whole numbers: exact, hanging where a step lies inside the error."""
    x = array(trace, x)
    if not x.is_float:
        return x if name != "sign" else Traced(trace, x.dtype, np.sign(x.value), hangs=x.hangs, loose=x.loose)
    value = function(x.value)
    found = Traced(trace, x.dtype if x.error is None and x.low is None else float_type(trace), value, open=x.open)
    with np.errstate(invalid="ignore"):
        if x.error is not None:
            reach = np.where(np.isfinite(x.value), x.error, 0.0)
            apart = function(x.value - reach) != function(x.value + reach)
            hanging = (apart & ~np.isnan(value)) | np.isinf(x.error)
            found.error = np.where(hanging, np.inf, 0.0) if hanging.any() else None
        if x.low is not None:
            found.low, found.high = function(x.low), function(x.high)
            if np.array_equal(found.low, value, equal_nan=True) and np.array_equal(found.high, value, equal_nan=True):
                found.low = found.high = None
    return found


def _put_steps(name: str, function: Callable) -> None:
    @operation(name)
    def found(trace: Trace, x: Any) -> Traced:
        return _steps(trace, name, function, x)

    found.__doc__ = f"{name}(x): exact, and unknown where a step lies inside the error."


_put_steps("floor", np.floor)
_put_steps("ceil", np.ceil)
_put_steps("trunc", np.trunc)
_put_steps("round", np.rint)
_put_steps("sign", np.sign)


def _put_test(name: str, function: Callable) -> None:
    @operation(name)
    def found(trace: Trace, x: Any) -> Traced:
        x = array(trace, x)
        if not x.is_float:
            return Traced(trace, BOOL, np.full(x.shape, name == "isfinite"))
        value = function(x.value)
        low, high = x.ends
        loose = None if x.low is None else _none((function(low) != value) | (function(high) != value))
        hangs = None if x.error is None else _none(np.isinf(x.error))
        return Traced(trace, BOOL, value, hangs=hangs, loose=either(loose, x.open))

    found.__doc__ = f"{name}(x)."


_put_test("isnan", np.isnan)
_put_test("isinf", np.isinf)
_put_test("isfinite", np.isfinite)


@operation("signbit")
def signbit(trace: Trace, x: Any) -> Traced:
    """Whether x is negative; the sign of a zero is not known to a bound."""
    x = array(trace, x)
    found = _compared(trace, "less", x, 0)
    zero = x.value == 0
    if x.is_float and zero.any():
        found.value = found.value | (zero & np.signbit(x.value))
    return found


@operation("copysign")
def copysign(trace: Trace, x1: Any, x2: Any) -> Traced:
    """|x1| with the sign of x2."""
    left, right = pair(trace, x1, x2)
    size = absolute(trace, left)
    return where(trace, signbit(trace, right), negative(trace, size), size)


@operation("remainder")
def remainder(trace: Trace, x1: Any, x2: Any) -> Traced:
    """x1 - floor(x1 / x2) x2, with the sign of x2."""
    left, right = pair(trace, x1, x2)
    if not left.is_float and not right.is_float:
        return _by_zero(trace, "remainder", np.remainder, left, right)
    whole = floor_divide(trace, left, right)
    with np.errstate(all="ignore"):
        from bitverdict.reference.tracing.real_arithmetic import add_

        return add_(trace, "remainder", real(left), product(trace, "remainder", whole, real(right)), -1.0)


@operation("floor_divide")
def floor_divide(trace: Trace, x1: Any, x2: Any) -> Traced:
    """floor(x1 / x2)."""
    left, right = pair(trace, x1, x2)
    if not left.is_float and not right.is_float:
        return _by_zero(trace, "floor_divide", np.floor_divide, left, right)
    from bitverdict.reference.tracing.function_errors import FUNCTIONS

    with np.errstate(all="ignore"):
        return _steps(trace, "floor", np.floor, quotient(trace, "floor_divide", real(left), real(right), FUNCTIONS["divide"]))


def _by_zero(trace: Trace, name: str, function: Callable, left: Traced, right: Traced) -> Traced:
    """Integers by integers: nothing is known of a division by zero."""
    found = integers(trace, function, left, right)
    zero = np.broadcast_to(right.value == 0, found.shape)
    if zero.any():
        found.hangs, found.loose = either(found.hangs, zero), either(found.loose, zero)
    return found


@operation("hypot")
def hypot(trace: Trace, x1: Any, x2: Any) -> Traced:
    """sqrt(x1^2 + x2^2)."""
    from bitverdict.reference.tracing.function_errors import FUNCTIONS

    left, right = pair(trace, x1, x2)
    left, right = absolute(trace, real(left)), absolute(trace, real(right))
    with np.errstate(all="ignore"):
        value = np.hypot(left.value, right.value)
        error = 8 * V * value + errors(left) + errors(right)
        ends = tuple(np.hypot(a, b) for a, b in zip(left.ends, right.ends, strict=True))
        if trace.rounds("hypot"):
            ends = FUNCTIONS["hypot"].applied(trace, *ends)  # type: ignore[assignment,misc]
        return computed(trace, value, error, ends, (left, right))  # type: ignore[arg-type]


@operation("logaddexp")
def logaddexp(trace: Trace, x1: Any, x2: Any) -> Traced:
    """log(exp(x1) + exp(x2)), as an implementation writes it: the larger, plus log1p of the exponential of the difference."""
    from bitverdict.reference.tracing.state import OPERATIONS as xp

    largest = maximum(trace, x1, x2)
    least = minimum(trace, x1, x2)
    return xp["add"](trace, largest, xp["log1p"](trace, xp["exp"](trace, xp["subtract"](trace, least, largest))))


__all__ = ["all_finite", "rounded_once"]

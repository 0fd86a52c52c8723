"""What chooses between elements, or turns their sign: nothing is rounded. Under an undecided condition both branches are joined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bitverdict.reference.tracing.arrays import Chain, Traced, array, either, pair
from bitverdict.reference.tracing.comparisons import compared, truth
from bitverdict.reference.tracing.dtypes import DType, promoted
from bitverdict.reference.tracing.results import errors, float_type, if_any, integers, real, spread, undecided_beside_nan
from bitverdict.reference.tracing.state import Trace, operation


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
    return unchanged(trace, array(trace, other).dtype)


def unchanged(trace: Trace, like: DType, shape: tuple[int, ...] = ()) -> Traced:
    """Elements that no implementation may write, beside elements of type `like`."""
    if like.kind == "float":
        return Traced(
            trace, like, np.zeros(shape), np.full(shape, np.inf), np.full(shape, -np.inf), np.full(shape, np.inf),
            open=np.ones(shape, bool), unchanged=np.ones(shape, bool),
        )  # fmt: skip
    mask = np.ones(shape, bool)
    return Traced(trace, like, np.zeros(shape, like.stored), hangs=mask, loose=mask, unchanged=mask)


def joined(trace: Trace, condition: Traced, left: Traced, right: Traced, dtype: Any) -> Traced:
    """`where` of operands of one kind."""
    shape = np.broadcast_shapes(condition.shape, left.shape, right.shape)
    takes = condition.value

    def choose(one: Any, other: Any) -> np.ndarray:
        return np.broadcast_to(np.where(takes, one, other), shape)

    def mask(one: np.ndarray | None, other: np.ndarray | None) -> np.ndarray | None:
        if one is None and other is None:
            return None
        return if_any(choose(False if one is None else one, False if other is None else other))

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
            found.open = either(found.open, if_any(condition.loose & nans))
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
    found = Traced(trace, float_type(trace), value, open=spread(value.shape, left.open, right.open))
    if left.dtype == right.dtype or right.scalar:
        found.dtype = left.dtype
    if left.error is not None or right.error is not None:
        found.error = np.broadcast_to(np.maximum(errors(left), errors(right)), value.shape)
    if left.low is not None or right.low is not None:
        found.low, found.high = (function(a, b) for a, b in zip(left.ends, right.ends, strict=True))
    return undecided_beside_nan(found, np.isnan(left.value) != np.isnan(right.value))


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


@operation("signbit")
def signbit(trace: Trace, x: Any) -> Traced:
    """Whether x is negative; the sign of a zero is not known to a bound."""
    x = array(trace, x)
    found = compared(trace, "less", x, 0)
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

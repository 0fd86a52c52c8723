"""What chooses between elements, or turns their sign: nothing is rounded. Under an undecided condition both branches are joined."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.reference.tracing.arrays import Chain, Operand, TracedArray, array, pair, union_masks
from bitverdict.reference.tracing.comparisons import compare, truth
from bitverdict.reference.tracing.dtypes import DType, promote
from bitverdict.reference.tracing.results import errors, float_type, integers, nonempty_mask, real, spread, undecided_beside_nan
from bitverdict.reference.tracing.state import Trace, operation

if TYPE_CHECKING:
    from bitverdict.reference.tracing.namespace import UnchangedElement


@operation("where")
def where(trace: Trace, condition: Operand, x1: Operand, x2: Operand) -> TracedArray:
    """x1 where the condition holds, else x2; both joined where it is undecided."""
    condition = truth(array(trace, condition))
    x1, x2 = _resolve_unchanged(trace, x1, x2), _resolve_unchanged(trace, x2, x1)
    left, right = pair(trace, x1, x2)
    if left.is_float or right.is_float:
        left, right = real(left), real(right)
        dtype = left.dtype if left.dtype == right.dtype or right.scalar else right.dtype if left.scalar else float_type(trace)
    else:
        dtype = promote(left.dtype, right.dtype)
    return join_branches(trace, condition, left, right, dtype)


def _resolve_unchanged(trace: Trace, given: Operand | UnchangedElement, other: Operand) -> Any:
    """`xp.unchanged` as an array of the type of what stands beside it."""
    if type(given).__name__ != "UnchangedElement":
        return given
    return no_write_elements(trace, array(trace, other).dtype)


def no_write_elements(trace: Trace, like: DType, shape: tuple[int, ...] = ()) -> TracedArray:
    """Elements that no implementation may write, beside elements of type `like`."""
    if like.kind == "float":
        return TracedArray(
            trace, like, np.zeros(shape), np.full(shape, np.inf), np.full(shape, -np.inf), np.full(shape, np.inf),
            open=np.ones(shape, bool), no_write_mask=np.ones(shape, bool),
        )  # fmt: skip
    mask = np.ones(shape, bool)
    return TracedArray(trace, like, np.zeros(shape, like.storage_type), hangs=mask, words_differ=mask, no_write_mask=mask)


def join_branches(trace: Trace, condition: TracedArray, left: TracedArray, right: TracedArray, dtype: DType) -> TracedArray:
    """`where` of operands of one kind."""
    shape = np.broadcast_shapes(condition.shape, left.shape, right.shape)
    takes = condition.value

    def choose(one: np.ndarray | float, other: np.ndarray | float) -> np.ndarray:
        return np.broadcast_to(np.where(takes, one, other), shape)

    def mask(one: np.ndarray | None, other: np.ndarray | None) -> np.ndarray | None:
        if one is None and other is None:
            return None
        return nonempty_mask(choose(False if one is None else one, False if other is None else other))

    result = TracedArray(trace, dtype, choose(left.value, right.value).astype(dtype.storage_type, copy=False))
    result.no_write_mask = mask(left.no_write_mask, right.no_write_mask)
    result.hangs, result.words_differ = mask(left.hangs, right.hangs), mask(left.words_differ, right.words_differ)
    if not left.is_float:
        same = (left.value == right.value) if left.hangs is None is right.hangs else False
        difference = None if condition.hangs is None else condition.hangs & ~np.asarray(same)
        result.hangs = union_masks(result.hangs, None if difference is None else np.broadcast_to(difference, shape))
        same = (left.value == right.value) if left.words_differ is None is right.words_differ else False
        difference = None if condition.words_differ is None else condition.words_differ & ~np.asarray(same)
        result.words_differ = union_masks(result.words_differ, None if difference is None else np.broadcast_to(difference, shape))
        return result
    result.open = mask(left.open, right.open)
    if left.error is not None or right.error is not None:
        result.error = choose(errors(left), errors(right))
    if left.low is not None or right.low is not None:
        (al, ah), (bl, bh) = left.ends, right.ends
        result.low, result.high = choose(al, bl), choose(ah, bh)
    result.operand_formats = left.operand_formats & right.operand_formats
    with np.errstate(invalid="ignore"):
        if condition.hangs is not None:
            difference = np.abs(left.value - right.value) + errors(left) + errors(right)
            difference = np.where(
                np.isnan(difference), np.where(np.isnan(left.value) & np.isnan(right.value), 0.0, np.inf), difference
            )
            result.error = np.where(condition.hangs, np.broadcast_to(difference, shape), errors(result))
        if condition.words_differ is not None:
            (al, ah), (bl, bh) = left.ends, right.ends
            low, high = (result.value, result.value) if result.low is None else (result.low, result.high)
            result.low = np.where(condition.words_differ, np.broadcast_to(np.minimum(al, bl), shape), np.asarray(low))
            result.high = np.where(condition.words_differ, np.broadcast_to(np.maximum(ah, bh), shape), np.asarray(high))
            nans = np.isnan(np.broadcast_to(al, shape)) != np.isnan(np.broadcast_to(bl, shape))
            result.open = union_masks(result.open, nonempty_mask(condition.words_differ & nans))
            result.low, result.high = (
                np.where(nans & condition.words_differ, -np.inf, result.low),
                np.where(nans & condition.words_differ, np.inf, result.high),
            )
    return result


def _change_sign(trace: Trace, x: TracedArray, function: Callable[[np.ndarray], np.ndarray]) -> TracedArray:
    """An operation that is its own on every field but turns the interval round, as negation does."""
    found = x.map_elements(lambda each: each)
    found.value = function(x.value)
    if x.low is not None:
        found.low, found.high = function(x.high), function(x.low)  # type: ignore[arg-type]
    return found


@operation("negative")
def negative(trace: Trace, x: Operand) -> TracedArray:
    """-x."""
    x = array(trace, x)
    if not x.is_float:
        return TracedArray(trace, x.dtype, -x.value, hangs=x.hangs, words_differ=x.words_differ, scalar=x.scalar)
    found = _change_sign(trace, x, np.negative)
    found.scalar = x.scalar
    if x.chain is not None and x.chain.kind == "sum":
        left, right = (negative(trace, each) for each in x.chain.operands)
        found.chain = Chain("sum", x.chain.count, -x.chain.high, -x.chain.low, (left, right), x.chain.known_magnitude)
    return found


@operation("positive")
def positive(trace: Trace, x: Operand) -> TracedArray:
    """+x."""
    return array(trace, x)


@operation("abs")
def absolute(trace: Trace, x: Operand) -> TracedArray:
    """|x|."""
    x = array(trace, x)
    if not x.is_float:
        return TracedArray(trace, x.dtype, np.abs(x.value), hangs=x.hangs, words_differ=x.words_differ)
    result = x.map_elements(lambda each: each)
    result.value = np.abs(x.value)
    if x.low is not None:
        low, high = np.abs(x.low), np.abs(x.high)  # type: ignore[arg-type]
        result.low = np.where((x.low < 0) & (x.high > 0), 0.0, np.minimum(low, high))  # type: ignore[operator]
        result.high = np.maximum(low, high)
    return result


def _extreme(trace: Trace, function: Callable[..., np.ndarray], x1: Operand, x2: Operand) -> TracedArray:
    left, right = pair(trace, x1, x2)
    if not left.is_float and not right.is_float:
        return integers(trace, function, left, right)
    left, right = real(left), real(right)
    value = function(left.value, right.value)
    result = TracedArray(trace, float_type(trace), value, open=spread(value.shape, left.open, right.open))
    if left.dtype == right.dtype or right.scalar:
        result.dtype = left.dtype
    if left.error is not None or right.error is not None:
        result.error = np.broadcast_to(np.maximum(errors(left), errors(right)), value.shape)
    if left.low is not None or right.low is not None:
        result.low, result.high = (function(a, b) for a, b in zip(left.ends, right.ends, strict=True))
    return undecided_beside_nan(result, np.isnan(left.value) != np.isnan(right.value))


@operation("maximum")
def maximum(trace: Trace, x1: Operand, x2: Operand) -> TracedArray:
    """The larger; nothing is decided beside a NaN."""
    return _extreme(trace, np.maximum, x1, x2)


@operation("minimum")
def minimum(trace: Trace, x1: Operand, x2: Operand) -> TracedArray:
    """The smaller; nothing is decided beside a NaN."""
    return _extreme(trace, np.minimum, x1, x2)


@operation("clip")
def clip(trace: Trace, x: Operand | None, /, min: Operand | None = None, max: Operand | None = None) -> TracedArray:
    """x held between min and max."""
    found = array(trace, x)
    if min is not None:
        found = maximum(trace, found, min)
    return found if max is None else minimum(trace, found, max)


@operation("signbit")
def signbit(trace: Trace, x: Operand) -> TracedArray:
    """Whether x is negative; the sign of a zero is not known to a bound."""
    x = array(trace, x)
    found = compare(trace, "less", x, 0)
    zero = x.value == 0
    if x.is_float and zero.any():
        found.value = found.value | (zero & np.signbit(x.value))
    return found


@operation("copysign")
def copysign(trace: Trace, x1: Operand, x2: Operand) -> TracedArray:
    """|x1| with the sign of x2."""
    left, right = pair(trace, x1, x2)
    size = absolute(trace, left)
    return where(trace, signbit(trace, right), negative(trace, size), size)

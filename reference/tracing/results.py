"""What every operation on traced arrays shares: settling special values, one rounding, masks.

What hangs on a rounding is marked, never chosen: `hangs` and an infinite error of the mathematics, `loose` and `open` of the words.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bitverdict.reference.tracing.accumulation import Ends
from bitverdict.reference.tracing.arrays import Chain, TracedArray, union_masks
from bitverdict.reference.tracing.dtypes import BY_FORMAT, DType, promote
from bitverdict.reference.tracing.state import Trace

V = 2.0**-53


TINY = 2.0**-1074


def around(value: np.ndarray, error: np.ndarray | float) -> Ends:
    """[value - error, value + error], rounded outward: an error of less than half a place would be lost."""
    reach = np.where(np.isfinite(value), error, 0.0)
    off = reach > 0
    low, high = np.nextafter(value - reach, -np.inf), np.nextafter(value + reach, np.inf)
    return np.where(off, low, value), np.where(off, high, value)


def underflow(value: np.ndarray, *operands: np.ndarray) -> np.ndarray | float:
    """What float64 may have lost of a result below its normal numbers, where no operand is zero."""
    small = np.abs(value) < 2.0**-1020
    if not small.any():
        return 0.0
    for operand in operands:
        small = small & (operand != 0) & np.isfinite(operand)
    return np.where(small, 4 * TINY, 0.0)


def float_type(trace: Trace) -> DType:
    """The type of whatever is computed."""
    return BY_FORMAT[trace.accumulation.format]


def all_finite(array: np.ndarray) -> bool:
    """Whether no element is infinite or NaN; False too where their sum overflows."""
    return bool(np.isfinite(np.add.reduce(array, axis=None)))


def settle_result(
    trace: Trace,
    value: np.ndarray,
    error: np.ndarray | None,
    ends: Ends | None,
    operands: tuple[TracedArray, ...],
    *,
    meets: np.ndarray | None = None,
    infinite_operands: np.ndarray | None = None,
    chain: Chain | None = None,
    nan_passes: np.ndarray | None = None,
) -> TracedArray:
    """The float array of an operation, after its special values are settled.

    `nan_passes`: where an operand is NaN for certain and IEEE 754 makes the result NaN, whatever an open operand beside it is.

    `meets`: where the words may be NaN for a reason that the ends do not show. A NaN of the mathematics is a NaN of the words;
    where only one of them may be, the element is open. An infinity of finite operands is float64's overflow, its error infinite,
    unless it is of `infinite_operands` (1 / 0)."""
    open_ = union_masks(*(operand.open for operand in operands))
    if open_ is not None:
        open_ = np.broadcast_to(open_, value.shape)
        if nan_passes is not None:
            open_ = open_ & ~nan_passes
    low, high = (None, None) if ends is None else ends
    if nan_passes is not None and low is not None and high is not None and nan_passes.any():
        low, high = np.where(nan_passes, np.nan, low), np.where(nan_passes, np.nan, high)
    finite = low is None or high is None or (all_finite(low) and all_finite(high))
    if not (finite and all_finite(value) and meets is None):
        nan = np.isnan(value)
        infinite_operands = np.zeros(value.shape, bool) if infinite_operands is None else infinite_operands
        for operand in operands:
            infinite_operands = infinite_operands | ~np.isfinite(operand.value)
        overflowed = np.isinf(value) & ~infinite_operands
        if error is not None or overflowed.any():
            error = np.where(np.isfinite(value), 0.0 if error is None else error, np.where(overflowed, np.inf, 0.0))
            error = np.where(np.isnan(error), np.inf, error)
        if low is not None and high is not None:
            lost, known = np.isnan(low) | np.isnan(high), np.isnan(low) & np.isnan(high) & nan
            loose = (lost & ~known) | (nan & ~lost)
            if meets is not None:
                loose |= meets & ~known
            if loose.any():
                open_ = loose if open_ is None else open_ | loose
                low, high = np.where(loose, -np.inf, low), np.where(loose, np.inf, high)
    if error is not None and not error.any():
        error = None
    return TracedArray(trace, float_type(trace), value, error, low, high, open_, chain=chain)


def certain_nan(*operands: TracedArray) -> np.ndarray | None:
    """Where one of `operands` is NaN in the mathematics and in any words; None where nothing is open, so that nobody asks."""
    if all(each.open is None for each in operands):
        return None
    masks = [np.isnan(each.value) & np.isnan(each.ends[0]) & np.isnan(each.ends[1]) for each in operands]
    masks = [mask if each.open is None else mask & ~each.open for mask, each in zip(masks, operands, strict=True)]
    result: np.ndarray = np.logical_or(masks[0], masks[-1])
    return result


def rounded_once(trace: Trace, value: np.ndarray, error: np.ndarray | None, ends: Ends | None) -> Ends | None:
    """The ends after one rounding that may be left out; None where all are exact numbers of the type.

    `ends` None: of the value itself, to within its error."""
    how = trace.accumulation
    if ends is None:
        if error is None:
            held = how.round(value)
            if how.format == "fp64" or np.array_equal(held, value, equal_nan=True):
                return None
            return np.minimum(held, value), np.maximum(held, value)
        return how.outward(*around(value, error))
    return how.outward(*ends)


def is_narrow(array: TracedArray) -> bool:
    """Whether all values are exact numbers of a type of at most 26 bits, so that a product of two is exact in float64."""
    return array.error is None and array.low is None and array.trace.accumulation.format != "fp64" and array.dtype.format != "fp64"


def real(array: TracedArray) -> TracedArray:
    """An integer or bool array as real numbers: unknown where it hangs."""
    if array.is_float:
        return array
    trace = array.trace
    value = array.value.astype(np.float64)
    error = None if array.hangs is None else np.where(array.hangs, np.inf, 0.0)
    if array.value.dtype.itemsize == 8 and (np.abs(value) >= 2.0**53).any():
        error = np.where(np.abs(value) >= 2.0**53, np.abs(value) * V, 0.0) + (0.0 if error is None else error)
    ends = rounded_once(trace, value, None, None)
    found = settle_result(trace, value, error, ends, ())
    if array.words_differ is not None:
        found.open = union_masks(found.open, array.words_differ)
    found.scalar = array.scalar
    return found


def integers(
    trace: Trace, function: Callable[..., np.ndarray], left: TracedArray, right: TracedArray, dtype: DType | None = None
) -> TracedArray:
    """An exact operation on integers or bools; what hangs on a hanging element hangs."""
    dtype = dtype or promote(left.dtype, right.dtype)
    common = promote(left.dtype, right.dtype).storage_type
    with np.errstate(all="ignore"):
        value = np.asarray(function(left.value.astype(common), right.value.astype(common)))
    return TracedArray(
        trace,
        dtype,
        value.astype(dtype.storage_type, copy=False),
        hangs=spread(value.shape, left.hangs, right.hangs),
        words_differ=spread(value.shape, left.words_differ, right.words_differ),
        scalar=left.scalar and right.scalar,
    )


def spread(shape: tuple[int, ...], *masks: np.ndarray | None) -> np.ndarray | None:
    found = union_masks(*masks)
    return None if found is None else np.broadcast_to(found, shape)


def errors(array: TracedArray) -> np.ndarray | float:
    """The running error, 0.0 where there is none."""
    return 0.0 if array.error is None else array.error


def overlaps(left: Ends, right: Ends) -> np.ndarray:
    """Where two intervals have a number in common, both not one and the same exact number."""
    meet = (left[0] <= right[1]) & (right[0] <= left[1])
    result: np.ndarray = meet & ~((left[0] == left[1]) & (right[0] == right[1]))
    return result


def nonempty_mask(mask: np.ndarray | None) -> np.ndarray | None:
    return mask if mask is not None and mask.any() else None


def undecided_beside_nan(result: TracedArray, one_is_nan: np.ndarray) -> TracedArray:
    """IEEE 754 has a maximum that keeps NaN and one that drops it, and kernels have either: nothing is decided there."""
    if one_is_nan.any():
        result.error = np.where(one_is_nan, np.inf, errors(result))
        result.open = union_masks(result.open, one_is_nan)
        low, high = result.ends
        result.low, result.high = np.where(one_is_nan, -np.inf, low), np.where(one_is_nan, np.inf, high)
    return result


def mark_unknown(result: TracedArray, hangs: np.ndarray | None, words_differ: np.ndarray | None) -> TracedArray:
    """`result`, where an index that chose its elements hangs."""
    if hangs is not None and hangs.any():
        hangs = np.broadcast_to(hangs, result.shape)
        if result.is_float:
            result.error = np.where(hangs, np.inf, errors(result))
        else:
            result.hangs = union_masks(result.hangs, hangs)
    if words_differ is not None and words_differ.any():
        words_differ = np.broadcast_to(words_differ, result.shape)
        if result.is_float:
            result.open = union_masks(result.open, words_differ)
        else:
            result.words_differ = union_masks(result.words_differ, words_differ)
    return result

"""Sums, means, variances and extremes along axes.

*Sum in any order.* Let n terms lie in intervals, and X be the larger of the sums of the largest positive and negative parts.
No partial sum of any order or tree leaves it but by rounding. Each of the n - 1 additions moves it by at most u times itself. So it
stays within X (1 + u)^(n - 1), and the total error is at most (n - 1) u X (1 + u)^(n - 1); or, while nothing overflows, (n - 1) u
times the largest number. The last rounding is taken as `outward`.

Where all terms are exact multiples of a power of two g and sum in magnitude to less than g / u, no order rounds. An addition to
global memory by an atomic flushes subnormal numbers. Where a term is less than 2^24 smallest normal numbers, and not zero, twice
the smallest normal number is added for each addition.

*Product in any order.* n - 1 roundings of u each.

*Mean.* The sum times 1 / n: of a quotient by div.full, or a product with the rounded reciprocal, whichever comes first, so relative
to the sum of magnitudes. *Variance.* Two passes: the mean, then the mean of the squares of the differences from it. That of
E[x^2] - mean^2 is another algorithm, with another error: a reference that means it writes it.

*Running error.* NumPy adds n terms in float64 with an error of at most (n - 1) v times the sum of magnitudes in any order (Higham).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bitverdict.reference.stored_sums import store_sum
from bitverdict.reference.tracing.accumulation import MARGIN, Ends, widen_ends
from bitverdict.reference.tracing.arrays import Operand, TracedArray, array
from bitverdict.reference.tracing.dtypes import BY_FORMAT, DTypeLike, dtype_of
from bitverdict.reference.tracing.function_errors import FUNCTIONS
from bitverdict.reference.tracing.real_arithmetic import ends_of_product
from bitverdict.reference.tracing.results import V, all_finite, around, certain_nan, errors, real, rounded_once, settle_result
from bitverdict.reference.tracing.state import OPERATIONS, Trace, operation

Axis = int | tuple[int, ...] | None


def axes_of(x: TracedArray, axis: Axis) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(x.ndim))
    given = (axis,) if isinstance(axis, (int, np.integer)) else tuple(axis)
    return tuple(int(one) % x.ndim for one in given)


def _count(x: TracedArray, axes: tuple[int, ...]) -> int:
    return int(np.prod([x.shape[axis] for axis in axes], dtype=np.int64))


def lowest_bits(values: np.ndarray) -> np.ndarray:
    """Exponent of the largest power of two that divides each value; 4096 for zero."""
    mantissa, exponent = np.frexp(values)
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    trailing = np.frexp((whole & -whole).astype(np.float64))[1] - 1
    return np.where(whole == 0, 4096, exponent - 53 + trailing)


@operation("sum")
def sum(trace: Trace, x: Operand, /, *, axis: Axis = None, dtype: DTypeLike | None = None, keepdims: bool = False) -> TracedArray:
    """Sum in any order; integers wrap around in int64, or in `dtype`."""
    x = array(trace, x)
    axes = axes_of(x, axis)
    if not x.is_float:
        return _whole_numbers(trace, np.add.reduce, x, axes, dtype, keepdims)
    with np.errstate(all="ignore"):
        value, error, ends, meets, _ = _sum_along(trace, "sum", x, axes, keepdims)
        return settle_result(
            trace, value, error, ends, (_reduced_masks(x, axes, keepdims),), meets=meets, nan_passes=_nan_in(x, axes, keepdims)
        )


def _reduced_masks(x: TracedArray, axes: tuple[int, ...], keepdims: bool) -> TracedArray:
    """What `settle_result` asks of an operand: whether some of its elements are not finite, and where words may be anything."""
    open_ = None if x.open is None else np.asarray(x.open.any(axis=axes, keepdims=keepdims))
    finite = np.isfinite(x.value).all(axis=axes, keepdims=keepdims)
    return TracedArray(x.trace, x.dtype, np.where(finite, 0.0, np.inf), open=open_)


def _nan_in(x: TracedArray, axes: tuple[int, ...], keepdims: bool) -> np.ndarray | None:
    nan = certain_nan(x)
    return None if nan is None else np.asarray(nan.any(axis=axes, keepdims=keepdims))


def _sum_along(
    trace: Trace, name: str, x: TracedArray, axes: tuple[int, ...], keepdims: bool
) -> tuple[np.ndarray, np.ndarray | None, Ends | None, np.ndarray | None, np.ndarray]:
    """(value, running error, ends, where infinities may meet, sum of magnitudes)."""
    count: dict[str, Any] = {"axis": axes, "keepdims": keepdims}
    how = trace.accumulation
    n = _count(x, axes)
    value = store_sum(x.value.sum(**count))
    size = np.abs(x.value)
    magnitude = size.sum(**count) * (1 + n * V)
    error: np.ndarray | None = max(n - 1, 0) * V * magnitude
    if x.error is not None:
        error = error + x.error.sum(**count) * (1 + n * V)
    meets = None
    if n == 1:
        ends = None if x.low is None else (x.ends[0].sum(**count), x.ends[1].sum(**count))
        return value, None if x.error is None else error, ends, None, magnitude
    exact = np.zeros(value.shape, bool)
    if x.low is None:
        low = high = value
        if x.error is None:
            grid = lowest_bits(x.value).min(**count, initial=4096)
            unit = np.ldexp(1.0, np.clip(grid, -1000, 900))
            exact = magnitude * how.unit < unit
            error = np.where(magnitude * V < unit, 0.0, np.asarray(error))
        reach = (magnitude + np.abs(value)) / 2
        smallest = size
        if error is not None:
            low, high = around(value, error)
    else:
        a, b = x.ends
        low, high = a.sum(**count), b.sum(**count)
        positive, negative_ = np.maximum(b, 0.0).sum(**count), -np.minimum(a, 0.0).sum(**count)
        reach = np.maximum(positive, negative_)
        magnitude = positive + negative_
        smallest = np.where((a <= 0) & (b >= 0), np.maximum(np.abs(a), np.abs(b)), np.minimum(np.abs(a), np.abs(b)))
        own = n * V + MARGIN  # float64's additions of the ends
        low, high = low - own * np.abs(a).sum(**count), high + own * np.abs(b).sum(**count)
        if not (all_finite(low) and all_finite(high)):
            meets = (a == -np.inf).any(**count) & (b == np.inf).any(**count)
    trace.note(name)
    unit, growth = how.unit * (1 + 2.0**-20), np.exp(min((n - 1) * how.unit, 700.0))
    rounding_loss = np.where(exact, 0.0, (n - 2) * unit * np.minimum(reach * growth, how.largest))
    if how.format != "fp64":
        small = (smallest < how.smallest_normal / how.unit) & (smallest > 0)
        if small.any():
            rounding_loss = rounding_loss + np.where(small.any(**count), 2 * n * how.smallest_normal, 0.0)
    overflows = reach * growth >= how.largest * (1 - how.unit)
    low, high = widen_ends(low, high, 0.0, np.where(np.isnan(rounding_loss), 0.0, rounding_loss))
    if overflows.any():
        low, high, both = _past_the_end(trace, x, low, high, growth, axes, keepdims)
        meets = both if meets is None else meets | both
    if not rounding_loss.any() and error is not None and not error.any() and x.low is None:
        return value, None, rounded_once(trace, value, None, None), meets, magnitude
    return value, error, how.outward(low, high), meets, magnitude


def _past_the_end(
    trace: Trace, x: TracedArray, low: np.ndarray, high: np.ndarray, growth: float, axes: tuple[int, ...], keepdims: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The ends where partial sums may overflow: upward, downward, or both (then NaN too)."""
    count: dict[str, Any] = {"axis": axes, "keepdims": keepdims}
    a, b = x.ends
    limit = trace.accumulation.largest
    above, below = (np.where(np.isinf(end), 0.0, end) for end in (b, a))  # an infinity meets what finite terms overflow to
    rises = (np.maximum(above, 0.0).sum(**count) * growth >= limit) | (b == np.inf).any(**count)
    falls = (-np.minimum(below, 0.0).sum(**count) * growth >= limit) | (a == -np.inf).any(**count)
    return np.where(falls, -np.inf, low), np.where(rises, np.inf, high), rises & falls


def _whole_numbers(
    trace: Trace,
    function: Callable[..., np.ndarray],
    x: TracedArray,
    axes: tuple[int, ...],
    dtype: DTypeLike | None,
    keepdims: bool,
) -> TracedArray:
    """Sums and products of integers, by the standard's default type: at least 64 bits, of the same sign."""
    kind = BY_FORMAT["uint64" if x.dtype.name.startswith("u") else "int64"]
    storage = dtype_of(dtype) if dtype is not None else kind
    value = np.asarray(
        function(x.value.astype(kind.storage_type), axis=axes, keepdims=keepdims) if axes else x.value.astype(kind.storage_type)
    )
    masks = [None if mask is None else np.asarray(mask.any(axis=axes, keepdims=keepdims)) for mask in (x.hangs, x.words_differ)]
    whole = TracedArray(trace, kind, value, hangs=masks[0], words_differ=masks[1])
    return OPERATIONS["astype"](trace, whole, storage)


@operation("prod")
def prod(trace: Trace, x: Operand, /, *, axis: Axis = None, dtype: DTypeLike | None = None, keepdims: bool = False) -> TracedArray:
    """Product in any order."""
    x = array(trace, x)
    axes = axes_of(x, axis)
    if not x.is_float:
        product = x
        for one in sorted(axes, reverse=True):
            product = _whole_numbers(trace, np.multiply.reduce, product, (one,), dtype, True)
        return (
            product
            if keepdims
            else product.map_elements(lambda each: each.reshape([k for i, k in enumerate(x.shape) if i not in axes]))
        )
    n, how = _count(x, axes), trace.accumulation
    count: dict[str, Any] = {"axis": axes, "keepdims": keepdims}
    with np.errstate(all="ignore"):
        value = x.value.prod(**count)
        size = np.abs(x.value)
        relative = np.where(size > 0, errors(x) / np.where(size > 0, size, 1.0), np.where(np.asarray(errors(x)) > 0, np.inf, 0.0))
        error = np.abs(value) * (np.expm1(np.log1p(relative).sum(**count)) + 2 * n * V)
        error = np.where(np.isnan(error) & ~np.isnan(value), np.inf, error)
        first = [_flat(end, axes) for end in x.ends]
        ends: Ends = (first[0], first[0]) if x.low is None else (first[0], first[1])
        while ends[0].shape[-1] > 1:
            even, odd = (tuple(end[..., start::2] for end in ends) for start in (0, 1))
            rest = even[0].shape[-1] - odd[0].shape[-1]
            pairs = ends_of_product((even[0][..., : -rest or None], even[1][..., : -rest or None]), (odd[0], odd[1]))
            ends = (
                np.concatenate([pairs[0], even[0][..., even[0].shape[-1] - rest :]], axis=-1),
                np.concatenate([pairs[1], even[1][..., even[1].shape[-1] - rest :]], axis=-1),
            )
        ends = ends[0].reshape(value.shape), ends[1].reshape(value.shape)
        ends = widen_ends(*ends, MARGIN + 2 * n * V)
        trace.note("prod")
        ends = how.outward(*widen_ends(*ends, max(n - 2, 0) * how.unit * (1 + how.unit) ** n))
        return settle_result(trace, value, error, ends, (_reduced_masks(x, axes, keepdims),))


def _flat(part: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """With `axes` as one last axis, at least one long."""
    kept = [axis for axis in range(part.ndim) if axis not in axes]
    moved = np.transpose(part, [*kept, *axes]).reshape(*(part.shape[axis] for axis in kept), -1)
    return moved if moved.shape[-1] else np.ones((*moved.shape[:-1], 1))


@operation("mean")
def mean(trace: Trace, x: Operand, /, *, axis: Axis = None, keepdims: bool = False) -> TracedArray:
    """The sum by the number of terms."""
    x = real(array(trace, x))
    axes = axes_of(x, axis)
    with np.errstate(all="ignore"):
        return _mean(trace, "mean", x, axes, keepdims, _count(x, axes))


def _mean(trace: Trace, name: str, x: TracedArray, axes: tuple[int, ...], keepdims: bool, divisor: float) -> TracedArray:
    total, error, ends, meets, magnitude = _sum_along(trace, name, x, axes, keepdims)
    inverse = 1.0 / divisor if divisor else np.nan
    value = total / divisor if divisor else np.full(total.shape, np.nan)
    low, high = (total, total) if ends is None else ends
    low, high = (end * inverse for end in (low, high))
    if float(np.frexp(inverse)[0]) == 0.5 or divisor == 1:
        error = None if error is None else error * inverse
        ends = None if ends is None else trace.accumulation.outward(low, high)
        if ends is None:
            ends = rounded_once(trace, value, error, None)
    else:
        error = (0.0 if error is None else error) * inverse + V * np.abs(value)
        trace.note(name)
        lost = FUNCTIONS["divide"].relative * trace.accumulation.unit * (1 + 2.0**-16) * inverse
        lost = lost * np.minimum(magnitude, trace.accumulation.largest)
        low, high = trace.accumulation.flush_ends(*widen_ends(low, high, MARGIN, np.where(np.isnan(lost), 0.0, lost)))
        ends = trace.accumulation.outward(low, high)
    return settle_result(
        trace, value, error, ends, (_reduced_masks(x, axes, keepdims),), meets=meets, nan_passes=_nan_in(x, axes, keepdims)
    )


@operation("var")
def var(trace: Trace, x: Operand, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> TracedArray:
    """The mean of the squares of the differences from the mean, in two passes; the divisor less `correction`."""
    x = real(array(trace, x))
    axes = axes_of(x, axis)
    with np.errstate(all="ignore"):
        middle = _mean(trace, "var", x, axes, True, _count(x, axes))
        apart = OPERATIONS["subtract"](trace, x, middle)
        squares = OPERATIONS["multiply"](trace, apart, apart)
        return _mean(trace, "var", squares, axes, keepdims, _count(x, axes) - correction)


@operation("std")
def std(trace: Trace, x: Operand, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> TracedArray:
    """The root of the variance."""
    return OPERATIONS["sqrt"](trace, var(trace, x, axis=axis, correction=correction, keepdims=keepdims))

"""Conversions: types, declared formats, kept formats, words."""

from __future__ import annotations

import numpy as np

from bitverdict.reference.formats import FORMATS, Format, Overflow, Rounding, decode, encode
from bitverdict.reference.tracing.accumulation import stored_ends
from bitverdict.reference.tracing.arrays import Operand, TracedArray, array, union_masks
from bitverdict.reference.tracing.comparisons import truth
from bitverdict.reference.tracing.dtypes import BY_FORMAT, WORDS, DType, DTypeLike, Untraceable, dtype_of, promote
from bitverdict.reference.tracing.results import around, real
from bitverdict.reference.tracing.state import OPERATIONS, Trace, operation


def _format(name: object) -> Format:
    found = dtype_of(name).number
    if found is None:
        raise Untraceable(f"format {name}", f"known are {', '.join(FORMATS)}")
    return found


@operation("round_to")
def round_to(trace: Trace, x: Operand, format: DTypeLike, *, saturate: bool = False, rounding: str = "nearest_even") -> TracedArray:
    """A declared conversion to `format`: mathematics, which every implementation makes.

    `saturate`: what overflows becomes the largest finite value. `rounding`: nearest_even, nearest_away, toward_zero,
    toward_positive or toward_negative. Unknown where a boundary of the rounding lies inside the error."""
    x, fmt = real(array(trace, x)), _format(format)
    trace.round_to_formats.add(fmt.name)
    how = {"rounding": Rounding[rounding.upper()], "overflow": Overflow.SATURATE if saturate else Overflow.INFINITY}

    def convert(values: np.ndarray) -> np.ndarray:
        return decode(fmt, encode(fmt, values, **how))  # type: ignore[arg-type]

    with np.errstate(all="ignore"):
        value = convert(x.value)
        result = TracedArray(trace, BY_FORMAT[fmt.name], value, open=x.open)
        if x.error is not None:
            low, high = (convert(end) for end in around(x.value, x.error))
            hanging = ~((low == high) | (np.isnan(low) & np.isnan(high))) | np.isinf(x.error)
            result.error = np.where(hanging, np.inf, 0.0) if hanging.any() else None
        if x.low is not None:
            low, high = (convert(end) for end in x.ends)
            nan = (np.isnan(low) | np.isnan(high)) & ~(np.isnan(low) & np.isnan(high) & np.isnan(value))
            if nan.any():
                result.open = union_masks(result.open, nan)
                low, high = np.where(nan, -np.inf, low), np.where(nan, np.inf, high)
            same = np.array_equal(low, value, equal_nan=True) and np.array_equal(high, value, equal_nan=True)
            result.low, result.high = (None, None) if same else (low, high)
    return result


@operation("kept_in")
def keep_in_format(trace: Trace, x: Operand, format: DTypeLike) -> TracedArray:
    """An implementation may round x to `format` here: rounding, no mathematics. A matrix product may take it in that format.

    It may round a multiple of x that it divides out again, too. Flash attention rounds powers below the largest score so far, and
    rescales what they give: so x may be off by half a unit of `format` in either direction, whatever its own nearest number is."""
    x, fmt = real(array(trace, x)), _format(format)
    result = _keep_in(trace, x, fmt)
    trace.note("kept_in")
    half_unit, half_least = 2.0 ** -(fmt.mantissa_bits + 1), 2.0 ** -(fmt.bias + fmt.mantissa_bits)

    def rounding_distance(end: np.ndarray) -> np.ndarray:
        return np.where(np.isfinite(end) & (end != 0), np.abs(end) * half_unit + half_least, 0.0)

    (low, high), (lowest, highest) = x.ends, result.ends
    result.low, result.high = (
        np.minimum(lowest, low - rounding_distance(low)),
        np.maximum(highest, high + rounding_distance(high)),
    )
    return result


def _keep_in(trace: Trace, x: TracedArray, fmt: Format) -> TracedArray:
    """The float x, which an implementation may hold in `fmt`."""
    result = x.map_elements(lambda each: each)
    result.operand_formats, result.has_scales = x.operand_formats | {fmt.name}, False
    trace.note("kept_in")
    low, high = stored_ends(fmt.name, *x.ends)
    if not (np.array_equal(low, x.value, equal_nan=True) and np.array_equal(high, x.value, equal_nan=True)):
        result.low, result.high = low, high
    return result


@operation("bits")
def bits(trace: Trace, x: Operand, dtype: DTypeLike) -> TracedArray:
    """The words of x, as integers of its own width: hanging where more than one word is possible."""
    x, integer_type = array(trace, x), dtype_of(dtype)
    fmt = x.dtype.number
    if (
        fmt is None
        or integer_type.kind != "integer"
        or np.dtype(integer_type.storage_type).itemsize != np.dtype(fmt.storage).itemsize
    ):
        raise Untraceable("bits", f"of {x.dtype} as {integer_type}: round_to first, and take an integer of the same width")
    with np.errstate(all="ignore"):
        value = encode(fmt, x.value)
        result = TracedArray(trace, integer_type, value.view(integer_type.storage_type))
        if x.error is not None:
            low, high = (encode(fmt, end) for end in around(x.value, x.error))
            result.hangs = (low != high) | np.isinf(x.error)
        if x.low is not None:
            result.words_differ = union_masks(encode(fmt, x.ends[0]) != encode(fmt, x.ends[1]), x.open)
    return result


@operation("from_bits")
def from_bits(trace: Trace, x: Operand, format: DTypeLike) -> TracedArray:
    """The numbers that the integers x are words of."""
    x = array(trace, x)
    if x.is_float:
        raise Untraceable("from_bits", "of floats")
    dtype = dtype_of(format)
    fmt = _format(format)
    width = WORDS[np.dtype(fmt.storage).itemsize]
    value = decode(fmt, np.ascontiguousarray(x.value.astype(np.int64).astype(width)))
    found = TracedArray(trace, dtype, value)
    if x.hangs is not None:
        found.error = np.where(x.hangs, np.inf, 0.0)
    found.open = x.words_differ
    return found


@operation("astype")
def astype(trace: Trace, x: Operand, dtype: DTypeLike, /, *, copy: bool = True, device: object = None) -> TracedArray:
    """To another type. To a float type: no more than that an implementation may hold it so (`kept_in`); `round_to` is mathematics.
    To integers: toward zero, hanging where a whole number lies inside the error."""
    x, target_type = array(trace, x), dtype_of(dtype)
    if target_type == x.dtype:
        return x
    if target_type.kind == "float":
        if not x.is_float:
            return real(x)
        return _keep_in(trace, x, _format(target_type)) if target_type.format not in ("fp64", "fp32", "tf32") else x
    if target_type.kind == "bool":
        return truth(x)
    if x.is_float:
        truncated_array = OPERATIONS["trunc"](trace, x)
        hangs = None if truncated_array.error is None else np.isinf(truncated_array.error)
        words_differ = union_masks(
            truncated_array.open, None if truncated_array.low is None else truncated_array.low != truncated_array.high
        )
        limits = np.iinfo(np.dtype(target_type.storage_type))
        beyond = ~((truncated_array.value >= float(limits.min)) & (truncated_array.value < float(limits.max) + 1))
        if beyond.any():  # what a conversion of such a number gives is the target's own
            hangs, words_differ = union_masks(hangs, beyond), union_masks(words_differ, beyond)
        with np.errstate(invalid="ignore"):
            return TracedArray(
                trace,
                target_type,
                np.where(beyond, 0.0, truncated_array.value).astype(target_type.storage_type),
                hangs=hangs,
                words_differ=words_differ,
            )
    return TracedArray(
        trace,
        target_type,
        x.value.astype(target_type.storage_type),
        hangs=x.hangs,
        words_differ=x.words_differ,
        no_write_mask=x.no_write_mask,
    )


@operation("result_type")
def result_type(trace: Trace, *given: object) -> DType:
    """The type that operands of these types have together."""
    types = [
        each.dtype if isinstance(each, TracedArray) else dtype_of(each) for each in given if not isinstance(each, (int, float))
    ]
    found = types[0]
    for each in types[1:]:
        found = promote(found, each)
    return found

"""Conversions: types, declared formats, kept formats, words."""

from __future__ import annotations

from typing import Any

import numpy as np

from bitverdict.reference.formats import FORMATS, Format, Overflow, Rounding, decode, encode
from bitverdict.reference.tracing.accumulation import stored_ends
from bitverdict.reference.tracing.arrays import Traced, array, either
from bitverdict.reference.tracing.comparisons import truth
from bitverdict.reference.tracing.dtypes import BY_FORMAT, WORDS, DType, dtype_of, promoted
from bitverdict.reference.tracing.results import around, real
from bitverdict.reference.tracing.state import OPERATIONS, Trace, operation
from bitverdict.reference.tracing.untraceable import Untraceable


def _format(name: Any) -> Format:
    found = dtype_of(name).number
    if found is None:
        raise Untraceable(f"format {name}", f"known are {', '.join(FORMATS)}")
    return found


@operation("round_to")
def round_to(trace: Trace, x: Any, format: Any, *, saturate: bool = False, rounding: str = "nearest_even") -> Traced:
    """A declared conversion to `format`: mathematics, which every implementation makes.

    `saturate`: what overflows becomes the largest finite value. `rounding`: nearest_even, nearest_away, toward_zero,
    toward_positive or toward_negative. Unknown where a boundary of the rounding lies inside the error."""
    x, fmt = real(array(trace, x)), _format(format)
    trace.declared.add(fmt.name)
    how = {"rounding": Rounding[rounding.upper()], "overflow": Overflow.SATURATE if saturate else Overflow.INFINITY}

    def convert(values: np.ndarray) -> np.ndarray:
        return decode(fmt, encode(fmt, values, **how))  # type: ignore[arg-type]

    with np.errstate(all="ignore"):
        value = convert(x.value)
        found = Traced(trace, BY_FORMAT[fmt.name], value, open=x.open)
        if x.error is not None:
            low, high = (convert(end) for end in around(x.value, x.error))
            hanging = ~((low == high) | (np.isnan(low) & np.isnan(high))) | np.isinf(x.error)
            found.error = np.where(hanging, np.inf, 0.0) if hanging.any() else None
        if x.low is not None:
            low, high = (convert(end) for end in x.ends)
            nan = (np.isnan(low) | np.isnan(high)) & ~(np.isnan(low) & np.isnan(high) & np.isnan(value))
            if nan.any():
                found.open = either(found.open, nan)
                low, high = np.where(nan, -np.inf, low), np.where(nan, np.inf, high)
            same = np.array_equal(low, value, equal_nan=True) and np.array_equal(high, value, equal_nan=True)
            found.low, found.high = (None, None) if same else (low, high)
    return found


@operation("kept_in")
def kept_in(trace: Trace, x: Any, format: Any) -> Traced:
    """An implementation may round x to `format` here: rounding, no mathematics. A matrix product may take it in that format.

    It may round a multiple of x that it divides out again, too. Flash attention rounds powers below the largest score so far, and
    rescales what they give: so x may be off by half a unit of `format` in either direction, whatever its own nearest number is."""
    x, fmt = real(array(trace, x)), _format(format)
    found = _kept(trace, x, fmt)
    if trace.rounds("kept_in"):
        half_unit, half_least = 2.0 ** -(fmt.mantissa_bits + 1), 2.0 ** -(fmt.bias + fmt.mantissa_bits)

        def off(end: np.ndarray) -> np.ndarray:
            return np.where(np.isfinite(end) & (end != 0), np.abs(end) * half_unit + half_least, 0.0)

        (low, high), (lowest, highest) = x.ends, found.ends
        found.low, found.high = np.minimum(lowest, low - off(low)), np.maximum(highest, high + off(high))
    return found


def _kept(trace: Trace, x: Traced, fmt: Format) -> Traced:
    """The float x, which an implementation may hold in `fmt`."""
    found = x.moved(lambda each: each)
    found.kept, found.scaled = x.kept | {fmt.name}, False
    if trace.rounds("kept_in"):
        low, high = stored_ends(fmt.name, *x.ends)
        if not (np.array_equal(low, x.value, equal_nan=True) and np.array_equal(high, x.value, equal_nan=True)):
            found.low, found.high = low, high
    return found


@operation("bits")
def bits(trace: Trace, x: Any, dtype: Any) -> Traced:
    """The words of x, as integers of its own width: hanging where more than one word is possible."""
    x, whole = array(trace, x), dtype_of(dtype)
    fmt = x.dtype.number
    if fmt is None or whole.kind != "integer" or np.dtype(whole.stored).itemsize != np.dtype(fmt.storage).itemsize:
        raise Untraceable("bits", f"of {x.dtype} as {whole}: round_to first, and take an integer of the same width")
    with np.errstate(all="ignore"):
        value = encode(fmt, x.value)
        found = Traced(trace, whole, value.view(whole.stored))
        if x.error is not None:
            low, high = (encode(fmt, end) for end in around(x.value, x.error))
            found.hangs = (low != high) | np.isinf(x.error)
        if x.low is not None:
            found.loose = either(encode(fmt, x.ends[0]) != encode(fmt, x.ends[1]), x.open)
    return found


@operation("from_bits")
def from_bits(trace: Trace, x: Any, format: Any) -> Traced:
    """The numbers that the integers x are words of."""
    x = array(trace, x)
    if x.is_float:
        raise Untraceable("from_bits", "of floats")
    dtype = dtype_of(format)
    fmt = _format(format)
    width = WORDS[np.dtype(fmt.storage).itemsize]
    value = decode(fmt, np.ascontiguousarray(x.value.astype(np.int64).astype(width)))
    found = Traced(trace, dtype, value)
    if x.hangs is not None:
        found.error = np.where(x.hangs, np.inf, 0.0)
    found.open = x.loose
    return found


@operation("astype")
def astype(trace: Trace, x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Traced:
    """To another type. To a float type: no more than that an implementation may hold it so (`kept_in`); `round_to` is mathematics.
    To integers: toward zero, hanging where a whole number lies inside the error."""
    x, found = array(trace, x), dtype_of(dtype)
    if found == x.dtype:
        return x
    if found.kind == "float":
        if not x.is_float:
            return real(x)
        return _kept(trace, x, _format(found)) if found.format not in ("fp64", "fp32", "tf32") else x
    if found.kind == "bool":
        return truth(x)
    if x.is_float:
        whole = OPERATIONS["trunc"](trace, x)
        hangs = None if whole.error is None else np.isinf(whole.error)
        loose = either(whole.open, None if whole.low is None else whole.low != whole.high)
        limits = np.iinfo(np.dtype(found.stored))
        beyond = ~((whole.value >= float(limits.min)) & (whole.value < float(limits.max) + 1))
        if beyond.any():  # what a conversion of such a number gives is the target's own
            hangs, loose = either(hangs, beyond), either(loose, beyond)
        with np.errstate(invalid="ignore"):
            return Traced(trace, found, np.where(beyond, 0.0, whole.value).astype(found.stored), hangs=hangs, loose=loose)
    return Traced(trace, found, x.value.astype(found.stored), hangs=x.hangs, loose=x.loose, unchanged=x.unchanged)


@operation("result_type")
def result_type(trace: Trace, *given: Any) -> DType:
    """The type that operands of these types have together."""
    types = [each.dtype if isinstance(each, Traced) else dtype_of(each) for each in given if not isinstance(each, (int, float))]
    found = types[0]
    for each in types[1:]:
        found = promoted(found, each)
    return found

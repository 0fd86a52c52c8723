"""What references may say beyond the standard: conversions, kept formats, unchanged elements, random bits, words."""

from __future__ import annotations

from typing import Any

import numpy as np

from bitverdict.reference.formats import FORMATS, Format, Overflow, Rounding, decode, encode
from bitverdict.reference.philox import philox as philox_words
from bitverdict.reference.philox import uniform
from bitverdict.reference.tracing.accumulation import stored_ends
from bitverdict.reference.tracing.arrays import Traced, array, either
from bitverdict.reference.tracing.dtypes import BY_FORMAT, WORDS, DType, dtype_of
from bitverdict.reference.tracing.elementwise import errors
from bitverdict.reference.tracing.real_arithmetic import real
from bitverdict.reference.tracing.state import Trace, operation
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
            reach = np.where(np.isfinite(x.value), x.error, 0.0)
            low, high = convert(x.value - reach), convert(x.value + reach)
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
    """An implementation may round x to `format` here: rounding, no mathematics. A matrix product may take it in that format."""
    x, fmt = real(array(trace, x)), _format(format)
    found = x.moved(lambda each: each)
    found.kept, found.scaled = x.kept | {fmt.name}, False
    if trace.rounds("kept_in"):
        low, high = stored_ends(fmt.name, *x.ends)
        if not (np.array_equal(low, x.value, equal_nan=True) and np.array_equal(high, x.value, equal_nan=True)):
            found.low, found.high = low, high
    return found


def unchanged(trace: Trace, like: DType, shape: tuple[int, ...] = ()) -> Traced:
    """Elements that no implementation may write, beside elements of type `like`."""
    if like.kind == "float":
        return Traced(
            trace, like, np.zeros(shape), np.full(shape, np.inf), np.full(shape, -np.inf), np.full(shape, np.inf),
            open=np.ones(shape, bool), unchanged=np.ones(shape, bool),
        )  # fmt: skip
    mask = np.ones(shape, bool)
    return Traced(trace, like, np.zeros(shape, like.stored), hangs=mask, loose=mask, unchanged=mask)


@operation("philox")
def philox(trace: Trace, seed: Any, offsets: Any) -> tuple[Traced, Traced, Traced, Traced]:
    """The four words (uint32) of Philox 4x32-10 that `tl.randint4x(seed, offsets)` has."""
    given = array(trace, offsets)
    if given.is_float or given.hangs is not None:
        raise Untraceable("philox", "of offsets that are no exact integers")
    index = given.value.astype(np.int64).view(np.uint64) if given.ndim else np.asarray(int(given.value), np.uint64)
    zero = np.zeros_like(index)
    words = philox_words((index & np.uint64(0xFFFFFFFF), index >> np.uint64(32), zero, zero), _seed(seed))
    one, two, three, four = (Traced(trace, BY_FORMAT["uint32"], np.asarray(word), loose=given.loose) for word in words)
    return one, two, three, four


@operation("random_uniform")
def random_uniform(trace: Trace, seed: Any, offsets: Any) -> Traced:
    """tl.rand(seed, offsets): exact fp32 numbers of [0, 1)."""
    given = array(trace, offsets)
    if given.is_float or given.hangs is not None or given.loose is not None:
        raise Untraceable("random_uniform", "of offsets that are no exact integers")
    found = uniform(_seed(seed), given.value.astype(np.int64).astype(np.uint64))
    return Traced(trace, BY_FORMAT["fp32"], np.asarray(found, np.float64))


def _seed(seed: Any) -> int:
    if isinstance(seed, Traced):
        if seed.size != 1 or seed.is_float:
            raise Untraceable("philox", "with a seed that is no single integer")
        return int(seed.value.reshape(-1)[0]) & 0xFFFFFFFFFFFFFFFF
    return int(seed) & 0xFFFFFFFFFFFFFFFF


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
            reach = np.where(np.isfinite(x.value), errors(x), 0.0)
            found.hangs = (encode(fmt, x.value - reach) != encode(fmt, x.value + reach)) | np.isinf(errors(x))
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

"""From values to codes, rounding once.

The rule is integer arithmetic on the source's own bits: the significand is shifted until its last bit is worth the
destination's, the bits shifted out decide the rounding, and a carry runs into the exponent by itself, because codes of one sign are
consecutive. So subnormals, ties and the step into overflow need no case of their own.

Formats of up to eight bits are encoded from float32 through a table over the top 16 bits of the word. The dropped bits are
kept as one: if any was set, the last kept bit is set (rounding to odd). A second rounding at least two bits higher
then decides as it would have on the whole word, so nothing is rounded twice. The table is filled by the rule.

bf16 has float32's exponents, so to nearest even is an addition to the word: half a unit, less one where the kept part is even. The
carry runs into the exponent, and past the largest value into infinity.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from bitverdict.reference.formats.record import Format, Overflow, Rounding, Specials

CHUNK = 1 << 14  # elements worked on at once: the temporaries stay in the first caches, and memory does not grow with the input
LARGEST_TABLE_MANTISSA = 5  # float32's top half keeps 7 mantissa bits; rounding to odd needs two to spare
EXACT_INTEGERS = 1 << 53


@dataclass(frozen=True)
class _Source:
    """Layout of the words that values arrive in."""

    values: type[np.floating]
    words: type[np.signedinteger]
    mantissa_bits: int
    bias: int


_FLOAT32 = _Source(np.float32, np.int32, 23, 127)
_FLOAT64 = _Source(np.float64, np.int64, 52, 1023)


def encode(
    fmt: Format, values: np.ndarray, *, rounding: Rounding = Rounding.NEAREST_EVEN, overflow: Overflow = Overflow.INFINITY
) -> np.ndarray:
    """Codes of `values` (any shape; float64, float32, float16 or integers up to 2^53) in `fmt.storage`, same shape.

    The rounding is of the exact value, once, whatever the dtype it comes in. -0 keeps its sign where
    the format has it. A NaN becomes `fmt.nan_code`
    whatever its sign and payload; in a format without NaN the positive largest value (PTX ISA, `cvt`: "positive MAX_NORM").
    In an unsigned format a negative value becomes NaN and -0 becomes 0; in E8M0, which has no zero, zero becomes NaN and what
    lies below 2^-127 becomes 2^-127, in every rounding.
    Raises ValueError for dtypes whose values float64 may not hold, and for Overflow.NAN where there is no NaN.
    """
    if overflow is Overflow.NAN and fmt.nan_code is None:
        raise ValueError(f"{fmt.name} has no NaN for what overflows; use Overflow.SATURATE")
    values = _as_float(values)  # (...)
    codes = np.empty(values.shape, fmt.storage)  # (...)
    flat_values, flat_codes = values.reshape(-1), codes.reshape(-1)  # (elements,)
    if values.dtype == np.float32 and fmt.width <= 8 and fmt.mantissa_bits <= LARGEST_TABLE_MANTISSA:
        _encode_by_table(_table(fmt, rounding, overflow), flat_values, flat_codes)
        return codes
    if fmt.name == "bf16" and rounding is Rounding.NEAREST_EVEN and overflow is Overflow.INFINITY:
        for start in range(0, flat_values.size, CHUNK):
            part = slice(start, start + CHUNK)
            flat_codes[part] = _encode_bf16(fmt, flat_values[part])
        return codes
    # E8M0 reaches into float32's subnormals, and fp32 leaves no bit to round: both are left to the wider source.
    narrow = values.dtype == np.float32 and fmt.subnormals and fmt.mantissa_bits < _FLOAT32.mantissa_bits
    source = _FLOAT32 if narrow else _FLOAT64
    _encode_in_chunks(fmt, flat_values, flat_codes, source, rounding, overflow)
    return codes


def _as_float(values: np.ndarray) -> np.ndarray:
    """`values` as contiguous float32 where they are float32 or narrower, else float64: exact, or ValueError."""
    values = np.asarray(values)  # (...)
    if values.dtype in (np.float32, np.float64):
        return np.ascontiguousarray(values).reshape(values.shape)
    if values.dtype == np.float16:
        return np.ascontiguousarray(values, dtype=np.float32).reshape(values.shape)
    if values.dtype.kind not in "iub":
        raise ValueError(f"cannot encode {values.dtype}: give float64, float32, float16 or integers")
    if values.size and values.dtype.itemsize == 8 and max(int(values.max()), -int(values.min())) > EXACT_INTEGERS:
        raise ValueError("integers beyond 2^53 are not exact in float64: encode them in two parts")
    return np.ascontiguousarray(values, dtype=np.float64).reshape(values.shape)


def _encode_in_chunks(
    fmt: Format, values: np.ndarray, codes: np.ndarray, source: _Source, rounding: Rounding, overflow: Overflow
) -> None:
    for start in range(0, values.size, CHUNK):
        part = slice(start, start + CHUNK)
        codes[part] = _encode_by_definition(fmt, values[part], source, rounding, overflow)


_KEPT_IN_FLOAT32, _KEPT_IN_FLOAT64 = np.uint32(16), np.int64(45)  # the lowest bit that bf16 keeps of each
_REBIAS = (1023 - 127) << 7
_BF16_NORMAL = np.float64(2.0**-126).view(np.int64)


def _encode_bf16(fmt: Format, values: np.ndarray) -> np.ndarray:
    """bf16 of float32 or float64 `values` (elements,), to nearest even."""
    if values.dtype == np.float32:
        words = values.view(np.uint32)  # (elements,)
        rounded = words + (((words >> _KEPT_IN_FLOAT32) & 1) + np.uint32(0x7FFF))  # (elements,)
        rounded >>= _KEPT_IN_FLOAT32
        nan = np.isnan(values)  # (elements,)
        return np.where(nan, np.uint32(fmt.nan_code or 0), rounded) if nan.any() else rounded
    signed_words = values.view(np.int64)  # (elements,)
    magnitude = signed_words & np.iinfo(np.int64).max  # (elements,)
    if ((magnitude < _BF16_NORMAL) & (magnitude != 0)).any():  # a subnormal keeps fewer bits
        return _encode_by_definition(fmt, values, _FLOAT64, Rounding.NEAREST_EVEN, Overflow.INFINITY)
    code = magnitude + (((magnitude >> _KEPT_IN_FLOAT64) & 1) + ((1 << 44) - 1))  # (elements,)
    code >>= _KEPT_IN_FLOAT64
    code -= _REBIAS
    infinite = fmt.infinity_code or 0
    np.clip(code, 0, infinite, out=code)  # zero has no exponent to take the bias from
    code |= (signed_words < 0) * np.int64(fmt.sign_bit)
    nan = np.isnan(values)  # (elements,)
    return np.where(nan, np.int64(fmt.nan_code or 0), code) if nan.any() else code


def _encode_by_definition(fmt: Format, values: np.ndarray, source: _Source, rounding: Rounding, overflow: Overflow) -> np.ndarray:
    """The rule, on a chunk: codes as signed integers of the source's width."""
    with np.errstate(invalid="ignore"):  # a signalling NaN, widened
        words = np.ascontiguousarray(values, dtype=source.values).view(source.words)  # (elements,)
    integer = source.words
    magnitude = words & np.iinfo(integer).max  # (elements,)
    negative = words < 0  # (elements,)
    hidden = integer(1 << source.mantissa_bits)
    field = magnitude >> source.mantissa_bits  # (elements,) exponent as stored
    significand = (magnitude & (hidden - 1)) | np.where(field > 0, hidden, 0)  # (elements,)
    exponent = np.maximum(field, 1) - source.bias - fmt.smallest_exponent  # (elements,) above the destination's smallest

    # Past mantissa_bits + 2 places even half a unit is more than the significand: all such values round alike.
    dropped = source.mantissa_bits - fmt.mantissa_bits - np.minimum(exponent, 0) * fmt.subnormals  # (elements,) bits
    dropped = np.minimum(dropped, source.mantissa_bits + 2).astype(integer)  # (elements,)
    kept = significand >> dropped  # (elements,)
    rest = significand & ((integer(1) << dropped) - 1)  # (elements,)
    half = integer(1) << (dropped - 1)  # (elements,)
    kept += _goes_up(rounding, kept, rest, half, negative)
    code = (np.maximum(exponent, 0) << fmt.mantissa_bits) + kept  # (elements,)
    if not fmt.subnormals:
        code = np.where(exponent < 0, 0, code - 1)  # (elements,) exponent field 0 is a full number, the smallest

    largest, nan, infinite = _ends(fmt, overflow)
    beyond = largest if overflow is Overflow.SATURATE else nan if overflow is Overflow.NAN else infinite
    stops = _stops_at_largest(rounding, negative) & (overflow is Overflow.INFINITY)  # (elements,)
    code = np.where(code > largest, np.where(stops, largest, beyond), code)  # (elements,)
    infinity = integer(np.array(np.inf, source.values).view(integer))
    code = np.where(magnitude == infinity, infinite, code)  # (elements,)
    not_a_number = magnitude > infinity  # (elements,)
    if not fmt.has_sign:
        not_a_number |= negative & (magnitude != 0)
    if not fmt.subnormals:
        not_a_number |= magnitude == 0
    if fmt.nan_code is not None:
        not_a_number |= code == nan  # for what overflows: canonical, so without the sign
    if fmt.specials is Specials.NAN_NEGATIVE_ZERO:
        negative = negative & (code != 0)  # (elements,)
    code |= np.where(negative, integer(fmt.sign_bit >> fmt.low_padding), integer(0))  # (elements,)
    return np.where(not_a_number, nan, code).astype(np.int64) << fmt.low_padding  # (elements,)


def _goes_up(rounding: Rounding, kept: np.ndarray, rest: np.ndarray, half: np.ndarray, negative: np.ndarray) -> np.ndarray:
    """Whether the magnitude is rounded up, given the bits dropped (`rest`) and what half a unit is in them."""
    match rounding:
        case Rounding.NEAREST_EVEN:
            result: np.ndarray = rest + (kept & 1) > half
            return result
        case Rounding.NEAREST_AWAY:
            return rest >= half
        case Rounding.TOWARD_ZERO:
            return np.zeros(rest.shape, bool)
        case Rounding.TOWARD_POSITIVE:
            result = (rest != 0) & ~negative
            return result
        case Rounding.TOWARD_NEGATIVE:
            result = (rest != 0) & negative
            return result


def _stops_at_largest(rounding: Rounding, negative: np.ndarray) -> np.ndarray:
    """Where a directed rounding keeps an overflowing value at the largest finite one (IEEE 754-2019, section 7.4)."""
    if rounding in (Rounding.NEAREST_EVEN, Rounding.NEAREST_AWAY):
        return np.zeros(negative.shape, bool)
    if rounding is Rounding.TOWARD_ZERO:
        return np.ones(negative.shape, bool)
    return negative if rounding is Rounding.TOWARD_POSITIVE else ~negative


def _ends(fmt: Format, overflow: Overflow) -> tuple[int, int, int]:
    """Unpadded magnitudes of: the largest finite value, what a NaN becomes, what an infinity becomes."""
    largest = fmt.largest_code >> fmt.low_padding
    nan = largest if fmt.nan_code is None else fmt.nan_code >> fmt.low_padding
    if overflow is Overflow.SATURATE:
        return largest, nan, largest
    return largest, nan, nan if fmt.infinity_code is None else fmt.infinity_code >> fmt.low_padding


@cache
def _table(fmt: Format, rounding: Rounding, overflow: Overflow) -> np.ndarray:
    """Code of each float32 whose low half is zero, by its top half; uint8, read-only."""
    words = np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)  # (65536,)
    table = np.empty(words.size, np.uint8)  # (65536,)
    _encode_in_chunks(fmt, words.view(np.float32), table, _FLOAT64, rounding, overflow)
    table.flags.writeable = False
    return table


def _encode_by_table(table: np.ndarray, values: np.ndarray, codes: np.ndarray) -> None:
    """Write the codes of float32 `values` (elements,) into `codes` (elements,)."""
    words = values.view(np.uint32)  # (elements,)
    size = min(CHUNK, words.size)
    low, index = np.empty(size, np.uint32), np.empty(size, np.intp)  # (chunk,)
    for start in range(0, words.size, CHUNK):
        word = words[start : start + CHUNK]  # (chunk,)
        sticky, position = low[: word.size], index[: word.size]  # (chunk,)
        np.bitwise_and(word, 0xFFFF, out=sticky)
        np.add(sticky, 0xFFFF, out=sticky)  # bit 16 is set when any low bit was
        np.bitwise_or(sticky, word, out=sticky)
        np.right_shift(sticky, 16, out=position, casting="unsafe")
        np.take(table, position, out=codes[start : start + CHUNK], mode="clip")  # in range; "clip" lets `out` go unbuffered

"""From codes to values, exactly: every format here is a subset of float64.

Formats of up to 16 bits are looked up in a table that the general rule fills once; fp32 and tf32 are read through float32,
which is their own layout.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from bitverdict.reference.formats.record import Format, Specials

LARGEST_TABLE_WIDTH = 16


def decode(fmt: Format, codes: np.ndarray) -> np.ndarray:
    """Values of `codes` (unsigned integers, any shape) as float64 of the same shape; every NaN becomes float64's own.

    Raises ValueError for a code with bits outside the format, such as 0x10 in E2M1: two packed elements, not one.
    """
    codes = np.asarray(codes)  # (...)
    if codes.dtype.kind != "u":
        raise ValueError(f"codes of {fmt.name} are unsigned integers, got {codes.dtype}; view them as {fmt.storage.__name__}")
    readable = fmt.width + fmt.ignored_high_bits
    if 8 * codes.dtype.itemsize > readable and codes.size and (largest := int(codes.max())) >> readable:
        raise ValueError(
            f"{largest:#x} is no code of {fmt.name} ({fmt.width} bits); unpack packed codes with bitverdict.reference.packing"
        )
    if fmt.width > LARGEST_TABLE_WIDTH:
        return _decode_container(fmt, codes)
    return np.take(value_table(fmt), codes)  # (...)


@cache
def value_table(fmt: Format) -> np.ndarray:
    """Value of each code of a format of at most 16 bits, by position, float64, read-only."""
    table = decode_by_definition(fmt, np.arange(1 << (fmt.width + fmt.ignored_high_bits), dtype=np.uint32))  # (codes,)
    table.flags.writeable = False
    return table


def decode_by_definition(fmt: Format, codes: np.ndarray) -> np.ndarray:
    """The rule as the specifications write it: (-1)^sign * 2^(exponent - bias) * 1.mantissa, or 0.mantissa at exponent 0."""
    magnitude = (codes.astype(np.int64) & ((1 << fmt.width) - 1 ^ fmt.sign_bit)) >> fmt.low_padding  # (...)
    exponent = magnitude >> fmt.mantissa_bits  # (...)
    mantissa = magnitude & ((1 << fmt.mantissa_bits) - 1)  # (...)
    subnormal = (exponent == 0) & fmt.subnormals  # (...)
    significand = mantissa + np.where(subnormal, 0, 1 << fmt.mantissa_bits)  # (...)
    values: np.ndarray = np.ldexp(significand.astype(np.float64), exponent + subnormal - fmt.bias - fmt.mantissa_bits)  # (...)
    if fmt.specials is Specials.IEEE:
        top = exponent == (1 << fmt.exponent_bits) - 1  # (...)
        values = np.where(top, np.where(mantissa == 0, np.inf, np.nan), values)  # (...)
    elif fmt.specials is Specials.NAN_ALL_ONES:
        values = np.where(magnitude == (1 << (fmt.exponent_bits + fmt.mantissa_bits)) - 1, np.nan, values)  # (...)
    elif fmt.specials is Specials.NAN_NEGATIVE_ZERO:
        values = np.where(codes.astype(np.int64) == fmt.sign_bit, np.nan, values)  # (...)
    if not fmt.has_sign:
        return values
    negative = (codes.astype(np.int64) & fmt.sign_bit) != 0  # (...)
    result: np.ndarray = np.where(negative & ~np.isnan(values), -values, values)  # (...)
    return result


def _decode_container(fmt: Format, codes: np.ndarray) -> np.ndarray:
    """fp32, and what lies in an fp32 container (tf32). A signalling NaN is still only a NaN: no warning for it."""
    words = np.ascontiguousarray(codes, dtype=np.uint32)  # (...)
    if fmt.low_padding:
        words = words & np.uint32(-1 << fmt.low_padding & 0xFFFFFFFF)  # (...)
    with np.errstate(invalid="ignore"):
        return words.view(np.float32).astype(np.float64).reshape(codes.shape)  # (...)

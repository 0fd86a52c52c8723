"""What the arithmetic of the tile program computes, word for word.

Values are held in logical order: integers as NumPy integers (scalars as Python ints), fp32 as float32, narrower floats as their
codes. Every function here is one whose lowering is known to round once and correctly (PTX ISA 9.7: add, mul, fma, cvt with
``.rn``), or to be exact; what rounds otherwise (division, ``math.*``) is not here, and is refused by the translator. fp32 NaN
results are 0x7FFFFFFF (PTX ISA 9.7.3, "NaN results are canonical"), fp16 and bf16 ones 0x7FFF, fp64 ones those of `fp64`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bitverdict.harness.model.architectures import ARCHITECTURES
from bitverdict.harness.model.triton_release import converts_through_fp16
from bitverdict.reference.formats import FORMATS, convert, decode, encode
from bitverdict.reference.scalar_arithmetic import fp64

_CANONICAL = np.uint32(0x7FFFFFFF).view(np.float32)
_OF_DOUBLES: dict[Callable, Callable] = {np.add: fp64.add, np.subtract: fp64.subtract, np.multiply: fp64.multiply}


def canonical(values: np.ndarray) -> np.ndarray:
    """float32 `values` with every NaN replaced by 0x7FFFFFFF."""
    nan = np.isnan(values)
    if nan.any():
        values = np.where(nan, _CANONICAL, values)
    return values


def flush_subnormals(values: np.ndarray) -> np.ndarray:
    """float32 `values` with subnormals as zeros of their sign (.ftz)."""
    return np.where(np.abs(values) < np.float32(2.0**-126), np.copysign(np.float32(0), values), values)


def widen(values: np.ndarray | np.generic | int | float, fmt: str | None) -> np.ndarray:
    """Exact float64 values of what `values` holds in `fmt` (None: already float64)."""
    if fmt is None or fmt == "fp32":
        return np.asarray(values).astype(np.float64)
    if fmt == "fp16":
        return np.asarray(values).view(np.float16).astype(np.float64)
    if fmt == "bf16":
        return (np.asarray(values).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return decode(FORMATS[fmt], np.asarray(values))


def narrow(values: np.ndarray, fmt: str | None) -> np.ndarray:
    """float64 `values`, each exact or rounded to odd, rounded once (nearest even) to `fmt`."""
    if fmt is None:
        return values
    if fmt == "fp32":
        return canonical(values.astype(np.float32))
    if fmt == "fp16":
        return np.where(np.isnan(values), np.uint16(0x7FFF), values.astype(np.float16).view(np.uint16))
    return np.where(np.isnan(values), np.uint16(0x7FFF), encode(FORMATS[fmt], values))


def binary(operation: Callable, fmt: str | None) -> Callable:
    """`operation` (NumPy's add, subtract or multiply) in `fmt`. For fp16 and bf16 the float64 result is exact, or so far from a
    tie that rounding it again is rounding once."""
    if fmt == "fp32":
        return lambda a, b: canonical(operation(a, b))
    if fmt is None:
        return _OF_DOUBLES[operation]
    return lambda a, b: narrow(operation(widen(a, fmt), widen(b, fmt)), fmt)


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """fp32 `a * b + c` rounded once (nearest even). The product is exact in float64; the sum is rounded to odd there (its last
    bit is set when anything was lost), so that the second rounding, 29 bits further up, cannot be misled."""
    product = np.asarray(a).astype(np.float64) * np.asarray(b).astype(np.float64)
    return canonical(_to_odd_sum(product, np.asarray(c).astype(np.float64)).astype(np.float32))


def narrow_fma(fmt: str) -> Callable:
    """The same in fp16 or bf16, on codes."""
    return lambda a, b, c: narrow(_to_odd_sum(widen(a, fmt) * widen(b, fmt), widen(c, fmt)), fmt)


def negative(fmt: str | None) -> Callable:
    """The other sign, on values as this module holds them: a bit and no rounding, of NaN too."""
    if fmt in (None, "fp32"):
        return np.negative
    sign = FORMATS[fmt].sign_bit
    return lambda a: a ^ a.dtype.type(sign)


def _to_odd_sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    total = a + b
    other = total - a
    lost_part = (a - (total - other)) + (b - other)
    inexact_sums = (lost_part != 0) & np.isfinite(total) & np.isfinite(lost_part)
    if not inexact_sums.any():
        return total
    bits = np.asarray(total).view(np.int64)
    # nearest even went away from zero when what was lost points back toward it: step back first, then set the odd bit
    toward_zero = np.where(inexact_sums & ((lost_part < 0) == (total > 0)), bits - 1, bits)
    return np.where(inexact_sums, toward_zero | 1, bits).view(np.float64)


def convert_float(source: str, destination: str, arch: str) -> Callable:
    """The target's own conversion between two float formats, on values as this module holds them."""
    through_fp16 = converts_through_fp16()

    def run(values: np.ndarray) -> np.ndarray:
        values = np.asarray(values)
        codes = values.view(np.uint32) if source == "fp32" else values
        codes = convert(FORMATS[source], FORMATS[destination], codes, arch, through_fp16=through_fp16)
        return codes.view(np.float32) if destination == "fp32" else codes

    return run


def toward_zero(fmt: str) -> Callable:
    """fp32 values to codes of fp16 or bf16 (cvt.rz) or e5m2 (fp16's upper byte, as compiled), toward zero: none but an infinity
    becomes one. ValueError for another format."""
    if fmt not in ("fp16", "bf16", "e5m2"):
        raise ValueError(f"toward zero to {fmt}")

    def run(values: np.ndarray) -> np.ndarray:
        values = np.asarray(values)
        if fmt == "bf16":
            codes = (values.view(np.uint32) >> 16).astype(np.uint16)
        else:
            near = values.astype(np.float16)
            codes = near.view(np.uint16) - (np.abs(near.astype(np.float64)) > np.abs(values)).astype(np.uint16)
        codes = np.where(np.isnan(values), np.uint16(0x7FFF), codes)
        return (codes >> 8).astype(np.uint8) if fmt == "e5m2" else codes

    return run


def float_from_int(bits: int, fmt: str | None, arch: str, *, is_signed: bool) -> Callable:
    """sitofp, uitofp: rounded once, to nearest even; but to bf16 before sm_90, where it goes through fp32 and is rounded twice.

    Integers of 64 bits are taken in two halves, which float64 holds, and rounded to odd there; those of fewer are exact in it.
    """
    unsigned_dtypes = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}

    def run(values: np.ndarray) -> np.ndarray:
        values = np.asarray(values)
        if bits == 1:
            values = -values.astype(np.int8) if is_signed else values.astype(np.uint8)
        elif not is_signed:
            values = values.astype({8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}[bits]).view(unsigned_dtypes[bits])
        if fmt in (None, "fp32"):
            return values.astype(np.float32 if fmt else np.float64)
        if fmt == "bf16" and not ARCHITECTURES[arch].converts_integers_to_bf16:
            return narrow(values.astype(np.float32).astype(np.float64), fmt)
        if bits < 64:
            return narrow(values.astype(np.float64), fmt)
        low = values & values.dtype.type(0xFFFFFFFF)
        return narrow(_to_odd_sum((values - low).astype(np.float64), low.astype(np.float64)), fmt)

    return run


def int_from_float(fmt: str | None, bits: int, *, is_signed: bool) -> Callable:
    """fptosi, fptoui as cvt.rzi: toward zero, clamped to the range of the instruction's integer, NaN to 0 (PTX ISA, cvt). 8-bit
    results take the low bits of a 16-bit one, as the lowering does."""
    wide = max(bits, 16)
    dtype = np.dtype(f"{'i' if is_signed else 'u'}{wide // 8}")
    target = np.dtype({1: np.int8, 8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}[bits])
    top = (1 << (wide - 1 if is_signed else wide)) - 1
    lowest, highest = float(-top - 1 if is_signed else 0), float(top)

    def run(values: np.ndarray) -> np.ndarray:
        real = np.trunc(widen(values, fmt))
        real = np.where(np.isnan(real), 0.0, real)
        inside = np.clip(real, lowest, highest)
        whole = np.where(inside >= highest, dtype.type(top), np.where(inside >= highest, 0.0, inside).astype(dtype))
        return whole.view(f"i{dtype.itemsize}").astype(target)

    return run


def wrap(value: int, bits: int) -> int:
    """A Python integer as a signed word of `bits` bits."""
    if bits == 1:
        return value & 1
    half = 1 << (bits - 1)
    return ((value + half) & ((1 << bits) - 1)) - half


def divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Signed integer quotient toward zero; of a zero divisor, for which nothing is promised, 0."""
    return ((a - np.fmod(a, b)) // b).astype(a.dtype)


def remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Signed integer remainder with the sign of the dividend; of a zero divisor, for which nothing is promised, 0."""
    return np.fmod(a, b).astype(a.dtype)


def divide_scalar(a: int, b: int) -> int:
    if b == 0:
        return -1
    quotient = abs(a) // abs(b)
    return -quotient if (a < 0) != (b < 0) else quotient


def remainder_scalar(a: int, b: int) -> int:
    return a if b == 0 else a - b * divide_scalar(a, b)

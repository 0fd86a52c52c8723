"""The special-function unit: what each MUFU operation of the machine code makes of one word.

Each takes words (one dimension, uint32) and returns words (same shape): of fp32, or of the high half of fp64 (`rcp64h`,
`rsqrt64h`). Subnormal arguments count as zero of their sign, subnormal results come out as zero of their sign, a NaN as 0x7FFFFFFF:
the unit knows no subnormals, but in `tanh`. What PTX instructions without `.ftz` add around it is in `instructions`.
"""

from __future__ import annotations

import numpy as np

from bitverdict.reference.special_functions.coefficients import EX2, LG2, RCP, RSQRT, SINE, SQRT, TANH
from bitverdict.reference.special_functions.quadratic import TANH_FIRST_EXPONENT, TANH_SEGMENTS, Quadratic

NAN = np.uint32(0x7FFFFFFF)
INFINITY = np.uint32(0x7F800000)
SIGN = np.uint32(0x80000000)
MAGNITUDE = np.uint32(0x7FFFFFFF)
FRACTION = np.uint32(0x007FFFFF)
FP32_ONE_WORD = np.uint32(0x3F800000)
SMALLEST_NORMAL = np.uint32(0x00800000)
SMALLEST_NORMAL64, FP64_ONE_WORD, INFINITY64 = np.uint32(0x00100000), np.uint32(0x3FF00000), np.uint32(0x7FF00000)  # high words
FLOAT64_BIAS, FLOAT32_BIAS = 1023, 127


def rcp(words: np.ndarray) -> np.ndarray:
    """MUFU.RCP: 1 / x."""
    sums = RCP.sums(words >> 16 & 0x7F, words & 0xFFFF)  # (n,)
    result: np.ndarray = _word(sums, RCP.weight) - (words & INFINITY) + FP32_ONE_WORD  # (n,)
    size = words & MAGNITUDE  # (n,)
    outside = size - SMALLEST_NORMAL >= np.uint32(0x7E800000) - SMALLEST_NORMAL  # (n,) |x| below 2^-126, or 2^126 and more
    if outside.any():
        result[outside & (size > 0x7E800000)] = 0
        result[size < SMALLEST_NORMAL] = INFINITY
        result |= words & SIGN
        result[size > INFINITY] = NAN
        return result
    product_values: np.ndarray = result | words & SIGN
    return product_values


def rcp64h(words: np.ndarray) -> np.ndarray:
    """MUFU.RCP64H: 1 / x from and to the high word of fp64: the same table, the sum truncated to 20 bits."""
    sums = RCP.sums(words >> 13 & 0x7F, (words & 0x1FFF) << 3)  # (n,)
    result: np.ndarray = _high_word(sums, RCP.weight) - (words & INFINITY64) + FP64_ONE_WORD  # (n,)
    size = words & MAGNITUDE  # (n,)
    result[size > 0x7FD00000] = 0  # the result is subnormal
    result[size < SMALLEST_NORMAL64] = INFINITY64
    result |= words & SIGN
    result[size > INFINITY64] = NAN
    return result


def rsqrt(words: np.ndarray) -> np.ndarray:
    """MUFU.RSQ: 1 / sqrt(x); -inf for -0 and negative subnormals, NaN below them. Powers of 4 are exact."""
    result: np.ndarray = _root(RSQRT, words) - _half_exponent(words)  # (n,)
    result += words & np.uint32(0x00FFFFFF) == SMALLEST_NORMAL  # (n,) the table gives one unit less
    ordinary = words - SMALLEST_NORMAL < INFINITY - SMALLEST_NORMAL  # (n,) positive, normal, finite
    if not ordinary.all():
        size = words & MAGNITUDE
        result[~ordinary] = NAN
        result[words == INFINITY] = 0
        tiny = size < SMALLEST_NORMAL
        result[tiny] = words[tiny] & SIGN | INFINITY
    return result


def rsqrt64h(words: np.ndarray) -> np.ndarray:
    """MUFU.RSQ64H: 1 / sqrt(x) from and to the high word of fp64; as `rsqrt`, truncated to 20 bits."""
    result = _high_word(RSQRT.sums(words >> 14 & 0x7F, (words & 0x3FFF) << 3), RSQRT.weight)  # (n,)
    result -= (words + SMALLEST_NORMAL64 >> 1 & np.uint32(0x3FF00000)) - np.uint32(0x20000000)
    result += words & np.uint32(0x001FFFFF) == SMALLEST_NORMAL64  # (n,) powers of 4 are exact
    size = words & MAGNITUDE
    result[words > INFINITY64] = NAN
    result[words == INFINITY64] = 0
    tiny = size < SMALLEST_NORMAL64
    result[tiny] = words[tiny] & SIGN | INFINITY64
    return result


def sqrt(words: np.ndarray) -> np.ndarray:
    """MUFU.SQRT: the square root; NaN below -0 and negative subnormals, which give -0."""
    result: np.ndarray = _root(SQRT, words) + _half_exponent(words)  # (n,)
    ordinary = words - SMALLEST_NORMAL < INFINITY - SMALLEST_NORMAL  # (n,)
    if not ordinary.all():
        size = words & MAGNITUDE
        result[~ordinary] = NAN
        result[words == INFINITY] = INFINITY
        tiny = size < SMALLEST_NORMAL
        result[tiny] = words[tiny] & SIGN
    return result


def _root(table: Quadratic, words: np.ndarray) -> np.ndarray:
    """Word of the table's sum; the lowest exponent bit chooses its half."""
    return _word(table.sums(words >> 17 & 0x7F, words & 0x1FFFF), table.weight)


def _half_exponent(words: np.ndarray) -> np.ndarray:
    """floor(e / 2) of the exponent e, shifted to the exponent's place."""
    return (words + SMALLEST_NORMAL >> 1 & np.uint32(0x3F800000)) - np.uint32(0x20000000)  # (n,)


def ex2(words: np.ndarray) -> np.ndarray:
    """MUFU.EX2: 2^x.

    |x| is truncated to a multiple of 2^-23. A negative x that is no integer then gets the one's complement: 2^-23 less than -|x|.
    """
    size = words & MAGNITUDE  # (n,)
    far = size >= np.uint32(0x42FC0000)  # (n,) |x| is 126 or more, or NaN
    beyond = bool(far.any())
    values = (np.where(far & (size >= 0x43000000), 0, words) if beyond else words).view(np.float32)  # (n,)
    fixed = (values.astype(np.float64) * 2.0**23).astype(np.int64)  # (n,) truncated
    fixed -= (fixed < 0) & (fixed & 0x7FFFFF != 0)
    sums = EX2.sums(fixed >> 17 & 0x3F, fixed & 0x1FFFF)  # (n,)
    found = _word(sums, EX2.weight) + (fixed >> 23 << 23).astype(np.uint32)  # (n,)
    if beyond:
        found[(words > 0xC2FC0000) & (words <= 0xFF800000)] = 0  # x < -126
        found[(words >= 0x43000000) & (words <= INFINITY)] = INFINITY
        found[size > INFINITY] = NAN
    return found


def lg2(words: np.ndarray) -> np.ndarray:
    """MUFU.LG2: the exponent plus the table's sum, in fixed point; its size is truncated to a multiple of 2^-36."""
    exponents = (words >> 23).astype(np.int64) - FLOAT32_BIAS  # (n,)
    total = LG2.sums(words >> 17 & 0x3F, words & 0x1FFFF)  # (n,)
    total += exponents * 2.0**LG2.weight
    negative = total < 0  # (n,)
    truncated = np.floor(np.abs(total, out=total) * 2.0 ** (LG2_BITS - LG2.weight))  # (n,)
    result = _word(truncated, LG2_BITS)  # (n,)
    result |= negative.astype(np.uint32) << 31
    result[words == FP32_ONE_WORD] = 0  # the table's sum is not 0
    ordinary = words - SMALLEST_NORMAL < INFINITY - SMALLEST_NORMAL  # (n,)
    if not ordinary.all():
        result[~ordinary] = NAN
        result[words == INFINITY] = INFINITY
        result[(words & MAGNITUDE) < SMALLEST_NORMAL] = INFINITY | SIGN
    return result


LG2_BITS = 36


def sin(words: np.ndarray) -> np.ndarray:
    """MUFU.SIN: the sine of x turns."""
    quadrant, angle = _quadrants(words)  # (n,), (n,)
    sums = _quarter(angle ^ -(quadrant & 1) & 0x7FFFFF)  # (n,) the odd quadrants backwards
    negative = (words >> 31).astype(np.int64) ^ quadrant >> 1  # (n,)
    return _sine_word(sums, negative, words)


def cos(words: np.ndarray) -> np.ndarray:
    """MUFU.COS: the cosine of x turns."""
    quadrant, angle = _quadrants(words)  # (n,), (n,)
    sums = _quarter(angle ^ (quadrant & 1) - 1 & 0x7FFFFF)  # (n,) the even quadrants backwards
    return _sine_word(sums, (quadrant + 1) >> 1 & 1, words)


def _quadrants(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Quadrant (0 to 3) of |x| turns and how far into it, truncated to units of 2^-23 quadrants; int64 each."""
    size = words & MAGNITUDE  # (n,)
    whole = size >= np.uint32(0x4B800000)  # (n,) from 2^24 on there is no fraction
    turns = (np.where(whole, 0, size) if whole.any() else size).view(np.float32).astype(np.float64)  # (n,)
    turns *= 2.0**25
    phase = turns.astype(np.int64)  # (n,)
    return phase >> 23 & 3, phase & 0x7FFFFF


def _quarter(angle: np.ndarray) -> np.ndarray:
    return SINE.sums(angle >> 17, angle & 0x1FFFF)


def _sine_word(sums: np.ndarray, negative: np.ndarray, words: np.ndarray) -> np.ndarray:
    found = _word(sums, SINE.weight)  # (n,)
    found[sums == 0] = 0
    found |= negative.astype(np.uint32) << 31
    found[(words & MAGNITUDE) >= INFINITY] = NAN
    return found


def tanh(words: np.ndarray) -> np.ndarray:
    """MUFU.TANH: the argument itself below 2^-8, subnormals too, and 1 from 8 on; between them a row for each segment."""
    size = words & MAGNITUDE  # (n,)
    binade = np.clip((size >> 23).astype(np.int64) - (TANH_FIRST_EXPONENT + FLOAT32_BIAS), 0, len(TANH_SEGMENTS) - 1)  # (n,)
    steps = (size & FRACTION) >> _TANH_SHIFTS.take(binade)  # (n,)
    found: np.ndarray = _word(TANH.sums(_TANH_ROWS.take(binade) + (steps >> 17), steps & 0x1FFFF), TANH.weight)  # (n,)
    found = np.where(size < _TANH_LINEAR, size, np.where(size < _TANH_ONE, found, FP32_ONE_WORD)) | words & SIGN
    found[size > INFINITY] = NAN
    return found


_TANH_SHIFTS = np.array([23 - 17 - segments.bit_length() + 1 for segments in TANH_SEGMENTS], np.uint32)
_TANH_ROWS = np.cumsum((0, *TANH_SEGMENTS[:-1])).astype(np.uint32)
_TANH_LINEAR = np.uint32(TANH_FIRST_EXPONENT + FLOAT32_BIAS << 23)
_TANH_ONE = _TANH_LINEAR + np.uint32(len(TANH_SEGMENTS) << 23)


def _word(sums: np.ndarray, weight: int) -> np.ndarray:
    """fp32 words (uint32) of positive sums (float64, exact) in units of 2^-weight, truncated; not for zero."""
    top = (sums.view(np.int64) >> 29).astype(np.uint32)  # (n,)
    top -= np.uint32((FLOAT64_BIAS - FLOAT32_BIAS + weight) << 23 & 0xFFFFFFFF)  # modulo 2^32
    return top


def _high_word(sums: np.ndarray, weight: int) -> np.ndarray:
    """High words (uint32) of fp64 numbers: positive sums in units of 2^-weight, truncated to 20 bits of fraction."""
    return (sums.view(np.int64) >> 32).astype(np.uint32) - np.uint32(weight << 20)

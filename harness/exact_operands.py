"""Factors of a product whose sum every instruction computes exactly, in any order, while the store of it must round.

Elements are integers, one side times a power of two. Their widths are such that the sum of all magnitudes stays below what the
coarsest instruction for the format keeps (24 bits; 14 for fp8, which wgmma of sm_90 adds with 13 fraction bits), so no alignment
cuts and no partial sum is rounded: `reference.error_bound` gives the bound 0, and of each element one word is right.

The sums are small beside the products: K falls into pairs whose products nearly cancel, wherever the two lie. So a product too many
or too few moves every word, also where K is thousands. How small they are goes round with the columns: far above what the output
holds, and one or two bits above it, where ties are. One side has all the bits that its format and the limit leave, so that cutting
an operand shows. Where K is too deep for the limit, A has few elements a row; the first and the last k are always among them.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from harness.operands import generator
from reference.formats import FORMATS, TF32, Format, encode
from reference.tensor_core import INSTRUCTIONS

LEAST_BITS = 8  # of the product of two elements: where K leaves fewer, rows of A are sparse
SUMS = {24: (14, 12, 9), 14: (12, 7, 5)}
"""Bits of the sums, by what the instructions keep: far more than an output has, and one more than fp16 (11), bf16 (8), e4m3 (4)."""
RESULT_BITS = 15  # sums, as they are stored, lie below 2^15 (fp16, bf16, fp32) or 2^8 (fp8): no output overflows
RESULT_BITS_OF_FP8 = 8
FEWEST_PAIRS = 4  # that do not cancel


def factor(format_name: str, side: str, lines: int, k: int, data_seed: int) -> np.ndarray:
    """Codes (lines, k) of A (`side` "a": rows) or B ("b": columns), for formats that are multiplied as floats."""
    fmt, rng, both = FORMATS[format_name], generator(data_seed, side), generator(data_seed, "exact")
    if not lines or not k:
        return np.zeros((lines, k), fmt.storage)
    pairs = both.permutation(k)  # (k,) the first half goes with the second; of an odd K the last stays alone
    wide, scaled = both.integers(0, 2, 2)  # which side has more bits, which one is scaled
    of_a = side == "a"
    kept, present, width = _widths(fmt, k, of_a == bool(wide))
    magnitudes = rng.integers(1 << (width - 1), 1 << width, (lines, k))  # (lines, k)
    signs = rng.choice((-1, 1), (lines, k))  # (lines, k)
    half = k // 2
    first, second = pairs[:half], pairs[half : 2 * half]  # (half,) each
    if of_a:
        values = magnitudes * signs  # (lines, k)
        values[:, second] = values[:, first]
        values = np.where(_support(lines, k, present, pairs, rng), values, 0)  # (lines, k)
    else:
        other = _widths(fmt, k, of_a != bool(wide))[2]
        magnitudes[:, second], turned = _nearly(magnitudes[:, first], width, other, present, kept, rng)
        signs[:, second] = np.where(turned, signs[:, first], -signs[:, first])
        values = magnitudes * signs  # (lines, k)
    shift = kept - (RESULT_BITS_OF_FP8 if fmt.width == 8 else RESULT_BITS)
    return encode(fmt, np.ldexp(values.astype(np.float64), -shift if of_a == bool(scaled) else 0))


def exact_bits(fmt: Format) -> int:
    """Bits of a sum of products of two elements in `fmt` that every instruction for them keeps, whatever the chip."""
    return _exact_bits(fmt.name)


@cache
def _exact_bits(name: str) -> int:
    operand = "tf32" if name == "fp32" else name
    rules = [rule for rule in INSTRUCTIONS if (rule.a, rule.b, rule.d, rule.scale) == (operand, operand, "fp32", None)]
    return 1 + min(min(rule.fraction_bits, rule.output_fraction_bits) for rule in rules)


def _widths(fmt: Format, k: int, wide: bool) -> tuple[int, int, int]:
    """(bits a sum may have, elements of a row of A that are not zero, bits of an element of this side)."""
    kept = exact_bits(fmt)
    present = min(k, 1 << (kept - LEAST_BITS))
    left = kept - (present - 1).bit_length()  # bits of one product
    significand = 1 + (TF32.mantissa_bits if fmt.name == "fp32" else fmt.mantissa_bits)
    most = min(significand, left - 1)
    return kept, present, most if wide else min(significand, left - most)


def _support(lines: int, k: int, present: int, pairs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(lines, k): where A is not zero. Whole pairs, those of the first and the last k in every row."""
    if present >= k:
        return np.ones((lines, k), bool)
    half = k // 2
    order = rng.random((lines, half))  # (lines, half)
    place = np.argsort(pairs)  # (k,) where each k stands among the pairs
    for edge in (0, k - 1):
        if place[edge] < 2 * half:
            order[:, place[edge] % half] = -1.0
    chosen = np.argsort(order, axis=1)[:, : present // 2 - 1]  # (lines, pairs) with room for a k that is alone
    there = np.zeros((lines, k), bool)  # (lines, k)
    rows = np.arange(lines)[:, None]
    there[rows, pairs[chosen]] = there[rows, pairs[half + chosen]] = True
    for edge in (0, k - 1):
        if place[edge] >= 2 * half:
            there[:, edge] = True
    return there


def _nearly(
    magnitudes: np.ndarray, width: int, other: int, present: int, kept: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """What goes with `magnitudes` (lines, half) of B: nearly the same, and whether with the same sign, so that the products of the
    pair do not cancel. `other`: bits of A's elements."""
    lines, half = magnitudes.shape
    pairs = max(min(present // 2, half), 1)
    targets = np.resize(np.array(SUMS[kept]), lines + 2)[int(rng.integers(0, 3)) :][:lines]  # (lines,)
    usual = np.sqrt(pairs * 7 / 12) * 2.0**other  # of a sum whose pairs differ by one each
    apart = (2.0**targets / usual)[:, None]  # (lines, 1) how far the two of a pair are, as a rule
    share = np.maximum(np.minimum(np.square(apart), 1.0), min(FEWEST_PAIRS / pairs, 1.0))  # (lines, 1)
    moved = rng.random((lines, half)) < share  # (lines, half)
    if width == 1:
        return magnitudes, moved & (rng.random((lines, half)) < 0.5)
    most = np.maximum(np.rint(apart * np.sqrt(3.0)), 1.0)  # (lines, 1)
    step = np.ceil(rng.random((lines, half)) * most) * rng.choice((-1, 1), (lines, half))  # (lines, half)
    near = np.clip(magnitudes + np.where(moved, step, 0), 1, (1 << width) - 1)  # (lines, half)
    return near.astype(magnitudes.dtype), np.zeros((lines, half), bool)

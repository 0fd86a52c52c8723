"""Factors of a product whose sum every instruction computes exactly, in any order, while the store of it must round.

Elements are integers, one side times a power of two. Their widths are such that the sum of all magnitudes stays below what the
coarsest instruction for the format keeps (24 bits; 14 for fp8, which wgmma of sm_90 adds with 13 fraction bits), so no alignment
cuts and no partial sum is rounded: `bitverdict.reference.error_bound` gives the bound 0, and of each element one word is right.

The sums are small beside the products: K falls into pairs whose products nearly cancel, wherever the two lie. So a product too many
or too few moves every word, also where K is thousands. How small they are goes round with the columns: far above what the output
holds, and one or two bits above it, where ties are. One side has all the bits that its format and the limit leave, so that cutting
an operand shows. Where K is too deep for the limit, A has few elements a row; the first and the last k are always among them.

fp8 is multiplied with so few bits, and its results keep so few of them, that drawn sums would hide faults. So its sums are made
(`_fp8_factor`). In every other column all products have one sign. In four rows its sums end on a tie of a result in fp8 or bf16, or
one unit beside it, where a sum that was rounded before goes the wrong way. The products of the first and of the last k are larger
than a place of any result in fp8.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cache

import numpy as np

from bitverdict.reference.formats import BF16, FORMATS, TF32, Format, encode
from bitverdict.reference.tensor_core import INSTRUCTIONS


def generator(data_seed: int, name: str) -> np.random.Generator:
    """The generator of one operand: operands of one case are independent, whichever is drawn first."""
    return np.random.Generator(np.random.PCG64([data_seed, zlib.crc32(name.encode())]))


LEAST_BITS = 8  # of the product of two elements: where K leaves fewer, rows of A are sparse
SUMS = {24: (14, 12, 9), 14: (7, 5)}
"""Bits of sums that cancel, by what the instructions keep: far more than an output has, and one more than fp16 (11), bf16 (8), e4m3
(4)."""
RESULT_BITS = 15  # sums, as they are stored, lie below 2^15 (fp16, bf16, fp32) or 2^8 (fp8): no output overflows
RESULT_BITS_OF_FP8 = 8
FEWEST_PAIRS = 4  # that do not cancel
STEERED_ROWS = 4  # of an fp8 product, whose sums are brought beside ties
LEAST_DEPTH_OF_FP8 = 16  # below it there is no room for that


def factor(format_name: str, side: str, lines: int, k: int, data_seed: int) -> np.ndarray:
    """Codes (lines, k) of A (`side` "a": rows) or B ("b": columns), for formats that are multiplied as floats."""
    fmt, rng, shared_rng = FORMATS[format_name], generator(data_seed, side), generator(data_seed, "exact")
    if not lines or not k:
        return np.zeros((lines, k), fmt.storage)
    if fmt.width == 8 and k >= LEAST_DEPTH_OF_FP8:
        return _fp8_factor(fmt, side, lines, k, data_seed)
    pairs = shared_rng.permutation(k)  # (k,) the first half goes with the second; of an odd K the last stays alone
    wide_side, scaled_side = shared_rng.integers(0, 2, 2)  # which side has more bits, which one is scaled
    of_a = side == "a"
    sum_bits, present, width = _widths(fmt, k, of_a == bool(wide_side))
    magnitudes = rng.integers(1 << (width - 1), 1 << width, (lines, k))  # (lines, k)
    signs = rng.choice((-1, 1), (lines, k))  # (lines, k)
    half = k // 2
    first_half, second = pairs[:half], pairs[half : 2 * half]  # (half,) each
    if of_a:
        values = magnitudes * signs  # (lines, k)
        values[:, second] = values[:, first_half]
        values = np.where(_support(lines, k, present, pairs, rng), values, 0)  # (lines, k)
    else:
        other = _widths(fmt, k, of_a != bool(wide_side))[2]
        targets = np.resize(np.array(SUMS[sum_bits]), lines + 2)[int(rng.integers(0, 3)) :][:lines]  # (lines,)
        magnitudes[:, second], turned = _nearly(magnitudes[:, first_half], width, other, present, targets, rng)
        signs[:, second] = np.where(turned, signs[:, first_half], -signs[:, first_half])
        values = magnitudes * signs  # (lines, k)
    shift = sum_bits - (RESULT_BITS_OF_FP8 if fmt.width == 8 else RESULT_BITS)
    return encode(fmt, np.ldexp(values.astype(np.float64), -shift if of_a == bool(scaled_side) else 0))


def exact_bits(fmt: Format) -> int:
    """Bits of a sum of products of two elements in `fmt` that every instruction for them keeps, whatever the chip."""
    return _exact_bits(fmt.name)


@cache
def _exact_bits(name: str) -> int:
    operand = "tf32" if name == "fp32" else name
    rules = [rule for rule in INSTRUCTIONS if (rule.a, rule.b, rule.d, rule.scale) == (operand, operand, "fp32", None)]
    return 1 + min(min(rule.fraction_bits, rule.output_fraction_bits) for rule in rules)


def _widths(fmt: Format, k: int, is_wide: bool) -> tuple[int, int, int]:
    """(bits a sum may have, elements of a row of A that are not zero, bits of an element of this side)."""
    kept = exact_bits(fmt)
    present = min(k, 1 << (kept - LEAST_BITS))
    left = kept - (present - 1).bit_length()  # bits of one product
    significand = 1 + (TF32.mantissa_bits if fmt.name == "fp32" else fmt.mantissa_bits)
    most = min(significand, left - 1)
    return kept, present, most if is_wide else min(significand, left - most)


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
    nonzero = np.zeros((lines, k), bool)  # (lines, k)
    rows = np.arange(lines)[:, None]
    nonzero[rows, pairs[chosen]] = nonzero[rows, pairs[half + chosen]] = True
    for edge in (0, k - 1):
        if place[edge] >= 2 * half:
            nonzero[:, edge] = True
    return nonzero


def _nearly(
    magnitudes: np.ndarray, width: int, a_bits: int, present: int, targets: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """What goes with `magnitudes` (lines, half) of B: nearly the same, and whether with the same sign, so that the products of the
    pair do not cancel. `other`: bits of A's elements; `targets` (lines,): bits of the sums."""
    lines, half = magnitudes.shape
    pairs = max(min(present // 2, half), 1)
    usual = np.sqrt(pairs * 7 / 12) * 2.0**a_bits  # of a sum whose pairs differ by one each
    apart = (2.0**targets / usual)[:, None]  # (lines, 1) how far the two of a pair are, as a rule
    share = np.maximum(np.minimum(np.square(apart), 1.0), min(FEWEST_PAIRS / pairs, 1.0))  # (lines, 1)
    moved = rng.random((lines, half)) < share  # (lines, half)
    if width == 1:
        return magnitudes, moved & (rng.random((lines, half)) < 0.5)
    most = np.maximum(np.rint(apart * np.sqrt(3.0)), 1.0)  # (lines, 1)
    step = np.ceil(rng.random((lines, half)) * most) * rng.choice((-1, 1), (lines, half))  # (lines, half)
    near = np.clip(magnitudes + np.where(moved, step, 0), 1, (1 << width) - 1)  # (lines, half)
    return near.astype(magnitudes.dtype), np.zeros((lines, half), bool)


# --------------------------------------------------------------------------------------------------------------------- fp8
@dataclass(frozen=True)
class _Depth:
    """What each k of an fp8 product is there for. Sums of magnitudes stay below 2^kept units."""

    bits: int  # of a significand
    sum_bits: int
    signs: np.ndarray  # (k,) a product's sign is this of its k, times that of the row, times that of the column
    steering_places: np.ndarray  # (rows, digits) where rows `r % rows` of A hold 1, and B the digits of what is added to a sum
    first_places: np.ndarray  # (half,) these and
    second: np.ndarray  # (half,) these are pairs, with one magnitude in A
    lone_places: np.ndarray  # (0 or 1,) of an odd number

    @property
    def edge(self) -> int:
        """The exponent in B of the first and the last k: with it 9/16 of the largest product is a place of any result in fp8."""
        return self.sum_bits + 1 - 3 * self.bits

    @property
    def reach(self) -> int:
        """How far a sum can be steered: half a place."""
        return (1 << (self.sum_bits - 1 - self.bits)) - 1

    @property
    def present(self) -> int:
        """Pairs of a row of A that are not zero."""
        product = ((1 << self.bits) - 1) ** 2
        left = (1 << self.sum_bits) - 1 - self.reach - 2 * (product << self.edge)
        return min(len(self.first_places), (left // product - len(self.lone_places)) // 2)


def _fp8_factor(fmt: Format, side: str, lines: int, k: int, data_seed: int) -> np.ndarray:
    """Codes (lines, k), as `factor`."""
    shared_rng, rows = generator(data_seed, "exact"), generator(data_seed, "exact rows")
    bits, sum_bits = 1 + fmt.mantissa_bits, exact_bits(fmt)
    digits = -(-(sum_bits - 1 - bits) // bits)
    inner = 1 + shared_rng.permutation(k - 2)  # (k - 2,)
    steered_rows = min((k - 2) // (2 * digits), STEERED_ROWS)
    steering, rest = inner[: steered_rows * digits].reshape(steered_rows, digits), inner[steered_rows * digits :]
    half = len(rest) // 2
    depth = _Depth(bits, sum_bits, shared_rng.choice((-1, 1), k), steering, rest[:half], rest[half : 2 * half], rest[2 * half :])
    values = _fp8_rows(depth, k, np.arange(steered_rows), rows)  # (steered, k)
    if side == "a":
        others = _fp8_rows(
            depth, k, np.arange(steered_rows, max(lines, steered_rows)), generator(data_seed, "a")
        )  # (lines - steered, k)
        values = np.concatenate([values, others])[:lines]  # (lines, k)
    else:
        values = _fp8_columns(depth, k, lines, values, generator(data_seed, "b"))  # (lines, k)
    shift = sum_bits - RESULT_BITS_OF_FP8
    return encode(fmt, np.ldexp(values.astype(np.float64), -shift if (side == "a") == bool(shared_rng.integers(0, 2)) else 0))


def _fp8_rows(depth: _Depth, k: int, numbers: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(rows, k) of A: rows with these `numbers`."""
    rows, half = len(numbers), len(depth.first_places)
    values = np.zeros((rows, k), np.int64)  # (rows, k)
    values[:, [0, -1]] = rng.integers(3 << (depth.bits - 2), 1 << depth.bits, (rows, 1))
    values[:, depth.lone_places] = rng.integers(1 << (depth.bits - 1), 1 << depth.bits, (rows, len(depth.lone_places)))
    chosen = np.argsort(rng.random((rows, half)), axis=1)[:, : depth.present]  # (rows, present)
    every = np.arange(rows)[:, None]
    values[every, depth.first_places[chosen]] = rng.integers(1 << (depth.bits - 1), 1 << depth.bits, chosen.shape)
    values[:, depth.second] = values[:, depth.first_places]
    if len(depth.steering_places):
        values[every, depth.steering_places[numbers % len(depth.steering_places)]] = 1
    return values * depth.signs * rng.choice((-1, 1), (rows, 1))


def _fp8_columns(depth: _Depth, k: int, lines: int, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(lines, k) of B. In every other column products have one sign, and the sums with `rows` (steered, k) of A are steered; in the
    others they cancel."""
    one_sign = (np.arange(lines) + int(rng.integers(0, 2))) % 2 == 0  # (lines,)
    values = rng.integers(1 << (depth.bits - 1), 1 << depth.bits, (lines, k))  # (lines, k)
    targets = np.resize(np.repeat(SUMS[depth.sum_bits], 2), lines)  # (lines,)
    near, _ = _nearly(values[:, depth.first_places], depth.bits, depth.bits, 2 * depth.present, targets, rng)  # (lines, half)
    values[:, depth.second] = np.where(one_sign[:, None], values[:, depth.second], -near)
    values[:, [0, -1]] = rng.integers(3 << (depth.bits - 2), 1 << depth.bits, (lines, 2)) << depth.edge
    values[:, -1] = np.where(one_sign, values[:, -1], -values[:, 0])
    turned = np.where(one_sign[:, None], 1, rng.choice((-1, 1), (lines, len(depth.first_places))))  # (lines, half)
    values[:, depth.first_places] *= turned
    values[:, depth.second] *= turned
    digits = depth.steering_places.ravel()
    values[:, digits] = rng.integers(1, 1 << depth.bits, (lines, digits.size))
    values *= depth.signs * rng.choice((-1, 1), (lines, 1))
    values[np.ix_(one_sign, digits)] = 0
    for number, (row, places) in enumerate(zip(rows, depth.steering_places, strict=True)):
        values[np.ix_(one_sign, places)] = row[places] * _digits(depth, values[one_sign] @ row, number)
    return values


def _digits(depth: _Depth, sums: np.ndarray, number: int) -> np.ndarray:
    """(lines, digits) of what steers `sums` (lines,) of row `number`: added up, and multiplied by the places of the digits.

    A steered sum lies beside a tie: one unit above where the tie is rounded down, one below where it is rounded up; or on it."""
    magnitude = np.abs(sums)  # (lines,)
    turn = (np.arange(sums.size) + number) % 6  # (lines,)
    on_a_tie, in_bf16 = (turn >= 4), (turn == 1) | (turn == 5)  # (lines,) each
    kept = np.where(in_bf16, BF16.mantissa_bits + 1, depth.bits)  # (lines,) bits of a result
    place = 1 << np.maximum(np.frexp(magnitude.astype(np.float64))[1] - kept, 1)  # (lines,)
    below = magnitude // place  # (lines,) the result on one side of the tie
    below -= on_a_tie & in_bf16 & (below % 2 == 1)  # to even is down, and away is up
    beside = np.where(on_a_tie, 0, np.where(below % 2 == 0, 1, -1))  # (lines,)
    added = np.clip(below * place + place // 2 + beside - magnitude, -depth.reach, depth.reach)  # (lines,)
    at = depth.bits * np.arange(depth.steering_places.shape[1])  # (digits,)
    digits = ((np.abs(added)[:, None] >> at) & ((1 << depth.bits) - 1)) << at  # (lines, digits)
    return digits * (np.sign(added) * np.sign(sums))[:, None]

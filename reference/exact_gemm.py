"""A B + C exactly, rounded once: the mathematics that every kernel of a product expects, whatever its arithmetic.

Where float64 is provably enough, one BLAS product is the answer: if every product and every c is a multiple of 2^low and the sum
of magnitudes is below 2^(low + 53), every partial sum in any order is a float64. Otherwise the operands are cut into slices of a
few bits, small enough that the products of slices sum exactly in float64 (Ozaki's splitting); the slices' sums are the digits of
the exact result in a base 2^w, and are carried, not rounded.

The result is kept rounded to odd in float64: truncated, with the last bit set when anything was lost. A later rounding to
any format with at least two significand bits less decides as it would on the exact value, so the value is rounded once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SIGNIFICAND = 53


@dataclass(frozen=True)
class Exact:
    """An exact result, element by element."""

    value: np.ndarray  # (...) float64, the exact sum rounded to odd: within one unit of its last place, exact when even
    magnitude: np.ndarray  # (...) float64, sum |a||b| + |c| from above, to rounding; NaN where `value` is not finite


def exact_gemm(a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None) -> Exact:
    """A B + C for `a` (M, K), `b` (K, N), `c` (M, N) or None, float64 values of any format, NaN and infinities as in IEEE 754.

    An exact zero is +0. Raises ValueError when the shapes do not meet or products leave float64's range.
    """
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0] or (c is not None and c.shape != (a.shape[0], b.shape[1])):
        raise ValueError(f"a (M, K), b (K, N), c (M, N) do not meet: {a.shape}, {b.shape}, {None if c is None else c.shape}")
    c = np.zeros((a.shape[0], b.shape[1])) if c is None else c  # (M, N)
    return _exact(a, b, c)


def scale_values(values: np.ndarray, scales: np.ndarray, scale_block: int) -> np.ndarray:
    """`values` (L, K) times `scales` (L, ceil(K / scale_block)), exact in float64: an operand of the block-scaled product.

    With E8M0's NaN scale the products are NaN. The result goes into `exact_gemm` (transposed for b).
    """
    if scales.shape != (values.shape[0], -(-values.shape[1] // scale_block)):
        raise ValueError(f"scales {scales.shape} do not cover values {values.shape} in blocks of {scale_block}")
    result: np.ndarray = values * np.repeat(scales, scale_block, axis=1)[:, : values.shape[1]]  # (L, K)
    return result


def _matrix_specials(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """`left @ right` where only rows and columns with NaN or infinities matter; no BLAS, which may skip zeros."""
    total = np.zeros((left.shape[0], right.shape[1]))  # (M, N)
    rows = ~np.isfinite(left).all(axis=1)  # (M,)
    columns = ~np.isfinite(right).all(axis=0)  # (N,)
    total[rows] = np.einsum("mk,kn->mn", left[rows], right)
    total[:, columns] = np.einsum("mk,kn->mn", left, right[:, columns])
    return total


def _exact(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Exact:
    finite = [np.isfinite(operand) for operand in (a, b, c)]
    special = None
    if not all(operand.all() for operand in finite):
        signs = [np.where(is_finite, np.sign(operand), operand) for is_finite, operand in zip(finite, (a, b, c), strict=True)]
        with np.errstate(invalid="ignore"):
            found = _matrix_specials(signs[0], signs[1])  # (...)
            special = np.where(np.isfinite(found), 0.0, found) + np.where(finite[2], 0.0, c)  # (...)
        a, b, c = (np.where(is_finite, operand, 0.0) for is_finite, operand in zip(finite, (a, b, c), strict=True))
    k = a.shape[1]
    magnitude = (np.abs(a) @ np.abs(b) + np.abs(c)) * (1 + (k + 2) * 2.0**-52)  # (...) k + 1 roundings, made up for
    low = min(_lowest_bit(a) + _lowest_bit(b), _lowest_bit(c))
    if not np.isfinite(magnitude).all() or low < -1022:
        raise ValueError("products leave float64's range: these operands need a wider exponent than any format here has")
    if not magnitude.any() or float(magnitude.max()) < 2.0 ** min(low + SIGNIFICAND, 1023):
        value = a @ b + c + 0.0  # (...)
    else:
        value = _carry_digits(_digits(a, b), c, low)
    if special is not None:
        value = value + special  # (...)
        magnitude = np.where(np.isfinite(value), magnitude, np.nan)  # (...)
    return Exact(value, magnitude)


def _lowest_bit(values: np.ndarray) -> int:
    """Largest exponent of a power of two that divides every element."""
    present = values[values != 0]
    if not present.size:
        return 1024
    mantissa, exponent = np.frexp(present)
    whole = np.ldexp(mantissa, SIGNIFICAND).astype(np.int64)
    trailing = np.frexp((whole & -whole).astype(np.float64))[1] - 1
    return int((exponent - SIGNIFICAND + trailing).min())


@dataclass(frozen=True)
class _Digits:
    """sum_s sums[s] 2^(lowest + s width), each sum an integer below 2^53 in magnitude."""

    sums: list[np.ndarray]
    lowest: int
    width: int


def _digits(a: np.ndarray, b: np.ndarray) -> _Digits:
    """A B as digits: slice i of A times slice j of B belongs to digit i + j."""
    lows, spans = zip(*(_extent(operand) for operand in (a, b)), strict=True)
    k = max(a.shape[1], 1)
    for width in range(25, 0, -1):
        counts = [-(-span // width) for span in spans]
        if 2 * width + (k * min(counts)).bit_length() < SIGNIFICAND:
            break
    slices = [_slices(operand, low, count, width) for operand, low, count in zip((a, b), lows, counts, strict=True)]
    sums: list[np.ndarray] = [np.zeros(())] * (counts[0] + counts[1] - 1)
    for i, left in enumerate(slices[0]):
        for j, right in enumerate(slices[1]):
            if left is not None and right is not None:
                sums[i + j] = sums[i + j] + left @ right
    return _Digits(sums, lows[0] + lows[1], width)


def _extent(values: np.ndarray) -> tuple[int, int]:
    """Exponent of the lowest bit of all elements, and how many bits lie from there to the highest."""
    if not values.any():
        return 0, 1
    low = _lowest_bit(values)
    return low, int(np.frexp(np.abs(values).max())[1]) - low


def _slices(values: np.ndarray, low: int, count: int, width: int) -> list[np.ndarray | None]:
    """`values` as sum_i slice_i 2^(low + i width), slices integers below 2^width of the value's sign; None for all zero."""
    rest = values
    slices: list[np.ndarray | None] = []
    for position in reversed(range(count)):
        unit = low + position * width
        piece = np.trunc(np.ldexp(rest, -unit))
        rest = rest - np.ldexp(piece, unit)
        slices.append(piece if piece.any() else None)
    return slices[::-1]


def _carry_digits(digits: _Digits, c: np.ndarray, low: int) -> np.ndarray:
    """The digits plus `c`, rounded to odd."""
    width, lowest = digits.width, digits.lowest
    below = -(-max(lowest - low, 0) // width)  # digits to add below, so that c's lowest bit has one
    lowest -= below * width
    c_low, c_span = _extent(c)
    count = max(below + len(digits.sums), -(-(c_low + c_span - lowest) // width))
    c_slices = _slices(c, lowest, count, width)
    carry = np.zeros(c.shape, np.int64)  # (...)
    normal: list[np.ndarray] = []
    for position in range(count):
        source = position - below
        if 0 <= source < len(digits.sums):
            carry = carry + digits.sums[source].astype(np.int64)  # (...) below 2^53 + 2^26 + the carry
        piece = c_slices[position]
        if piece is not None:
            carry = carry + piece.astype(np.int64)  # (...)
        normal.append(carry & ((1 << width) - 1))
        carry = carry >> width  # (...)
    high = np.ldexp(carry.astype(np.float64), lowest + count * width)  # (...)
    rest = np.zeros(c.shape)  # (...)
    for position in reversed(range(count)):
        digit = np.ldexp(normal[position].astype(np.float64), lowest + position * width)  # (...)
        exact_so_far = rest == 0  # (...) once something is left over, lower digits cannot change its sign
        total = high + np.where(exact_so_far, digit, 0.0)  # (...)
        error = _two_sum_error(high, digit, total)  # (...)
        high, rest = np.where(exact_so_far, total, high), np.where(exact_so_far, error, rest)
    even = (high.view(np.int64) & 1) == 0  # (...)
    moved = np.nextafter(high, np.copysign(np.inf, rest))  # (...)
    return np.where((rest != 0) & even, moved, high) + 0.0


def _two_sum_error(one: np.ndarray, other: np.ndarray, total: np.ndarray) -> np.ndarray:
    """What `total = one + other` lost, exactly (Knuth)."""
    back = total - one
    result: np.ndarray = (one - (total - back)) + (other - back)
    return result

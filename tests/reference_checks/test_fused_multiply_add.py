"""Contract under test: the fp32 fused multiply-add rounds the exact a * b + c once, to nearest even, and chains ascend over K."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from bitverdict.reference.formats import FP32, encode
from bitverdict.reference.fused_multiply_add import chain, fused_multiply_add


def by_fractions(a: float, b: float, c: float) -> int:
    """The definition, in rational arithmetic: the nearest of the float32 neighbours of the exact value, ties to the even code."""
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    guess = np.float32(float(exact))
    near = [np.nextafter(guess, np.float32(-np.inf)), guess, np.nextafter(guess, np.float32(np.inf))]
    finite = [n for n in near if np.isfinite(n)]
    best = min(finite, key=lambda n: (abs(Fraction(float(n)) - exact), int(n.view(np.uint32)) & 1))
    return int(best.view(np.uint32))


def words(seed: int, count: int, exponents: tuple[int, int]) -> np.ndarray:
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2, count) << 31 | rng.integers(*exponents, count) << 23 | rng.integers(0, 1 << 23, count)
    return bits.astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("exponents", [(120, 134), (1, 64), (0, 2), (100, 160)])
def test_it_rounds_once(exponents: tuple[int, int]) -> None:
    a, b, c = (words(seed, 600, exponents) for seed in (1, 2, 3))
    c = np.where(np.arange(600) % 2, c, -(a * b).astype(np.float32))  # cancellation leaves the product's low bits
    got = fused_multiply_add(a, b, c)
    for i in range(600):
        expected_outcome = by_fractions(float(a[i]), float(b[i]), float(c[i]))
        assert got[i] == expected_outcome or got[i] & 0x7FFFFFFF == expected_outcome & 0x7FFFFFFF == 0, i


def test_rounding_twice_would_be_wrong() -> None:
    """a * b + c just below a tie of fp32, by less than float64 shows: there it is the tie, and goes to the even neighbour above."""
    a, b, c = (np.array([value], np.float32) for value in (2.0**-24 * (1 + 2.0**-23), 1 - 2.0**-23, 1 + 2.0**-23))
    twice = (a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)).astype(np.float32)
    assert twice[0] == 1 + 2.0**-22
    assert fused_multiply_add(a, b, c).view(np.float32)[0] == 1 + 2.0**-23


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("factors", "above"), [((8392705, 16769026), True), ((2**23 + 1, 2**24 - 2), False)])
def test_what_float64_cannot_show_decides_a_tie(factors: tuple[int, int], above: bool, sign: int) -> None:
    """1 + 2^-24 is a tie; the product of these integers, 2^47 + 2 or 2^47 - 2 of them, lies 2^-70 beside it."""
    a, b, c = sign * factors[0] * 2.0**-47, factors[1] * 2.0**-24, sign * 1.0
    assert a * b + c == sign * (1 + 2.0**-24), "in float64 it is the tie"
    got = fused_multiply_add(*(np.array([value], np.float32) for value in (a, b, c)))
    assert got[0] == by_fractions(a, b, c)
    assert abs(got.view(np.float32)[0]) == (1 + 2.0**-23 if above else 1)


def test_specials_are_as_ptx_says() -> None:
    inf, nan, one, zero = np.float32(np.inf), np.float32(np.nan), np.float32(1), np.float32(0)
    rows = [
        (inf, zero, one, 0x7FFFFFFF),
        (nan, one, one, 0x7FFFFFFF),
        (inf, one, -inf, 0x7FFFFFFF),
        (-one, inf, one, 0xFF800000),
        (-zero, one, zero, 0),
        (-zero, one, -zero, 0x80000000),
        (one, one, -one, 0),
        (np.float32(3e38), np.float32(10), -inf, 0xFF800000),
    ]
    for a, b, c, expected_outcome in rows:
        assert fused_multiply_add(np.array([a]), np.array([b]), np.array([c]))[0] == expected_outcome


def test_a_chain_ascends_and_starts_where_it_is_told() -> None:
    a, b = encode(FP32, np.array([[1.0, 2.0**24, 1.0]])), encode(FP32, np.array([[1.0], [1.0], [-1.0]]))
    assert chain(a, b).view(np.float32)[0, 0] == 2.0**24 - 1  # 1 + 2^24 rounds to 2^24, and then one is taken away
    assert chain(a[:, ::-1], b[::-1]).view(np.float32)[0, 0] == 2.0**24
    assert chain(a[:, :0], b[:0], encode(FP32, np.array([[7.0]]))).view(np.float32)[0, 0] == 7
    assert chain(a[:, :0], b[:0]).tolist() == [[0]]


@pytest.mark.parametrize("columns", [7, 40_000])
@pytest.mark.parametrize("exponents", [(120, 134), (1, 64), (50, 80), (100, 160), (200, 255)])
def test_a_chain_is_its_steps_one_after_the_other(exponents: tuple[int, int], columns: int) -> None:
    """Of few columns all rows are summed in one block, of many each row in one of its own."""
    a, b = words(4, 3 * 8, exponents).reshape(3, 8), words(5, 8 * columns, exponents).reshape(8, columns)
    total = words(6, 3 * columns, exponents).view(np.uint32).reshape(3, columns)
    expected = total
    for step in range(8):
        expected = fused_multiply_add(a[:, step, None], b[None, step], expected.view(np.float32))
    np.testing.assert_array_equal(chain(a.view(np.uint32), b.view(np.uint32), total), expected)


@pytest.mark.parametrize("beside", [1.0, np.inf, np.nan])
@pytest.mark.parametrize(
    ("a", "b", "c"), [(2.0**-47, 2.0**-24, 1.0), (2.0**-100, 2.0**-97, 2.0**-127)], ids=["normal", "subnormal"]
)
def test_a_chain_rounds_a_tie_of_float64_once(a: float, b: float, c: float, beside: float) -> None:
    """c and half a unit of its last place are a tie of fp32. The product lies 2^-46 of itself above that half, which float64 does
    not show. Another sum of the block is a number, an infinity or NaN."""
    left, right, total = ([[8392705 * a]], [[16769026 * b, beside]], [[c, 1.0]])
    rounded = chain(*(np.array(part, np.float32).view(np.uint32) for part in (left, right, total)))
    assert rounded[0, 0] == by_fractions(8392705 * a, 16769026 * b, c) == np.float32(c).view(np.uint32) + 1
    assert rounded[0, 1] == (
        0x7FFFFFFF if np.isnan(beside) else by_fractions(8392705 * a, beside, 1.0) if beside == 1 else 0x7F800000
    )

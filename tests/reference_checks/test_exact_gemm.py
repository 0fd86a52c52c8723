"""Contract under test: `exact_gemm` is A B + C exactly, rounded once, whatever the operands.

The fast path is taken only when proven. Compared with Python's fractions, with error-free cases by hand, and with a mutant that
forgets the slices.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from bitverdict.reference.exact_gemm import exact_gemm, scale_values
from bitverdict.reference.formats import BF16, E5M2, FP16, FP32, Format, Overflow, Rounding, decode, encode
from tests.faults import reference_modules as corpus
from tests.faults.mutants import Mutant, mutant_module

SPREADS = [0, 10, 40, 120]


def drawn(shape: tuple[int, ...], spread: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * 2.0 ** rng.integers(-spread, spread + 1, shape)).astype(np.float32).astype(np.float64)


def fractions_of(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> list[Fraction]:
    rows = [[Fraction(float(x)) for x in row] for row in a]
    columns = [[Fraction(float(x)) for x in column] for column in b.T]
    return [
        sum((x * y for x, y in zip(row, column, strict=True)), Fraction(float(c[i, j])))
        for i, row in enumerate(rows)
        for j, column in enumerate(columns)
    ]


def cases(spread: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    a, b, c = drawn((4, 19), spread, 1), drawn((19, 5), spread, 2), drawn((4, 5), spread, 3)
    cancelling = np.concatenate([a, -a], axis=1), np.concatenate([b, b], axis=0), c * 2.0**-60
    return [(a, b, c), cancelling, (a, b, np.zeros((4, 5))), (a * 0, b, c)]


@pytest.mark.parametrize("spread", SPREADS)
def test_the_value_is_the_exact_sum_rounded_to_odd(spread: int) -> None:
    for a, b, c in cases(spread):
        found = exact_gemm(a, b, c)
        for value, exact in zip(found.value.ravel(), fractions_of(a, b, c), strict=True):
            if Fraction(float(value)) == exact:
                continue
            assert int(np.float64(value).view(np.int64)) & 1
            assert abs(Fraction(float(value)) - exact) < Fraction(float(np.spacing(abs(value))))


@pytest.mark.parametrize("fmt", [FP32, FP16, BF16, E5M2], ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("rounding", [Rounding.NEAREST_EVEN, Rounding.TOWARD_ZERO], ids=lambda rounding: rounding.name)
def test_the_exact_sum_is_rounded_once(fmt: Format, rounding: Rounding) -> None:
    """A tie with something far below it: a sum kept in float64 loses the rest, and rounds the tie to even instead."""
    half = 2.0 ** (-fmt.mantissa_bits - 1)
    a, b = np.array([[1.0, half, 2.0**-70], [1.0, half, -(2.0**-70)], [1.0, half, 0.0]]), np.ones((3, 1))
    found = decode(fmt, encode(fmt, exact_gemm(a, b).value, rounding=rounding))[:, 0]
    nearest = rounding is Rounding.NEAREST_EVEN
    assert found.tolist() == [1 + 2 * half if nearest else 1.0, 1.0, 1.0]


def test_the_magnitude_is_the_sum_of_magnitudes_from_above() -> None:
    for spread in SPREADS:
        a, b, c = cases(spread)[1]
        found = exact_gemm(a, b, c).magnitude.ravel()
        for value, exact in zip(found, fractions_of(np.abs(a), np.abs(b), np.abs(c)), strict=True):
            assert exact <= Fraction(float(value)) <= exact * (1 + Fraction(1, 2**40))


def test_special_values_follow_ieee() -> None:
    a = np.array([[np.inf, 1.0, 0.0], [0.0, np.nan, 1.0], [1.0, 2.0, 3.0]])
    b = np.array([[1.0, 0.0, -1.0], [1.0, 1.0, 1.0], [np.inf, 1.0, -np.inf]])
    found = exact_gemm(a, b, np.array([[0.0, 1, 2], [0, 1, 2], [-np.inf, np.inf, np.nan]])).value
    assert np.array_equal(found, [[np.nan] * 3, [np.nan] * 3, [np.nan, np.inf, np.nan]], equal_nan=True)
    assert exact_gemm(np.array([[np.inf]]), np.array([[2.0]])).value[0, 0] == np.inf
    assert np.isnan(exact_gemm(np.array([[np.inf]]), np.array([[2.0]]), np.array([[-np.inf]])).value[0, 0])
    assert not np.signbit(exact_gemm(np.array([[-0.0, 1.0, -1.0]]), np.ones((3, 1))).value[0, 0])


def test_an_overflow_is_left_to_the_format() -> None:
    found = exact_gemm(np.full((1, 4), 60000.0), np.full((4, 1), 60000.0))
    assert found.value[0, 0] == 4 * 60000.0**2
    assert encode(FP16, found.value)[0, 0] == FP16.infinity_code
    assert encode(FP16, found.value, overflow=Overflow.SATURATE)[0, 0] == FP16.largest_code


def test_a_scaled_product_is_the_product_of_scaled_values() -> None:
    values = decode(FP16, encode(FP16, drawn((3, 40), 2, 5)))
    scales = 2.0 ** np.arange(-3, 3).reshape(3, 2)
    scaled = scale_values(values, scales, 32)
    assert (scaled[:, :32] == values[:, :32] * scales[:, :1]).all() and (scaled[:, 32:] == values[:, 32:] * scales[:, 1:]).all()
    with pytest.raises(ValueError, match="do not cover"):
        scale_values(values, scales, 16)


def test_the_widest_operands_are_exact_too() -> None:
    """All of bf16: 500 bits from the smallest product to the largest."""
    codes = np.random.default_rng(7).integers(0, 0x7F80, (2, 3, 6)).astype(np.uint16)
    a, b = decode(BF16, codes[0]), decode(BF16, codes[1]).T
    found = exact_gemm(a, b).value.ravel()
    for value, exact in zip(found, fractions_of(a, b, np.zeros((3, 3))), strict=True):
        assert abs(Fraction(float(value)) - exact) < Fraction(float(np.spacing(abs(value))))


@pytest.mark.parametrize("mutant", corpus.EXACT_GEMM, ids=lambda mutant: mutant.name)
def test_a_fast_path_taken_without_proof_is_seen(mutant: Mutant) -> None:
    with mutant_module(mutant) as careless:
        a, b, c = cases(40)[1]
        assert (careless.exact_gemm(a, b, c).value != exact_gemm(a, b, c).value).any()


def test_shapes_that_do_not_meet_are_refused() -> None:
    with pytest.raises(ValueError, match="do not meet"):
        exact_gemm(np.ones((2, 3)), np.ones((2, 3)))

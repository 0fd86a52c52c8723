"""Contract under test: the squarer drops the columns it names, sums are exact, and a fit finds coefficients from words alone."""

from __future__ import annotations

import numpy as np
import pytest

from bitverdict.harness.lab.hardware_words.quadratic_fit import Bounds, DoesNotFit, Form, fit, truncation_bounds
from bitverdict.reference.special_functions.quadratic import Quadratic, squares, truncated_square

FORM = Form("made up", weight=39, low_bits=16, constant_shift=13)
ROWS = ((67_108_000, -65_001, 1001), (40_000_000, -31_337, 402), (35_000_000, -20_002, 163))
MADE_UP = Quadratic("made up", 39, 16, 13, 4321, ROWS)


def one_by_one(x: int, dropped: int) -> int:
    """The rule as a schoolchild multiplies."""
    total = 0
    for i in range(31):
        for j in range(i, 31):
            column = 2 * i if i == j else i + j + 1
            if x >> i & 1 and x >> j & 1 and column >= dropped:
                total += 1 << column
    return total >> dropped


def test_the_squarer_drops_partial_products_below_its_column() -> None:
    drawn = np.random.default_rng(3).integers(0, 1 << 17, 200)
    for dropped in (0, 1, 18, 19, 20):
        assert truncated_square(drawn, dropped).tolist() == [one_by_one(int(x), dropped) for x in drawn]
    assert (truncated_square(drawn, 0) == drawn**2).all()


def test_the_table_of_squares_is_the_rule() -> None:
    every = np.arange(1 << 17, dtype=np.int64)
    assert (squares() == truncated_square(every)).all()
    assert squares().dtype == np.uint16


def test_sums_are_exact() -> None:
    rng = np.random.default_rng(4)
    index, low = rng.integers(0, len(ROWS), 500), rng.integers(0, 1 << 16, 500)
    for total, row, x in zip(MADE_UP.sums(index, low), index, low, strict=True):
        c0, c1, c2 = ROWS[row]
        assert int(total) == (c0 << 13) + 4321 + c1 * int(x) + c2 * one_by_one(2 * int(x), 19)


def words_of(table: Quadratic, index: np.ndarray, low: np.ndarray) -> np.ndarray:
    """fp32 words (uint32) of the sums, truncated."""
    sums = table.sums(index, low)  # (n,)
    bits = sums.view(np.int64) >> 29
    return (bits - (1023 - 127 + table.weight << 23)).astype(np.uint32)


def grid() -> tuple[np.ndarray, np.ndarray]:
    """(row, X) of every X of every row."""
    index, low = np.meshgrid(np.arange(len(ROWS)), np.arange(1 << 16), indexing="ij")
    return index.reshape(-1), low.reshape(-1)


def fitted(words: np.ndarray) -> Quadratic:
    bounds = Bounds.no_bounds(len(ROWS), 16)
    bounds.narrow(*grid(), *truncation_bounds(words, FORM.weight))
    return fit(FORM, bounds)


def test_a_fit_finds_the_coefficients_from_the_words() -> None:
    words = words_of(MADE_UP, *grid())
    found = fitted(words)
    assert [row[1:] for row in found.rows] == [row[1:] for row in ROWS]
    assert (words_of(found, *grid()) == words).all()


def test_a_single_wrong_word_leaves_nothing_that_fits() -> None:
    words = words_of(MADE_UP, *grid())
    words[100_000] += 2
    with pytest.raises(DoesNotFit, match=r"made up, row 1: no c1 near"):
        fitted(words)


def test_words_of_another_squarer_do_not_fit() -> None:
    index, low = grid()
    c0, c1, c2 = np.array(ROWS).T[:, index]  # (n,) each
    squared = truncated_square(2 * low, 17) >> 2  # more columns are kept
    sums = ((c0 << 13) + 4321 + c1 * low + c2 * squared).astype(np.float64)
    words = ((sums.view(np.int64) >> 29) - (1023 - 127 + 39 << 23)).astype(np.uint32)
    with pytest.raises(DoesNotFit):
        fitted(words)


def test_a_word_bounds_the_sum_it_was_cut_from() -> None:
    """By hand: 0x3F000001 is 2^-1 + 2^-24, so it ends 2^-24 below its successor; in units of 2^-26, 2^25 + 4 up to 2^25 + 7."""
    lower, upper = truncation_bounds(np.array([0x3F000001], np.uint32), 26)
    assert (lower[0], upper[0]) == ((1 << 25) + 4, (1 << 25) + 7)
    lower, upper = truncation_bounds(np.array([0x33000000], np.uint32), 26)  # 2^-25, finer than its last place
    assert (lower[0], upper[0]) == (2, 2)
    lower, upper = truncation_bounds(np.array([0], np.uint32), 26)
    assert (lower[0], upper[0]) == (0, 0)
    with pytest.raises(DoesNotFit, match="larger weight"):
        truncation_bounds(np.array([0x3F000001], np.uint32), 20)

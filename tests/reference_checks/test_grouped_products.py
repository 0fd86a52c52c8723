"""Contract under test: the matrices of a list of products lie behind one another without gaps, and each tile has one number."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from bitverdict.reference.grouped_products import groups_of, tiles_of


def test_two_groups_by_hand() -> None:
    first, second = groups_of([(2, 3, 4), (5, 1, 2)])
    assert (first.a, first.b, first.c) == (slice(0, 8), slice(0, 12), slice(0, 6))
    assert (second.a, second.b, second.c) == (slice(8, 18), slice(12, 14), slice(6, 11))
    assert tiles_of([(2, 3, 4), (5, 1, 2)], 4, 2) == [(0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 1, 0)]


def test_every_element_belongs_to_one_group_and_every_tile_has_one_number() -> None:
    for sizes in itertools.product([(0, 2, 3), (2, 0, 3), (2, 3, 0), (3, 5, 1), (4, 4, 4)], repeat=3):
        found = groups_of(sizes)
        for name, (one, other) in {"a": ("m", "k"), "b": ("k", "n"), "c": ("m", "n")}.items():
            ends = list(itertools.accumulate(getattr(g, one) * getattr(g, other) for g in found))
            assert [getattr(g, name) for g in found] == [slice(*pair) for pair in itertools.pairwise([0, *ends])]
        covered = [(g, i, j) for g, row, column in tiles_of(sizes, 2, 3)
                   for i in range(2 * row, min(2 * row + 2, sizes[g][0]))
                   for j in range(3 * column, min(3 * column + 3, sizes[g][1]))]  # fmt: skip
        assert sorted(covered) == [(g, i, j) for g, (m, n, k) in enumerate(sizes) for i in range(m) for j in range(n)]


def test_the_factors_of_a_group_are_views_of_the_flat_lists() -> None:
    a, b = np.arange(18), np.arange(14)
    left, right = groups_of([(2, 3, 4), (5, 1, 2)])[1].factors(a, b)
    assert left.tolist() == [[8, 9], [10, 11], [12, 13], [14, 15], [16, 17]] and right.tolist() == [[12], [13]]


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        groups_of([(1, -1, 1)])

"""Contract under test: an order of output tiles computes every tile once, for all sizes; the grouped one loads what it promises."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.tile_order import blocks_loaded, grouped_tiles
from tests.support.tutorial_facts import holds

SIZES = [(m, n, group) for m in range(1, 13) for n in range(1, 8) for group in (1, 2, 3, 5, 8, 13)]


@holds("blocks loaded", blocks=[90, 54])
def test_nine_tiles_of_nine_by_nine_load_90_blocks_and_54_grouped() -> None:
    """The first nine tiles, row by row, and grouped by three."""
    first = np.arange(9)
    assert blocks_loaded(divmod(first, 9), tiles_k=9) == 90
    assert blocks_loaded(grouped_tiles(first, 9, 9, 3), tiles_k=9) == 54


def test_a_whole_group_of_three_walks_down_its_rows_first() -> None:
    rows, columns = grouped_tiles(np.arange(6), 9, 9, 3)
    assert rows.tolist() == [0, 1, 2, 0, 1, 2]
    assert columns.tolist() == [0, 0, 0, 1, 1, 1]


def test_the_last_group_has_the_rows_that_are_left() -> None:
    rows, columns = grouped_tiles(np.arange(10), 5, 2, 4)
    assert rows.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 4, 4]
    assert columns.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 0, 1]


def test_every_tile_is_computed_once_for_all_sizes() -> None:
    for tiles_m, tiles_n, group in SIZES:
        rows, columns = grouped_tiles(np.arange(tiles_m * tiles_n), tiles_m, tiles_n, group)
        assert (np.sort(rows * tiles_n + columns) == np.arange(tiles_m * tiles_n)).all(), (tiles_m, tiles_n, group)
        assert rows.max() < tiles_m and columns.max() < tiles_n


def test_an_order_that_does_not_shorten_its_last_group_misses_tiles() -> None:
    tiles_m, tiles_n, group = 5, 2, 4
    program = np.arange(tiles_m * tiles_n)
    first_row, inside = program // (group * tiles_n) * group, program % (group * tiles_n)
    rows, columns = first_row + inside % group, inside // group
    assert len(np.unique(rows * tiles_n + columns)) == tiles_m * tiles_n  # distinct, and yet
    assert rows.max() >= tiles_m  # one lies outside


def test_a_group_of_no_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        grouped_tiles(np.arange(4), 2, 2, 0)

"""Which output tile each program computes: the orders that kernels launch tiles in, and what an order costs in loads.

Grouped order: tiles are walked in groups of `group` rows of tiles, down the rows of a group before the next column, so that
programs that run together share blocks of both operands. The last group has the rows that are left. Source: Triton's matrix
multiplication tutorial, "L2 Cache Optimizations".
"""

from __future__ import annotations

import numpy as np

Tiles = tuple[np.ndarray, np.ndarray]  # row and column of a tile, for each program


def grouped_tiles(program: np.ndarray, tiles_m: int, tiles_n: int, group: int) -> Tiles:
    """Tile (row, column) of each program in grouped order. ValueError for a group of no rows."""
    if group < 1:
        raise ValueError(f"group of {group} rows of tiles: it takes at least one")
    program = np.asarray(program)
    in_a_group = group * tiles_n
    first_row = program // in_a_group * group
    rows = np.minimum(tiles_m - first_row, group)
    inside = program % in_a_group
    return first_row + inside % rows, inside // rows


def blocks_loaded(tiles: Tiles, tiles_k: int) -> int:
    """Distinct blocks of A and B that these output tiles read over all of K: A has tiles_k a row of tiles, B tiles_k a column."""
    rows, columns = tiles
    return (len(np.unique(rows)) + len(np.unique(columns))) * tiles_k

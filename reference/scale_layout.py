"""Where the scale of row r and K block j lies in memory: the packed layout of block scales.

Rule: scales [rows, columns] (rows: M or N; columns: K / block size) are cut into tiles of 128 x 4, padded to whole tiles, tiles in
row-major order, 512 bytes each. Inside a tile

    offset = (row % 32) * 16 + (row // 32 % 4) * 4 + column % 4

Sources: cuBLAS documentation, "1D Block Scaling Factors Layout" (the formula, its inverse, row-major tiles, whole tiles allocated
with zeros out of bounds, 16-byte aligned start, no transposed form); PTX ISA, "Layout of the Scale Factor A Matrix" (and B) with
``tcgen05.cp.32x128b.warpx4``: lane row % 32 holds four rows, 32 apart, four scales each: the 16 bytes at one offset // 16. As a 5D
array it is (rows / 128, columns / 4, 32, 4, 4), contiguous; Triton's block-scaled matmul tutorial unpacks it by the axes
(0, 3, 2, 1, 4).

Padding. A kernel that works in whole tiles reads every byte of them, so all of them must be allocated. The padded scales meet
operand elements that are zero (TMA and masked loads fill zeros), and a zero times a NaN scale is NaN: a padded byte may be anything
but a NaN code (E8M0 0xFF; UE4M3 0x7F and 0xFF). cuBLAS asks for zero, which is what `pack` writes: 2^-127 in E8M0, 0 in UE4M3.
"""

from __future__ import annotations

from enum import Enum

import numpy as np

TILE_ROWS, TILE_COLUMNS = 128, 4
LANES, QUARTERS = 32, 4  # a tile's rows are QUARTERS runs of LANES
TILE_BYTES = TILE_ROWS * TILE_COLUMNS
ALIGNMENT = 16  # bytes, of the first scale


class WrongLayout(Enum):
    """Layouts that engineers produce instead; each holds the same bytes elsewhere."""

    ROW_MAJOR = "the 2D array as it is, padded but not cut into tiles"
    ROWS_IN_ORDER = "tiles of 128 rows in order, 4 bytes each: (.., 32, 4, 4) unpacked by the axes (0, 2, 3, 1, 4)"
    TILE_TRANSPOSED = "the 128 x 4 tile transposed: 4 runs of 128 rows"
    QUARTER_AND_COLUMN_SWAPPED = "the last two axes of the 5D array swapped"
    TILES_COLUMN_MAJOR = "right inside the tile, tiles ordered down the rows first"


def scale_columns(k: int, block_size: int) -> int:
    """Scales of a row of K elements: a last block that is not full has one too."""
    return -(-k // block_size)


def packed_shape(rows: int, columns: int) -> tuple[int, int, int, int, int]:
    """Shape of the 5D array that holds [rows, columns] scales, padding included. ValueError for a negative size."""
    if rows < 0 or columns < 0:
        raise ValueError(f"scales of shape ({rows}, {columns}): sizes are not negative")
    return -(-rows // TILE_ROWS), -(-columns // TILE_COLUMNS), LANES, QUARTERS, TILE_COLUMNS


def packed_bytes(rows: int, columns: int) -> int:
    """Bytes to allocate, one a scale, and all that a kernel may read."""
    return int(np.prod(packed_shape(rows, columns)))


def offset(row: np.ndarray | int, column: np.ndarray | int, columns: int) -> np.ndarray:
    """Byte offset of scale (row, column) of an array with `columns` scales a row: the address formula, for any shape of indices."""
    row, column = np.asarray(row), np.asarray(column)
    tiles_a_row = -(-columns // TILE_COLUMNS)
    tile = (row // TILE_ROWS) * tiles_a_row + column // TILE_COLUMNS
    result: np.ndarray = tile * TILE_BYTES + (row % LANES) * 16 + (row % TILE_ROWS // LANES) * 4 + column % TILE_COLUMNS
    return result


def coordinates(byte: np.ndarray | int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """(row, column) of the scale at this offset, which may be padding: the inverse of `offset`."""
    tile, inside = np.divmod(np.asarray(byte), TILE_BYTES)
    tile_row, tile_column = np.divmod(tile, -(-columns // TILE_COLUMNS))
    row = tile_row * TILE_ROWS + inside % 16 // 4 * LANES + inside // 16
    return row, tile_column * TILE_COLUMNS + inside % TILE_COLUMNS


def pack(scales: np.ndarray, *, padding: int = 0) -> np.ndarray:
    """5D packed scales from [rows, columns] codes, `padding` in the bytes that hold none: the permutation.

    Result: contiguous, `packed_shape(rows, columns)`, dtype of `scales`. ValueError where `scales` is not 2D.
    """
    return _tile_view(scales, padding).transpose(0, 3, 2, 1, 4).copy()  # [rows/128, columns/4, 32, 4, 4]


def unpack(packed_scales: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """[rows, columns] codes from 5D (or flat) packed scales, padding dropped. ValueError where the size does not fit."""
    shape = packed_shape(rows, columns)
    if packed_scales.size != np.prod(shape):
        raise ValueError(
            f"{packed_scales.size} packed scales: ({rows}, {columns}) takes {shape}, that is "
            f"{int(np.prod(shape))}; pad to whole tiles"
        )
    whole = packed_scales.reshape(shape).transpose(0, 3, 2, 1, 4)  # [rows/128, 4, 32, columns/4, 4]
    return whole.reshape(shape[0] * TILE_ROWS, shape[1] * TILE_COLUMNS)[:rows, :columns].copy()


def padding_mask(rows: int, columns: int) -> np.ndarray:
    """True at each byte of the 5D array that holds no scale."""
    return pack(np.zeros((rows, columns), bool), padding=True)


def permutation(rows: int, columns: int) -> np.ndarray:
    """[bytes]: byte i of the packed array is element permutation[i] of the padded 2D array, flattened."""
    tiles_m, tiles_k, *_ = packed_shape(rows, columns)
    shape = tiles_m * TILE_ROWS, tiles_k * TILE_COLUMNS
    return pack(np.arange(shape[0] * shape[1]).reshape(shape)).reshape(-1)


def pack_wrongly(scales: np.ndarray, layout: WrongLayout, *, padding: int = 0) -> np.ndarray:
    """The bytes of a wrong layout, in the 5D shape that hides it."""
    tiles = _tile_view(scales, padding)  # [rows/128, 4, 32, columns/4, 4]
    axes = {
        WrongLayout.ROW_MAJOR: (0, 1, 2, 3, 4),
        WrongLayout.ROWS_IN_ORDER: (0, 3, 1, 2, 4),
        WrongLayout.TILE_TRANSPOSED: (0, 3, 4, 1, 2),
        WrongLayout.QUARTER_AND_COLUMN_SWAPPED: (0, 3, 2, 4, 1),
        WrongLayout.TILES_COLUMN_MAJOR: (3, 0, 2, 1, 4),
    }[layout]
    return np.ascontiguousarray(tiles.transpose(axes)).reshape(packed_shape(*scales.shape))


def _tile_view(scales: np.ndarray, padding: int) -> np.ndarray:
    """[rows/128, 4, 32, columns/4, 4] view of the padded scales: row = 128 t + 32 q + lane, column = 4 u + i."""
    if scales.ndim != 2:
        raise ValueError(f"scales of shape {scales.shape}: the packed layout is of a 2D array [rows, K blocks]")
    tiles_m, tiles_k, *_ = packed_shape(*scales.shape)
    whole = np.full((tiles_m * TILE_ROWS, tiles_k * TILE_COLUMNS), padding, scales.dtype)  # [rows, columns] padded
    whole[: scales.shape[0], : scales.shape[1]] = scales
    return whole.reshape(tiles_m, QUARTERS, LANES, tiles_k, TILE_COLUMNS)

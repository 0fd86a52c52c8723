"""Contract under test: the packed layout of block scales, as address formula and as permutation, with its padding, for any size."""

from __future__ import annotations

import numpy as np
import pytest

from bitverdict.kernels.scaled_operands import FORMATS
from bitverdict.reference import scale_layout
from bitverdict.reference.scale_layout import WrongLayout
from tests.support.tutorial_facts import holds

SIZES = [(1, 1), (128, 4), (129, 5), (127, 3), (300, 13), (256, 8), (32, 4), (33, 1), (640, 2), (5, 40)]


def scales_of(rows: int, columns: int) -> np.ndarray:
    """Distinct values, so that a byte in the wrong place shows."""
    return np.arange(1, rows * columns + 1, dtype=np.int64).reshape(rows, columns)  # [rows, columns]


def test_the_offsets_inside_a_tile_are_those_of_the_cublas_table() -> None:
    # cuBLAS, "1D Block Scaling Factors Layout", the tile's figure: 16 bytes are rows r, r + 32, r + 64, r + 96, four scales each
    assert scale_layout.offset(0, np.arange(4), 4).tolist() == [0, 1, 2, 3]
    assert scale_layout.offset(np.array([32, 64, 96]), 0, 4).tolist() == [4, 8, 12]
    assert scale_layout.offset(np.array([1, 31, 127]), np.array([0, 3, 3]), 4).tolist() == [16, 499, 511]


def test_tiles_lie_in_row_major_order_512_bytes_apart() -> None:
    assert scale_layout.offset(0, 4, 8) == 512
    assert scale_layout.offset(128, 0, 8) == 1024
    assert scale_layout.offset(128, 0, 5) == 1024  # the second tile of a row of 5 scales is padding for the most part


def test_cublas_own_inverse_of_the_formula_agrees_inside_a_tile() -> None:
    byte = np.arange(512)
    row, column = scale_layout.coordinates(byte, 4)
    assert (row == byte % 16 // 4 * 32 + byte // 16).all()
    assert (column == byte % 4).all()


@holds("packed scales", tile=[32, 4, 4])
@pytest.mark.parametrize(("rows", "columns"), SIZES)
def test_formula_and_permutation_agree_and_invert_each_other(rows: int, columns: int) -> None:
    scales = scales_of(rows, columns)
    packed = scale_layout.pack(scales)
    row, column = np.indices(scales.shape)
    assert packed.shape == scale_layout.packed_shape(rows, columns)
    assert (packed.reshape(-1)[scale_layout.offset(row, column, columns)] == scales).all()
    assert (scale_layout.unpack(packed, rows, columns) == scales).all()
    byte = np.arange(packed.size)
    assert (scale_layout.offset(*scale_layout.coordinates(byte, columns), columns) == byte).all()


@pytest.mark.parametrize(("rows", "columns"), SIZES)
def test_the_permutation_is_one_and_moves_the_padded_array(rows: int, columns: int) -> None:
    """It moves it to the packed one."""
    order = scale_layout.permutation(rows, columns)
    assert (np.sort(order) == np.arange(order.size)).all()
    tiles_m, tiles_k, *_ = scale_layout.packed_shape(rows, columns)
    padded = np.zeros((tiles_m * 128, tiles_k * 4), np.int64)  # [rows, columns] of whole tiles
    padded[:rows, :columns] = scales_of(rows, columns)
    assert (padded.reshape(-1)[order] == scale_layout.pack(scales_of(rows, columns)).reshape(-1)).all()


@pytest.mark.parametrize(("rows", "columns"), SIZES)
def test_padding_is_what_no_scale_uses_and_holds_what_was_asked(rows: int, columns: int) -> None:
    mask = scale_layout.padding_mask(rows, columns)
    assert mask.sum() == scale_layout.packed_bytes(rows, columns) - rows * columns
    row, column = scale_layout.coordinates(np.flatnonzero(mask), columns)
    assert ((row >= rows) | (column >= columns)).all()
    packed = scale_layout.pack(scales_of(rows, columns), padding=-7)
    assert (packed[mask] == -7).all() and (packed[~mask] > 0).all()


def test_a_tensor_core_lane_reads_the_four_rows_that_ptx_gives_it() -> None:
    # PTX ISA, scale factor layouts, tcgen05.cp 32x128b.warpx4: lane l takes 16 bytes, rows l, l + 32, l + 64, l + 96 of the tile
    packed = scale_layout.pack(scales_of(128, 4))[0, 0]  # [32, 4, 4]
    lane = 5
    assert (packed[lane] == scales_of(128, 4)[[5, 37, 69, 101]]).all()


def test_unpacking_as_the_tutorial_does_gives_the_scales() -> None:
    packed = scale_layout.pack(scales_of(256, 8))
    assert (packed.transpose(0, 3, 2, 1, 4).reshape(256, 8) == scales_of(256, 8)).all()


@pytest.mark.parametrize("layout", list(WrongLayout))
def test_every_wrong_layout_holds_the_same_bytes_elsewhere(layout: WrongLayout) -> None:
    scales = scales_of(256, 8)
    wrong, right = scale_layout.pack_wrongly(scales, layout), scale_layout.pack(scales)
    assert wrong.shape == right.shape
    assert (np.sort(wrong.reshape(-1)) == np.sort(right.reshape(-1))).all()
    moved = (scale_layout.unpack(wrong, 256, 8) != scales).mean()
    assert moved > 0.4, f"{layout.name}: only {moved:.0%} of the scales moved"


def test_wrong_layouts_differ_from_one_another() -> None:
    packed = [scale_layout.pack_wrongly(scales_of(256, 8), layout).tobytes() for layout in WrongLayout]
    assert len(set(packed)) == len(WrongLayout)


def test_a_single_column_of_tiles_cannot_tell_the_order_of_tiles() -> None:
    scales = scales_of(300, 4)
    wrong = scale_layout.pack_wrongly(scales, WrongLayout.TILES_COLUMN_MAJOR)
    assert (wrong == scale_layout.pack(scales)).all()  # so a contract must draw more than four scales a row


def test_the_last_block_of_k_has_a_scale_even_when_it_is_short() -> None:
    assert scale_layout.scale_columns(64, 32) == 2
    assert scale_layout.scale_columns(65, 32) == 3
    assert scale_layout.packed_bytes(0, 4) == 0


def test_errors_carry_the_sizes_and_the_remedy() -> None:
    with pytest.raises(ValueError, match="pad to whole tiles"):
        scale_layout.unpack(np.zeros((1, 1, 32, 4, 4)), 129, 4)
    with pytest.raises(ValueError, match="2D array"):
        scale_layout.pack(np.zeros(4))
    with pytest.raises(ValueError, match="not negative"):
        scale_layout.packed_shape(-1, 4)


@holds("elements a scale", sizes={"nvfp4": 16, "mxfp4": 32, "mxfp8": 32, "mixed": 32})
def test_a_scale_is_of_as_many_elements_as_the_tutorial_says() -> None:
    assert {name: record.block_size for name, record in FORMATS.items()} == {"nvfp4": 16, "mxfp4": 32, "mxfp8": 32, "mixed": 32}

"""Contract under test: outside a tensor, a tiled TMA load with padding of NaN reads the one word that hardware fills in, and the
driver refuses elements of one byte, which have none."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from bitverdict.harness.emulator import emulated
from tests.support import tile_kernels

INSIDE, ROWS, COLUMNS = 5, 8, 16


@triton.jit
def rows_of_pointer(table, out, INSIDE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    box = tl.make_tensor_descriptor(table, [INSIDE, COLUMNS], [COLUMNS, 1], [ROWS, COLUMNS], padding_option="nan")
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]  # (ROWS, COLUMNS)
    tl.store(out + at, box.load([0, 0]))


def loaded(dtype: torch.dtype, **more: object) -> torch.Tensor:
    """The words (ROWS, COLUMNS) of a tile that begins at the first of INSIDE rows of ones."""
    table, out = torch.ones(INSIDE, COLUMNS).to(dtype), torch.zeros(ROWS, COLUMNS).to(dtype)
    with emulated("sm_90"):
        if dtype == torch.float16:
            rows_of_pointer[(1,)](table, out, INSIDE, ROWS, COLUMNS)
        else:
            box = TensorDescriptor.from_tensor(table, [ROWS, COLUMNS], padding="nan", **more)
            tile_kernels.descriptor_rows[(1,)](box, out, ROWS, COLUMNS)
    return out.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize])


@pytest.mark.parametrize(
    ("dtype", "one", "word"),
    [(torch.float16, 0x3C00, 0x7FF7), (torch.float32, 0x3F800000, 0x7FF77FF7), (torch.float64, 0x3FF << 52, 0x7FF77FF77FF77FF7)],
)
def test_outside_the_tensor_lies_the_word_of_the_hardware(dtype: torch.dtype, one: int, word: int) -> None:
    words = loaded(dtype)
    assert (words[:INSIDE] == one).all() and (words[INSIDE:] == word).all()


def test_the_word_outside_is_not_rounded_to_tf32() -> None:
    assert (loaded(torch.float32, round_f32_to_tf32=True)[INSIDE:] == 0x7FF77FF7).all()


def test_the_driver_makes_no_map_of_bytes_with_nan_outside() -> None:
    with pytest.raises(RuntimeError, match="Failed to create tensor map descriptor: invalid argument"):
        loaded(torch.float8_e4m3fn)

"""Contract under test: outside a tensor, a tiled TMA load with padding of NaN reads the one word that hardware fills in, and is
refused where no such word is known."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from bitverdict.harness.emulator import EmulatedFault, emulated
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
    return out.view(torch.int16 if dtype == torch.float16 else torch.int32)


@pytest.mark.parametrize(("dtype", "one", "word"), [(torch.float16, 0x3C00, 0x7FF7), (torch.float32, 0x3F800000, 0x7FF77FF7)])
def test_outside_the_tensor_lies_the_word_of_the_hardware(dtype: torch.dtype, one: int, word: int) -> None:
    words = loaded(dtype)
    assert (words[:INSIDE] == one).all() and (words[INSIDE:] == word).all()


def test_a_nan_that_is_rounded_to_tf32_is_refused() -> None:
    with pytest.raises(EmulatedFault, match=r"not modelled: .* fills in NaN for elements rounded to tf32 outside the tensor"):
        loaded(torch.float32, round_f32_to_tf32=True)


def test_a_nan_of_one_byte_is_refused() -> None:
    with pytest.raises(EmulatedFault, match=r"not modelled: .* fills in NaN for elements of 1 bytes outside the tensor"):
        loaded(torch.float8_e4m3fn)

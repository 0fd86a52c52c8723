"""Contract under test: memory on the chip that is read by another type, shape or layout gives the words that lie there as the
compiler lays them; an order that is not known is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bitverdict.harness.emulator import EmulatedFault, emulated
from tests.support import indexed_kernels as kernels

ROWS, COLUMNS = 32, 64
WORDS = ROWS * COLUMNS // 2


def swizzled(values: np.ndarray, width: int) -> np.ndarray:
    """(bytes,) of `values` (ROWS, COLUMNS, 16 bits) in columns of `width` bytes, each row's units of 16 bytes moved by its number
    (CUDA Programming Guide, shared memory bank swizzling)."""
    units = width // 16
    found = np.zeros((COLUMNS * 2 // width, ROWS, units, 8), values.dtype)
    for row in range(ROWS):
        for unit in range(COLUMNS // 8):
            moved = unit % units ^ (row * width // 128) % units
            found[unit // units, row, moved] = values[row, unit * 8 : unit * 8 + 8]
    return found.reshape(-1).view(np.uint8)


@pytest.mark.parametrize("width", [32, 64, 128])
def test_a_swizzled_tile_read_as_words_shows_where_its_elements_lie(width: int) -> None:
    values = torch.arange(ROWS * COLUMNS, dtype=torch.int16).reshape(ROWS, COLUMNS).view(torch.float16)
    words, halves = torch.empty(WORDS, dtype=torch.int32), torch.empty(WORDS, dtype=torch.float16)
    with emulated("sm_90"):
        kernels.as_words[(1,)](values, words, halves, width, WORDS)
    lying = swizzled(values.view(torch.int16).numpy(), width)
    assert (words.numpy() == lying.view(np.int32)).all()
    assert (halves.view(torch.int16).numpy() == lying.view(np.int16)[WORDS:]).all()
    assert (lying.view(np.int16) != np.arange(ROWS * COLUMNS)).any()


def test_a_layout_whose_order_is_not_known_is_refused_by_name() -> None:
    with (
        emulated("sm_90"),
        pytest.raises(EmulatedFault, match=r"not modelled: ttg.memdesc_reinterpret: .*the order of #ttg.padded"),
    ):
        kernels.as_padded[(1,)](torch.empty(1024, dtype=torch.int16))


def test_tensor_memory_read_as_16_bits_gives_two_elements_a_column() -> None:
    values = torch.randint(-(2**31), 2**31 - 1, (128, 32), dtype=torch.int32, generator=torch.Generator().manual_seed(0))
    halves = torch.empty(128, 64, dtype=torch.float16)
    with emulated("sm_100"):
        kernels.as_columns[(1,)](values, halves)
    assert torch.equal(halves.view(torch.int16), values.view(torch.int16))

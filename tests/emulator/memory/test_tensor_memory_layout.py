"""Contract under test: emulated tensor memory lays blocks, and slices of them, where the compiler's own linear layout does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import triton
from triton._C.libtriton import gluon_ir, ir
from triton.experimental.gluon.language.nvidia.blackwell import TensorMemoryLayout

from bitverdict.harness.emulator.execution.onchip_access import TENSOR_ROW
from bitverdict.harness.emulator.frontend.lowerings.shared_memory import tensor_pieces
from bitverdict.harness.emulator.memory.onchip import Space, View
from bitverdict.harness.emulator.releases import installed_release
from bitverdict.harness.emulator.releases.records import V3_7_0

FORMS = [
    (shape, block)
    for shape in ((64, 64), (64, 128), (128, 64), (256, 64), (256, 32), (128, 256))
    for block in ((64, 16), (64, 32), (64, 64), (128, 32), (128, 64))
    if block[0] <= shape[0] and block[1] <= shape[1]
]
WORD = np.dtype(np.uint32)


def compilers_cells(shape: tuple[int, int], block: tuple[int, int]) -> np.ndarray:
    """(rows, columns, 2): lane and 32-bit column of each element, by the compiler."""
    context = ir.context()
    ir.load_dialects(context)
    builder = gluon_ir.GluonOpBuilder(context)
    linear = builder.to_linear_layout(TensorMemoryLayout(block, col_stride=1)._to_ir(builder), list(shape))
    lanes, columns = (np.arange(1 << len(bases)) for bases in (linear.rows, linear.cols))
    at = np.zeros((len(lanes), len(columns), 2), np.int64)  # (lanes, columns, 2): the element that a cell holds
    for places, bases in ((lanes[:, None, None], linear.rows), (columns[None, :, None], linear.cols)):
        for bit, basis in enumerate(bases):
            at ^= (places >> bit & 1) * np.array(basis)
    cells = np.full((*shape, 2), -1)
    held = np.stack(np.meshgrid(lanes, columns, indexing="ij"), axis=-1)  # (lanes, columns, 2)
    cells[at[::-1, ::-1, 0], at[::-1, ::-1, 1]] = held[::-1, ::-1]  # of cells that repeat an element the first stands
    return cells


def view_of(shape: tuple[int, int], block: tuple[int, int]) -> View:
    kind = SimpleNamespace(shape=shape, allocation=shape, itemsize=4)
    pieces, strides = tensor_pieces(cast(Any, kind), f"blockM = {block[0]}, blockN = {block[1]}, colStride = 1", cast(Any, None))
    return View(Space("tensor memory", 128 * TENSOR_ROW), 0, shape, strides, WORD, pieces)


def cells_of(view: View, block: tuple[int, int]) -> np.ndarray:
    """(rows, columns, 2): lane and column that `view` gives each element.

    The halves that blocks of 64 rows take are 16 lanes apart on the GPU. In the emulator they are 64 apart.
    """
    numbers = np.arange(view.space.size // 4, dtype=np.uint32)
    view.space.data[:] = numbers.view(np.uint8)
    words = view.get().astype(np.int64)
    lane, column = words // 512, words % 512
    if block[0] == 64:
        lane = lane % 16 + (lane // 64) * 16 + lane % 64 // 16 * 32
    return np.stack([lane, column], axis=-1)


@pytest.mark.skipif(
    installed_release().numbers < V3_7_0.numbers,
    reason=f"triton {triton.__version__} lacks the linear layout of tensor memory: to_linear_layout ends in an abort",
)
@pytest.mark.parametrize(("shape", "block"), FORMS)
def test_each_element_lies_where_the_compiler_puts_it(shape: tuple[int, int], block: tuple[int, int]) -> None:
    assert np.array_equal(cells_of(view_of(shape, block), block), compilers_cells(shape, block))


@pytest.mark.parametrize(("shape", "block"), FORMS)
def test_a_slice_is_the_same_elements_of_the_whole(shape: tuple[int, int], block: tuple[int, int]) -> None:
    whole = cells_of(view_of(shape, block), block)
    for axis in (0, 1):
        size = shape[axis]
        while size >= block[axis]:
            for start in range(0, shape[axis], size):
                offsets, kept = [0, 0], list(shape)
                offsets[axis], kept[axis] = start, size
                part = cells_of(view_of(shape, block).subslice(offsets, (kept[0], kept[1])), block)
                assert np.array_equal(part, whole[offsets[0] : offsets[0] + kept[0], offsets[1] : offsets[1] + kept[1]])
            size //= 2

"""Kernels that copy fp32 through what only some architectures have, launchers of them, and one with a fault of its own."""

from __future__ import annotations

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import TensorMemoryLayout, allocate_tensor_memory
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

import bitverdict as bv
from tests.support.vector_add import add

ROWS, COLUMNS = 128, 64


@gluon.jit
def through_tensor_memory(a, c, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    tile = allocate_tensor_memory(gl.float32, [ROWS, COLUMNS], TensorMemoryLayout([ROWS, COLUMNS], col_stride=1))
    layout: gl.constexpr = tile.get_reg_layout()
    rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))  # (ROWS,)
    columns = gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, layout))  # (COLUMNS,)
    places = rows[:, None] * COLUMNS + columns[None, :]  # (ROWS, COLUMNS)
    tile.store(gl.load(a + places))
    gl.store(c + places, tile.load(layout))


@gluon.jit
def by_eight_warps(a, c, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """Of a kernel that has four: every architecture refuses it."""
    layout: gl.constexpr = gl.BlockedLayout([1, 2], [1, 32], [8, 1], [1, 0])
    rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))  # (ROWS,)
    columns = gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, layout))  # (COLUMNS,)
    places = rows[:, None] * COLUMNS + columns[None, :]  # (ROWS, COLUMNS)
    gl.store(c + places, gl.load(a + places))


@gluon.jit
def through_tma(a, c, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    tile = gl.allocate_shared_memory(a.dtype, a.block_shape, a.layout)  # (ROWS, COLUMNS)
    arrived = mbarrier.allocate_mbarrier()
    mbarrier.init(arrived, count=1)
    mbarrier.expect(arrived, a.block_type.nbytes)
    tma.async_load(a, [0, 0], arrived, tile)
    mbarrier.wait(arrived, 0)
    mbarrier.invalidate(arrived)
    layout: gl.constexpr = gl.BlockedLayout([1, 2], [1, 32], [4, 1], [1, 0])
    rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))  # (ROWS,)
    columns = gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, layout))  # (COLUMNS,)
    gl.store(c + rows[:, None] * COLUMNS + columns[None, :], tile.load(layout))


def copied(kernel, x: torch.Tensor, **options) -> torch.Tensor:
    """The tile (128, 64) `x`, copied by `kernel`."""
    c = torch.empty_like(x)  # (ROWS, COLUMNS)
    layout = gl.NVMMASharedLayout.get_default_for([ROWS, COLUMNS], gl.float32)
    source = TensorDescriptor(x, [*x.shape], [*x.stride()], [ROWS, COLUMNS], layout) if kernel is through_tma else x
    kernel[(1,)](source, c, ROWS, COLUMNS, num_warps=4, **options)
    return c


def add_beside_copy(kernel, **options):
    """A launcher of a + b that also launches `kernel`."""

    def launch(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        copied(kernel, torch.zeros(ROWS, COLUMNS, device=a.device), **options)
        return add(a, b)

    return launch


add_by_tcgen05 = add_beside_copy(through_tensor_memory)
add_by_tma = add_beside_copy(through_tma)
add_by_cluster = add_beside_copy(by_eight_warps, num_ctas=2)
add_by_eight_warps = add_beside_copy(by_eight_warps)


@bv.judged(reference=lambda xp, x: x)
def test_copy(draw):
    return copied(through_tensor_memory, draw.tensor("fp32", (ROWS, COLUMNS), strides="contiguous"))


@bv.judged(reference=lambda xp, x: x)
def test_copy_by_eight_warps(draw):
    return copied(by_eight_warps, draw.tensor("fp32", (ROWS, COLUMNS), strides="contiguous"))

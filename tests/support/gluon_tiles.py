"""What the idioms in gluon_*_idioms.py have in common: a (128, 64), b (64, 64) and out (128, 64) in single tiles, barriers, the way
in and the way out."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    fence_async_shared,
    mbarrier,
    tma,
)

M, N, K = gl.constexpr(128), gl.constexpr(64), gl.constexpr(64)


@gluon.jit
def tile_of(matrix):
    return gl.allocate_shared_memory(matrix.dtype, matrix.block_shape, matrix.layout)


@gluon.jit
def barrier_of(count: gl.constexpr):
    made = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(made, count=count)
    return made


@gluon.jit
def sums_of():
    return allocate_tensor_memory(gl.float32, [M, N], TensorMemoryLayout([M, N], col_stride=1))  # (M, N)


@gluon.jit
def loaded(a, b):
    """a and b in shared memory, waited for."""
    a_tile = tile_of(a)
    b_tile = tile_of(b)
    arrived = barrier_of(1)
    mbarrier.expect(arrived, a.nbytes_per_cta + b.nbytes_per_cta)
    tma.async_load(a, [0, 0], arrived, a_tile)
    tma.async_load(b, [0, 0], arrived, b_tile)
    mbarrier.wait(arrived, 0)
    mbarrier.invalidate(arrived)
    return a_tile, b_tile


@gluon.jit
def stored(out, sums):
    tile = tile_of(out)
    tile.store(sums.load().to(out.dtype))
    fence_async_shared()
    tma.async_store(out, [0, 0], tile)
    tma.store_wait(pendings=0)

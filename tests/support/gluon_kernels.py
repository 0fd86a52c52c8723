"""Small Gluon kernels for the emulator's checks of time: a ring shared by three partitions, and idioms that are legal but
surprising."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import blackwell  # noqa: F401  (a hazard issues `blackwell.clc`)
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    fence_async_shared,
    mbarrier,
    tcgen05_commit,
    tcgen05_mma,
    tma,
)


@gluon.jit
def produce(a, b, a_ring, b_ring, full, empty, k, STAGES: gl.constexpr):
    step = 0
    for start in range(0, k, a.block_shape[1]):
        stage = step % STAGES
        mbarrier.wait(empty.index(stage), step // STAGES & 1 ^ 1)
        mbarrier.expect(full.index(stage), a.nbytes_per_cta + b.nbytes_per_cta)
        tma.async_load(a, [0, start], full.index(stage), a_ring.index(stage))
        tma.async_load(b, [start, 0], full.index(stage), b_ring.index(stage))
        step += 1


@gluon.jit
def consume(a_ring, b_ring, sums, full, empty, done, k, BLOCK_K: gl.constexpr, STAGES: gl.constexpr):
    step = 0
    for _ in range(0, k, BLOCK_K):
        stage = step % STAGES
        mbarrier.wait(full.index(stage), step // STAGES & 1)
        tcgen05_mma(a_ring.index(stage), b_ring.index(stage), sums, use_acc=step > 0)
        tcgen05_commit(empty.index(stage))
        step += 1
    tcgen05_commit(done)


@gluon.jit
def finish(c, c_tile, sums, done, stored):
    mbarrier.wait(done, 0)
    c_tile.store(sums.load().to(c.dtype))
    fence_async_shared()  # before the arrival
    mbarrier.arrive(stored, count=1)


@gluon.jit
def write_back(c, c_tile, stored):
    mbarrier.wait(stored, 0)
    tma.async_store(c, [0, 0], c_tile)
    tma.store_wait(pendings=0)


@gluon.jit
def specialised(a, b, c, k, STAGES: gl.constexpr):
    """c = a b for one tile: loads, products, conversion and the way out are partitions of their own."""
    M: gl.constexpr = c.block_shape[0]
    N: gl.constexpr = c.block_shape[1]
    BLOCK_K: gl.constexpr = a.block_shape[1]
    a_ring = gl.allocate_shared_memory(a.dtype, [STAGES, M, BLOCK_K], a.layout)  # (STAGES, M, BLOCK_K)
    b_ring = gl.allocate_shared_memory(b.dtype, [STAGES, BLOCK_K, N], b.layout)  # (STAGES, BLOCK_K, N)
    c_tile = gl.allocate_shared_memory(c.dtype, [M, N], c.layout)  # (M, N)
    sums = allocate_tensor_memory(gl.float32, [M, N], TensorMemoryLayout([M, N], col_stride=1))  # (M, N)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    done = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    stored = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    mbarrier.init(done, count=1)
    mbarrier.init(stored, count=1)
    gl.warp_specialize(
        [
            (finish, (c, c_tile, sums, done, stored)),
            (produce, (a, b, a_ring, b_ring, full, empty, k, STAGES)),
            (consume, (a_ring, b_ring, sums, full, empty, done, k, BLOCK_K, STAGES)),
            (write_back, (c, c_tile, stored)),
        ],
        [1, 1, 1],
        [24, 24, 24],
    )


@gluon.jit
def idioms(table, out):
    """A copy of one tile that uses barriers in every legal but surprising way."""
    tile = gl.allocate_shared_memory(table.dtype, table.block_shape, table.layout)  # (rows, columns)
    arrived = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(arrived, count=1)
    mbarrier.wait(arrived, phase=1)  # the phase before the first is over: returns at once
    mbarrier.expect(arrived, table.nbytes_per_cta)
    mbarrier.wait(arrived, phase=1)  # still
    tma.async_load(table, [0, 0], arrived, tile)
    mbarrier.wait(arrived, phase=0)
    mbarrier.invalidate(arrived)
    mbarrier.init(arrived, count=2)  # a new life, from phase 0
    mbarrier.arrive(arrived, count=1)
    mbarrier.arrive(arrived, count=1)
    mbarrier.wait(arrived, phase=0)
    mbarrier.invalidate(arrived)
    tma.async_store(out, [0, 0], tile)  # no fence: TMA wrote it, TMA reads it
    tma.store_wait(pendings=0)


@gluon.jit
def reduced(out):
    """The least of each row, which the load from tensor memory finds."""
    sums = allocate_tensor_memory(gl.float32, [128, 64], TensorMemoryLayout([128, 64], col_stride=1))  # (rows, columns)
    layout: gl.constexpr = sums.get_reg_layout()
    sums.store(gl.full([128, 64], 1.0, gl.float32, layout))
    _, least = sums.load_min()
    gl.store(out + gl.arange(0, 128, layout=least.type.layout), least)

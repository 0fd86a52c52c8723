"""Gluon kernels of several CTAs: a tile that is multicast to all of them, and products of two CTAs. All are right as they stand."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import blackwell, hopper  # noqa: F401  (a twin meets by hopper.cluster)
from triton.experimental.gluon.language.nvidia.blackwell import (
    allocate_tensor_memory,
    fence_async_shared,
    mbarrier,
    tcgen05_mma,
    tcgen05_mma_scaled,
    tma,
)


@gluon.jit
def multicast_rows(table, out, STEPS: gl.constexpr, LAYOUT: gl.constexpr):
    """out = table, tile by tile through one buffer, of which each CTA has a copy that one load fills."""
    ROWS: gl.constexpr = table.block_shape[0]
    COLUMNS: gl.constexpr = table.block_shape[1]
    tile = gl.allocate_shared_memory(table.dtype, table.block_shape, table.layout)  # (ROWS, COLUMNS)
    arrived = mbarrier.allocate_mbarrier()
    mbarrier.init(arrived, count=1)
    rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, LAYOUT))
    columns = gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, LAYOUT))
    for step in range(STEPS):
        mbarrier.expect(arrived, table.nbytes_per_cta)
        tma.async_load(table, [step * ROWS, 0], arrived, tile, multicast=True)
        mbarrier.wait(arrived, step & 1)
        values = tile.load(LAYOUT)
        gl.barrier(cluster=True)  # every CTA has read its copy
        gl.store(out + (step * ROWS + rows[:, None]) * COLUMNS + columns[None, :], values)


@gluon.jit
def _nothing():
    pass


@gluon.jit
def _meets():
    gl.barrier(cluster=True)


@gluon.jit
def waits_in_a_partition():
    gl.warp_specialize([(_nothing, ()), (_meets, ())], [1])


@gluon.jit
def product(a, b, out, STEPS: gl.constexpr, SUMS: gl.constexpr, LAYOUT: gl.constexpr, TWO: gl.constexpr):
    """out (M, N) = a b by tcgen05, operands through one buffer that is filled for all CTAs which share a tile."""
    M: gl.constexpr = a.block_shape[0]
    K: gl.constexpr = a.block_shape[1]
    N: gl.constexpr = b.block_shape[1]
    a_tile = gl.allocate_shared_memory(a.dtype, a.block_shape, a.layout)  # (M, K)
    b_tile = gl.allocate_shared_memory(b.dtype, b.block_shape, b.layout)  # (K, N)
    loaded = mbarrier.allocate_mbarrier(two_ctas=TWO)
    multiplied = mbarrier.allocate_mbarrier()
    mbarrier.init(loaded, count=1)
    mbarrier.init(multiplied, count=blackwell.tcgen05_mma_barrier_count([a_tile, b_tile], True, TWO))
    sums = allocate_tensor_memory(gl.float32, [M, N], SUMS)  # (M, N)
    for step in range(STEPS):
        mbarrier.expect(loaded, a.nbytes_per_cta + b.nbytes_per_cta)
        tma.async_load(a, [0, step * K], loaded, a_tile, multicast=True)
        tma.async_load(b, [step * K, 0], loaded, b_tile, multicast=True)
        mbarrier.wait(loaded, step & 1)
        tcgen05_mma(a_tile, b_tile, sums, use_acc=step > 0, multicast=True, mbarriers=[multiplied])
        mbarrier.wait(multiplied, step & 1)
    mbarrier.invalidate(loaded)
    mbarrier.invalidate(multiplied)
    rows = gl.arange(0, M, layout=gl.SliceLayout(1, LAYOUT))
    columns = gl.arange(0, N, layout=gl.SliceLayout(0, LAYOUT))
    gl.store(out + rows[:, None] * N + columns[None, :], gl.convert_layout(sums.load(), LAYOUT))


@gluon.jit
def scaled_product(a, b, by_a, by_b, out, SUMS: gl.constexpr, OF_A: gl.constexpr, OF_B: gl.constexpr, LAYOUT: gl.constexpr):
    """out (256, 128) = a b transposed by two CTAs, with a scale for 32 of K: each CTA has those of its rows and of all columns."""
    a_tile = gl.allocate_shared_memory(a.dtype, a.block_shape, a.layout)  # (256, 128)
    b_tile = gl.allocate_shared_memory(b.dtype, b.block_shape, b.layout)  # (128, 128)
    loaded = mbarrier.allocate_mbarrier(two_ctas=True)
    multiplied = mbarrier.allocate_mbarrier()
    mbarrier.init(loaded, count=1)
    mbarrier.init(multiplied, count=1)
    sums = allocate_tensor_memory(gl.float32, [256, 128], SUMS)  # (256, 128)
    a_scales = allocate_tensor_memory(gl.uint8, [256, 4], OF_A)  # (256, 4)
    b_scales = allocate_tensor_memory(gl.uint8, [128, 4], OF_B)  # (128, 4)
    held: gl.constexpr = a_scales.get_reg_layout()
    at = gl.arange(0, 256, gl.SliceLayout(1, held))[:, None] * 4 + gl.arange(0, 4, gl.SliceLayout(0, held))[None, :]
    a_scales.store(gl.load(by_a + at))
    held_b: gl.constexpr = b_scales.get_reg_layout()
    at = gl.arange(0, 128, gl.SliceLayout(1, held_b))[:, None] * 4 + gl.arange(0, 4, gl.SliceLayout(0, held_b))[None, :]
    b_scales.store(gl.load(by_b + at))
    mbarrier.expect(loaded, a.nbytes_per_cta + b.nbytes_per_cta)
    tma.async_load(a, [0, 0], loaded, a_tile)
    tma.async_load(b, [0, 0], loaded, b_tile)
    mbarrier.wait(loaded, 0)
    tcgen05_mma_scaled(a_tile, b_tile.permute((1, 0)), sums, a_scales, b_scales, "e4m3", "e4m3", use_acc=False,
                       mbarriers=[multiplied])  # fmt: skip
    mbarrier.wait(multiplied, 0)
    mbarrier.invalidate(loaded)
    mbarrier.invalidate(multiplied)
    rows = gl.arange(0, 256, layout=gl.SliceLayout(1, LAYOUT))
    columns = gl.arange(0, 128, layout=gl.SliceLayout(0, LAYOUT))
    gl.store(out + rows[:, None] * 128 + columns[None, :], gl.convert_layout(sums.load(), LAYOUT))


@gluon.jit
def take_over(done, by, BYTES: gl.constexpr):
    """Each program marks itself, and then each one that it takes over until none is left. `by`: who did the work."""
    answer = gl.allocate_shared_memory(gl.int64, [2], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    come = mbarrier.allocate_mbarrier()
    mbarrier.init(come, count=1)
    at = gl.program_id(0)
    phase = 0
    more = True
    while more:
        blackwell.clc.try_cancel(answer, come)
        mbarrier.expect(come, BYTES)
        gl.atomic_add(done + at, 1)
        gl.store(by + at, gl.program_id(0))
        mbarrier.wait(come, phase)
        found = blackwell.clc.load_result(answer)
        more = found.is_canceled()
        at = found.program_id(0)
        phase ^= 1


@gluon.jit
def stored_product(a, b, out, SUMS: gl.constexpr, LAYOUT: gl.constexpr, OF_A: gl.constexpr, OF_B: gl.constexpr):
    """out (256, 64) = a (256, 32) b (32, 64) by two CTAs, which store the operands themselves."""
    rows = gl.arange(0, 256, layout=gl.SliceLayout(1, LAYOUT))[:, None]
    steps = gl.arange(0, 32, layout=gl.SliceLayout(0, LAYOUT))[None, :]
    a_tile = gl.allocate_shared_memory(gl.float16, [256, 32], OF_A, gl.load(a + rows * 32 + steps))
    ROWS: gl.constexpr = gl.BlockedLayout([1, 2], [1, 32], [4, 1], [1, 0], cga_layout=[[0, 1]])
    steps = gl.arange(0, 32, layout=gl.SliceLayout(1, ROWS))[:, None]
    columns = gl.arange(0, 64, layout=gl.SliceLayout(0, ROWS))[None, :]
    multiplied = mbarrier.allocate_mbarrier()
    mbarrier.init(multiplied, count=1)
    b_tile = gl.allocate_shared_memory(gl.float16, [32, 64], OF_B, gl.load(b + steps * 64 + columns))
    fence_async_shared(cluster=True)
    gl.barrier(cluster=True)
    sums = allocate_tensor_memory(gl.float32, [256, 64], SUMS)
    tcgen05_mma(a_tile, b_tile, sums, use_acc=False, mbarriers=[multiplied])
    mbarrier.wait(multiplied, 0)
    columns = gl.arange(0, 64, layout=gl.SliceLayout(0, LAYOUT))[None, :]
    gl.store(out + rows * 64 + columns, gl.convert_layout(sums.load(), LAYOUT))

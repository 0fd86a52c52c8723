"""Legal but surprising uses of tcgen05 and wgmma products on a GPU, one kernel each: all leave a b in out."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    fence_async_shared,
    mbarrier,
    tcgen05_commit,
    tcgen05_copy,
    tcgen05_mma,
    tma,
)
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma, warpgroup_mma_wait

from tests.support.gluon_tiles import K, M, N, barrier_of, loaded, stored, sums_of, tile_of


@gluon.jit
def product_commits_once_for_two(a, b, out):
    a_tile, b_tile = loaded(a, b)
    sums = sums_of()
    spare = sums_of()
    done = barrier_of(1)
    tcgen05_mma(a_tile, b_tile, spare, use_acc=False)
    tcgen05_mma(a_tile, b_tile, sums, use_acc=False)
    tcgen05_commit(done)  # covers both
    mbarrier.wait(done, 0)
    mbarrier.invalidate(done)
    stored(out, sums)


@gluon.jit
def product_accumulates_without_a_wait(a, b, out):
    a_tile, b_tile = loaded(a, b)
    sums = sums_of()
    done = barrier_of(1)
    tcgen05_mma(a_tile, b_tile, sums, use_acc=False)
    tcgen05_mma(a_tile, b_tile, sums, use_acc=False)  # behind the first in the pipe: order is kept
    tcgen05_commit(done)
    mbarrier.wait(done, 0)
    mbarrier.invalidate(done)
    stored(out, sums)


@gluon.jit
def product_allocates_over_what_is_in_flight(a, b, out):
    a_tile, b_tile = loaded(a, b)
    sums = sums_of()
    done = barrier_of(1)
    tcgen05_mma(a_tile, b_tile, sums, use_acc=False)
    tcgen05_commit(done)
    tile = tile_of(out)  # may lie over a_tile, which the product still reads: no access yet
    mbarrier.wait(done, 0)
    mbarrier.invalidate(done)
    tile.store(sums.load().to(out.dtype))
    fence_async_shared()
    tma.async_store(out, [0, 0], tile)
    tma.store_wait(pendings=0)


@gluon.jit
def product_signals_without_a_commit(a, b, out):
    a_tile, b_tile = loaded(a, b)
    sums = sums_of()
    done = barrier_of(1)
    tcgen05_mma(a_tile, b_tile, sums, use_acc=False, mbarriers=[done])
    mbarrier.wait(done, 0)
    mbarrier.invalidate(done)
    stored(out, sums)


@gluon.jit
def product_commits_to_two_barriers(a, b, out):
    a_tile, b_tile = loaded(a, b)
    sums = sums_of()
    first = barrier_of(1)
    second = barrier_of(1)
    tcgen05_mma(a_tile, b_tile, sums, use_acc=False)
    tcgen05_commit(first)
    tcgen05_commit(second)
    mbarrier.wait(second, 0)  # either will do
    mbarrier.invalidate(first)
    mbarrier.invalidate(second)
    stored(out, sums)


@gluon.jit
def product_refills_while_the_sum_is_read(a, b, out):
    a_tile, b_tile = loaded(a, b)
    sums = sums_of()
    done = barrier_of(1)
    tcgen05_mma(a_tile, b_tile, sums, use_acc=False)
    tcgen05_commit(done)
    mbarrier.wait(done, 0)
    mbarrier.expect(done, a.nbytes_per_cta)  # phase 1 of the same barrier
    tma.async_load(a, [0, 0], done, a_tile)  # the product has read it
    result = sums.load().to(out.dtype)  # (M, N), meanwhile
    mbarrier.wait(done, 1)
    mbarrier.invalidate(done)
    tile = tile_of(out)
    tile.store(result)
    fence_async_shared()
    tma.async_store(out, [0, 0], tile)
    tma.store_wait(pendings=0)


@gluon.jit
def product_reads_a_tile_that_both_operands_share(a, b, out):
    a_tile, b_tile = loaded(a, b)
    sums = sums_of()
    done = barrier_of(1)
    spare = sums_of()
    tcgen05_mma(a_tile, b_tile, spare, use_acc=False)
    tcgen05_mma(a_tile, b_tile, sums, use_acc=False)  # reads what the one in flight reads
    tcgen05_commit(done)
    layout: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [gl.num_warps(), 1], [1, 0])
    seen = b_tile.load(layout)  # (K, N), and so does this
    gl.static_assert(seen.shape[0] == K)
    mbarrier.wait(done, 0)
    mbarrier.invalidate(done)
    stored(out, sums)


@gluon.jit
def product_replaces_what_nobody_wrote(a, b, out):
    a_tile, b_tile = loaded(a, b)
    sums = sums_of()
    done = barrier_of(1)
    for turn in range(2):
        tcgen05_mma(a_tile, b_tile, sums, use_acc=turn > 1)  # never: what tensor memory holds does not matter
        tcgen05_commit(done)
        mbarrier.wait(done, turn & 1)
    mbarrier.invalidate(done)
    stored(out, sums)


@gluon.jit
def product_accumulates_on_a_copy_without_a_wait(a, b, out):
    a_tile, b_tile = loaded(a, b)
    sums = sums_of()
    done = barrier_of(1)
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [2, 16], [gl.num_warps(), 1], [1, 0])
    zeros = gl.allocate_shared_memory(gl.float32, [M, N], gl.NVMMASharedLayout(128, 32, 2))  # (M, N)
    zeros.store(gl.zeros([M, N], gl.float32, layout))
    fence_async_shared()
    tcgen05_copy(zeros, sums)
    tcgen05_mma(a_tile, b_tile, sums)  # behind the copy in the pipe: order is kept
    tcgen05_commit(done)
    mbarrier.wait(done, 0)
    mbarrier.invalidate(done)
    stored(out, sums)


@gluon.jit
def product_chains_wgmma_without_a_wait(a, b, out):
    """For sm_90."""
    a_tile, b_tile = loaded(a, b)
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, N, 16])
    half = gl.zeros([M, N], gl.float32, layout)  # (M, N)
    sums = warpgroup_mma(a_tile, b_tile, half, use_acc=False, is_async=True)
    sums = warpgroup_mma(a_tile, b_tile, sums, is_async=True)  # takes registers that the first still writes
    sums = warpgroup_mma_wait(0, deps=(sums,))
    tile = tile_of(out)
    tile.store((sums * 0.5).to(out.dtype))
    fence_async_shared()
    tma.async_store(out, [0, 0], tile)
    tma.store_wait(pendings=0)

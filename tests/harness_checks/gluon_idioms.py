"""Legal but surprising uses of time on a GPU, one kernel each: a (128, 64), b (64, 64) and out (128, 64) in single tiles.

Kernels named `copy_...` leave a in out, those named `product_...` a b.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    fence_async_shared,
    mbarrier,
    tcgen05_commit,
    tcgen05_mma,
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


@gluon.jit
def copy_waits_twice(a, b, out):
    tile = tile_of(a)
    arrived = barrier_of(1)
    mbarrier.expect(arrived, a.nbytes_per_cta)
    tma.async_load(a, [0, 0], arrived, tile)
    mbarrier.wait(arrived, 0)
    mbarrier.wait(arrived, 0)  # the phase is still the last one completed
    mbarrier.invalidate(arrived)
    tma.async_store(out, [0, 0], tile)
    tma.store_wait(pendings=0)


@gluon.jit
def copy_loads_before_it_expects(a, b, out):
    tile = tile_of(a)
    arrived = barrier_of(1)
    tma.async_load(a, [0, 0], arrived, tile)  # its bytes may be in before anyone expects them: an arrival is missing
    mbarrier.expect(arrived, a.nbytes_per_cta)
    mbarrier.wait(arrived, 0)
    mbarrier.invalidate(arrived)
    tma.async_store(out, [0, 0], tile)
    tma.store_wait(pendings=0)


@gluon.jit
def copy_expects_in_two_parts(a, b, out):
    tile = tile_of(a)
    arrived = barrier_of(2)
    mbarrier.expect(arrived, a.nbytes_per_cta // 2)
    mbarrier.expect(arrived, a.nbytes_per_cta // 2)
    tma.async_load(a, [0, 0], arrived, tile)
    mbarrier.wait(arrived, 0)
    mbarrier.invalidate(arrived)
    tma.async_store(out, [0, 0], tile)
    tma.store_wait(pendings=0)


@gluon.jit
def copy_counts_what_lies_outside(a, b, out):
    tile = tile_of(a)
    outside = tile_of(a)
    arrived = barrier_of(1)
    mbarrier.expect(arrived, 2 * a.nbytes_per_cta)
    tma.async_load(a, [0, 0], arrived, tile)
    tma.async_load(a, [4096, 0], arrived, outside)  # zeros, and as many bytes
    mbarrier.wait(arrived, 0)
    mbarrier.invalidate(arrived)
    tma.async_store(out, [0, 0], tile)
    tma.async_store(out, [4096, 0], outside)  # nothing
    tma.store_wait(pendings=0)


@gluon.jit
def copy_reuses_the_source_of_the_older_store(a, b, out):
    first = tile_of(a)
    second = tile_of(a)
    arrived = barrier_of(1)
    mbarrier.expect(arrived, 2 * a.nbytes_per_cta)
    tma.async_load(a, [0, 0], arrived, first)
    tma.async_load(a, [0, 0], arrived, second)
    mbarrier.wait(arrived, 0)
    tma.async_store(out, [0, 0], first)
    tma.async_store(out, [0, 0], second)
    tma.store_wait(pendings=1)  # the older one has read its source
    mbarrier.expect(arrived, a.nbytes_per_cta)
    tma.async_load(a, [0, 0], arrived, first)
    mbarrier.wait(arrived, 1)
    mbarrier.invalidate(arrived)
    tma.store_wait(pendings=0)


@gluon.jit
def copy_skips_a_wait_by_predicate(a, b, out):
    tile = tile_of(a)
    arrived = barrier_of(1)
    mbarrier.wait(arrived, 0, pred=False)  # would never return
    mbarrier.expect(arrived, a.nbytes_per_cta)
    tma.async_load(a, [0, 0], arrived, tile)
    mbarrier.wait(arrived, 0, pred=True)
    mbarrier.invalidate(arrived)
    tma.async_store(out, [0, 0], tile)
    tma.store_wait(pendings=0)


@gluon.jit
def copy_counts_arrivals_of_two_kinds(a, b, out):
    tile = tile_of(a)
    arrived = barrier_of(3)
    mbarrier.arrive(arrived, count=2)
    mbarrier.expect(arrived, a.nbytes_per_cta)  # the third
    tma.async_load(a, [0, 0], arrived, tile)
    mbarrier.wait(arrived, 0)
    mbarrier.invalidate(arrived)
    tma.async_store(out, [0, 0], tile)
    tma.store_wait(pendings=0)


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
def copy_waits_for_the_phase_before_the_first(a, b, out):
    tile = tile_of(a)
    arrived = barrier_of(1)
    mbarrier.expect(arrived, a.nbytes_per_cta)
    mbarrier.wait(arrived, 1)  # parity 1 of a fresh barrier: returns at once
    tma.async_load(a, [0, 0], arrived, tile)
    mbarrier.wait(arrived, 0)
    mbarrier.invalidate(arrived)
    tma.async_store(out, [0, 0], tile)
    tma.store_wait(pendings=0)


@gluon.jit
def copy_gives_a_barrier_a_second_life(a, b, out):
    tile = tile_of(a)
    arrived = barrier_of(1)
    mbarrier.expect(arrived, a.nbytes_per_cta)
    tma.async_load(a, [0, 0], arrived, tile)
    mbarrier.wait(arrived, 0)
    mbarrier.invalidate(arrived)
    mbarrier.init(arrived, count=1)
    mbarrier.expect(arrived, a.nbytes_per_cta)
    tma.async_load(a, [0, 0], arrived, tile)
    mbarrier.wait(arrived, 0)  # phase 0 once more: it began anew
    mbarrier.invalidate(arrived)
    tma.async_store(out, [0, 0], tile)
    tma.store_wait(pendings=0)


@gluon.jit
def copy_is_stored_twice_from_one_tile(a, b, out):
    tile = tile_of(a)
    arrived = barrier_of(1)
    mbarrier.expect(arrived, a.nbytes_per_cta)
    tma.async_load(a, [0, 0], arrived, tile)
    mbarrier.wait(arrived, 0)
    mbarrier.invalidate(arrived)
    tma.async_store(out, [0, 0], tile)
    layout: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [gl.num_warps(), 1], [1, 0])
    seen = tile.load(layout)  # (M, K), while the store reads it too
    tma.async_store(out, [0, 0], tile)
    gl.static_assert(seen.shape[0] == M)
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
def copy_mixes_a_gather_and_a_tile_on_one_barrier(a, b, out, rows_of_a, ROWS: gl.constexpr):
    tile = gl.allocate_shared_memory(out.dtype, [ROWS, K], out.layout)  # (ROWS, K)
    other = tile_of(b)
    arrived = barrier_of(1)
    numbers = gl.arange(0, ROWS, gl.SliceLayout(0, gl.BlockedLayout([1, 4], [32, 1], [1, gl.num_warps()], [1, 0])))  # (ROWS,)
    mbarrier.expect(arrived, ROWS * rows_of_a.nbytes_per_cta + b.nbytes_per_cta)
    tma.async_gather(rows_of_a, numbers, 0, arrived, tile)
    tma.async_load(b, [0, 0], arrived, other)
    mbarrier.wait(arrived, 0)
    mbarrier.invalidate(arrived)
    tma.async_store(out, [0, 0], tile)
    tma.store_wait(pendings=0)


@gluon.jit
def spectator(a_tile, arrived, seen, count: gl.constexpr):
    mbarrier.wait(arrived, 0)
    layout: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [gl.num_warps(), 1], [1, 0])
    value = a_tile.load(layout)  # (M, K), read only
    mbarrier.arrive(seen, count=count)
    gl.static_assert(value.shape[0] == M)


@gluon.jit
def load_once(a, a_tile, arrived):
    mbarrier.expect(arrived, a.nbytes_per_cta)
    tma.async_load(a, [0, 0], arrived, a_tile)


@gluon.jit
def send_when_seen(out, a_tile, arrived, seen):
    mbarrier.wait(arrived, 0)
    mbarrier.wait(seen, 0)
    tma.async_store(out, [0, 0], a_tile)
    tma.store_wait(pendings=0)


@gluon.jit
def copy_is_read_by_two_partitions_at_once(a, b, out):
    a_tile = tile_of(a)
    arrived = barrier_of(1)
    seen = barrier_of(2)  # of both readers
    gl.warp_specialize(
        [
            (send_when_seen, (out, a_tile, arrived, seen)),
            (spectator, (a_tile, arrived, seen, 1)),
            (spectator, (a_tile, arrived, seen, 1)),
            (load_once, (a, a_tile, arrived)),
        ],
        [4, 4, 1],
        [24, 24, 24],
    )


@gluon.jit
def fill(a_tile, b_tile, stored):
    layout: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [gl.num_warps(), 1], [1, 0])
    b_tile.store(a_tile.load(layout))
    mbarrier.arrive(stored, count=1)


@gluon.jit
def send_behind_its_own_fence(out, b_tile, stored):
    mbarrier.wait(stored, 0)
    fence_async_shared()  # after the wait: it covers what the other partition wrote
    tma.async_store(out, [0, 0], b_tile)
    tma.store_wait(pendings=0)


@gluon.jit
def copy_is_fenced_by_the_partition_that_sends(a, b, out):
    a_tile, _ = loaded(a, b)
    b_tile = tile_of(out)
    handed = barrier_of(1)
    gl.warp_specialize([(fill, (a_tile, b_tile, handed)), (send_behind_its_own_fence, (out, b_tile, handed))], [1], [24])


@gluon.jit
def copy_commits_empty_groups(source, ROWS: gl.constexpr, out):
    """cp.async: groups may be empty and count all the same. source and out are pointers to (ROWS, 64) of fp16."""
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [gl.num_warps(), 1], [1, 0])
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, layout))  # (ROWS,)
    columns = gl.arange(0, 64, gl.SliceLayout(0, layout))  # (64,)
    places = rows[:, None] * 64 + columns[None, :]  # (ROWS, 64)
    tile = gl.allocate_shared_memory(gl.float16, [ROWS, 64], gl.SwizzledSharedLayout(8, 1, 8, [1, 0]))
    async_copy.async_load(tile, source + places)
    async_copy.commit_group()
    async_copy.commit_group()
    async_copy.commit_group()
    async_copy.wait_group(2)  # the two empty ones may be under way
    gl.store(out + places, tile.load(layout))

"""Legal but surprising uses of barriers and copies on a GPU, one kernel each: all leave a in out."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import blackwell
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.blackwell import fence_async_shared, mbarrier, tma

from tests.support.gluon_tiles import K, M, barrier_of, tile_of


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


@gluon.jit
def copy_names_a_buffer_before_the_first(a, b, out):
    tile = tile_of(a)
    arrived = barrier_of(1)
    free = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(2):
        mbarrier.init(free.index(i), count=1)
    for turn in range(2):
        mbarrier.expect(arrived, a.nbytes_per_cta)
        tma.async_load(a, [0, 0], arrived, tile)
        mbarrier.wait(arrived, turn)
        before = free.index((turn - 1) % 2)  # of -1 at first: % is that of C
        mbarrier.arrive(before, count=1, pred=turn > 0)
    mbarrier.wait(free.index(0), 0)
    tma.async_store(out, [0, 0], tile)
    tma.store_wait(pendings=0)


@gluon.jit
def copy_loads_ahead_while_there_is_more(a, b, out):
    tiles = gl.allocate_shared_memory(a.dtype, [2] + a.block_shape, a.layout)
    arrived = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(2):
        mbarrier.init(arrived.index(i), count=1)
    mbarrier.expect(arrived.index(0), a.nbytes_per_cta)
    tma.async_load(a, [0, 0], arrived.index(0), tiles.index(0))
    for turn in range(2):
        more, ahead = turn < 1, (turn + 1) % 2
        mbarrier.expect(arrived.index(ahead), a.nbytes_per_cta, pred=more)
        tma.async_load(a, [0, 0], arrived.index(ahead), tiles.index(ahead), pred=more)
        mbarrier.wait(arrived.index(turn % 2), 0)
        tma.async_store(out, [0, 0], tiles.index(turn % 2))
        tma.store_wait(pendings=0, read_only=False)


@gluon.jit
def copy_scatters_rows_beyond_the_end(a, b, out, rows_of_out, ROWS: gl.constexpr):
    tile = tile_of(a)
    arrived = barrier_of(1)
    numbers = gl.arange(0, ROWS, gl.SliceLayout(0, gl.BlockedLayout([1, 4], [32, 1], [1, gl.num_warps()], [1, 0])))  # (ROWS,)
    mbarrier.expect(arrived, a.nbytes_per_cta)
    tma.async_load(a, [0, 0], arrived, tile)
    mbarrier.wait(arrived, 0)
    mbarrier.invalidate(arrived)
    tma.async_scatter(rows_of_out, numbers, 0, tile)
    tma.async_scatter(rows_of_out, numbers + ROWS, 0, tile)  # no row of out: nothing is written
    layout: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [gl.num_warps(), 1], [1, 0])
    seen = tile.load(layout)  # (M, K), while the scatters read it too
    gl.static_assert(seen.shape[0] == M)
    tma.store_wait(pendings=0)


@gluon.jit
def copy_adds_nothing_twice_to_what_it_stored(a, b, out):
    tile = tile_of(a)
    zeros = tile_of(a)
    arrived = barrier_of(1)
    mbarrier.expect(arrived, a.nbytes_per_cta)
    tma.async_load(a, [0, 0], arrived, tile)
    zeros.store(gl.zeros([M, K], a.dtype, gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])))
    fence_async_shared()
    mbarrier.wait(arrived, 0)
    mbarrier.invalidate(arrived)
    tma.async_store(out, [0, 0], tile)
    tma.store_wait(pendings=0, read_only=False)
    tma.async_atomic_add(out, [0, 0], zeros)
    tma.async_atomic_add(out, [0, 0], zeros)  # reads the tile, and updates out, while the first does
    tma.store_wait(pendings=0)


@gluon.jit
def copy_asks_for_a_program_while_it_copies(a, b, out):
    answer = gl.allocate_shared_memory(gl.int64, [2], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    come = barrier_of(1)
    tile = tile_of(a)
    arrived = barrier_of(1)
    blackwell.clc.try_cancel(answer, come)
    mbarrier.expect(come, 16)
    mbarrier.expect(arrived, a.nbytes_per_cta)
    tma.async_load(a, [0, 0], arrived, tile)
    mbarrier.wait(arrived, 0)
    tma.async_store(out, [0, 0], tile)
    mbarrier.wait(come, 0)
    there_is_one = blackwell.clc.load_result(answer).is_canceled()  # no: the launch has one program
    mbarrier.invalidate(arrived)
    if there_is_one:
        tma.async_store(out, [64, 0], tile)
    tma.store_wait(pendings=0)

"""Gluon kernels whose order in global memory rests on more than atomics: bulk stores and their waits, the two proxies, partitions.
All are right as they stand; `test_order.py` changes one text of each. `tiles` describes `rows`, (64, 64) fp16."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

SIDE = gl.constexpr(64)


@gluon.jit
def places_of(DOWN: gl.constexpr = 4):
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [DOWN, 4 // DOWN], [1, 0])
    row = gl.arange(0, SIDE, gl.SliceLayout(1, layout))
    column = gl.arange(0, SIDE, gl.SliceLayout(0, layout))
    return row[:, None] * SIDE + column[None, :]


@gluon.jit
def tile_of(tiles):
    return gl.allocate_shared_memory(gl.float16, [SIDE, SIDE], tiles.layout)


@gluon.jit
def fetched(tiles, tile, phase):
    arrived = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(arrived, count=1)
    mbarrier.expect(arrived, tiles.nbytes_per_cta)
    tma.async_load(tiles, [0, 0], arrived, tile)
    mbarrier.wait(arrived, phase)
    mbarrier.invalidate(arrived)


@gluon.jit
def stored_then_loaded(rows, tiles, source, out, flags):
    """A bulk store, then ordinary loads of what it wrote."""
    tile = tile_of(tiles)
    tile.store(gl.load(source + places_of()))
    fence_async_shared()
    tma.async_store(tiles, [0, 0], tile)
    tma.store_wait(pendings=0, read_only=False)
    gl.store(out + places_of(), gl.load(rows + places_of()))


@gluon.jit
def stored_twice(rows, tiles, source, out, flags):
    """Two bulk stores of different words to one place: the second waits until the first has written."""
    tile = tile_of(tiles)
    tile.store(gl.load(source + places_of()) + 1)
    fence_async_shared()
    tma.async_store(tiles, [0, 0], tile)
    tma.store_wait(pendings=0, read_only=False)
    tile.store(gl.load(source + places_of()))
    fence_async_shared()
    tma.async_store(tiles, [0, 0], tile)
    tma.store_wait(pendings=0, read_only=False)  # and before it is read
    gl.store(out + places_of(), gl.load(rows + places_of()))


@gluon.jit
def written_then_fetched(rows, tiles, source, out, flags):
    """Ordinary stores, then TMA that reads what they wrote."""
    tile = tile_of(tiles)
    gl.store(rows + places_of(), gl.load(source + places_of()))
    gl.inline_asm("fence.proxy.async;")
    gl.barrier()
    fetched(tiles, tile, 0)
    gl.store(out + places_of(), tile.load(gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])))


@gluon.jit
def in_its_own_layout(rows, tiles, source, out, flags):
    """What a thread has written it reads itself: no barrier."""
    gl.store(rows + places_of(), gl.load(source + places_of()))
    own = places_of()
    gl.store(out + own, gl.load(rows + own))


@gluon.jit
def all_in_one_word(rows, tiles, source, out, flags):
    """All threads write one word, the same, and all read it."""
    word = rows + places_of() * 0
    gl.store(word, (places_of() * 0).to(gl.float16))
    gl.barrier()
    gl.store(out + places_of(), gl.load(word) + gl.load(source + places_of()))


@gluon.jit
def written_over_by_bulk(rows, tiles, source, out, flags):
    """Ordinary stores, then TMA that writes over them."""
    tile = tile_of(tiles)
    gl.store(rows + places_of(), gl.load(source + places_of()) + 1)
    gl.inline_asm("fence.proxy.async.global;")
    tile.store(gl.load(source + places_of()))
    fence_async_shared()
    gl.barrier()
    tma.async_store(tiles, [0, 0], tile)
    tma.store_wait(pendings=0, read_only=False)
    gl.store(out + places_of(), gl.load(rows + places_of()))


@gluon.jit
def replaced_in_place(rows, tiles, source, out, flags):
    """What an ordinary load has read TMA may overwrite: the value is there already."""
    tile = tile_of(tiles)
    tile.store(gl.load(rows + places_of()) + gl.load(source + places_of()))
    fence_async_shared()
    tma.async_store(tiles, [0, 0], tile)
    tma.store_wait(pendings=0, read_only=False)
    gl.store(out + places_of(), gl.load(rows + places_of()))


@gluon.jit
def handed_to_tma(rows, tiles, source, out, flags):
    """Program 0 stores and raises a flag; program 1 waits for it and fetches by TMA."""
    if gl.program_id(0) == 0:
        gl.store(rows + places_of(), gl.load(source + places_of()))
        gl.barrier()
        gl.atomic_xchg(flags, 1, sem="release")
    else:
        while gl.atomic_add(flags, 0, sem="acquire") != 1:
            pass
        gl.inline_asm("fence.proxy.async;")
        tile = tile_of(tiles)
        fetched(tiles, tile, 0)
        gl.store(out + places_of(), tile.load(gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])))


@gluon.jit
def fenced_then_handed(rows, tiles, source, out, flags):
    """As `handed_to_tma`, with the fence at the writer's."""
    if gl.program_id(0) == 0:
        gl.store(rows + places_of(), gl.load(source + places_of()))
        gl.inline_asm("fence.proxy.async;")
        gl.barrier()
        gl.atomic_xchg(flags, 1, sem="release")
    else:
        while gl.atomic_add(flags, 0, sem="acquire") != 1:
            pass
        tile = tile_of(tiles)
        fetched(tiles, tile, 0)
        gl.store(out + places_of(), tile.load(gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])))


@gluon.jit
def stored_then_released(rows, tiles, source, out, flags):
    """Program 0 stores a tile in bulk, waits until it is written and raises a flag; program 1 waits for that and loads."""
    if gl.program_id(0) == 0:
        tile = tile_of(tiles)
        tile.store(gl.load(source + places_of()))
        fence_async_shared()
        tma.async_store(tiles, [0, 0], tile)
        tma.store_wait(pendings=0, read_only=False)
        gl.atomic_xchg(flags, 1, sem="release")
    else:
        while gl.atomic_add(flags, 0, sem="acquire") != 1:
            pass
        gl.store(out + places_of(), gl.load(rows + places_of()))


@gluon.jit
def writing_partition(rows, source, written):
    gl.store(rows + places_of(), gl.load(source + places_of()))
    mbarrier.arrive(written, count=1)


@gluon.jit
def reading_partition(rows, out, written):
    mbarrier.wait(written, 0)
    gl.store(out + places_of(), gl.load(rows + places_of()))


@gluon.jit
def between_partitions(rows, tiles, source, out, flags):
    """One partition writes global memory, arrives at an mbarrier, and another that waited for it reads."""
    written = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(written, count=1)
    gl.warp_specialize([(reading_partition, (rows, out, written)), (writing_partition, (rows, source, written))], [4], [64])


@gluon.jit
def adding_partition(counts, places):
    gl.atomic_add(counts + places, 1, sem="relaxed")


@gluon.jit
def counted_by_partitions(rows, tiles, source, out, flags):
    """Two partitions count in the same words, by atomics."""
    gl.warp_specialize([(adding_partition, (flags, 0)), (adding_partition, (flags, 0))], [4], [64])
    gl.store(out + places_of(), gl.load(source + places_of()))


@gluon.jit
def copying_partition(rows, source):
    gl.store(rows + places_of(), gl.load(source + places_of()))


@gluon.jit
def read_after_partitions(rows, tiles, source, out, flags):
    """What a partition wrote is read when all have ended."""
    gl.warp_specialize([(adding_partition, (flags, 0)), (copying_partition, (rows, source))], [4], [64])
    gl.store(out + places_of(), gl.load(rows + places_of()))


@gluon.jit
def watched(rows, tiles, source, out, flags):
    """Program 0 stores a tile in bulk and waits for an answer; program 1 watches the tile by volatile loads. (A race.)"""
    if gl.program_id(0) == 0:
        tile = tile_of(tiles)
        tile.store(gl.load(source + places_of()))
        fence_async_shared()
        tma.async_store(tiles, [0, 0], tile)
        while gl.atomic_add(flags, 0) == 0:
            pass
        tma.store_wait(pendings=0, read_only=False)
    else:
        while gl.load(rows, volatile=True).to(gl.float32) == 0:
            pass
        gl.atomic_xchg(flags, 1)

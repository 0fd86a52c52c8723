"""Legal but surprising uses of partitions on a GPU, one kernel each and the functions of its partitions: all leave a in out."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import fence_async_shared, mbarrier, tma

from tests.support.gluon_tiles import M, barrier_of, loaded, tile_of


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
def read_and_hand_back(a_tile, kept, arrived, free):
    mbarrier.wait(arrived, 0)
    layout: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [gl.num_warps(), 1], [1, 0])
    kept.store(a_tile.load(layout))  # (M, K)
    fence_async_shared()  # between this read and the other partition's TMA: an arrival orders no two proxies
    mbarrier.arrive(free, count=1)


@gluon.jit
def load_again_when_free(a, out, a_tile, arrived, free):
    mbarrier.expect(arrived, a.nbytes_per_cta)
    tma.async_load(a, [0, 0], arrived, a_tile)
    mbarrier.wait(free, 0)
    mbarrier.expect(arrived, a.nbytes_per_cta)
    tma.async_load(a, [0, 0], arrived, a_tile)
    mbarrier.wait(arrived, 1)
    tma.async_store(out, [0, 0], a_tile)
    tma.store_wait(pendings=0)


@gluon.jit
def copy_is_refilled_behind_the_fence_of_its_reader(a, b, out):
    a_tile = tile_of(a)
    arrived = barrier_of(1)
    handed_back = barrier_of(1)
    gl.warp_specialize(
        [
            (read_and_hand_back, (a_tile, tile_of(a), arrived, handed_back)),
            (load_again_when_free, (a, out, a_tile, arrived, handed_back)),
        ],
        [1],
        [24],
    )


@gluon.jit
def read_and_tell(a_tile, kept, arrived, seen):
    mbarrier.wait(arrived, 0)
    layout: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [gl.num_warps(), 1], [1, 0])
    kept.store(a_tile.load(layout))  # (M, K)
    mbarrier.arrive(seen, count=1)


@gluon.jit
def load_again_behind_its_own_fence(a, out, a_tile, arrived, seen):
    mbarrier.expect(arrived, a.nbytes_per_cta)
    tma.async_load(a, [0, 0], arrived, a_tile)
    mbarrier.wait(seen, 0)
    fence_async_shared()  # after the wait: it covers what the other partition read
    mbarrier.expect(arrived, a.nbytes_per_cta)
    tma.async_load(a, [0, 0], arrived, a_tile)
    mbarrier.wait(arrived, 1)
    tma.async_store(out, [0, 0], a_tile)
    tma.store_wait(pendings=0)


@gluon.jit
def copy_is_refilled_behind_the_fence_of_its_loader(a, b, out):
    a_tile = tile_of(a)
    arrived = barrier_of(1)
    seen = barrier_of(1)
    gl.warp_specialize(
        [(read_and_tell, (a_tile, tile_of(a), arrived, seen)), (load_again_behind_its_own_fence, (a, out, a_tile, arrived, seen))],
        [1],
        [24],
    )


@gluon.jit
def read_and_load_again(a, out, a_tile, kept, arrived):
    mbarrier.expect(arrived, a.nbytes_per_cta)
    tma.async_load(a, [0, 0], arrived, a_tile)
    mbarrier.wait(arrived, 0)
    layout: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [gl.num_warps(), 1], [1, 0])
    value = a_tile.load(layout)  # (M, K)
    kept.store(value)
    mbarrier.expect(arrived, a.nbytes_per_cta)
    tma.async_load(a, [0, 0], arrived, a_tile)  # the compiler puts the fence: it sees read and refill in one partition
    mbarrier.wait(arrived, 1)
    tma.async_store(out, [0, 0], a_tile)
    tma.store_wait(pendings=0)


@gluon.jit
def idle(stored):
    mbarrier.arrive(stored, count=1)


@gluon.jit
def copy_is_refilled_by_the_partition_that_read_it(a, b, out):
    a_tile = tile_of(a)
    arrived = barrier_of(1)
    spare = barrier_of(1)
    gl.warp_specialize([(idle, (spare,)), (read_and_load_again, (a, out, a_tile, tile_of(a), arrived))], [4], [24])


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
def copy_is_sent_when_the_partitions_have_ended(a, b, out):
    a_tile, _ = loaded(a, b)
    b_tile = tile_of(out)
    spare = barrier_of(2)
    gl.warp_specialize([(idle, (spare,)), (fill, (a_tile, b_tile, spare))], [4], [24])
    fence_async_shared()  # their end is a barrier: it covers what the partition wrote
    tma.async_store(out, [0, 0], b_tile)
    tma.store_wait(pendings=0)


@gluon.jit
def arrive_often(spare):
    for _ in range(8):
        mbarrier.arrive(spare, count=1)


@gluon.jit
def send_when_stored(out, b_tile, stored, waits: gl.constexpr):
    mbarrier.wait(stored, 0, pred=waits)
    fence_async_shared()
    tma.async_store(out, [0, 0], b_tile)
    tma.store_wait(pendings=0)


@gluon.jit
def copy_is_made_by_partitions_that_began_before(a, b, out):
    a_tile, _ = loaded(a, b)
    b_tile = tile_of(out)
    layout: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [gl.num_warps(), 1], [1, 0])
    b_tile.store(gl.zeros([128, 64], gl.float16, layout))
    spare = barrier_of(9)
    handed = barrier_of(1)
    gl.warp_specialize([(idle, (spare,)), (arrive_often, (spare,))], [4], [24])
    mbarrier.invalidate(spare)
    gl.warp_specialize([(send_when_stored, (out, b_tile, handed, True)), (fill, (a_tile, b_tile, handed))], [4], [24])

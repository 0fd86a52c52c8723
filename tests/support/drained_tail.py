"""A ring of two buffers whose last turn may be half empty: waits, products and commits are predicated, and the copies of scales may
be left out of that. `GUARDED` is the one difference between the right kernel and the faulty one."""

from __future__ import annotations

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    TensorMemoryScalesLayout,
    allocate_tensor_memory,
    mbarrier,
    tcgen05_commit,
    tcgen05_copy,
    tcgen05_mma_scaled,
    tma,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

BLOCK, BLOCK_K, RING = 128, 128, 2


@gluon.jit
def ring_of(tiles, RING: gl.constexpr):
    return gl.allocate_shared_memory(tiles.dtype, [RING] + tiles.block_shape, tiles.layout)


@gluon.jit
def barriers_of(RING: gl.constexpr):
    made = gl.allocate_shared_memory(gl.int64, [RING, 1], mbarrier.MBarrierLayout())  # (RING, 1)
    for i in gl.static_range(RING):
        mbarrier.init(made.index(i), count=1)
    return made


@gluon.jit
def by_row(packed):
    """(128, 4) scales of a tile that lies packed as (1, 1, 1, 2, 256)."""
    return packed.reshape((1, 1, 32, 4, 4)).permute((0, 3, 2, 1, 4)).reshape((128, 4))


@gluon.jit
def multiply(a, b, a_scales, b_scales, out, turns, last, RING: gl.constexpr, GUARDED: gl.constexpr, LAYOUT: gl.constexpr):
    """out (128, 128) = a @ b transposed over RING * (turns - 1) + last blocks of K."""
    BLOCK_K: gl.constexpr = a.block_shape[1]
    a_ring, b_ring, by_a_ring, by_b_ring = ring_of(a, RING), ring_of(b, RING), ring_of(a_scales, RING), ring_of(b_scales, RING)
    loaded, done = barriers_of(RING), barriers_of(RING)
    total = allocate_tensor_memory(gl.float32, [128, 128], TensorMemoryLayout([128, 128], col_stride=1))  # (128, 128)
    by_a = allocate_tensor_memory(gl.uint8, [128, 4], TensorMemoryScalesLayout())  # (128, 4)
    by_b = allocate_tensor_memory(gl.uint8, [128, 4], TensorMemoryScalesLayout())  # (128, 4)
    for turn in range(turns):
        blocks = RING if turn + 1 < turns else last
        for i in gl.static_range(RING):
            there, block = i < blocks, turn * RING + i
            arrived = loaded.index(i)
            mbarrier.expect(arrived, a.nbytes_per_cta + b.nbytes_per_cta + a_scales.nbytes_per_cta + b_scales.nbytes_per_cta, there)
            tma.async_load(a, [0, block * BLOCK_K], arrived, a_ring.index(i), there)
            tma.async_load(b, [0, block * BLOCK_K], arrived, b_ring.index(i), there)
            tma.async_load(a_scales, [0, 0, block, 0, 0], arrived, by_a_ring.index(i), there)
            tma.async_load(b_scales, [0, 0, block, 0, 0], arrived, by_b_ring.index(i), there)
        for i in gl.static_range(RING):
            there = i < blocks
            mbarrier.wait(loaded.index(i), turn & 1, there)
            if there or not GUARDED:
                tcgen05_copy(by_row(by_a_ring.index(i)), by_a)
                tcgen05_copy(by_row(by_b_ring.index(i)), by_b)
            tcgen05_mma_scaled(a_ring.index(i), b_ring.index(i).permute((1, 0)), total, by_a, by_b, "e4m3", "e4m3",
                               use_acc=turn + i > 0, pred=there)  # fmt: skip
            tcgen05_commit(done.index(i), there)
        for i in gl.static_range(RING):
            mbarrier.wait(done.index(i), turn & 1, i < blocks)
    for i in gl.static_range(RING):
        mbarrier.invalidate(loaded.index(i))
        mbarrier.invalidate(done.index(i))
    tile = gl.convert_layout(total.load(), LAYOUT)  # (128, 128)
    row = gl.arange(0, 128, gl.SliceLayout(1, LAYOUT))[:, None]
    column = gl.arange(0, 128, gl.SliceLayout(0, LAYOUT))[None, :]
    gl.store(out + row * 128 + column, tile)


def product(turns: int, last: int, *, guarded: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """(got, expected) of small integers, every scale 1. Raises what the launch raises."""
    blocks, draw = RING * (turns - 1) + last, torch.Generator().manual_seed(0)
    a, b = (torch.randint(-3, 4, (BLOCK, blocks * BLOCK_K), generator=draw).float() for _ in range(2))
    swizzled = gl.NVMMASharedLayout.get_default_for([BLOCK, BLOCK_K], gl.float8e4nv)
    plain = gl.NVMMASharedLayout(swizzle_byte_width=0, element_bitwidth=8, rank=5)
    tiles = [TensorDescriptor.from_tensor(each.to(torch.float8_e4m3fn), [BLOCK, BLOCK_K], swizzled) for each in (a, b)]
    scales = torch.full((1, 1, blocks, 2, 256), 127, dtype=torch.uint8)
    packed = [TensorDescriptor.from_tensor(scales.clone(), [1, 1, 1, 2, 256], plain) for _ in range(2)]
    out = torch.empty(BLOCK, BLOCK)
    layout = gl.BlockedLayout([1, 4], [1, 32], [4, 1], [1, 0])
    multiply[(1,)](*tiles, *packed, out, turns, last, RING=RING, GUARDED=guarded, LAYOUT=layout, num_warps=4)
    return out, a @ b.T

"""C = convert(A B), with loads, multiplications and the way out in partitions of warps of their own.

    C[i, j] = convert(sum over k of A[i, k] * B[k, j])      A: (M, K); B: (K, N), or its transpose (N, K); C: (M, N) in A's type

A program takes one tile of C after another. Its partitions share two rings, and none waits for a whole tile of another:

    load, 1 warp      a buffer is empty?   expect its bytes, load A and B into it                       -> full
    multiply, 1 warp  a buffer is full?    multiply it into the tile's accumulator, commit               -> empty
                      an accumulator is free?  before the tile's first product; after its last, commit   -> ready
    store, the rest   an accumulator is ready?  load it                                                  -> free
                      convert, and send the tile by TMA while the next one is multiplied

Which tiles a program takes, and in which order, is `Config.schedule`. "grouped" takes them in groups of rows, "row-major" in groups
of one row. "one tile" launches a program for each tile.

Preconditions, and what each costs when broken:

- Those of `blocked_matmul` on rows, tiles and tensor memory, the last for as many accumulators as there are.
- A barrier's phase belongs to a ring's turn: use i of a ring of S has phase (i / S) mod 2. A ring that starts empty is waited for
  with the other phase first. Steps are counted over all tiles: a count that restarts at a tile has the wrong phase there.
- The store partition frees an accumulator after its load, and never before: the next tile's products would replace what it reads.
- The tile's first product ignores the accumulator, which holds the sums of an earlier tile.
- The tile on its way out is overwritten only once TMA has read it. A proxy fence stands between the store to it and TMA.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    fence_async_shared,
    mbarrier,
    tcgen05_commit,
    tcgen05_mma,
    tma,
)

from bitverdict.kernels import tensor_memory
from bitverdict.kernels.blocked_matmul import DTYPES, SHARED_LIMIT, TILE_CLAUSES, Problem, make_descriptor, matrices, problem_of
from bitverdict.kernels.clauses import Clause, require
from bitverdict.kernels.descriptor_rules import (
    base_clause,
    capacity_clause,
    dtype_clause,
    positive_clause,
    require_bases,
    store_target,
    stride_clause,
)
from bitverdict.kernels.element_types import bits_of
from bitverdict.kernels.features import Feature
from bitverdict.kernels.tile_scheduler import SCHEDULES, GroupedTiles, grid_of, group_of, schedule_clauses

REQUIRES = frozenset({Feature.TCGEN05, Feature.TENSOR_MEMORY, Feature.TMA, Feature.MBARRIER})


@dataclass(frozen=True, kw_only=True)
class Config:
    """The tile, the K elements of one buffer, buffers, accumulators, warps of the store partition, the order of tiles, programs of
    the persistent grid (0: one a multiprocessor)."""

    block_m: int = 128
    block_n: int = 128
    block_k: int = 64
    stages: int = 4
    accumulators: int = 2
    num_warps: int = 4
    schedule: str = SCHEDULES[0]
    group_size_m: int = 8
    programs: int = 0


def allocations(problem: object, config: Any) -> list[tensor_memory.Allocation]:
    tile = config.block_m, config.block_n, config.block_m, config.block_n, 32
    return [tensor_memory.Allocation(f"accumulator {place}", *tile) for place in range(config.accumulators)]


def shared_bytes(problem: Problem, config: Config) -> int:
    """The ring of A and B and, beside it, the tile on its way out."""
    elements = config.stages * (config.block_m + config.block_n) * config.block_k + config.block_m * config.block_n
    return elements * bits_of(problem.dtype) // 8 + 16 * (config.stages + config.accumulators) + 256


def ring_clause() -> Clause:
    """The rule of `stages` and `accumulators` of a configuration."""
    return Clause(
        name="rings",
        holds=lambda p, c: c.stages >= 1 and c.accumulators >= 1,
        value=lambda p, c: f"stages = {c.stages}, accumulators = {c.accumulators}",
        rule="at least one buffer and one accumulator",
        remedy="take stages=4, accumulators=2",
        cost="nothing is ever loaded, or nothing is multiplied into",
    )


CLAUSES = (
    dtype_clause(DTYPES, "tcgen05.mma has no kind for it with an fp32 accumulator"),
    positive_clause("m", "n", "k"),
    *TILE_CLAUSES,
    ring_clause(),
    *tensor_memory.clauses(allocations),
    *schedule_clauses(),
    capacity_clause(
        shared_bytes, SHARED_LIMIT, "the ring and the tile on its way out fit", "take fewer stages or a smaller block_k"
    ),
    stride_clause(matrices),
    base_clause(matrices),
)


@gluon.jit
def load_partition(tiles, a_matrix, b_matrix, a_ring, b_ring, full, empty, blocks, TRANSPOSE_B: gl.constexpr):
    """Fills the ring with the K blocks of each tile, one after another."""
    STAGES: gl.constexpr = a_ring.shape[0]
    BLOCK_M: gl.constexpr = a_matrix.block_shape[0]
    BLOCK_K: gl.constexpr = a_matrix.block_shape[1]
    BLOCK_N: gl.constexpr = b_matrix.block_shape[0 if TRANSPOSE_B else 1]
    step = 0  # K blocks so far, over all tiles
    for turn in range(tiles.count()):
        tile_m, tile_n = tiles.tile(turn)
        for block in range(blocks):
            stage = step % STAGES
            mbarrier.wait(empty.index(stage), step // STAGES & 1 ^ 1)  # the first turn of the ring waits for nobody
            mbarrier.expect(full.index(stage), a_matrix.nbytes_per_cta + b_matrix.nbytes_per_cta)
            tma.async_load(a_matrix, [tile_m * BLOCK_M, block * BLOCK_K], full.index(stage), a_ring.index(stage))
            if TRANSPOSE_B:
                tma.async_load(b_matrix, [tile_n * BLOCK_N, block * BLOCK_K], full.index(stage), b_ring.index(stage))
            else:
                tma.async_load(b_matrix, [block * BLOCK_K, tile_n * BLOCK_N], full.index(stage), b_ring.index(stage))
            step += 1


@gluon.jit
def multiply_partition(tiles, a_ring, b_ring, sums, full, empty, ready_barriers, free, blocks, TRANSPOSE_B: gl.constexpr):
    """Multiplies full buffers into the accumulators, which it takes in turns."""
    STAGES: gl.constexpr = a_ring.shape[0]
    ACCUMULATORS: gl.constexpr = sums.shape[0]
    step = 0  # K blocks so far, over all tiles
    for turn in range(tiles.count()):
        slot = turn % ACCUMULATORS
        mbarrier.wait(free.index(slot), turn // ACCUMULATORS & 1 ^ 1)
        for block in range(blocks):
            stage = step % STAGES
            mbarrier.wait(full.index(stage), step // STAGES & 1)
            if TRANSPOSE_B:
                b = b_ring.index(stage).permute((1, 0))  # (BLOCK_K, BLOCK_N): a view
            else:
                b = b_ring.index(stage)
            tcgen05_mma(a_ring.index(stage), b, sums.index(slot), use_acc=block > 0)
            tcgen05_commit(empty.index(stage))
            step += 1
        tcgen05_commit(ready_barriers.index(slot))


@gluon.jit
def store_partition(tiles, c_matrix, c_tile, sums, ready_barriers, free):
    """Converts each tile's sums and sends them to C."""
    ACCUMULATORS: gl.constexpr = sums.shape[0]
    BLOCK_M: gl.constexpr = c_matrix.block_shape[0]
    BLOCK_N: gl.constexpr = c_matrix.block_shape[1]
    for turn in range(tiles.count()):
        tile_m, tile_n = tiles.tile(turn)
        held = turn % ACCUMULATORS
        mbarrier.wait(ready_barriers.index(held), turn // ACCUMULATORS & 1)
        result = sums.index(held).load().to(c_matrix.dtype)  # (BLOCK_M, BLOCK_N)
        mbarrier.arrive(free.index(held), count=1)
        tma.store_wait(pendings=0)  # TMA has read the tile before this one
        c_tile.store(result)
        fence_async_shared()
        tma.async_store(c_matrix, [tile_m * BLOCK_M, tile_n * BLOCK_N], c_tile)
    tma.store_wait(pendings=0)


@gluon.jit
def barriers(COUNT: gl.constexpr):
    """(COUNT, 1) mbarriers of one arrival a phase."""
    made = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for place in gl.static_range(COUNT):
        mbarrier.init(made.index(place), count=1)
    return made


@gluon.jit
def warp_specialized_matmul_kernel(
    a_matrix,
    b_matrix,
    c_matrix,
    TRANSPOSE_B: gl.constexpr,
    STAGES: gl.constexpr,
    ACCUMULATORS: gl.constexpr,
    GROUP_M: gl.constexpr,
):
    BLOCK_M: gl.constexpr = c_matrix.block_shape[0]
    BLOCK_N: gl.constexpr = c_matrix.block_shape[1]
    a_ring = gl.allocate_shared_memory(
        a_matrix.dtype, [STAGES] + a_matrix.block_shape, a_matrix.layout
    )  # (STAGES, BLOCK_M, BLOCK_K)
    b_ring = gl.allocate_shared_memory(
        b_matrix.dtype, [STAGES] + b_matrix.block_shape, b_matrix.layout
    )  # (STAGES, BLOCK_K, BLOCK_N) or transposed
    c_tile = gl.allocate_shared_memory(c_matrix.dtype, c_matrix.block_shape, c_matrix.layout)  # (BLOCK_M, BLOCK_N)
    cells: gl.constexpr = TensorMemoryLayout([BLOCK_M, BLOCK_N], col_stride=1)
    sums = allocate_tensor_memory(gl.float32, [ACCUMULATORS, BLOCK_M, BLOCK_N], cells)  # (ACCUMULATORS, BLOCK_M, BLOCK_N)
    full = barriers(STAGES)
    empty = barriers(STAGES)
    ready_barriers = barriers(ACCUMULATORS)
    free = barriers(ACCUMULATORS)
    tiles = GroupedTiles.of_program(c_matrix.shape[0], c_matrix.shape[1], BLOCK_M, BLOCK_N, GROUP_M)
    blocks = gl.cdiv(a_matrix.shape[1], a_matrix.block_shape[1])
    gl.warp_specialize(
        [
            (store_partition, (tiles, c_matrix, c_tile, sums, ready_barriers, free)),
            (load_partition, (tiles, a_matrix, b_matrix, a_ring, b_ring, full, empty, blocks, TRANSPOSE_B)),
            (multiply_partition, (tiles, a_ring, b_ring, sums, full, empty, ready_barriers, free, blocks, TRANSPOSE_B)),
        ],
        [1, 1],
        [24, 24],
    )


def warp_specialized_matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    *,
    block_m: int = 128,
    block_n: int = 128,
    block_k: int = 64,
    transpose_b: bool = False,
    stages: int = 4,
    accumulators: int = 2,
    num_warps: int = 4,
    schedule: str = SCHEDULES[0],
    group_size_m: int = 8,
    programs: int = 0,
) -> torch.Tensor:
    """Writes convert(A B) into `c` (M, N) on the operands' device and returns it. A (M, K); B (K, N), or (N, K) with `transpose_b`.

    ValueError names the broken clause with its value, rule and remedy.
    """
    problem = problem_of("warp_specialized_matmul", a, b, c, transpose_b=transpose_b)
    config = Config(
        block_m=block_m,
        block_n=block_n,
        block_k=block_k,
        stages=stages,
        accumulators=accumulators,
        num_warps=num_warps,
        schedule=schedule,
        group_size_m=group_size_m,
        programs=programs,
    )
    require("warp_specialized_matmul", CLAUSES, problem, config)
    target = store_target(c)
    require_bases("warp_specialized_matmul", B=b, C=target)
    tiles = triton.cdiv(problem.m, block_m) * triton.cdiv(problem.n, block_n)
    warp_specialized_matmul_kernel[grid_of(schedule, tiles, programs)](
        make_descriptor(a, [block_m, block_k]),
        make_descriptor(b, [block_n, block_k] if transpose_b else [block_k, block_n]),
        make_descriptor(target, [block_m, block_n]),
        transpose_b,
        stages,
        accumulators,
        group_of(schedule, group_size_m),
        num_warps=num_warps,
    )
    return c if target is c else c.copy_(target[:, : problem.n])

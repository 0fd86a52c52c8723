"""out[scatter] = convert(X[gather] W), with gathers, multiplications and scatters in partitions of warps of their own.

    out[scatter[i], j] = convert(sum over k of X[gather[i], k] * W[k, j])       i < L
    X: (R, K); W: (K, N); gather, scatter: (L,) int32; out: (O, N) in X's type

The partitions and their rings are those of `warp_specialized_matmul`. Row numbers make two of them different:

    load, several warps   the tile's row numbers, once a tile; then for each K block a gather of X and a load of W    -> full
    multiply, 1 warp      as there
    store, the rest       the tile's other row numbers; then a scatter of the converted sums

A gather is an instruction of one warp for four rows. A warp alone issues 32 of them for 128 rows, and holds 128 row numbers in
registers. So the load partition has more warps than one: they divide the rows.

Preconditions, and what each costs when broken:

- Those of `fused_gather_scatter_matmul` on row numbers. A gathered one outside X gives zeros. A scattered one past `out` is
  ignored, a negative one is an illegal instruction.
- Row numbers of a ragged last tile are loaded under a mask. The missing ones are -1 for the gather, and the number of rows of `out`
  for the scatter.
- Those of `warp_specialized_matmul` on phases, accumulators and the tile on its way out, which the scatter reads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    fence_async_shared,
    mbarrier,
    tma,
)

from bitverdict.kernels import tensor_memory
from bitverdict.kernels.blocked_matmul import SHARED_LIMIT, TILE_CLAUSES, make_descriptor
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
from bitverdict.kernels.fused_gather_scatter_matmul import DTYPES, REQUIRES, Problem, matrices, problem_of, row_numbers
from bitverdict.kernels.tile_scheduler import SCHEDULES, GroupedTiles, grid_of, group_of, schedule_clauses
from bitverdict.kernels.tma_gather import described_rows
from bitverdict.kernels.warp_specialized_matmul import allocations, barriers, multiply_partition, ring_clause

__all__ = ["DTYPES", "REQUIRES", "Config", "Problem", "warp_specialized_gather_scatter_matmul"]


@dataclass(frozen=True, kw_only=True)
class Config:
    """The tile, K of one buffer, buffers, accumulators, warps of the store and of the load partition, the order of tiles, programs
    of the persistent grid (0: one a multiprocessor)."""

    block_m: int = 128
    block_n: int = 128
    block_k: int = 64
    stages: int = 3
    accumulators: int = 2
    num_warps: int = 4
    load_warps: int = 4
    schedule: str = SCHEDULES[0]
    group_size_m: int = 8
    programs: int = 0


def shared_bytes(problem: Problem, config: Config) -> int:
    """The ring of X and W and, beside it, the tile on its way out."""
    elements = config.stages * (config.block_m + config.block_n) * config.block_k + config.block_m * config.block_n
    return elements * bits_of(problem.dtype) // 8 + 16 * (config.stages + config.accumulators) + 256


CLAUSES = (
    dtype_clause(DTYPES, "tcgen05.mma has no kind for it with an fp32 accumulator"),
    positive_clause("table_rows", "rows", "out_rows", "n", "k"),
    *TILE_CLAUSES,
    ring_clause(),
    Clause(
        name="load warps",
        holds=lambda p, c: c.load_warps in (1, 2, 4),
        value=lambda p, c: f"load_warps = {c.load_warps}",
        rule="1, 2 or 4 warps load",
        remedy="take load_warps=4",
        cost="a partition has a power of two of warps, and the program's registers must do for all",
        layer="verifier",
    ),
    *tensor_memory.clauses(allocations),
    *schedule_clauses(),
    capacity_clause(
        shared_bytes, SHARED_LIMIT, "the ring and the tile on its way out fit", "take fewer stages or a smaller block_k"
    ),
    stride_clause(matrices),
    base_clause(matrices),
)


@gluon.jit
def load_partition(tiles, x, w, gather, rows, x_ring, w_ring, full, empty, blocks):
    """Fills the ring with the K blocks of each tile: rows of X by number, and W."""
    STAGES: gl.constexpr = x_ring.shape[0]
    BLOCK_M: gl.constexpr = x_ring.shape[1]
    BLOCK_K: gl.constexpr = w.block_shape[0]
    BLOCK_N: gl.constexpr = w.block_shape[1]
    step = 0  # K blocks so far, over all tiles
    for turn in range(tiles.count()):
        tile_m, tile_n = tiles.tile(turn)
        numbers = row_numbers(gather, tile_m * BLOCK_M, rows, -1, BLOCK_M)  # (BLOCK_M,)
        for block in range(blocks):
            stage = step % STAGES
            mbarrier.wait(empty.index(stage), step // STAGES & 1 ^ 1)  # the first turn of the ring waits for nobody
            mbarrier.expect(full.index(stage), BLOCK_M * x.nbytes_per_cta + w.nbytes_per_cta)
            tma.async_gather(x, numbers, block * BLOCK_K, full.index(stage), x_ring.index(stage))
            tma.async_load(w, [block * BLOCK_K, tile_n * BLOCK_N], full.index(stage), w_ring.index(stage))
            step += 1


@gluon.jit
def store_partition(tiles, out, scatter, rows, out_tile, sums, ready_barriers, free):
    """Converts each tile's sums and scatters them to the rows of `out` that the row numbers name."""
    ACCUMULATORS: gl.constexpr = sums.shape[0]
    BLOCK_M: gl.constexpr = sums.shape[1]
    BLOCK_N: gl.constexpr = sums.shape[2]
    for turn in range(tiles.count()):
        tile_m, tile_n = tiles.tile(turn)
        targets = row_numbers(scatter, tile_m * BLOCK_M, rows, out.shape[0], BLOCK_M)  # (BLOCK_M,); past the last: ignored
        held = turn % ACCUMULATORS
        mbarrier.wait(ready_barriers.index(held), turn // ACCUMULATORS & 1)
        result = sums.index(held).load().to(out.dtype)  # (BLOCK_M, BLOCK_N)
        mbarrier.arrive(free.index(held), count=1)
        tma.store_wait(pendings=0)  # the scatter of the tile before has read this buffer
        out_tile.store(result)
        fence_async_shared()
        tma.async_scatter(out, targets, tile_n * BLOCK_N, out_tile)
    tma.store_wait(pendings=0)


@gluon.jit(do_not_specialize=["rows"])  # one row would be a constant, and no program for it
def warp_specialized_gather_scatter_matmul_kernel(
    x,
    w,
    out,
    gather,
    scatter,
    rows,
    BLOCK_M: gl.constexpr,
    STAGES: gl.constexpr,
    ACCUMULATORS: gl.constexpr,
    GROUP_M: gl.constexpr,
    LOAD_WARPS: gl.constexpr,
    LOAD_REGISTERS: gl.constexpr,
):
    BLOCK_K: gl.constexpr = w.block_shape[0]
    BLOCK_N: gl.constexpr = w.block_shape[1]
    x_ring = gl.allocate_shared_memory(x.dtype, [STAGES, BLOCK_M, BLOCK_K], x.layout)  # (STAGES, BLOCK_M, BLOCK_K)
    w_ring = gl.allocate_shared_memory(w.dtype, [STAGES, BLOCK_K, BLOCK_N], w.layout)  # (STAGES, BLOCK_K, BLOCK_N)
    out_tile = gl.allocate_shared_memory(out.dtype, [BLOCK_M, BLOCK_N], out.layout)  # (BLOCK_M, BLOCK_N)
    cells: gl.constexpr = TensorMemoryLayout([BLOCK_M, BLOCK_N], col_stride=1)
    sums = allocate_tensor_memory(gl.float32, [ACCUMULATORS, BLOCK_M, BLOCK_N], cells)  # (ACCUMULATORS, BLOCK_M, BLOCK_N)
    full = barriers(STAGES)
    empty = barriers(STAGES)
    ready_barriers = barriers(ACCUMULATORS)
    free = barriers(ACCUMULATORS)
    tiles = GroupedTiles.of_program(rows, w.shape[1], BLOCK_M, BLOCK_N, GROUP_M)
    blocks = gl.cdiv(x.shape[1], BLOCK_K)
    gl.warp_specialize(
        [
            (store_partition, (tiles, out, scatter, rows, out_tile, sums, ready_barriers, free)),
            (load_partition, (tiles, x, w, gather, rows, x_ring, w_ring, full, empty, blocks)),
            (multiply_partition, (tiles, x_ring, w_ring, sums, full, empty, ready_barriers, free, blocks, False)),
        ],
        [LOAD_WARPS, 1],
        [LOAD_REGISTERS, 24],
    )


def load_registers(config: Config) -> int:
    """Registers of a thread of the load partition: its warp's row numbers, which every lane holds, and 48 for all else."""
    return config.block_m // config.load_warps + 48


def warp_specialized_gather_scatter_matmul(
    x: torch.Tensor,
    gather: torch.Tensor,
    w: torch.Tensor,
    scatter: torch.Tensor,
    *,
    block_m: int = 128,
    block_n: int = 128,
    block_k: int = 64,
    stages: int = 3,
    accumulators: int = 2,
    num_warps: int = 4,
    load_warps: int = 4,
    schedule: str = SCHEDULES[0],
    group_size_m: int = 8,
    programs: int = 0,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """`out` with out[scatter] = convert(X[gather] W), on the operands' device. X (table_rows, K), W (K, N), gather and scatter
    (rows,) int32.

    `out` is allocated with as many rows as X when None; its rows that `scatter` does not name are then undefined. ValueError names
    the broken clause with its value, rule and remedy.
    """
    problem, out = problem_of("warp_specialized_gather_scatter_matmul", x, gather, w, scatter, out)
    config = Config(
        block_m=block_m,
        block_n=block_n,
        block_k=block_k,
        stages=stages,
        accumulators=accumulators,
        num_warps=num_warps,
        load_warps=load_warps,
        schedule=schedule,
        group_size_m=group_size_m,
        programs=programs,
    )
    require("warp_specialized_gather_scatter_matmul", CLAUSES, problem, config)
    target = store_target(out, keep=True)
    require_bases("warp_specialized_gather_scatter_matmul", W=w, out=target)
    tiles = triton.cdiv(problem.rows, block_m) * triton.cdiv(problem.n, block_n)
    warp_specialized_gather_scatter_matmul_kernel[grid_of(schedule, tiles, programs)](
        described_rows(x, block_m, block_k),
        make_descriptor(w, [block_k, block_n]),
        described_rows(target, block_m, block_n),
        gather,
        scatter,
        problem.rows,
        block_m,
        stages,
        accumulators,
        group_of(schedule, group_size_m),
        load_warps,
        load_registers(config),
        num_warps=num_warps,
    )
    return out if target is out else out.copy_(target[:, : problem.n])

"""out[scatter] = convert(X[gather] W), by pointers: rows come by cp.async or ordinary loads, and leave by ordinary stores.

    out[scatter[i], j] = convert(sum over k of X[gather[i], k] * W[k, j])       i < L
    X: (R, K); W: (K, N); gather, scatter: (L,) int32; out: (O, N) in X's type

It is `fused_gather_scatter_matmul` without TMA, on instructions that Ampere has: mma.sync on a ring of buffers. `loads` says how a
K block of X and W gets there:

- async_copy: cp.async, STAGES blocks ahead; the ring and its drain rule are those of `ampere_gemm`.
- gl.load: through registers. Nothing is in flight from one block to the next.

A row number costs what TMA does by itself: a 64-bit address and two comparisons a row.

Preconditions, and what each costs when broken:

- A gathered number outside X (negative too) gives a row of zeros. A scattered one outside `out`, negative too, is ignored: an
  ordinary store has no fault of its own, so both ends are masked.
- No two scattered numbers inside `out` are equal. TMA leaves one row or the other; here two threads store to one address, and a row
  may be a mix of both. That is a race, and nobody notices.
- Rows of `out` that no number names keep what they held. What follows a row stays: a store moves elements, not units of 16 bytes.
- Rows of X and W start on 16-byte boundaries, because a cp.async moves 16 bytes. Refused by the launcher.
- K may be ragged. The K elements after the last whole block go through registers: a 16-byte copy across the end of a row would
  bring in what lies behind it. N may be ragged too: where it is no multiple of 8, all of W goes through registers.
- A barrier stands between the last read of a buffer and the copy that refills it, also from one tile to the next.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2

from bitverdict.kernels import ampere_gemm
from bitverdict.kernels.ampere_gemm import COPY_ELEMENTS, accumulator_layout, copy_layout, swizzled_layout
from bitverdict.kernels.clauses import Clause, require
from bitverdict.kernels.descriptor_rules import (
    Matrix,
    base_clause,
    capacity_clause,
    dtype_clause,
    positive_clause,
    require_bases,
    stride_clause,
)
from bitverdict.kernels.features import Feature
from bitverdict.kernels.fused_gather_scatter_matmul import Problem, problem_of
from bitverdict.kernels.tile_scheduler import GROUP_CLAUSE, GroupedTiles, grid_of

__all__ = ["DTYPES", "REQUIRES", "Config", "Problem", "pointer_gather_scatter_matmul"]
REQUIRES = frozenset({Feature.CP_ASYNC, Feature.MMA_SYNC})
DTYPES = ("bf16", "fp16")
LOADS = ("async_copy", "gl.load")
CHUNK = gl.constexpr(COPY_ELEMENTS)
SHARED_LIMIT = ampere_gemm.SHARED_LIMIT


@dataclass(frozen=True, kw_only=True)
class Config:
    """The tile of one turn, K of one buffer, rows of tiles in a group, buffers, warps, how blocks are loaded, programs (0: one a
    tile)."""

    block_m: int = 128
    block_n: int = 128
    block_k: int = 32
    group_size_m: int = 8
    stages: int = 3
    num_warps: int = 8
    loads: str = LOADS[0]
    programs: int = 0


def matrices(problem: Problem, config: Config) -> list[Matrix]:
    p = problem
    return [Matrix("X", p.dtype, p.table_rows, p.k, p.k + p.x_pad, p.x_offset), Matrix("W", p.dtype, p.k, p.n, p.n + p.w_pad, 0)]


def shared_bytes(config: Config) -> int:
    return config.stages * (config.block_m + config.block_n) * config.block_k * 2


CLAUSES = (
    dtype_clause(DTYPES, "mma.sync.m16n8k16 is not an instruction for it"),
    positive_clause("table_rows", "rows", "out_rows", "n", "k"),
    *(clause for clause in ampere_gemm.CLAUSES if clause.name in ("powers of two", "at least one instruction", "stages", "warps")),
    Clause(
        name="loads",
        holds=lambda p, c: c.loads in LOADS,
        value=lambda p, c: f"loads = {c.loads}",
        rule=f"blocks come by one of {', '.join(LOADS)}",
        remedy=f"take {LOADS[0]}",
        cost="nothing is ever loaded",
    ),
    GROUP_CLAUSE,
    capacity_clause(lambda p, c: shared_bytes(c), SHARED_LIMIT, "the ring fits", "take fewer stages or a smaller block_k"),
    stride_clause(matrices),
    base_clause(matrices),
)


@gluon.jit
def row_numbers(numbers, first, count, layout: gl.constexpr, BLOCK_M: gl.constexpr):
    """(BLOCK_M,) row numbers from `first` on, -1 past the last."""
    places = first + gl.arange(0, BLOCK_M, gl.SliceLayout(1, layout))  # (BLOCK_M,)
    return gl.load(numbers + places, mask=places < count, other=-1)


@gluon.jit
def load_x(x, chunks_in_row, numbers, table_rows, k, columns, buffer, WHOLE_BLOCK: gl.constexpr, USE_CP_ASYNC: gl.constexpr):
    """K elements of the rows `numbers` into `buffer` (BLOCK_M, BLOCK_K), zeros where there is none: of a `WHOLE_BLOCK` of K by
    cp.async where `USE_CP_ASYNC`, else through registers."""
    BLOCK_K: gl.constexpr = buffer.shape[1]
    layout: gl.constexpr = copy_layout(BLOCK_K, gl.num_warps(), CHUNK)
    column = k + gl.arange(0, BLOCK_K, gl.SliceLayout(0, layout))  # (BLOCK_K,)
    # Strides come in chunks of 8 elements: the compiler then knows that every row starts on 16 bytes.
    places = x + numbers.to(gl.int64)[:, None] * (chunks_in_row * CHUNK) + column[None, :]  # (BLOCK_M, BLOCK_K)
    there = (numbers >= 0) & (numbers < table_rows)  # (BLOCK_M,)
    wanted = there[:, None] if WHOLE_BLOCK else there[:, None] & (column < columns)[None, :]  # (BLOCK_M, BLOCK_K)
    if WHOLE_BLOCK and USE_CP_ASYNC:
        async_copy.async_load(buffer, places, mask=wanted)
    else:
        buffer.store(gl.load(places, mask=wanted, other=0.0))


@gluon.jit
def load_w(w, chunks_in_row, k, rows, first_column, columns, buffer, WHOLE_BLOCK: gl.constexpr, USE_CP_ASYNC: gl.constexpr):
    """W from (k, first_column) on into `buffer` (BLOCK_K, BLOCK_N), zeros outside: of a `WHOLE_BLOCK` of K, and a multiple of 8
    columns, by cp.async where `USE_CP_ASYNC`, else through registers."""
    BLOCK_K: gl.constexpr = buffer.shape[0]
    BLOCK_N: gl.constexpr = buffer.shape[1]
    layout: gl.constexpr = copy_layout(BLOCK_N, gl.num_warps(), CHUNK)
    row = k + gl.arange(0, BLOCK_K, gl.SliceLayout(1, layout))  # (BLOCK_K,)
    column = first_column + gl.arange(0, BLOCK_N, gl.SliceLayout(0, layout))  # (BLOCK_N,)
    places = w + row.to(gl.int64)[:, None] * (chunks_in_row * CHUNK) + column[None, :]  # (BLOCK_K, BLOCK_N)
    if WHOLE_BLOCK:  # by chunks, as it is moved
        mask = (column // CHUNK < columns // CHUNK)[None, :]  # (1, BLOCK_N)
    else:
        mask = (row < rows)[:, None] & (column < columns)[None, :]  # (BLOCK_K, BLOCK_N)
    if WHOLE_BLOCK and USE_CP_ASYNC:
        async_copy.async_load(buffer, places, mask=mask)
    else:
        buffer.store(gl.load(places, mask=mask, other=0.0))


@gluon.jit
def multiply_buffers(x_buffer, w_buffer, sums):
    """sums + X W of one buffer: (BLOCK_M, BLOCK_K) by (BLOCK_K, BLOCK_N)."""
    left: gl.constexpr = gl.DotOperandLayout(0, sums.type.layout, 2)
    right: gl.constexpr = gl.DotOperandLayout(1, sums.type.layout, 2)
    return mma_v2(x_buffer.load(left), w_buffer.load(right), sums)


@gluon.jit(do_not_specialize=["table_rows", "rows", "out_rows", "n", "k", "x_chunks", "w_chunks"])  # nothing would be faster
def pointer_gather_scatter_matmul_kernel(
    x,
    w,
    out,
    gather,
    scatter,
    table_rows,
    rows,
    out_rows,
    n,
    k,
    x_chunks,
    w_chunks,
    out_stride,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr,
    STAGES: gl.constexpr,
    CHUNKS_OF_N: gl.constexpr,
    USE_CP_ASYNC: gl.constexpr,
):
    x_ring = gl.allocate_shared_memory(
        x.dtype.element_ty, [STAGES, BLOCK_M, BLOCK_K], swizzled_layout(BLOCK_K, CHUNK)
    )  # (STAGES, BLOCK_M, BLOCK_K)
    w_ring = gl.allocate_shared_memory(
        w.dtype.element_ty, [STAGES, BLOCK_K, BLOCK_N], swizzled_layout(BLOCK_N, CHUNK)
    )  # (STAGES, BLOCK_K, BLOCK_N)
    in_registers: gl.constexpr = accumulator_layout(BLOCK_M, gl.num_warps())
    by_rows: gl.constexpr = copy_layout(BLOCK_K, gl.num_warps(), CHUNK)
    tiles = GroupedTiles.of_program(rows, n, BLOCK_M, BLOCK_N, GROUP_M)
    blocks = k // BLOCK_K  # whole ones

    for turn in range(tiles.count()):
        tile_m, tile_n = tiles.tile(turn)
        column = tile_n * BLOCK_N
        numbers = row_numbers(gather, tile_m * BLOCK_M, rows, by_rows, BLOCK_M)  # (BLOCK_M,)
        sums = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, in_registers)  # (BLOCK_M, BLOCK_N)
        for first in gl.static_range(STAGES):
            if first < blocks:
                load_x(x, x_chunks, numbers, table_rows, first * BLOCK_K, k, x_ring.index(first), True, USE_CP_ASYNC)
                load_w(w, w_chunks, first * BLOCK_K, k, column, n, w_ring.index(first), CHUNKS_OF_N, USE_CP_ASYNC)
                async_copy.commit_group()

        for block in range(blocks - STAGES):
            async_copy.wait_group(STAGES - 1)
            gl.barrier()
            stage = block % STAGES
            sums = multiply_buffers(x_ring.index(stage), w_ring.index(stage), sums)
            gl.barrier()
            later = (block + STAGES) * BLOCK_K
            load_x(x, x_chunks, numbers, table_rows, later, k, x_ring.index(stage), True, USE_CP_ASYNC)
            load_w(w, w_chunks, later, k, column, n, w_ring.index(stage), CHUNKS_OF_N, USE_CP_ASYNC)
            async_copy.commit_group()

        for consumed in gl.static_range(STAGES):
            left = blocks - STAGES + consumed
            if left >= 0:
                async_copy.wait_group(STAGES - 1 - consumed)  # the drain rule: the groups of the blocks after this one
                gl.barrier()
                sums = multiply_buffers(x_ring.index(left % STAGES), w_ring.index(left % STAGES), sums)

        if blocks * BLOCK_K < k:
            gl.barrier()
            load_x(x, x_chunks, numbers, table_rows, blocks * BLOCK_K, k, x_ring.index(0), False, USE_CP_ASYNC)
            load_w(w, w_chunks, blocks * BLOCK_K, k, column, n, w_ring.index(0), False, USE_CP_ASYNC)
            gl.barrier()
            sums = multiply_buffers(x_ring.index(0), w_ring.index(0), sums)

        targets = row_numbers(scatter, tile_m * BLOCK_M, rows, in_registers, BLOCK_M)  # (BLOCK_M,)
        columns = column + gl.arange(0, BLOCK_N, gl.SliceLayout(0, in_registers))  # (BLOCK_N,)
        places = out + targets.to(gl.int64)[:, None] * out_stride + columns[None, :]  # (BLOCK_M, BLOCK_N)
        there = (targets >= 0) & (targets < out_rows)  # (BLOCK_M,)
        inside = columns // CHUNK < n // CHUNK if CHUNKS_OF_N else columns < n  # (BLOCK_N,)
        gl.store(places, sums.to(out.dtype.element_ty), mask=there[:, None] & inside[None, :])
        gl.barrier()  # the next tile's first copies refill what this one has read


def pointer_gather_scatter_matmul(
    x: torch.Tensor,
    gather: torch.Tensor,
    w: torch.Tensor,
    scatter: torch.Tensor,
    *,
    block_m: int = 128,
    block_n: int = 128,
    block_k: int = 32,
    group_size_m: int = 8,
    stages: int = 3,
    num_warps: int = 8,
    loads: str = LOADS[0],
    programs: int = 0,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """`out` with out[scatter] = convert(X[gather] W), on the operands' device. X (table_rows, K), W (K, N), gather and scatter
    (rows,) int32; no two numbers of `scatter` inside `out` are equal.

    `out` is allocated with as many rows as X when None; its rows that `scatter` does not name are then undefined. ValueError names
    the broken clause with its value, rule and remedy.
    """
    problem, out = problem_of("pointer_gather_scatter_matmul", x, gather, w, scatter, out)
    config = Config(
        block_m=block_m,
        block_n=block_n,
        block_k=block_k,
        group_size_m=group_size_m,
        stages=stages,
        num_warps=num_warps,
        loads=loads,
        programs=programs,
    )
    require("pointer_gather_scatter_matmul", CLAUSES, problem, config)
    require_bases("pointer_gather_scatter_matmul", W=w)
    tiles = triton.cdiv(problem.rows, block_m) * triton.cdiv(problem.n, block_n)
    pointer_gather_scatter_matmul_kernel[grid_of("grouped" if programs else "one tile", tiles, programs)](
        x,
        w,
        out,
        gather,
        scatter,
        problem.table_rows,
        problem.rows,
        problem.out_rows,
        problem.n,
        problem.k,
        (problem.k + problem.x_pad) // COPY_ELEMENTS,
        (problem.n + problem.w_pad) // COPY_ELEMENTS,
        problem.n + problem.out_pad,
        block_m,
        block_n,
        block_k,
        group_size_m,
        stages,
        problem.n % COPY_ELEMENTS == 0,
        loads == "async_copy",
        num_warps=num_warps,
    )
    return out

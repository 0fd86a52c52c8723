"""out[scatter] = convert(X[gather] W): rows gathered on the way in and scattered on the way out, in persistent programs.

    out[scatter[i], j] = convert(sum over k of X[gather[i], k] * W[k, j])       i < L
    X: (R, K); W: (K, N); gather, scatter: (L,) int32; out: (O, N) in X's type

A program takes one tile of (BLOCK_M of the L rows) x (BLOCK_N columns) after another. Its loads run BUFFERS - 1 blocks of K ahead
of its multiplications, across the end of a tile: the first blocks of the next tile are on their way while this one is stored.

Preconditions, and what each costs when broken:

- L is the number of row numbers, not of rows of X: fewer, more and repeated ones are all legal. A gathered number outside X
  (negative too) gives a row of zeros; a scattered one past `out` is ignored; a negative one is an illegal instruction; two equal
  ones leave either row.
- Rows of `out` that no number names keep what they held.
- Row numbers of a ragged last tile are loaded under a mask, and no load at all is issued past the last tile: neither the row
  numbers, nor the blocks of X and W, nor the bytes that a barrier expects. A load left unpredicated would arrive after the program
  has ended, in shared memory that is someone else's by then.
- K may be ragged, and shorter than the blocks that are loaded ahead: columns outside are zeros, and a zero product changes no sum.
- A buffer is loaded again only when its multiplication is over: the load of block i + BUFFERS - 1 goes to the buffer of block i -
  1, after `settle` on that one.
- The scatter of a tile reads shared memory until the next tile is stored there: `store_wait` stands before that store, and a proxy
  fence after it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import fence_async_shared, mbarrier, tma

from bitverdict.kernels import tensor_memory
from bitverdict.kernels.blocked_matmul import TILE_CLAUSES, make_descriptor
from bitverdict.kernels.clauses import Clause, require
from bitverdict.kernels.descriptor_rules import (
    Matrix,
    base_clause,
    capacity_clause,
    dtype_clause,
    misalignment,
    positive_clause,
    require_bases,
    row_padding,
    same_place,
    same_type,
    store_target,
    stride_clause,
)
from bitverdict.kernels.element_types import bits_of
from bitverdict.kernels.features import Feature, shared_memory_of
from bitverdict.kernels.mma_wrapper import Accumulator
from bitverdict.kernels.offset_layout import offset_layout
from bitverdict.kernels.tile_scheduler import GROUP_CLAUSE, GroupedTiles, grid_of
from bitverdict.kernels.tma_gather import described_rows, row_offsets_of

REQUIRES = frozenset(
    {Feature.TMA_GATHER, Feature.TMA_SCATTER, Feature.TCGEN05, Feature.TENSOR_MEMORY, Feature.TMA, Feature.MBARRIER}
)
DTYPES = ("bf16", "fp16", "e4m3", "e5m2")
SHARED_LIMIT = shared_memory_of("sm_100")  # and of sm_90


@dataclass(frozen=True, kw_only=True)
class Problem:
    """X of (table_rows, k), W of (k, n), `rows` row numbers on either side, `out` of (out_rows, n)."""

    table_rows: int
    rows: int
    out_rows: int
    n: int
    k: int
    dtype: str = "bf16"
    x_pad: int = 0
    w_pad: int = 0
    out_pad: int = 0
    x_offset: int = 0  # elements past a 16-byte boundary


@dataclass(frozen=True, kw_only=True)
class Config:
    """The tile of one turn, K of one buffer, rows of tiles in a group, buffers, warps, programs (0: one a multiprocessor)."""

    block_m: int = 128
    block_n: int = 128
    block_k: int = 64
    group_size_m: int = 8
    num_buffers: int = 3
    num_warps: int = 4
    programs: int = 0


def matrices(problem: Problem, config: Config) -> list[Matrix]:
    p = problem
    return [
        Matrix("X", p.dtype, p.table_rows, p.k, p.k + p.x_pad, p.x_offset),
        Matrix("W", p.dtype, p.k, p.n, p.n + p.w_pad, 0),
        Matrix("out", p.dtype, p.out_rows, p.n, p.n + p.out_pad, 0),
    ]


def allocations(problem: Problem, config: Config) -> list[tensor_memory.Allocation]:
    return [tensor_memory.Allocation("accumulator", config.block_m, config.block_n, config.block_m, config.block_n, 32)]


def shared_bytes(problem: Problem, config: Config) -> int:
    """The buffers of X and W and, beside them, the tile on its way out."""
    elements = config.num_buffers * (config.block_m + config.block_n) * config.block_k + config.block_m * config.block_n
    return elements * bits_of(problem.dtype) // 8 + 128


CLAUSES = (
    dtype_clause(DTYPES, "tcgen05.mma has no kind for it with an fp32 accumulator"),
    positive_clause("table_rows", "rows", "out_rows", "n", "k"),
    *TILE_CLAUSES,
    *tensor_memory.clauses(allocations),
    Clause(
        name="buffers",
        holds=lambda p, c: c.num_buffers >= 2,
        value=lambda p, c: f"num_buffers = {c.num_buffers}",
        rule="at least 2: one is multiplied while the other is loaded",
        remedy="take num_buffers=2",
        cost="a buffer is overwritten while it is read",
    ),
    GROUP_CLAUSE,
    capacity_clause(
        shared_bytes, SHARED_LIMIT, "the buffers and the tile on its way out fit", "take fewer buffers or a smaller block_k"
    ),
    stride_clause(matrices),
    base_clause(matrices),
)


@gluon.jit
def row_numbers(numbers, first, count, missing, BLOCK_M: gl.constexpr):
    """(BLOCK_M,) row numbers from `first` on, `missing` past the last, where gather and scatter want them."""
    places = first + gl.arange(0, BLOCK_M, offset_layout(gl.num_warps()))  # (BLOCK_M,)
    return gl.load(numbers + places, mask=places < count, other=missing)


@gluon.jit
def load_block(x, w, gather, rows, row, column, k, step, load_barriers, x_ring, w_ring, predicate, BUFFERS: gl.constexpr):
    """Starts the loads of one K block of one tile into the buffer of `step`; nothing where `predicate` is false."""
    BLOCK_M: gl.constexpr = x_ring.shape[1]
    stage = step % BUFFERS
    numbers = row_numbers(gather, row, gl.where(predicate, rows, 0), -1, BLOCK_M)
    mbarrier.expect(load_barriers.index(stage), BLOCK_M * x.nbytes_per_cta + w.nbytes_per_cta, pred=predicate)
    tma.async_gather(x, numbers, k, load_barriers.index(stage), x_ring.index(stage), pred=predicate)
    tma.async_load(w, [k, column], load_barriers.index(stage), w_ring.index(stage), pred=predicate)


@gluon.jit(do_not_specialize=["rows"])  # one row would be a constant, and no program for it
def fused_gather_scatter_matmul_kernel(
    x, w, out, gather, scatter, rows, BLOCK_M: gl.constexpr, GROUP_M: gl.constexpr, BUFFERS: gl.constexpr
):
    BLOCK_K: gl.constexpr = w.block_shape[0]
    BLOCK_N: gl.constexpr = w.block_shape[1]
    x_ring = gl.allocate_shared_memory(x.dtype, [BUFFERS, BLOCK_M, BLOCK_K], x.layout)  # (BUFFERS, BLOCK_M, BLOCK_K)
    w_ring = gl.allocate_shared_memory(w.dtype, [BUFFERS, BLOCK_K, BLOCK_N], w.layout)  # (BUFFERS, BLOCK_K, BLOCK_N)
    out_tile = gl.allocate_shared_memory(out.dtype, [BLOCK_M, BLOCK_N], out.layout)  # (BLOCK_M, BLOCK_N)
    load_barriers = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(BUFFERS):
        mbarrier.init(load_barriers.index(stage), count=1)
    sums = Accumulator.of_tile(BLOCK_M, BLOCK_N)
    tiles = GroupedTiles.of_program(rows, w.shape[1], BLOCK_M, BLOCK_N, GROUP_M)
    count = tiles.count()
    LOOKAHEAD: gl.constexpr = BUFFERS - 1
    blocks = gl.maximum(gl.cdiv(x.shape[1], BLOCK_K), LOOKAHEAD)  # of one tile; those past K are all zeros

    tile_m, tile_n = tiles.tile(0)
    for depth in gl.static_range(LOOKAHEAD):
        load_block(
            x,
            w,
            gather,
            rows,
            tile_m * BLOCK_M,
            tile_n * BLOCK_N,
            depth * BLOCK_K,
            depth,
            load_barriers,
            x_ring,
            w_ring,
            True,
            BUFFERS,
        )

    step = 0  # blocks multiplied so far, over all tiles
    for turn in range(count):
        next_m, next_n = tiles.tile(turn + 1)
        for block in range(blocks):
            mbarrier.wait(load_barriers.index(step % BUFFERS), step // BUFFERS & 1)
            sums.settle()  # block step - 1 is over: its buffer is free
            sums = sums.multiply(x_ring.index(step % BUFFERS), w_ring.index(step % BUFFERS))
            in_this_tile = block + LOOKAHEAD < blocks
            load_m = gl.where(in_this_tile, tile_m, next_m)
            load_n = gl.where(in_this_tile, tile_n, next_n)
            load_k = gl.where(in_this_tile, block + LOOKAHEAD, block + LOOKAHEAD - blocks) * BLOCK_K
            load_block(
                x,
                w,
                gather,
                rows,
                load_m * BLOCK_M,
                load_n * BLOCK_N,
                load_k,
                step + LOOKAHEAD,
                load_barriers,
                x_ring,
                w_ring,
                in_this_tile | (turn + 1 < count),
                BUFFERS,
            )
            step += 1

        targets = row_numbers(scatter, tile_m * BLOCK_M, rows, out.shape[0], BLOCK_M)  # (BLOCK_M,); past the last: ignored
        sums.settle()
        result, sums = sums.read_sums()
        tma.store_wait(pendings=0)  # the scatter of the tile before has read this buffer
        out_tile.store(result.to(out.dtype))
        fence_async_shared()
        tma.async_scatter(out, targets, tile_n * BLOCK_N, out_tile)
        tile_m, tile_n = next_m, next_n
    tma.store_wait(pendings=0)


def problem_of(
    kernel: str, x: torch.Tensor, gather: torch.Tensor, w: torch.Tensor, scatter: torch.Tensor, out: torch.Tensor | None
) -> tuple[Problem, torch.Tensor]:
    """The `Problem` that these operands pose, and `out`, allocated where it is None. ValueError where they do not go together."""
    rows, targets = row_offsets_of(kernel, gather), row_offsets_of(kernel, scatter)
    if x.dim() != 2 or w.dim() != 2 or x.shape[1] != w.shape[0] or rows != targets:
        raise ValueError(
            f"{kernel}: shapes X {tuple(x.shape)}, W {tuple(w.shape)}, gather ({rows},), "
            f"scatter ({targets},): must be (R, K), (K, N) and two of one length; slice an operand"
        )
    out = torch.empty((x.shape[0], w.shape[1]), dtype=x.dtype, device=x.device) if out is None else out
    same_place(x, gather, w, scatter, out)
    if out.dim() != 2 or out.shape[1] != w.shape[1]:
        raise ValueError(f"{kernel}: out is {tuple(out.shape)}: must have {w.shape[1]} columns; allocate it so")
    problem = Problem(
        table_rows=x.shape[0],
        rows=rows,
        out_rows=out.shape[0],
        n=w.shape[1],
        k=x.shape[1],
        dtype=same_type(x, w, out),
        x_pad=row_padding(x),
        w_pad=row_padding(w),
        out_pad=row_padding(out),
        x_offset=misalignment(x),
    )
    return problem, out


def fused_gather_scatter_matmul(
    x: torch.Tensor,
    gather: torch.Tensor,
    w: torch.Tensor,
    scatter: torch.Tensor,
    block_m: int = 128,
    block_n: int = 128,
    block_k: int = 64,
    group_size_m: int = 8,
    num_buffers: int = 3,
    *,
    out: torch.Tensor | None = None,
    num_warps: int = 4,
    programs: int = 0,
) -> torch.Tensor:
    """`out` with out[scatter] = convert(X[gather] W), on the operands' device. X (table_rows, K), W (K, N), gather and scatter
    (rows,) int32.

    `out` is allocated with as many rows as X when None; its rows that `scatter` does not name are then undefined. `programs` limits
    the persistent grid (0: one a multiprocessor). ValueError names the broken clause with its value, rule and remedy.
    """
    problem, out = problem_of("fused_gather_scatter_matmul", x, gather, w, scatter, out)
    config = Config(
        block_m=block_m,
        block_n=block_n,
        block_k=block_k,
        group_size_m=group_size_m,
        num_buffers=num_buffers,
        num_warps=num_warps,
        programs=programs,
    )
    require("fused_gather_scatter_matmul", CLAUSES, problem, config)
    target = store_target(out, keep=True)
    require_bases("fused_gather_scatter_matmul", W=w, out=target)
    tiles = triton.cdiv(problem.rows, block_m) * triton.cdiv(problem.n, block_n)
    fused_gather_scatter_matmul_kernel[grid_of("grouped", tiles, programs)](
        described_rows(x, block_m, block_k),
        make_descriptor(w, [block_k, block_n]),
        described_rows(target, block_m, block_n),
        gather,
        scatter,
        problem.rows,
        block_m,
        group_size_m,
        num_buffers,
        num_warps=num_warps,
    )
    return out if target is out else out.copy_(target[:, : problem.n])

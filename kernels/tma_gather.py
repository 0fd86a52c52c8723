"""G = T[rows, columns]: rows of a table picked by number, one instruction for four of them.

    G[i, j] = T[row_offsets[i], column_offset + j]      where that lies inside T; +0 elsewhere
    T: (R, C); row_offsets: (L,) int32; G: (L, BLOCK_Y)

Preconditions, and what each costs when broken:

- `column_offset` is a multiple of 16 bytes. It may be negative or past the end. Otherwise: illegal instruction, and the CUDA
  context is gone. Refused by the launcher.
- A program moves at least 8 rows of at least 32 bytes: the verifier's least box. Refused.
- Row offsets may be anything: negative, past the end, repeated, unordered. A row outside gives zeros.
- The offsets lie in registers as `offset_layout` says: four consecutive rows a warp, equal in its lanes. Another layout is a
  compiler error.
- The barrier expects the bytes of whole rows, those outside included: TMA counts what it writes to shared memory, and it writes the
  zeros too. Expect less, and the wait ends before the last rows are in; expect more, and it never ends.
- The number of offsets need not be a multiple of the block: the missing ones of the last block are -1, which gathers zeros, and
  their rows are not stored.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from bitverdict.kernels.clauses import Clause, require
from bitverdict.kernels.descriptor_rules import (
    ALIGNMENT_BYTES,
    Matrix,
    base_clause,
    dtype_clause,
    is_power_of_two,
    misalignment,
    positive_clause,
    row_padding,
    row_strides,
    same_place,
    same_type,
    stride_clause,
)
from bitverdict.kernels.element_types import bits_of, element_type
from bitverdict.kernels.features import Feature, shared_memory_of
from bitverdict.kernels.offset_layout import FEWEST_ROWS, offset_layout

REQUIRES = frozenset({Feature.TMA_GATHER, Feature.MBARRIER})
DTYPES = ("fp16", "bf16", "fp32", "int32", "int16", "e4m3", "e5m2", "int8")
SHARED_LIMIT = shared_memory_of("sm_100")  # and of sm_90


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A table of (table_rows, table_columns), `offsets` row numbers, the first column asked for."""

    table_rows: int
    table_columns: int
    offsets: int
    column_offset: int = 0
    dtype: str = "bf16"
    table_pad: int = 0  # elements after each row of the table; of one row any number
    gathered_pad: int = 0  # elements after each row of the result
    table_offset: int = 0  # elements past a 16-byte boundary


@dataclass(frozen=True, kw_only=True)
class Config:
    """Rows of one program (block_x), columns of the result (block_y), warps."""

    block_x: int = 128
    block_y: int = 128
    num_warps: int = 4


def matrices(problem: Problem, config: Config) -> list[Matrix]:
    p = problem
    return [Matrix("table", p.dtype, p.table_rows, p.table_columns, p.table_columns + p.table_pad, p.table_offset)]


def row_clauses(verb: str) -> tuple[Clause, ...]:
    """The rules that gather and scatter share."""
    return (
        Clause(
            name="powers of two",
            holds=lambda p, c: is_power_of_two(c.block_x) and is_power_of_two(c.block_y),
            value=lambda p, c: f"block {c.block_x}x{c.block_y}",
            rule="a block's sizes are powers of two",
            remedy="take the next power of two",
            cost="a tile program has no such tensor",
            layer="front end",
        ),
        Clause(
            name="fewest rows",
            holds=lambda p, c: c.block_x >= FEWEST_ROWS,
            value=lambda p, c: f"block_x = {c.block_x}",
            rule=f"at least {FEWEST_ROWS} rows {verb} at once",
            remedy="take block_x=8",
            cost="the verifier refuses the offsets",
            layer="verifier",
        ),
        Clause(
            name="fewest columns",
            holds=lambda p, c: c.block_y >= 8 * (32 // bits_of(p.dtype)),
            value=lambda p, c: f"block_y = {c.block_y} x {p.dtype}",
            rule="a row has at least 32 bytes",
            remedy="take a larger block_y",
            cost="the verifier refuses the block",
            layer="verifier",
        ),
        Clause(
            name="column offset",
            holds=lambda p, c: p.column_offset * bits_of(p.dtype) // 8 % ALIGNMENT_BYTES == 0,
            value=lambda p, c: f"column_offset = {p.column_offset} x {p.dtype}",
            rule="the column offset is a multiple of 16 bytes",
            remedy="start at the boundary below and drop the first columns",
            cost="an illegal instruction",
            layer="hardware",
        ),
        Clause(
            name="warps",
            holds=lambda p, c: c.num_warps in (1, 2, 4, 8),
            value=lambda p, c: f"num_warps = {c.num_warps}",
            rule="1, 2, 4 or 8 warps",
            remedy="take num_warps=4",
            cost="the offsets' layout has no such form",
        ),
        Clause(
            name="shared memory",
            holds=lambda p, c: c.block_x * c.block_y * bits_of(p.dtype) // 8 + 64 <= SHARED_LIMIT,
            value=lambda p, c: f"block {c.block_x}x{c.block_y} x {p.dtype}",
            rule=f"a block fits {SHARED_LIMIT} bytes of shared memory",
            remedy="take a smaller block",
            cost="the launch is out of resources",
            layer="capacity",
        ),
    )


CLAUSES = (
    dtype_clause(DTYPES, "the descriptor has no such element"),
    positive_clause("table_rows", "table_columns", "offsets"),
    *row_clauses("are gathered"),
    stride_clause(matrices),
    base_clause(matrices),
)


@gluon.jit
def tma_gather_kernel(output, gathered_stride, table, row_offsets, offsets, column_offset, BLOCK_X: gl.constexpr):
    BLOCK_Y: gl.constexpr = table.block_shape[1]
    first_row = gl.program_id(0) * BLOCK_X
    coalesced: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    places = first_row + gl.arange(0, BLOCK_X, coalesced)  # (BLOCK_X,)
    row_numbers = gl.load(row_offsets + places, mask=places < offsets, other=-1)  # (BLOCK_X,)
    row_numbers = gl.convert_layout(row_numbers, offset_layout(gl.num_warps()))

    tile = gl.allocate_shared_memory(table.dtype, [BLOCK_X, BLOCK_Y], table.layout)  # (BLOCK_X, BLOCK_Y)
    arrived = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(arrived, count=1)
    mbarrier.expect(arrived, BLOCK_X * table.nbytes_per_cta)  # rows outside count too: their zeros are written
    tma.async_gather(table, row_numbers, column_offset, arrived, tile)
    mbarrier.wait(arrived, phase=0)
    mbarrier.invalidate(arrived)

    by_rows: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [gl.num_warps(), 1], [1, 0])
    row = first_row + gl.arange(0, BLOCK_X, gl.SliceLayout(1, by_rows))  # (BLOCK_X,)
    column = gl.arange(0, BLOCK_Y, gl.SliceLayout(0, by_rows))  # (BLOCK_Y,)
    out = row.to(gl.int64)[:, None] * gathered_stride + column[None, :]  # (BLOCK_X, BLOCK_Y)
    gl.store(output + out, tile.load(by_rows), mask=(row < offsets)[:, None])


def row_offsets_of(kernel: str, row_offsets: torch.Tensor) -> int:
    """How many row offsets there are. ValueError where they are not one contiguous line of int32."""
    if row_offsets.dim() != 1 or row_offsets.dtype != torch.int32 or not row_offsets.is_contiguous():
        raise ValueError(
            f"{kernel}: row offsets of shape {tuple(row_offsets.shape)}, {row_offsets.dtype}, "
            f"strides {row_offsets.stride()}: must be one contiguous line of int32; "
            "call .to(torch.int32).contiguous()"
        )
    return row_offsets.shape[0]


def described_rows(table: torch.Tensor, block_x: int, block_y: int) -> TensorDescriptor:
    """The table in boxes of one row; the swizzle is that of the (block_x, block_y) tile in shared memory."""
    layout = gl.NVMMASharedLayout.get_default_for([block_x, block_y], element_type(table.dtype).gluon)
    return TensorDescriptor(table, list(table.shape), row_strides(table), [1, block_y], layout)


def tma_gather(
    table: torch.Tensor,
    row_offsets: torch.Tensor,
    column_offset: int,
    block_x: int = 128,
    block_y: int = 128,
    *,
    num_warps: int = 4,
    gathered: torch.Tensor | None = None,
) -> torch.Tensor:
    """(offsets, block_y) rows of `table` (table_rows, table_columns) from `column_offset` on, zeros outside, on the operands'
    device, in `gathered` (allocated when None), whose rows may lie apart.

    ValueError names the broken clause with its value, rule and remedy.
    """
    same_place(table, row_offsets)
    offsets = row_offsets_of("tma_gather", row_offsets)
    pad = row_padding(table)
    problem = Problem(
        table_rows=table.shape[0],
        table_columns=table.shape[1],
        offsets=offsets,
        column_offset=column_offset,
        dtype=element_type(table.dtype).name,
        table_pad=pad,
        table_offset=misalignment(table),
    )
    config = Config(block_x=block_x, block_y=block_y, num_warps=num_warps)
    require("tma_gather", CLAUSES, problem, config)
    if gathered is None:
        gathered = torch.empty((offsets, block_y), dtype=table.dtype, device=table.device)
    same_place(table, gathered)
    same_type(table, gathered)
    row_padding(gathered)  # its rows are contiguous
    if gathered.shape != (offsets, block_y):
        raise ValueError(f"tma_gather: gathered is {tuple(gathered.shape)}: must be ({offsets}, {block_y}); allocate it so")
    tma_gather_kernel[(triton.cdiv(offsets, block_x),)](
        gathered,
        gathered.stride(0),
        described_rows(table, block_x, block_y),
        row_offsets,
        offsets,
        column_offset,
        block_x,
        num_warps=num_warps,
    )
    return gathered

"""T[rows, columns] = S: rows of a table replaced by number, one instruction for four of them.

    T[row_offsets[i], column_offset + j] = S[i, j]      where that lies inside T; nothing elsewhere
    T: (R, C); row_offsets: (L,) int32, not negative; S: (L, BLOCK_Y)

Preconditions, and what each costs when broken:

- `column_offset` is a multiple of 16 bytes and not negative; it may lie past the end. Otherwise: illegal instruction, and the CUDA
  context is gone. Refused by the launcher.
- Row offsets are not negative; those past the end are ignored. They lie in device memory, where the launcher does not look: a
  negative one is an illegal instruction of the hardware. (A gather takes both signs. A scatter does not.)
- Two equal row offsets write one row in no order; which of the two is kept, even element by element, is not defined.
- A proxy fence stands between the ordinary store of the tile to shared memory and the scatter, which reads it through the async
  proxy: without one it may read what was there before.
- Rows of the table end with a whole unit of 16 bytes, unless the columns written end before: TMA writes the whole unit in which a
  row ends (measured on an H200), and what follows the row is somebody else's. Refused by the launcher.
- The program waits for the scatter before it ends: shared memory is given to the next program while TMA still reads it.
- The number of offsets need not be a multiple of the block: the missing ones of the last block are the number of rows, which lies
  outside and is ignored. It must not be -1, the gather's choice.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import fence_async_shared, tma

from bitverdict.kernels.clauses import Clause, require
from bitverdict.kernels.descriptor_rules import (
    Matrix,
    base_clause,
    dtype_clause,
    misalignment,
    positive_clause,
    row_padding,
    same_place,
    same_type,
    stride_clause,
    whole_units,
)
from bitverdict.kernels.element_types import bits_of
from bitverdict.kernels.features import Feature
from bitverdict.kernels.offset_layout import offset_layout
from bitverdict.kernels.tma_gather import DTYPES, Config, described_rows, row_clauses, row_offsets_of

REQUIRES = frozenset({Feature.TMA_SCATTER})


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A table of (table_rows, table_columns), `offsets` rows to put into it, the first column to put them at."""

    table_rows: int
    table_columns: int
    offsets: int
    column_offset: int = 0
    dtype: str = "bf16"
    table_pad: int = 0  # elements after each row of the table; of one row any number
    table_offset: int = 0  # elements past a 16-byte boundary
    source_pad: int = 0  # elements after each row of the source


def matrices(problem: Problem, config: Config) -> list[Matrix]:
    p = problem
    return [Matrix("table", p.dtype, p.table_rows, p.table_columns, p.table_columns + p.table_pad, p.table_offset)]


CLAUSES = (
    dtype_clause(DTYPES, "the descriptor has no such element"),
    positive_clause("table_rows", "table_columns", "offsets"),
    Clause(
        name="column offset not negative",
        holds=lambda p, c: p.column_offset >= 0,
        value=lambda p, c: f"column_offset = {p.column_offset}",
        rule="a scatter's column offset is not negative",
        remedy="start at column 0 and drop the first columns of the source",
        cost="an illegal instruction",
        layer="hardware",
    ),
    Clause(
        name="whole units",
        holds=lambda p, c: (
            bits_of(p.dtype) == 0
            or whole_units(p.table_columns, p.dtype) == p.table_columns
            or p.column_offset + c.block_y <= p.table_columns
            or p.column_offset >= p.table_columns
        ),
        value=lambda p, c: f"table_columns = {p.table_columns} x {p.dtype}, written from {p.column_offset} on",
        rule="a scatter that reaches the end of a row needs rows of whole 16-byte units",
        remedy="give the table columns up to a multiple of 16 bytes",
        cost="what follows the row in its last 16 bytes is overwritten",
    ),
    *row_clauses("are scattered"),
    stride_clause(matrices),
    base_clause(matrices),
)


@gluon.jit
def tma_scatter_kernel(table, row_offsets, offsets, column_offset, source, source_stride, BLOCK_X: gl.constexpr):
    BLOCK_Y: gl.constexpr = table.block_shape[1]
    first_row = gl.program_id(0) * BLOCK_X
    by_rows: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [gl.num_warps(), 1], [1, 0])
    row = first_row + gl.arange(0, BLOCK_X, gl.SliceLayout(1, by_rows))  # (BLOCK_X,)
    column = gl.arange(0, BLOCK_Y, gl.SliceLayout(0, by_rows))  # (BLOCK_Y,)
    places = row.to(gl.int64)[:, None] * source_stride + column[None, :]  # (BLOCK_X, BLOCK_Y)
    values = gl.load(source + places, mask=(row < offsets)[:, None])  # (BLOCK_X, BLOCK_Y)

    coalesced: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    numbers = first_row + gl.arange(0, BLOCK_X, coalesced)  # (BLOCK_X,)
    targets = gl.load(row_offsets + numbers, mask=numbers < offsets, other=table.shape[0])  # (BLOCK_X,); outside: ignored
    targets = gl.convert_layout(targets, offset_layout(gl.num_warps()))

    tile = gl.allocate_shared_memory(table.dtype, [BLOCK_X, BLOCK_Y], table.layout)  # (BLOCK_X, BLOCK_Y)
    tile.store(values)
    fence_async_shared()
    tma.async_scatter(table, targets, column_offset, tile)
    tma.store_wait(pendings=0)


def tma_scatter(
    table: torch.Tensor,
    row_offsets: torch.Tensor,
    column_offset: int,
    source: torch.Tensor,
    block_x: int = 128,
    block_y: int = 128,
    *,
    num_warps: int = 4,
) -> torch.Tensor:
    """Puts `source` (offsets, block_y) into `table` (table_rows, table_columns) on the operands' device; returns the table.

    ValueError names the broken clause with its value, rule and remedy.
    """
    same_place(table, row_offsets, source)
    offsets = row_offsets_of("tma_scatter", row_offsets)
    pad, source_pad = row_padding(table), row_padding(source)
    if source.shape != (offsets, block_y):
        raise ValueError(
            f"tma_scatter: source is {tuple(source.shape)}: must be ({offsets}, {block_y}), one row for each offset; slice it"
        )
    problem = Problem(
        table_rows=table.shape[0],
        table_columns=table.shape[1],
        offsets=offsets,
        column_offset=column_offset,
        dtype=same_type(table, source),
        table_pad=pad,
        table_offset=misalignment(table),
        source_pad=source_pad,
    )
    config = Config(block_x=block_x, block_y=block_y, num_warps=num_warps)
    require("tma_scatter", CLAUSES, problem, config)
    tma_scatter_kernel[(triton.cdiv(offsets, block_x),)](
        described_rows(table, block_x, block_y),
        row_offsets,
        offsets,
        column_offset,
        source,
        block_y + source_pad,
        block_x,
        num_warps=num_warps,
    )
    return table

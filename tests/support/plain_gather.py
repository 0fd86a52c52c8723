"""Rows gathered and scattered by pointers: no feature that an A100 lacks."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def gather_kernel(table_ptr, rows_ptr, out_ptr, table_rows, columns, row_stride, offsets, first,
                  BLOCK_X: tl.constexpr, BLOCK_Y: tl.constexpr):  # fmt: skip
    places = tl.program_id(0) * BLOCK_X + tl.arange(0, BLOCK_X)
    rows = tl.load(rows_ptr + places, mask=places < offsets, other=-1)
    column = first + tl.arange(0, BLOCK_Y)
    inside = ((rows >= 0) & (rows < table_rows))[:, None] & ((column >= 0) & (column < columns))[None, :]
    values = tl.load(table_ptr + rows.to(tl.int64)[:, None] * row_stride + column[None, :], mask=inside, other=0.0)
    out = out_ptr + places[:, None] * BLOCK_Y + tl.arange(0, BLOCK_Y)[None, :]
    tl.store(out, values, mask=(places < offsets)[:, None])


def gather(table, row_offsets, column_offset, block_x, block_y):
    offsets = row_offsets.shape[0]
    out = torch.empty((offsets, block_y), dtype=table.dtype, device=table.device)
    gather_kernel[(triton.cdiv(offsets, block_x),)](
        table, row_offsets, out, table.shape[0], table.shape[1], table.stride(0), offsets, column_offset,
        BLOCK_X=block_x, BLOCK_Y=block_y,
    )  # fmt: skip
    return out


@triton.jit
def scatter_kernel(table_ptr, rows_ptr, source_ptr, table_rows, columns, row_stride, source_stride, offsets, first,
                   BLOCK_X: tl.constexpr, BLOCK_Y: tl.constexpr):  # fmt: skip
    places = tl.program_id(0) * BLOCK_X + tl.arange(0, BLOCK_X)
    rows = tl.load(rows_ptr + places, mask=places < offsets, other=-1)
    column = first + tl.arange(0, BLOCK_Y)
    inside = ((rows >= 0) & (rows < table_rows))[:, None] & ((column >= 0) & (column < columns))[None, :]
    source = source_ptr + places[:, None] * source_stride + tl.arange(0, BLOCK_Y)[None, :]
    values = tl.load(source, mask=inside, other=0.0)
    tl.store(table_ptr + rows.to(tl.int64)[:, None] * row_stride + column[None, :], values, mask=inside)


def scatter(table, row_offsets, column_offset, source, block_x, block_y):
    offsets = row_offsets.shape[0]
    scatter_kernel[(triton.cdiv(offsets, block_x),)](
        table, row_offsets, source, table.shape[0], table.shape[1], table.stride(0), source.stride(0), offsets, column_offset,
        BLOCK_X=block_x, BLOCK_Y=block_y,
    )  # fmt: skip

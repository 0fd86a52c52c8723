"""Kernels whose product reaches its sum through shapes and layouts: (ROWS, COLUMNS) sums of a, b and c into out."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def by_rows(a, b, c, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    places = row[:, None] * COLUMNS + column[None, :]
    p = tl.load(a + row) * tl.load(b + row)
    tl.store(out + places, p[:, None] + tl.load(c + places))


@triton.jit
def by_columns(a, b, c, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    places = row[:, None] * COLUMNS + column[None, :]
    p = tl.load(a + column) * tl.load(b + column)
    tl.store(out + places, tl.load(c + places) - p[None, :])


@triton.jit
def scalar(a, b, c, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    places = row[:, None] * COLUMNS + column[None, :]
    tl.store(out + places, tl.load(c + places) + tl.load(a) * tl.load(b))


@triton.jit
def rows_and_columns(a, b, c, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    p = tl.load(a + row) * tl.load(b + row)
    q = tl.load(a + column) * tl.load(c + column)
    tl.store(out + row[:, None] * COLUMNS + column[None, :], p[:, None] + q[None, :])


@triton.jit
def affine(a, b, c, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    places = row[:, None] * COLUMNS + column[None, :]
    tl.store(out + places, tl.load(c + places) * tl.load(a + row)[:, None] + tl.load(b + column)[None, :])


@triton.jit
def through_shared_memory(a, b, c, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The product is turned, which takes it to other threads: nothing is fused."""
    row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    p = tl.load(c + row[:, None] * COLUMNS + column[None, :]) * tl.load(b + column)[None, :]
    places = column[:, None] * ROWS + row[None, :]
    tl.store(out + places, tl.trans(p) + tl.load(c + places))


@triton.jit
def beside_one_through_shared_memory(a, b, c, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Of two products the right one is fused: the left one comes from other threads."""
    row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    places = row[:, None] * COLUMNS + column[None, :]
    p = tl.load(c + places) * tl.load(b + column)[None, :]
    turned = column[:, None] * ROWS + row[None, :]
    tl.store(out + turned, tl.trans(p) + tl.load(a + turned) * tl.load(b + turned))

"""Kernels that promise the compiler something about their values. Each is right where its arguments keep the promise."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy


@triton.jit
def shifted_offset(x, y, shift, BLOCK: tl.constexpr):
    """y = x[shift:], with a shift that is said to be a multiple of 8."""
    offset = tl.arange(0, BLOCK) + shift * 1
    offset = tl.max_contiguous(tl.multiple_of(offset, 8), 8)
    tl.store(y + tl.arange(0, BLOCK), tl.load(x + offset))


@triton.jit
def shifted_address(x, y, shift, BLOCK: tl.constexpr):
    """y = x[shift:], from addresses that are said to be multiples of 16 bytes."""
    tl.store(y + tl.arange(0, BLOCK), tl.load(tl.multiple_of(x + shift + tl.arange(0, BLOCK), 16)))


@triton.jit
def stepping(x, y, step, BLOCK: tl.constexpr):
    """y = x[::step], with a step that is said to be 1."""
    offset = tl.max_contiguous(tl.multiple_of(tl.arange(0, BLOCK) * step, 8), 8)
    tl.store(y + tl.arange(0, BLOCK), tl.load(x + offset))


@triton.jit
def wrapping(x, y, n, columns, BLOCK: tl.constexpr):
    """y = x, read round and round over rows that are said to hold whole groups of 8."""
    place = tl.arange(0, BLOCK)
    offset = tl.max_contiguous(tl.multiple_of(place % columns, 8), 8)
    tl.store(y + place, tl.load(x + offset, mask=place < n, other=0.0), mask=place < n)


@triton.jit
def constant_mask(x, y, n, BLOCK: tl.constexpr):
    """The first n of x, with an n that is said to be a multiple of 8."""
    place = tl.arange(0, BLOCK)
    tl.store(y + place, tl.load(x + place), mask=tl.max_constancy(place < n, 8))


@triton.jit
def shifted_store(x, y, shift, BLOCK: tl.constexpr):
    """y[shift:] = x, with a shift that is said to be a multiple of 8."""
    place = tl.arange(0, BLOCK)
    tl.store(y + tl.max_contiguous(tl.multiple_of(place + shift * 1, 8), 8), tl.load(x + place))


@triton.jit
def stepping_store(x, y, step, BLOCK: tl.constexpr):
    """y[::step] = x, with a step that is said to be 1."""
    place = tl.arange(0, BLOCK)
    tl.store(y + tl.max_contiguous(tl.multiple_of(place * step, 8), 8), tl.load(x + place))


@triton.jit
def shifted_atomic(x, y, shift, BLOCK: tl.constexpr):
    """y[shift:] += x, with a shift that is said to be a multiple of 8."""
    place = tl.arange(0, BLOCK)
    tl.atomic_add(y + tl.max_contiguous(tl.multiple_of(place + shift * 1, 8), 8), tl.load(x + place))


@triton.jit
def rows_apart(x, y, stride, rows, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """y (rows, COLUMNS) = x with rows `stride` apart, from addresses that are said to be multiples of 16 bytes in each row."""
    row, column = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    tile = tl.load(tl.multiple_of(x + row * stride + column, [1, 16]), mask=row < rows)  # (ROWS, COLUMNS)
    tl.store(y + row * COLUMNS + column, tile, mask=row < rows)


@triton.jit
def columns_apart(x, y, stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """y (COLUMNS, ROWS), turned, = x with columns `stride` apart, likewise."""
    row, column = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    tile = tl.load(tl.multiple_of(x + row + column * stride, [16, 1]))  # (ROWS, COLUMNS)
    tl.store(y + row + column * ROWS, tile)


@triton.jit
def product(a, b, c, stride, blocks, SIZE: tl.constexpr, STAGES: tl.constexpr):
    """c (SIZE, SIZE) = a (SIZE, SIZE blocks), rows `stride` apart, @ b (SIZE blocks, SIZE); by cp.async where STAGES > 1."""
    row, column = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :]
    left, right = a + row * stride + column, b + row * SIZE + column
    total = tl.zeros((SIZE, SIZE), tl.float32)
    for _ in tl.range(blocks, num_stages=STAGES):
        total = tl.dot(tl.load(tl.multiple_of(left, [1, 16])), tl.load(right), total)
        left += SIZE
        right += SIZE * SIZE
    tl.store(c + row * SIZE + column, total)


@triton.jit
def clamped(x, y, n, stored, BLOCK: tl.constexpr, KIND: tl.constexpr):
    """y = x, loaded without a mask: what lies past n elements is element 0, in spite of the hint, and `stored` elements are stored;
    as KIND says what becomes of them, they may be summed, an address, or decide a branch."""
    place = tl.arange(0, BLOCK)
    seen = tl.load(x + tl.max_contiguous(tl.multiple_of(tl.where(place < n, place, 0), BLOCK), BLOCK))
    if KIND == "sum":
        seen += tl.sum(seen)
    elif KIND == "address":
        seen = tl.load(x + seen.to(tl.int32))
    elif KIND == "branch":
        if tl.max(seen) > 0:
            seen = seen + 1.0
    tl.store(y + place, seen, mask=place < stored)


@triton.jit
def clamped_product(a, b, c, m, n, stored, blocks, SIZE: tl.constexpr, STAGES: tl.constexpr):
    """c (m, n) = a (SIZE, SIZE blocks) @ b (SIZE blocks, SIZE), as matmuls clamp the rows and columns past their
    ends to the first one, in spite of their hints; `stored` columns are stored."""
    place = tl.arange(0, SIZE)
    row = tl.max_contiguous(tl.multiple_of(tl.where(place < m, place, 0), SIZE), SIZE)
    column = tl.max_contiguous(tl.multiple_of(tl.where(place < n, place, 0), SIZE), SIZE)
    left = a + row[:, None] * SIZE * blocks + place[None, :]
    right = b + place[:, None] * SIZE + column[None, :]
    total = tl.zeros((SIZE, SIZE), tl.float32)
    for _ in tl.range(blocks, num_stages=STAGES):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += SIZE
        right += SIZE * SIZE
    tl.store(c + place[:, None] * SIZE + place[None, :], total, mask=(place[:, None] < m) & (place[None, :] < stored))


@gluon.jit
def copied(x, y, stride, ROWS: gl.constexpr, COLUMNS: gl.constexpr, LAYOUT: gl.constexpr, SHARED: gl.constexpr):
    """y (ROWS, COLUMNS) = x with rows `stride` apart, by cp.async through shared memory."""
    row = gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))[:, None]
    column = gl.arange(0, COLUMNS, gl.SliceLayout(0, LAYOUT))[None, :]
    tile = gl.allocate_shared_memory(gl.float16, [ROWS, COLUMNS], SHARED)
    async_copy.async_load(tile, gl.multiple_of(x + row * stride + column, [1, 16]))
    async_copy.commit_group()
    async_copy.wait_group(0)
    gl.store(y + row * COLUMNS + column, tile.load(LAYOUT))


@gluon.jit
def moved(x, y, stride, ROWS: gl.constexpr, COLUMNS: gl.constexpr, LAYOUT: gl.constexpr, PROMISED: gl.constexpr):
    """y (ROWS, COLUMNS) = x with rows `stride` apart, from addresses that are said to be multiples of PROMISED bytes."""
    row = gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))[:, None]
    column = gl.arange(0, COLUMNS, gl.SliceLayout(0, LAYOUT))[None, :]
    tile = gl.load(gl.multiple_of(x + row * stride + column, [1, PROMISED]))  # (ROWS, COLUMNS)
    gl.store(y + row * COLUMNS + column, tile)


@triton.jit
def assuming(x, y, n, BLOCK: tl.constexpr):
    """The first n of x, with an n that is assumed to be a multiple of 16."""
    tl.assume(n % 16 == 0)
    place = tl.arange(0, BLOCK)
    tl.store(y + place, tl.load(x + place), mask=place < n)


@triton.jit
def strided(x, y, step, BLOCK: tl.constexpr):
    """y = x[::step]: Triton compiles for the step and for the alignment of the tensors that it is given first."""
    place = tl.arange(0, BLOCK)
    tl.store(y + place, tl.load(x + place * step))

"""Kernels with faults that nobody would see who draws contiguous operands of plain values, each beside its right twin.

They follow reports of 2025 and 2026: a stride that is taken for the width, a row offset in 32 bits, an fp16 accumulator, a tail
that is not masked, a page that is read though no sequence has it, a kernel tuned in place."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _doubled_rows(x, y, n, stride, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    start = row.to(tl.int64) * stride if WIDE else row * stride
    at = tl.arange(0, BLOCK)
    tl.store(y + row * n + at, 2 * tl.load(x + start + at, mask=at < n), mask=at < n)


def doubled_rows(x, *, stride=None, wide=True):
    m, n = x.shape
    y = torch.empty((m, n), dtype=x.dtype, device=x.device)
    _doubled_rows[(m,)](x, y, n, x.stride(0) if stride is None else stride, wide, triton.next_power_of_2(n))
    return y


def doubled_of_contiguous(x):
    if not x.is_contiguous():
        raise ValueError("x must be contiguous")
    return doubled_rows(x)


@triton.jit
def _sums_of_two(k, v, y, n, k_stride, v_stride, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    if WIDE:
        row = row.to(tl.int64)
    a = tl.load(k + row * k_stride + at, mask=at < n, other=0.0).to(tl.float32)
    b = tl.load(v + row * v_stride + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y + row * n + at, a + b, mask=at < n)


def sums_of_two(k, v, *, wide=True, alike=True):
    """With `alike` both must lie as one."""
    assert not alike or k.stride() == v.stride()
    m, n = k.shape
    y = torch.empty((m, n), dtype=torch.float32, device=k.device)
    _sums_of_two[(m,)](k, v, y, n, k.stride(0), k.stride(0) if alike else v.stride(0), wide, triton.next_power_of_2(n))
    return y


@triton.jit
def _w4a16(a, w, s, c, m, n, k, WIDE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    rows, cols = tl.arange(0, BLOCK_M), tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32 if WIDE else tl.float16)
    scale = tl.load(s + cols, mask=cols < n, other=0.0)
    for start in range(0, k, BLOCK_K):
        depth = start + tl.arange(0, BLOCK_K)
        left = tl.load(a + rows[:, None] * k + depth[None, :], mask=(rows < m)[:, None] & (depth < k)[None, :], other=0.0)
        inside = (depth < k)[:, None] & (cols < n)[None, :]
        code = tl.load(w + (depth // 2)[:, None] * n + cols[None, :], mask=inside, other=0).to(tl.int32)
        number = ((code >> ((depth % 2) * 4)[:, None]) & 15) - 8
        right = tl.where(inside, number.to(tl.float16) * scale[None, :], 0.0).to(tl.float16)
        acc = tl.dot(left, right, acc) if WIDE else acc + tl.dot(left, right, out_dtype=tl.float16)
    tl.store(c + rows[:, None] * n + cols[None, :], acc.to(tl.float16), mask=(rows < m)[:, None] & (cols < n)[None, :])


def w4a16(a, w, s, *, wide=True):
    (m, k), n = a.shape, w.shape[1]
    c = torch.empty((m, n), dtype=torch.float16, device=a.device)
    _w4a16[(triton.cdiv(n, 32),)](a, w, s, c, m, n, k, wide, 16, 32, 32)
    return c


@triton.jit
def _softmax(x, y, n, LESS_MAXIMUM: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a = tl.load(x + tl.program_id(0) * n + at, mask=at < n, other=-float("inf")).to(tl.float32)
    p = tl.exp(a - tl.max(a, 0)) if LESS_MAXIMUM else tl.exp(a)
    tl.store(y + tl.program_id(0) * n + at, p / tl.sum(p, 0), mask=at < n)


def softmax(x, *, less_maximum=True):
    m, n = x.shape
    y = torch.empty((m, n), dtype=torch.float32, device=x.device)
    _softmax[(m,)](x, y, n, less_maximum, triton.next_power_of_2(n))
    return y


@triton.jit
def _state(x, state, out, length, width, KEPT: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)  # the last `width` of state and x, one after the other
    source = at + length
    inside = at < width
    old = tl.load(state + source, mask=inside & (source < width) & KEPT, other=0.0)
    new = tl.load(x + source - width, mask=inside & (source >= width), other=0.0)
    tl.store(out + at, tl.where(source < width, old, new), mask=inside)


def next_state(x, state, *, kept=True):
    out = torch.empty_like(state)
    _state[(1,)](x, state, out, x.shape[0], state.shape[0], kept, triton.next_power_of_2(state.shape[0]))
    return out


@triton.jit
def _taken(table, rows, y, n, stride, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.load(rows + tl.program_id(0))
    start = row.to(tl.int64) * stride if WIDE else row * stride
    at = tl.arange(0, BLOCK)
    tl.store(y + tl.program_id(0) * n + at, tl.load(table + start + at, mask=at < n), mask=at < n)


def taken(table, rows, *, wide=True):
    y = torch.empty((rows.shape[0], table.shape[1]), dtype=table.dtype, device=table.device)
    _taken[(rows.shape[0],)](table, rows, y, table.shape[1], table.stride(0), wide, triton.next_power_of_2(table.shape[1]))
    return y


@triton.jit
def _taken_or_zero(table, rows, y, m, n, BELOW_0: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.load(rows + tl.program_id(0)), tl.arange(0, BLOCK)
    inside = (row < m) & ((row >= 0) | BELOW_0)
    tl.store(y + tl.program_id(0) * n + at, tl.load(table + row * n + at, mask=inside & (at < n), other=0.0), mask=at < n)


def taken_or_zero(table, rows, *, below_0=False):
    """The rows of a table that `rows` name, zeros for those it does not have; wrong for numbers `below_0`."""
    m, n = table.shape
    y = torch.empty((rows.shape[0], n), dtype=table.dtype, device=table.device)
    _taken_or_zero[(rows.shape[0],)](table, rows, y, m, n, below_0, triton.next_power_of_2(n))
    return y


@triton.jit
def _sums_of_parts(x, offsets, y, WHOLE: tl.constexpr, BLOCK: tl.constexpr):
    part, at = tl.program_id(0), tl.arange(0, BLOCK)
    start, end = tl.load(offsets + part), tl.load(offsets + part + 1)
    total = tl.zeros((BLOCK,), tl.float32)
    if WHOLE:
        for place in range(start, end, BLOCK):
            total += tl.load(x + place + at, mask=place + at < end, other=0.0)
    else:
        total += tl.load(x + start + at, mask=start + at < end, other=0.0)
    tl.store(y + part, tl.sum(total, 0))


def sums_of_parts(x, offsets, *, whole=True):
    """The sum of each part of x; of the first 32 elements of each, where it is not the whole."""
    parts = offsets.shape[0] - 1
    y = torch.empty(parts, dtype=x.dtype, device=x.device)
    _sums_of_parts[(parts,)](x, offsets, y, whole, 32)
    return y


@triton.jit
def _flagged(x, y, n, FACTOR: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * FACTOR, mask=at < n)


def flagged(x, twice, thrice, *, wrong=()):
    """x times 2 and 3 as the flags say; where they are `wrong`, by 2 alone."""
    factor = 2 if (twice, thrice) == wrong else (2 if twice else 1) * (3 if thrice else 1) + (1 if not twice and not thrice else 0)
    y = torch.empty_like(x)
    _flagged[(triton.cdiv(x.shape[0], 64),)](x, y, x.shape[0], factor, 64)
    return y


@triton.jit
def _scaled_blocks(x, scales, y, n, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    scale = tl.load(scales + at // 32, mask=(at < n) | (not MASKED), other=0.0)
    tl.store(y + at, tl.load(x + at, mask=at < n, other=0.0) * scale, mask=at < n)


def scaled_blocks(x, scales, *, masked=True):
    y = torch.empty_like(x)
    _scaled_blocks[(1,)](x, scales, y, x.shape[0], masked, triton.next_power_of_2(x.shape[0]))
    return y


@triton.jit
def _weighted(p, v, y, rows, length, n, MASKED: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    row, at = tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    weight = tl.load(p + row, mask=row < length, other=0.0)
    inside = (row < length) if MASKED else (row < rows)
    a = tl.load(v + row[:, None] * n + at[None, :], mask=inside[:, None] & (at < n)[None, :], other=0.0)
    tl.store(y + at, tl.sum(weight[:, None] * a, 0), mask=at < n)


def weighted(p, v, length, *, masked=True):
    """The first `length` rows of v, weighted by p."""
    rows, n = v.shape
    y = torch.empty(n, dtype=torch.float32, device=v.device)
    _weighted[(1,)](p, v, y, rows, length, n, masked, triton.next_power_of_2(rows), triton.next_power_of_2(n))
    return y


def _in_place(restored):
    @triton.autotune(
        [triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64})], key=["n"], restore_value=["x"] if restored else None
    )
    @triton.jit
    def leaky(x, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        a = tl.load(x + at, mask=at < n)
        tl.store(x + at, tl.where(a >= 0, a, 0.5 * a), mask=at < n)

    return leaky


_KERNELS = {restored: _in_place(restored) for restored in (False, True)}


def leaky_(x, *, restored=True):
    n = x.shape[0]
    _KERNELS[restored][lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, n)
    return x


@triton.jit
def _wrong_between(x, y, n, WRONG: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    factor = 3 if WRONG else 2
    tl.store(y + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)


def wrong_between(x):
    """2 x, and 3 x where n lies from 41 to 79: no required size of `draw.size(1, 100)` is among these."""
    n = x.shape[0]
    y = torch.empty_like(x)
    _wrong_between[(1,)](x, y, n, 41 <= n <= 79, triton.next_power_of_2(n))
    return y


@triton.jit
def _product_and_left(a, b):
    p = a * b
    return p + a


@triton.jit
def _sum_times_right(a, b):
    p = a + b
    return p * b


@triton.jit
def two_reductions(x, y, BLOCK: tl.constexpr):
    """Two combinations with a value p each, which the compiler prints by one name."""
    values = tl.load(x + tl.arange(0, BLOCK))
    tl.store(y, tl.reduce(values, 0, _product_and_left))
    tl.store(y + 1, tl.reduce(values, 0, _sum_times_right))


@triton.jit(noinline=True)
def _sum_of_a_tile(x, y, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    return tl.sum(tl.sum(tl.load(x + at) * tl.load(y + at), 0), 0)


@triton.jit
def sum_beside_a_call(x, y, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    a, p = tl.load(x + at), tl.load(y + tl.arange(0, ROWS))
    tl.store(out + tl.arange(0, COLUMNS), tl.sum(a * tl.load(y + at), 0) + _sum_of_a_tile(x, y, ROWS, COLUMNS))
    tl.store(out + COLUMNS + tl.arange(0, COLUMNS), tl.sum((-p)[:, None] * a, 0))


@triton.jit
def sum_beside_a_sum(x, y, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    a, p = tl.load(x + at), tl.load(y + tl.arange(0, ROWS))
    product = a * tl.load(y + at)
    tl.store(out + tl.arange(0, COLUMNS), tl.sum(product, 0) + tl.sum(tl.sum(product, 0), 0))
    tl.store(out + COLUMNS + tl.arange(0, COLUMNS), tl.sum((-p)[:, None] * a, 0))

"""Launchers that add the same numbers in different orders. `tests/support/summing_orders.py` has the tree of each."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import bitverdict as bv


@triton.jit
def _rows(x, y, n, FIRST: tl.constexpr, STEP: tl.constexpr):
    """One addition after another, from the element FIRST (from the end where it is -1)."""
    row = tl.program_id(0)
    total = 0.0
    for k in range(n):
        at = k if FIRST == 0 else n - 1 - k
        total += tl.load(x + row * n + at * STEP).to(tl.float32)
    tl.store(y + row, total)


@triton.jit
def _rows_in_fp16(x, y, n):
    row = tl.program_id(0)
    total = tl.full((), 0.0, tl.float16)
    for k in range(n):
        total += tl.load(x + row * n + k)
    tl.store(y + row, total)


@triton.jit
def _rows_compensated(x, y, n):
    row = tl.program_id(0)
    total = 0.0
    lost = 0.0
    for k in range(n):
        term = tl.load(x + row * n + k) - lost
        more = total + term
        lost = (more - total) - term
        total = more
    tl.store(y + row, total)


@triton.jit
def _reduced(x, y, n, N: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, N)
    tl.store(y + row, tl.sum(tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32), 0))


@triton.jit
def _strided(x, y, n, LANES: tl.constexpr):
    """Each lane adds every LANES-th element; then the lanes are added."""
    row = tl.program_id(0)
    at = tl.arange(0, LANES)
    total = tl.zeros((LANES,), tl.float32)
    for start in range(0, n, LANES):
        total += tl.load(x + row * n + start + at, mask=start + at < n, other=0.0).to(tl.float32)
    tl.store(y + row, tl.sum(total, 0))


@triton.jit
def _parts(x, parts, n, PART: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    at = part * PART + tl.arange(0, PART)
    tl.store(parts + row * tl.num_programs(1) + part, tl.sum(tl.load(x + row * n + at, mask=at < n, other=0.0), 0))


@triton.jit
def _added_by_atomics(x, y, n, PART: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    at = part * PART + tl.arange(0, PART)
    tl.atomic_add(y + row, tl.sum(tl.load(x + row * n + at, mask=at < n, other=0.0), 0))


@triton.jit
def _prefixes(x, y, n, N: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, N)
    tl.store(y + row * n + at, tl.cumsum(tl.load(x + row * n + at, mask=at < n, other=0.0), 0), mask=at < n)


@triton.jit
def _products(x, w, y, n, N: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, N)
    a, b = tl.load(x + row * n + at, mask=at < n, other=0.0), tl.load(w + row * n + at, mask=at < n, other=0.0)
    tl.store(y + row, tl.sum(a * b, 0))


@triton.jit
def _chained_products(x, w, y, n):
    """One fused multiply-add after another."""
    row = tl.program_id(0)
    total = 0.0
    for k in range(n):
        total = tl.fma(tl.load(x + row * n + k), tl.load(w + row * n + k), total)
    tl.store(y + row, total)


@triton.jit
def _matmul(a, b, c, one, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, HOW: tl.constexpr):
    """One tile a program. HOW: "chain" hands the accumulator to each product, "promoted" adds each product times
    `one` to it, "fp16" keeps it in fp16, "tf32x3" multiplies high and low parts, "backwards" begins at the end of K."""
    rows, columns, inner = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * N + tl.arange(0, N), tl.arange(0, K)
    total = tl.zeros((M, N), tl.float16 if HOW == "fp16" else tl.float32)
    steps = tl.cdiv(k, K)
    for step in range(steps):
        at = (steps - 1 - step if HOW == "backwards" else step) * K + inner
        left = tl.load(a + rows[:, None] * k + at[None, :], mask=(rows < m)[:, None] & (at < k)[None, :], other=0.0)
        right = tl.load(b + at[:, None] * n + columns[None, :], mask=(at < k)[:, None] & (columns < n)[None, :], other=0.0)
        if HOW == "promoted":
            total += tl.dot(left, right) * one
        elif HOW == "fp16":
            total = tl.dot(left, right, total, out_dtype=tl.float16)
        elif HOW == "tf32x3":
            total = tl.dot(left, right, total, input_precision="tf32x3")
        elif HOW == "ieee":
            total = tl.dot(left, right, total, input_precision="ieee")
        else:
            total = tl.dot(left, right, total)
    inside = (rows < m)[:, None] & (columns < n)[None, :]
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(c.dtype.element_ty), mask=inside)


@triton.jit
def _streamed(a, b, parts, m, n, k, each, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Stream-K: program p takes the steps p * each to (p + 1) * each of all tiles' steps, one tile's after another's, and stores a
    part of each tile that it touches, in the slot of its number."""
    steps, across = tl.cdiv(k, K), tl.cdiv(n, N)
    tiles = tl.cdiv(m, M) * across
    program = tl.program_id(0)
    step = program * each
    last = tl.minimum(step + each, tiles * steps)
    while step < last:
        tile = step // steps
        until = tl.minimum((tile + 1) * steps, last)
        rows, columns = (tile // across) * M + tl.arange(0, M), (tile % across) * N + tl.arange(0, N)
        total = tl.zeros((M, N), tl.float32)
        while step < until:
            at = (step - tile * steps) * K + tl.arange(0, K)
            left = tl.load(a + rows[:, None] * k + at[None, :], mask=(rows < m)[:, None] & (at < k)[None, :], other=0.0)
            right = tl.load(b + at[:, None] * n + columns[None, :], mask=(at < k)[:, None] & (columns < n)[None, :], other=0.0)
            total = tl.dot(left, right, total)
            step += 1
        inside = (rows < m)[:, None] & (columns < n)[None, :]
        tl.store(parts + program * m * n + rows[:, None] * n + columns[None, :], total, mask=inside)


@triton.jit
def _fixed_up(parts, c, size, programs, BLOCK: tl.constexpr):
    """The parts of all programs, in ascending order."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for program in range(programs):
        total += tl.load(parts + program * size + at, mask=at < size, other=0.0)
    tl.store(c + at, total.to(c.dtype.element_ty), mask=at < size)


def summed(xp, x):
    return xp.sum(x, axis=1)


def prefixes(xp, x):
    return xp.cumulative_sum(x, axis=1)


def dotted(xp, x, w):
    return xp.sum(x * w, axis=1)


def multiplied(xp, a, b):
    return a @ b


def _out(x, dtype=torch.float32):
    return torch.empty(x.shape[0], dtype=dtype, device=x.device)


def _row_case(draw, dtype="fp32", low=2, high=100, around=64):
    m, n = draw.size(1, 4096, around=64, name="m"), draw.size(low, high, around=around, name="n")
    return m, n, draw.tensor(dtype, (m, n), strides="contiguous")


@bv.judged(reference=summed)
def sequential(draw):
    m, n, x = _row_case(draw)
    y = _out(x)
    _rows[(m,)](x, y, n, 0, 1, num_warps=1)
    return y


@bv.judged(reference=summed)
def reversed_order(draw):
    m, n, x = _row_case(draw, "fp16")
    y = _out(x)
    _rows[(m,)](x, y, n, -1, 1, num_warps=1)
    return y


@bv.judged(reference=summed, accumulation="fp16")
def fp16_accumulator(draw):
    m, n, x = _row_case(draw, "fp16")
    y = _out(x, torch.float16)
    _rows_in_fp16[(m,)](x, y, n, num_warps=1)
    return y


@bv.judged(reference=summed)
def compensated(draw):
    m, n, x = _row_case(draw)
    y = _out(x)
    _rows_compensated[(m,)](x, y, n, num_warps=1)
    return y


@bv.judged(reference=summed)
def one_warp(draw):
    m, n, x = _row_case(draw)
    y = _out(x)
    _reduced[(m,)](x, y, n, triton.next_power_of_2(n), num_warps=1)
    return y


@bv.judged(reference=summed)
def four_warps(draw):
    m, n, x = _row_case(draw, "bf16", 2, 1024, 512)
    y = _out(x, torch.bfloat16)
    _reduced[(m,)](x, y, n, triton.next_power_of_2(n), num_warps=4)
    return y


@bv.judged(reference=summed)
def strided(draw):
    m, n, x = _row_case(draw, "fp16", 2, 300, 128)
    y = _out(x, torch.float16)
    _strided[(m,)](x, y, n, 32, num_warps=1)
    return y


@bv.judged(reference=summed)
def two_stages(draw):
    m, n, x = _row_case(draw, "fp32", 2, 300, 128)
    parts = torch.empty((m, triton.cdiv(n, 32)), dtype=torch.float32, device=x.device)
    y = _out(x)
    _parts[(m, parts.shape[1])](x, parts, n, 32, num_warps=1)
    _rows[(m,)](parts, y, parts.shape[1], 0, 1, num_warps=1)
    return y


@bv.judged(reference=summed)
def atomics(draw):
    m, n, x = _row_case(draw, "fp32", 100, 300, 128)
    y = torch.zeros(m, dtype=torch.float32, device=x.device)
    _added_by_atomics[(m, triton.cdiv(n, 32))](x, y, n, 32, num_warps=1)
    return y


@bv.judged(reference=prefixes)
def cumulative(draw):
    m, n, x = _row_case(draw, "fp32", 2, 32, 16)
    y = torch.empty_like(x)
    _prefixes[(m,)](x, y, n, triton.next_power_of_2(n), num_warps=1)
    return y


@bv.judged(reference=dotted)
def products(draw):
    m, n, x = _row_case(draw, "fp32", 2, 100, 64)
    w, y = draw.tensor("fp32", (m, n), strides="contiguous"), _out(x)
    _products[(m,)](x, w, y, n, triton.next_power_of_2(n), num_warps=1)
    return y


@bv.judged(reference=dotted)
def fused_multiply_adds(draw):
    m, n, x = _row_case(draw, "fp32", 2, 64, 33)
    w, y = draw.tensor("fp32", (m, n), strides="contiguous"), _out(x)
    _chained_products[(m,)](x, w, y, n, num_warps=1)
    return y


def _product_case(draw, dtype):
    m, n = draw.size(1, 512, around=64, name="m"), draw.size(1, 512, around=64, name="n")
    k = draw.size(16, 300, around=64, name="k")
    return m, n, k, draw.tensor(dtype, (m, k), strides="contiguous"), draw.tensor(dtype, (k, n), strides="contiguous")


def _multiplied(a, b, how, out=torch.float32, tile=(16, 16, 32), warps=1):
    m, k = a.shape
    n, (block_m, block_n, block_k) = b.shape[1], tile
    c = torch.empty((m, n), dtype=out, device=a.device)
    grid = (triton.cdiv(m, block_m), triton.cdiv(n, block_n))
    _matmul[grid](a, b, c, 1.0, m, n, k, block_m, block_n, block_k, how, num_warps=warps)
    return c


@bv.judged(reference=multiplied)
def dot_chain(draw):
    *_, a, b = _product_case(draw, "fp16")
    return _multiplied(a, b, "chain")


@bv.judged(reference=multiplied)
def dot_of_four_warps(draw):
    *_, a, b = _product_case(draw, "bf16")
    return _multiplied(a, b, "chain", tile=(64, 64, 32), warps=4)


@bv.judged(reference=multiplied)
def dot_fp8(draw):
    *_, a, b = _product_case(draw, "e4m3")
    return _multiplied(a, b, "chain", tile=(64, 64, 64), warps=4)


@bv.judged(reference=multiplied)
def dot_backwards(draw):
    *_, a, b = _product_case(draw, "bf16")
    return _multiplied(a, b, "backwards", torch.bfloat16)


@bv.judged(reference=multiplied)
def dot_promoted(draw):
    *_, a, b = _product_case(draw, "fp16")
    return _multiplied(a, b, "promoted")


@bv.judged(reference=multiplied)
def dot_tf32(draw):
    *_, a, b = _product_case(draw, "fp32")
    return _multiplied(a, b, "chain")


@bv.judged(reference=multiplied)
def dot_tf32x3(draw):
    *_, a, b = _product_case(draw, "fp32")
    return _multiplied(a, b, "tf32x3")


@bv.judged(reference=multiplied)
def dot_ieee(draw):
    *_, a, b = _product_case(draw, "fp32")
    return _multiplied(a, b, "ieee")


@bv.judged(reference=lambda xp, a, b: xp.matmul(a, b, accumulation="fp16"), accumulation="fp16")
def dot_fp16(draw):
    *_, a, b = _product_case(draw, "fp16")
    return _multiplied(a, b, "fp16", torch.float16)


@bv.judged(reference=multiplied)
def stream_k(draw):
    m, n, k, a, b = _product_case(draw, "fp16")
    steps = triton.cdiv(k, 32)
    tiles, programs = triton.cdiv(m, 32) * triton.cdiv(n, 32), 3
    parts = torch.zeros((programs, m, n), dtype=torch.float32, device=a.device)
    c = torch.empty((m, n), dtype=torch.float32, device=a.device)
    _streamed[(programs,)](a, b, parts, m, n, k, triton.cdiv(tiles * steps, programs), 32, 32, 32, num_warps=4)
    _fixed_up[(triton.cdiv(m * n, 256),)](parts, c, m * n, programs, 256, num_warps=4)
    return c

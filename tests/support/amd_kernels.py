"""Kernels of tests/emulator/test_amd.py: vectors, a sum, an exponential and a product in blocks of K."""

import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, MORE: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < n + MORE
    tl.store(out + place, tl.load(x + place, mask=inside) + tl.load(y + place, mask=inside), mask=inside)


@triton.jit
def shifted(x, out, BACK: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    tl.store(out + place, tl.load(x + place - BACK))


@triton.jit
def masked(x, out, n, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    tl.store(out + place, tl.load(x + place, mask=place < n, other=0.0))


@triton.jit
def copied(x, out, n, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    tl.store(out + place, tl.load(x + place), mask=place < n)


@triton.jit
def counted(out, n, PLACES: tl.constexpr, MORE: tl.constexpr, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    tl.atomic_add(out + lane % PLACES + MORE * (lane // (n - 1)), 1, mask=lane < n)


@triton.jit
def summed(x, out, BLOCK: tl.constexpr):
    tl.store(out, tl.sum(tl.load(x + tl.arange(0, BLOCK)), 0))


@triton.jit
def summed_squares(x, out, BLOCK: tl.constexpr):
    values = tl.load(x + tl.arange(0, BLOCK))
    tl.store(out, tl.sum(values * values, 0))


@triton.jit
def powers(x, out, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    tl.store(out + place, tl.exp(tl.load(x + place)))


@triton.jit
def converted(x, out, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    tl.store(out + place, tl.load(x + place).to(out.dtype.element_ty))


@triton.jit
def doubled(x, out, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    values = tl.load(x + place)
    tl.store(out + place, (values + values).to(tl.float32).to(out.dtype.element_ty))


@triton.jit
def product(a, b, c, k, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    row, depth = tl.arange(0, BLOCK), tl.arange(0, BLOCK_K)
    found = tl.zeros((BLOCK, BLOCK), tl.float32)
    for block in range(tl.cdiv(k, BLOCK_K)):
        inside = block * BLOCK_K + depth < k
        left = tl.load(a + row[:, None] * k + block * BLOCK_K + depth[None, :], mask=inside[None, :], other=0.0)
        right = tl.load(b + (block * BLOCK_K + depth[:, None]) * BLOCK + row[None, :], mask=inside[:, None], other=0.0)
        found = tl.dot(left, right, found)
    tl.store(c + row[:, None] * BLOCK + row[None, :], found)


@triton.jit
def scaled_product(a, a_scale, b, b_scale, c, K: tl.constexpr):
    line, inner, block = tl.arange(0, 32), tl.arange(0, K), tl.arange(0, K // 32)
    left, right = tl.load(a + line[:, None] * K + inner[None, :]), tl.load(b + line[None, :] * K + inner[:, None])
    of_rows = tl.load(a_scale + line[:, None] * (K // 32) + block[None, :])
    of_columns = tl.load(b_scale + line[:, None] * (K // 32) + block[None, :])
    tl.store(c + line[:, None] * 32 + line[None, :], tl.dot_scaled(left, of_rows, "e4m3", right, of_columns, "e4m3"))


@triton.jit
def summed_negatives(x, y, out, ROWS: tl.constexpr):
    """Sums of the negated products of ROWS rows, ROWS / 4 of a thread."""
    row, column = tl.arange(0, ROWS)[:, None], tl.arange(0, 64)[None, :]
    a, b = tl.load(x + row * 64 + column), tl.load(y + row * 64 + column)
    tl.store(out + tl.arange(0, 64), tl.sum(-(a * b), 0))

"""Kernels whose real values are compared with float64 mathematics: one for each kind of operation."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def rms_norm(x, w, out, n, eps, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    inside = columns < n
    values = tl.load(x + row * n + columns, mask=inside, other=0.0).to(tl.float32)
    scale = 1 / tl.sqrt(tl.sum(values * values) / n + eps)
    tl.store(out + row * n + columns, values * scale * tl.load(w + columns, mask=inside), mask=inside)


@triton.jit
def functions(x, y, out, N: tl.constexpr):
    """Of x > 0 and y: a row of `out` for each function."""
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    third = b / 3  # a value with an error
    tl.store(out + at, tl.exp(third))
    tl.store(out + N + at, tl.exp2(third))
    tl.store(out + 2 * N + at, tl.log(a) + tl.log2(a))
    tl.store(out + 3 * N + at, tl.sin(third) * tl.cos(b))
    tl.store(out + 4 * N + at, tl.erf(third))
    tl.store(out + 5 * N + at, tl.rsqrt(a) - tl.sqrt(a))
    tl.store(out + 6 * N + at, libdevice.tanh(third))
    tl.store(out + 7 * N + at, tl.fma(a, third, b) + tl.abs(b) - (-a))
    tl.store(out + 8 * N + at, tl.maximum(third, b) * tl.minimum(a, third) + tl.clamp(b, -0.5, 0.25))
    tl.store(out + 9 * N + at, tl.floor(third) + tl.ceil(b))
    tl.store(out + 10 * N + at, libdevice.pow(a, third))
    tl.store(out + 11 * N + at, tl.sigmoid(b) * libdevice.log1p(a))


@triton.jit
def decisions(x, out, indices, N: tl.constexpr):
    """Of x: what is chosen by comparisons, whole numbers, bits."""
    at = tl.arange(0, N)
    a = tl.load(x + at)
    third = a / 3
    tl.store(out + at, tl.where(third > 0, third, third * 0.5))  # both sides meet where it hangs
    tl.store(out + N + at, tl.where(third * 3 == a, 1.0, 2.0))  # hangs everywhere
    tl.store(out + 2 * N + at, tl.where((third > 1) & (at < 8), a, 0.0))
    tl.store(out + 3 * N + at, a.to(tl.int32, bitcast=True).to(tl.float32, bitcast=True))
    tl.store(out + 4 * N + at, third.to(tl.int32, bitcast=True).to(tl.float32, bitcast=True))
    tl.store(indices + at, third.to(tl.int32))
    tl.store(indices + N + at, (third * 3).to(tl.int32))


@triton.jit
def bits(x, out, N: tl.constexpr):
    """x in order; x as bf16, rounded by hand; the power of two at or below each of x."""
    at = tl.arange(0, N)
    a = tl.load(x + at)
    word = a.to(tl.int32, bitcast=True)
    tl.store(out + at, tl.sort(a))
    tl.store(out + N + at, (word + 0x7FFF + (word >> 16 & 1) >> 16 << 16).to(tl.float32, bitcast=True))
    tl.store(out + 2 * N + at, (word >> 23 << 23).to(tl.float32, bitcast=True))


@triton.jit
def _welford(mean, spread, count, other_mean, other_spread, other_count):
    total = count + other_count
    weight = other_count / total
    moved = other_mean - mean
    return mean + moved * weight, spread + other_spread + moved * moved * count * weight, total


@triton.jit
def _product(a, b):
    return a * b


@triton.jit
def _last(a, b):
    return b


@triton.jit
def folds(x, out, indices, N: tl.constexpr):
    """Of x (N,): sums, extremes with their places, prefixes, products, a combination of three values."""
    at = tl.arange(0, N)
    a = tl.load(x + at) / 3
    mean, spread, count = tl.reduce((a, a * 0, a * 0 + 1), 0, _welford)
    tl.store(out + at, tl.cumsum(a, 0))
    tl.store(out + N + at, tl.cumsum(a, 0, reverse=True))
    tl.store(out + 2 * N + at, tl.associative_scan(1 + a / 64, 0, _product))
    tl.store(out + 3 * N + at, tl.associative_scan(a, 0, tl.standard._elementwise_max))
    tl.store(out + 4 * N + 0, tl.sum(a))
    tl.store(out + 4 * N + 1, tl.max(a))
    tl.store(out + 4 * N + 2, tl.min(a))
    tl.store(out + 4 * N + 3, tl.reduce(1 + a / 64, 0, _product))
    tl.store(out + 4 * N + 4, mean)
    tl.store(out + 4 * N + 5, spread / count)
    tl.store(indices, tl.argmax(a, 0))
    tl.store(indices + 1, tl.argmin(tl.load(x + at), 0))


@triton.jit
def _scaled(x, factor):
    return x * factor, x / factor


_scaled.noinline = True


@triton.jit
def shapes(x, out, N: tl.constexpr, M: tl.constexpr, steps):
    """Of x (N, M): what moves, a loop, a call, a branch."""
    rows, columns = tl.arange(0, N), tl.arange(0, M)
    at = rows[:, None] * M + columns[None, :]
    a = tl.load(x + at) / 3
    left, right = tl.split(tl.reshape(a, (N, M // 2, 2)))
    again = tl.reshape(tl.join(right, left), (N, M))
    turned = tl.trans(tl.trans(again) * 2)
    picked = tl.gather(turned, (at + 1) % M, 1)
    total = tl.zeros((N, M), tl.float32)
    for step in range(steps):
        if step % 2 == 0:
            total += picked * (step + 1)
        else:
            total -= a
    up, down = _scaled(tl.sum(a), 0.7)
    tl.store(out + at, total + up * tl.sum(a, 0)[None, :] + tl.sum(a, 1)[:, None] * down)


@triton.jit
def unknown_operation(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    a = tl.load(x + at)
    bits = tl.inline_asm_elementwise("xor.b32 $0, $1, 1;", "=f,f", [a], dtype=tl.float32, is_pure=True, pack=1)
    plain = tl.inline_asm_elementwise(
        "{ .reg .f32 t; ex2.approx.ftz.f32 t, $1; fma.rn.f32 $0, t, $1, 0f40400000; }", "=f,f", [a], dtype=tl.float32,
        is_pure=True, pack=1,
    )  # fmt: skip
    tl.store(out + at, bits)
    tl.store(out + N + at, plain)


@triton.jit
def row_sums(x, out, n, BLOCK: tl.constexpr, MUTANT: tl.constexpr):
    """The mean of each row of x, and what a slip makes of it."""
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * n + columns, mask=columns < n - (MUTANT == "dropped"), other=0.0).to(tl.float32)
    if MUTANT == "mask":
        values = tl.load(x + row * n + columns, mask=columns <= n, other=0.0).to(tl.float32)
    if MUTANT == "doubled":
        values = tl.where(columns == 17, 2 * values, values)
    tl.store(out + row, tl.sum(values) / (n + (MUTANT == "scale")))


@triton.jit
def branches(x, out, N: tl.constexpr):
    """A branch by a float that hangs on a rounding."""
    at = tl.arange(0, N)
    a = tl.load(x + at) / 3
    if tl.max(a) * 3 == tl.max(tl.load(x + at)):
        tl.store(out + at, a)
    else:
        tl.store(out + at, 2 * a)


@triton.jit
def quantised(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    a = tl.load(x + at) / 3 * 3
    tl.store(out + at, a.to(tl.float8e4nv).to(tl.float32) * 3)


@triton.jit
def product_and_sum(x, y, out, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, a * b + b)

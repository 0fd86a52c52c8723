"""Triton kernels of fp64: every operation of which an H100 wrote the NaN words, and a product on the tensor cores."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def operations(a, b, out, N: tl.constexpr):
    """Nine operations of the words of a and b, a row of `out` (9, N) each."""
    at = tl.arange(0, N)  # (N,)
    x, y = tl.load(a + at), tl.load(b + at)  # (N,)
    tl.store(out + at, x + y)
    tl.store(out + N + at, x - y)
    tl.store(out + 2 * N + at, x * y)
    tl.store(out + 3 * N + at, x / y)
    tl.store(out + 4 * N + at, tl.fma(x, y, x))
    tl.store(out + 5 * N + at, tl.maximum(x, y))
    tl.store(out + 6 * N + at, tl.sqrt(x))
    tl.store(out + 7 * N + at, tl.floor(x))
    tl.store(out + 8 * N + at, x.to(tl.float32).to(tl.float64))


@triton.jit
def product(a, b, c, out, N: tl.constexpr):
    at = tl.arange(0, N)  # (N,)
    places = at[:, None] * N + at[None, :]  # (N, N)
    tl.store(out + places, tl.dot(tl.load(a + places), tl.load(b + places), tl.load(c + places), out_dtype=tl.float64))

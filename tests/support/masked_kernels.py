"""Small kernels that load under a mask without `other`: twins of which one lets a lane that was not loaded decide what is stored.

`WIDE` and its kin choose the twin: False is right.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy


@triton.jit
def elementwise(a, out, n, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(a + at, mask=at < n)
    tl.store(out + at, x * 2 + 1, mask=at < n + WIDE)


@triton.jit
def carried(a, out, n, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(a + at, mask=at < n)
    for _ in range(n):
        x = x + 1
    tl.store(out + at, x, mask=at < n + WIDE)


@triton.jit
def largest(a, out, n, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(a + at, mask=at < n)
    if not WIDE:
        x = tl.where(at < n, x, -1000)
    tl.store(out, tl.max(x))


@triton.jit
def counted(a, out, n, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    at = tl.arange(0, BLOCK)
    positive = tl.load(a + at, mask=at < n) > 0
    if not WIDE:
        positive = positive & (at < n)
    tl.store(out, tl.sum(positive.to(tl.int32)))


@triton.jit
def single(a, out, n, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    """A tile of one element that becomes a scalar; it is not loaded where it is stored wrongly."""
    at = tl.arange(0, 1)
    x = tl.load(a + at, mask=at >= n).item()
    tl.store(out, x + 1, mask=n < WIDE * BLOCK)


@triton.jit
def chosen(a, out, n, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    """A scalar that another scalar chooses."""
    at = tl.arange(0, BLOCK)
    largest_word = tl.max(tl.load(a + at, mask=at < n))
    tl.store(out, tl.where(n < WIDE * BLOCK, largest_word, 7))


@triton.jit
def scanned(a, out, n, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    """Right ahead, for the lanes that were loaded come first; wrong from behind."""
    at = tl.arange(0, BLOCK)
    x = tl.load(a + at, mask=at < n)
    tl.store(out + at, tl.cumsum(x, reverse=WIDE), mask=at < n)


@triton.jit
def scanned_back(a, out, n, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    """The same with the last lanes loaded."""
    at = tl.arange(0, BLOCK)
    x = tl.load(a + at, mask=at >= n)
    tl.store(out + at, tl.cumsum(x, reverse=not WIDE), mask=at >= n)


@triton.jit
def indexed(a, out, n, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    at = tl.arange(0, BLOCK)
    place = tl.load(a + at, mask=at < n) & (BLOCK - 1)
    tl.store(out + at, tl.load(a + place, mask=at < n + WIDE, other=0), mask=at < n + WIDE)


@triton.jit
def added(a, out, n, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(a + at, mask=at < n)
    tl.atomic_add(out + at % 4, x, mask=at < n + WIDE)


@triton.jit
def branched(a, out, n, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(a + at, mask=at < n)
    if not WIDE:
        x = tl.where(at < n, x, 0)
    if tl.max(x) > 3:
        tl.store(out, 1)


@triton.jit
def turned(a, out, n, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    """Rows past n are not loaded; they are columns of what is stored."""
    at = tl.arange(0, 16)
    x = tl.load(a + at[:, None] * 16 + at[None, :], mask=(at < n)[:, None])
    tl.store(out + at[:, None] * 16 + at[None, :], tl.trans(x) + 1, mask=(at < n + WIDE)[None, :])


@triton.jit
def product(a, out, n, BLOCK: tl.constexpr, WIDE: tl.constexpr, STAGES: tl.constexpr):
    """a a with its last rows not loaded, which ends in the last rows of the product; or its last columns as well."""
    at, steps = tl.arange(0, 64), tl.arange(0, 32)
    total = tl.zeros((64, 64), tl.float32)
    for start in tl.range(0, 64, 32, num_stages=STAGES):
        inside = (at < n)[:, None] & (start + steps < (n if WIDE else 64))[None, :]
        left = tl.load(a + at[:, None] * 64 + (start + steps)[None, :], mask=inside)
        total = tl.dot(left, tl.load(a + (start + steps)[:, None] * 64 + at[None, :]), total)
    tl.store(out + at[:, None] * 64 + at[None, :], total, mask=(at < n)[:, None])


@triton.jit
def described(a, out, n, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    """`out` is a descriptor of (16 + n, 32), or of one row more. The second tile goes through the bytes of the first."""
    at = tl.arange(0, 16)
    places = a + at[:, None] * 32 + tl.arange(0, 32)[None, :]
    out.store([16, 0], tl.load(places, mask=(at < n)[:, None]))
    out.store([0, 0], tl.load(places))


@triton.jit
def zeros(a, out, single, n, BLOCK: tl.constexpr):
    """What lies in lanes that were not loaded: every lane is stored."""
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(a + at, mask=at < n))
    tl.store(single, tl.load(a, mask=n > BLOCK))


@gluon.jit
def copied(a, out, n, BLOCK: gl.constexpr):
    """cp.async writes zeros where its mask is False, and an author who writes it by name relies on that (PTX ISA, cp.async)."""
    by_lanes: gl.constexpr = gl.BlockedLayout([4], [32], [1], [0])
    at = gl.arange(0, BLOCK, layout=by_lanes)
    tile = gl.allocate_shared_memory(a.dtype.element_ty, [BLOCK], gl.SwizzledSharedLayout(1, 1, 1, order=[0]))
    async_copy.async_load(tile, a + at, mask=at < n)
    async_copy.commit_group()
    async_copy.wait_group(0)
    gl.store(out + at, tile.load(by_lanes))


@triton.jit
def scaled_products(q_rows, k_rows, out, n, M: tl.constexpr, N: tl.constexpr):
    """A step of attention for each N of `n` rows of K; on sm_100 the first product stands ahead of the loop, with its load."""
    q = q_rows.load([0, 0])
    largest = tl.zeros([M], tl.float32)
    total = tl.zeros([M, N], tl.float32)
    for start in tl.range(0, n, N, num_stages=2):
        k = k_rows.load([start, 0])
        scores = tl.dot(q, k.T)
        largest = tl.maximum(largest, tl.max(scores, 1))
        total = total * tl.where(largest > 20, 1.0, -1.0)[:, None]
        total = tl.dot(scores.to(tl.float16), k, total)
    places = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + places, total + largest[:, None])

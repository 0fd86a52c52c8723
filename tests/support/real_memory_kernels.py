"""Kernels whose computed values go through memory: global, shared and tensor memory, products, atomics, bulk copies."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy


@triton.jit
def scaled(x, y, factor, n, BLOCK: tl.constexpr):
    """y = x * factor, in y's type."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n).to(tl.float32) * factor, mask=at < n)


@triton.jit
def as_integers(y, out, BLOCK: tl.constexpr):
    """The bits of fp16 y, as int32."""
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(y.to(tl.pointer_type(tl.int16)) + at).to(tl.int32))


@triton.jit
def summed(x, sums, BLOCK: tl.constexpr, PLACES: tl.constexpr):
    """sums[i] = sums[i] + x[i] / 3 + x[i + PLACES] / 3 + ..., by atomics."""
    at = tl.arange(0, BLOCK)
    tl.atomic_add(sums + at % PLACES, tl.load(x + at) / 3)


@triton.jit
def two_products(a, b, c, out, scale, SIZE: tl.constexpr, STEPS: tl.constexpr, AHEAD: tl.constexpr):
    """out = fp16(fp16(a b scale) c) over STEPS tiles of c, loaded by descriptors; AHEAD: of a wrong tile."""
    p = tl.dot(a.load([0, 0]), b.load([0, 0]))  # (SIZE, SIZE)
    p16 = (p * scale).to(tl.float16)
    total = tl.zeros((SIZE, SIZE), tl.float32)
    for step in tl.range(STEPS, num_stages=2):
        total = tl.dot(p16, c.load([(step + AHEAD) % STEPS * SIZE, 0]), total)
    out.store([0, 0], total.to(tl.float16))


@gluon.jit
def ring(x, y, WRITTEN: gl.constexpr, READ: gl.constexpr, SIZE: gl.constexpr):
    """Stages of x / 3, x / 7 and x / 11 in shared memory, fp16; then stage WRITTEN is x as it is, by cp.async, where there is such
    a stage. y = stage READ."""
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    stages = gl.allocate_shared_memory(gl.float16, [3, SIZE], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    at = gl.arange(0, SIZE, layout=layout)
    values = gl.load(x + at).to(gl.float32)
    for stage in gl.static_range(3):
        stages.index(stage).store((values / (3 + 4 * stage)).to(gl.float16))
    if WRITTEN >= 0:
        async_copy.async_load(stages.index(WRITTEN), x + at)
        async_copy.commit_group()
        async_copy.wait_group(0)
    gl.store(y + at, stages.index(READ).load(layout))


@gluon.jit
def split_words(x, y, SIZE: gl.constexpr):
    """fp16(x / 3) through shared memory that is read as half as many words of 32 bits; y = their bits."""
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    halves = gl.allocate_shared_memory(gl.float16, [SIZE], plain)
    halves.store((gl.load(x + gl.arange(0, SIZE, layout=layout)).to(gl.float32) / 3).to(gl.float16))
    words = halves.reinterpret(gl.int32, [SIZE // 2], plain)
    gl.store(y + gl.arange(0, SIZE // 2, layout=layout), words.load(layout))


@triton.jit
def reduced(x, out, factor, SIZE: tl.constexpr, LARGEST: tl.constexpr):
    """out = out + x * factor, or the larger of the two, by bulk copies that combine."""
    value = (x.load([0, 0]).to(tl.float32) * factor).to(tl.float16)  # (SIZE, SIZE)
    if LARGEST:
        out.atomic_max([0, 0], value)
    else:
        out.atomic_add([0, 0], value)


@triton.jit
def hanging(x, out, BLOCK: tl.constexpr, BY_MASK: tl.constexpr):
    """out = x where x / 3 * 3 is above x, or at the whole numbers that x / 3 * 3 are."""
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at)
    again = value / 3 * 3
    if BY_MASK:
        tl.store(out + at, value, mask=again > value)
    else:
        tl.store(out + again.to(tl.int32), value)


@triton.jit
def masked_product(a, b, out, k, SIZE: tl.constexpr):
    """out = a b, of k columns and rows, in steps of SIZE by cp.async; zeros beyond."""
    rows, steps = tl.arange(0, SIZE), tl.arange(0, SIZE)
    total = tl.zeros((SIZE, SIZE), tl.float32)
    for first in tl.range(0, k, SIZE, num_stages=3):
        inside = first + steps < k
        left = tl.load(a + rows[:, None] * k + first + steps[None, :], mask=inside[None, :], other=0.0)
        right = tl.load(b + (first + steps)[:, None] * SIZE + rows[None, :], mask=inside[:, None], other=0.0)
        total = tl.dot(left, right, total)
    tl.store(out + rows[:, None] * SIZE + rows[None, :], total)


@triton.jit
def in_place(y, BLOCK: tl.constexpr):
    """y = y / 3, and 1 more in programs from 4 on: which programs cannot do together."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(y + at) / 3
    tl.store(y + at, value)
    if tl.program_id(0) > 3:
        tl.store(y + at, value + 1)

"""Kernels as somebody's tests launch them: a right one, and a faulty twin for each class of fault; all take (x, y, n, BLOCK)."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@triton.jit
def doubled(x, y, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + places, 2 * tl.load(x + places, mask=places < n), mask=places < n)


@triton.jit
def added(x, y, n, BLOCK: tl.constexpr):
    """y += x: y must hold something before."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(y + places, mask=places < n) + tl.load(x + places, mask=places < n)
    tl.store(y + places, total, mask=places < n)


@triton.jit
def stray_read(x, y, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + places, 2 * tl.load(x + places), mask=places < n)


@triton.jit
def stray_write(x, y, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + places, 2 * tl.load(x + places, mask=places < n))


@triton.jit
def race(x, y, n, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    tl.store(y + places, tl.load(x + tl.program_id(0) + places))


@triton.jit
def misaligned_address(x, y, n, BLOCK: tl.constexpr):
    places = tl.arange(0, 8 * BLOCK)  # four elements a thread, so that the compiler makes use of the hint
    shifted = tl.max_contiguous(tl.multiple_of(places + n % 9, 8), 8)
    tl.store(y + places, tl.load(x + shifted, mask=places < BLOCK), mask=places < BLOCK)


@triton.jit
def deadlock(x, y, n, BLOCK: tl.constexpr):
    while tl.atomic_cas(y, 12345.0, 12345.0) != 12345.0:
        pass


@triton.jit
def tickets(x, y, n, BLOCK: tl.constexpr):
    """Takes a ticket for its number, which it is where programs come in order: a stray write where they do not."""
    ticket = tl.atomic_add(y, 1.0).to(tl.int32)
    tl.store(y + 110 + ticket - tl.program_id(0), 1.0, mask=ticket != tl.program_id(0))


@gluon.jit
def uninitialised_read(x, y, n, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    tile = gl.allocate_shared_memory(gl.float32, [BLOCK], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    gl.store(y + gl.arange(0, BLOCK, layout), tile.load(layout))


@triton.jit
def nothing_to_say(x, y, n, BLOCK: tl.constexpr):
    """An instruction that no emulated GPU knows."""
    places = tl.arange(0, BLOCK)
    value = tl.inline_asm_elementwise("nanosleep.u32 5; mov.b32 $0, $1;", "=r,r", [places], tl.int32, is_pure=False, pack=1)
    tl.store(y + places, value.to(tl.float32), mask=places < n)

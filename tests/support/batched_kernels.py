"""Kernels whose programs can run several at once, and such as cannot, for `test_program_batches`."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def rows(x, weights, out, extra, n, width, BLOCK: tl.constexpr):
    """A row a program: sums, extremes, prefixes, a loop that carries values of all programs and of one."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)  # (BLOCK,)
    value = tl.load(x + row * n + at, mask=at < n, other=0.0)
    weight = tl.load(weights + at, mask=at < n, other=0.0)
    scale = tl.load(weights + row) + tl.load(weights + 1)
    top = tl.exp(value - tl.max(value, axis=0))
    mean = tl.sum(value * weight, axis=0) / n + scale
    steps, grown = 0, 0.0
    for start in range(0, width, 8):
        part = tl.load(x + row * n + start + tl.arange(0, 8))  # (8,)
        grown += tl.sum(part * 0.5, axis=0)
        steps = steps + row * 3 - start
    kept = tl.where(row % 2 == 0, top, value * mean)
    tl.store(out + row * n + at, tl.cumsum(kept, axis=0) + grown, mask=at < n)
    place = tl.argmax(value, axis=0).to(tl.float32)
    tl.store(extra + row, place + steps + (row // 3) * tl.minimum(row, 2) + tl.cdiv(row, 2) + (row << 2))


@triton.jit
def tiles(x, out, m, n, BLOCK: tl.constexpr):
    """Axes that come, go and change places."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    tile = tl.load(x + rows[:, None] * n + columns[None, :], mask=mask, other=0)  # (BLOCK, BLOCK)
    low, high = tl.split(tl.reshape(tile, (BLOCK, BLOCK // 2, 2)))
    joined = tl.reshape(tl.join(high, low + tl.program_id(1)), (BLOCK, BLOCK))
    places = tl.zeros((BLOCK, BLOCK), tl.int32) + (BLOCK - 1 - tl.arange(0, BLOCK))[None, :]
    turned = tl.trans(tl.gather(joined, places, axis=1) + tl.sum(tile, axis=1)[:, None] * tl.max(tile, axis=0)[None, :])
    tl.store(out + columns[:, None] * m + rows[None, :], tl.sort(turned), mask=tl.trans(mask))


@triton.jit
def uneven(x, out, other, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """What only programs that run one by one can tell."""
    program = tl.program_id(0)
    at = program * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    value = tl.load(x + at)
    if KIND == "assert":
        tl.device_assert(program != 5, "not the fifth")
    if KIND == "ways":
        if program == 3:
            value = value * 2
    if KIND == "endless":
        grown = tl.load(other + program)  # 0
        while grown < 1:
            grown = grown * 2
        value += grown
    if KIND == "beyond":
        value += tl.load(x + at + (program // 7) * 64)
    if KIND == "neighbour":
        at -= (program // 6) * 8
    if KIND == "equal":
        value, at = value * 0 + 1, at - (program // 6) * 8
    tl.store(out + at, value)
    if KIND == "again":
        value = tl.load(out + at)
    if KIND == "theirs":
        value = tl.load(out + (at + BLOCK) % (8 * BLOCK))
    tl.store(other + at, value)


@triton.jit
def parted(x, out, steps, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """Programs that go different ways: a row of `steps` says how far, and `KIND` where they part."""
    program, at = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + program * BLOCK + at)
    step = tl.load(steps + program)
    if KIND == "stored":
        tl.store(out + program * BLOCK + at, value, mask=at < 4)
    if KIND == "in place":
        value += tl.load(out + program * BLOCK + at)
    if KIND == "left":
        if step == 0:
            return
    if step % 2 == 0:
        value += 1
        if step > 2:
            value *= 3
    for i in range(step):
        value += tl.load(x + i * BLOCK + at) * 0.5
    if KIND == "stored":
        tl.store(out + program * BLOCK + at, value, mask=at > 3)
    elif KIND == "apart":
        tl.store(out + program * BLOCK + (step % 2) * BLOCK + at, value)  # some programs store what the next one does
    else:
        tl.store(out + program * BLOCK + at, value)


@triton.jit(do_not_specialize=["first", "step", "length", "hole", "far", "again", "limit"])
def drawn(x, out, first, step, length, hole, far, again, limit, BLOCK: tl.constexpr):
    """Each program copies `BLOCK` elements `step` apart, but for those from `length` on and each third, `hole`; then it writes
    `limit` of them again, `far` and more elements on."""
    lane = tl.arange(0, BLOCK)  # (BLOCK,)
    at = tl.program_id(0) * first + lane * step
    mask = (lane < length) & (lane % 3 != hole)
    tl.store(out + at, tl.load(x + at, mask=mask, other=-1.0) + 1, mask=mask)
    at = tl.program_id(0) * again + far + lane
    tl.store(out + at, tl.load(out + at, mask=lane < limit) * 2, mask=lane < limit)


@triton.jit
def in_place(x, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """Each program stores where it has read; by another thread, or where a neighbour has read, unless KIND is "own", "again" or
    "backwards"."""
    at = tl.arange(0, BLOCK)  # (BLOCK,)
    row = x + tl.program_id(0) * n
    if KIND == "backwards":
        row = x + (tl.num_programs(0) - 1 - tl.program_id(0)) * n
    elif KIND == "twice":
        at = at % (BLOCK // 2)
    value = tl.load(row + at, mask=at < n, other=0.0)
    if KIND == "again":  # by pointers that are made once more
        tl.store(x + (tl.program_id(0) * n + at), value * 2, mask=at < n)
    elif KIND == "turned":
        tl.store(row + BLOCK - 1 - at, value * 2)
    elif KIND == "neighbour":
        value += tl.load(row + at + 8)
        tl.store(row + at, value, mask=at < n)
    elif KIND == "joined":
        tl.store(row + at // 2, value * 0 + 3, mask=at < n)
    else:
        tl.store(row + at, value * 2, mask=at < n)


@triton.jit
def masked(x, out, n, KIND: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """Lanes that a row's load leaves undefined, by the number of the row, go where `KIND` says; with `WIDE` one of them decides
    what is stored."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside, square = at < n - row, at[:, None] * BLOCK + at[None, :]
    value = tl.load(x + row * BLOCK + at, mask=inside)
    kept = at < n - row + WIDE
    if KIND == "same":  # for all programs
        value = tl.load(x + at, mask=at < n - 8) + row
        kept = at < n - 8 + WIDE
    elif KIND == "selected":
        value = tl.where(row % 2 == 0, value, value * 3)
    elif KIND == "single":
        value = tl.where(tl.load(x + row, mask=row % 2 == 0 if WIDE else row < 99) > 0, at, row)
    elif KIND == "summed":
        value = tl.sum(tl.where(kept, value, 0)) + at
        kept = at < n
    elif KIND == "scanned":
        value = tl.cumsum(value, reverse=WIDE)
    elif KIND == "branched":
        if tl.sum(tl.where(kept, value, 0)) > -1000:
            value = at
    elif KIND == "carried":
        for _ in range(n):
            value += row
    elif KIND == "joined":
        value, _ = tl.split(tl.reshape(tl.join(value, at), (BLOCK, 2)))
    if KIND == "turned":
        tile = tl.load(x + square, mask=inside[:, None])
        tl.store(out + row * BLOCK * BLOCK + square, tl.trans(tile) + 1, mask=kept[None, :])
    else:
        tl.store(out + row * BLOCK + at, value, mask=kept)

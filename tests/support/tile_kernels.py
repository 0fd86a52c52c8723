"""Small Triton kernels that the emulator's checks launch: a matmul, masked copies, and forms that must fail or refused."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def product(
    a,
    b,
    c,
    m,
    n,
    k,
    stride_am,
    stride_bk,
    stride_cm,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    ACCUMULATOR: tl.constexpr,
    PRECISION: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)  # (BLOCK_M,)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)  # (BLOCK_N,)
    steps = tl.arange(0, BLOCK_K)  # (BLOCK_K,)
    a_at = a + rows[:, None] * stride_am + steps[None, :]
    b_at = b + steps[:, None] * stride_bk + columns[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACCUMULATOR)
    for start in range(0, k, BLOCK_K):
        left = tl.load(a_at, mask=(rows[:, None] < m) & (steps[None, :] < k - start), other=0.0)
        right = tl.load(b_at, mask=(columns[None, :] < n) & (steps[:, None] < k - start), other=0.0)
        total = tl.dot(left, right, total, out_dtype=ACCUMULATOR, input_precision=PRECISION)
        a_at += BLOCK_K
        b_at += BLOCK_K * stride_bk
    tl.store(
        c + rows[:, None] * stride_cm + columns[None, :],
        total.to(c.dtype.element_ty),
        mask=(rows[:, None] < m) & (columns[None, :] < n),
    )


@triton.jit
def copy(source, destination, size, reach, BLOCK: tl.constexpr):
    """Writes `reach` elements and reads as many of `source`, whatever the size of either."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    tl.store(destination + at, tl.load(source + at, mask=at < size, other=0.0), mask=at < reach)


@triton.jit
def collide(destination, BLOCK: tl.constexpr):
    """Every program writes its own number to the same elements."""
    tl.store(destination + tl.arange(0, BLOCK), tl.program_id(0) + tl.zeros((BLOCK,), tl.int32))


@triton.jit
def lanes_collide(destination, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)  # (BLOCK,)
    tl.store(destination + at // 2, at)


@triton.jit
def multiply_add(a, b, c, destination, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)  # (BLOCK,)
    tl.store(destination + at, tl.load(a + at) * tl.load(b + at) + tl.load(c + at))


@triton.jit
def integers(a, b, quotient, remainder, product_of, shifted, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)  # (BLOCK,)
    x = tl.load(a + at)
    y = tl.load(b + at)
    tl.store(quotient + at, x // y)
    tl.store(remainder + at, x % y)
    tl.store(product_of + at, x * y)
    tl.store(shifted + at, x >> 3)


@triton.jit
def spin(destination, count):
    at = 0
    while at < count:
        at += 1
    tl.store(destination, at)


@triton.jit
def reductions(a, largest, where, total, running, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows = tl.arange(0, ROWS)  # (ROWS,)
    x = tl.load(a + rows[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :])  # (ROWS, COLUMNS)
    tl.store(largest + rows, tl.max(x, 1))
    tl.store(where + rows, tl.argmax(x, 1))
    tl.store(total + rows, tl.sum(x, 1))
    tl.store(running + rows, tl.cumsum(tl.sum(x, 1)))


@triton.jit
def float_sum(a, total, BLOCK: tl.constexpr):
    tl.store(total, tl.sum(tl.load(a + tl.arange(0, BLOCK))))


@triton.jit
def atomics(counter, largest, flag, BLOCK: tl.constexpr):
    tl.atomic_add(counter + tl.arange(0, BLOCK) % 4, 1)
    tl.atomic_max(largest, tl.program_id(0))
    tl.atomic_cas(flag, 0, tl.program_id(0) + 1)


@triton.jit
def neighbour(values, BLOCK: tl.constexpr):
    """Each program reads what the next one writes."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    there = (tl.program_id(0) + 1) % tl.num_programs(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    tl.store(values + at, tl.load(values + there) + 1)


@triton.jit
def rounded(a, b, quotient, root, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)  # (BLOCK,)
    x = tl.load(a + at)
    tl.store(quotient + at, tl.div_rn(x, tl.load(b + at)))
    tl.store(root + at, tl.sqrt_rn(tl.abs(x)))


@triton.jit
def to_integers(a, small, large, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)  # (BLOCK,)
    x = tl.load(a + at)
    tl.store(small + at, x.to(tl.int8))
    tl.store(large + at, x.to(tl.int32))


@triton.jit
def descriptor_product(a, b, c, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """a, b, c: host tensor descriptors."""
    row = tl.program_id(0) * BLOCK_M
    column = tl.program_id(1) * BLOCK_N
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, k, BLOCK_K):
        total = tl.dot(a.load([row, start]), b.load([start, column]), total)
    c.store([row, column], total.to(tl.float16))


@triton.jit
def persistent_product(
    a, b, c, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PROGRAMS: tl.constexpr
):
    """a (m, k), b (n, k) and c as host descriptors; the compiler cuts the loop into partitions where the target lets it."""
    columns = tl.cdiv(n, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tl.cdiv(m, BLOCK_M) * columns, PROGRAMS, flatten=True, warp_specialize=True):
        row = tile // columns * BLOCK_M
        column = tile % columns * BLOCK_N
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(tl.cdiv(k, BLOCK_K)):
            total = tl.dot(a.load([row, step * BLOCK_K]), b.load([column, step * BLOCK_K]).T, total)
        c.store([row, column], total.to(tl.float16))


@triton.jit
def narrowed(a, out, BLOCK: tl.constexpr, ROUNDING: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(a + at).to(out.dtype.element_ty, fp_downcast_rounding=ROUNDING))


@triton.jit
def integer_product(a, b, c, out, SIZE: tl.constexpr, K: tl.constexpr):
    """out = c + a b: a (SIZE, K), b (K, SIZE) int8; c and out (SIZE, SIZE) int32."""
    row = tl.arange(0, SIZE)
    step = tl.arange(0, K)
    square = row[:, None] * SIZE + row[None, :]
    left = tl.load(a + row[:, None] * K + step[None, :])
    right = tl.load(b + step[:, None] * SIZE + row[None, :])
    tl.store(out + square, tl.dot(left, right, tl.load(c + square), out_dtype=tl.int32))


@triton.jit
def paged_product(a, pages, table, out, count, SIZE: tl.constexpr, COLUMNS: tl.constexpr):
    """The sum of a (SIZE, SIZE) times each page (SIZE, COLUMNS) that the table names, each page through a descriptor of its own."""
    rows, columns = tl.arange(0, SIZE), tl.arange(0, COLUMNS)
    left = tl.load(a + rows[:, None] * SIZE + rows[None, :])
    total = tl.zeros((SIZE, COLUMNS), tl.float32)
    for page in range(count):
        place = pages + tl.load(table + page).to(tl.int64) * SIZE * COLUMNS
        described = tl.make_tensor_descriptor(place, [SIZE, COLUMNS], [COLUMNS, 1], [SIZE, COLUMNS])
        total = tl.dot(left, described.load([0, 0]), total)
    tl.store(out + rows[:, None] * COLUMNS + columns[None, :], total)


@triton.jit
def descriptor_rows(table, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """out = the first tile of `table`, a host tensor descriptor of (ROWS, COLUMNS)."""
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tl.store(out + at, table.load([0, 0]))


@triton.jit
def descriptor_gather(table, rows, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """out = rows of `table`, a host tensor descriptor of (1, COLUMNS), by their numbers."""
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tl.store(out + at, table.gather(tl.load(rows + tl.arange(0, ROWS)), 0))


@triton.jit
def descriptor_write(table, source, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The first tile of `table`, a host tensor descriptor of (ROWS, COLUMNS), = source."""
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    table.store([0, 0], tl.load(source + at))


@triton.jit
def scalars(words, floats, there, COUNT: tl.constexpr):
    """Each of `words` + 1 as the bits of a float, each of `floats` x 2 as a word - 1, where `there`; -7 as a word elsewhere."""
    for at in range(COUNT):
        word = tl.load(words + at, mask=tl.load(there + at) != 0, other=-8)
        bits = (tl.load(floats + at) * 2).to(tl.int32, bitcast=True)
        tl.store(floats + at, (word + 1).to(tl.float32, bitcast=True))
        tl.store(words + at, bits - 1)


@triton.jit
def descriptor_tile(table, out, start, SIZE: tl.constexpr, RANK: tl.constexpr):
    """out = the tile of `table`, a host tensor descriptor of RANK, that starts at `start` in each dimension but the last."""
    at = tl.arange(0, SIZE)
    if RANK == 1:
        tile = table.load([0])
    elif RANK == 2:
        tile = table.load([start, 0])
    elif RANK == 3:
        tile = table.load([start, start, 0])
    elif RANK == 4:
        tile = table.load([start, start, start, 0])
    else:
        tile = table.load([start, start, start, start, 0])
    tl.store(out + at, tile.reshape(SIZE))


@triton.jit
def batched_product(a, b, out, BATCH: tl.constexpr, SIZE: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr):
    """out[i] = a[i] b[i], a (BATCH, SIZE, K), b (BATCH, K, SIZE)."""
    batch = tl.arange(0, BATCH)[:, None, None] * SIZE
    rows, steps = tl.arange(0, SIZE), tl.arange(0, K)
    left = tl.load(a + (batch + rows[None, :, None]) * K + steps[None, None, :])  # (BATCH, SIZE, K)
    right = tl.load(b + batch * K + steps[None, :, None] * SIZE + rows[None, None, :])  # (BATCH, K, SIZE)
    tl.store(out + (batch + rows[None, :, None]) * SIZE + rows[None, None, :], tl.dot(left, right, input_precision=PRECISION))


@triton.jit
def widened_product(a, b, out, SIZE: tl.constexpr, K: tl.constexpr):
    """a (SIZE, K) times b (K, SIZE), which is widened to the type of a."""
    at, steps = tl.arange(0, SIZE), tl.arange(0, K)
    left = tl.load(a + at[:, None] * K + steps[None, :])
    right = tl.load(b + steps[:, None] * SIZE + at[None, :]).to(left.dtype)
    tl.store(out + at[:, None] * SIZE + at[None, :], tl.dot(left, right))


@triton.jit
def descriptor_combined(table, source, KIND: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """table, below row 2, combined with each program's tile of source (programs, ROWS, COLUMNS)."""
    at = tl.program_id(0) * ROWS * COLUMNS + tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tile = tl.load(source + at)
    if KIND == "add":
        table.atomic_add([2, 0], tile)
    elif KIND == "min":
        table.atomic_min([2, 0], tile)
    elif KIND == "max":
        table.atomic_max([2, 0], tile)
    elif KIND == "and":
        table.atomic_and([2, 0], tile)
    elif KIND == "or":
        table.atomic_or([2, 0], tile)
    else:
        table.atomic_xor([2, 0], tile)


@triton.jit
def pointers_added(table, source, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    tl.atomic_add(table + at, tl.load(source + at))


@triton.jit
def copied(source, target, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)  # (BLOCK,)
    tl.store(target + places, tl.load(source + places))

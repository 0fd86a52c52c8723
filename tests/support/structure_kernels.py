"""Triton kernels whose operations move, count or draw words: what the standard library builds on besides arithmetic."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def draw(seed, words, floats, N: tl.constexpr):
    at = tl.arange(0, N)  # (N,)
    a, b, c, d = tl.randint4x(seed, at)
    tl.store(words + at, a)
    tl.store(words + N + at, b)
    tl.store(words + 2 * N + at, c)
    tl.store(words + 3 * N + at, d)
    tl.store(floats + at, tl.rand(seed, at))


@triton.jit
def count(values, whole, masked, N: tl.constexpr, BINS: tl.constexpr):
    at = tl.arange(0, N)  # (N,)
    found = tl.load(values + at)
    bins = tl.arange(0, BINS)  # (BINS,)
    tl.store(whole + bins, tl.histogram(found, BINS))
    tl.store(masked + bins, tl.histogram(found, BINS, mask=at % 3 != 0))


@triton.jit
def pick(source, indices, out, ROWS: tl.constexpr, TAKEN: tl.constexpr, COLUMNS: tl.constexpr):
    column = tl.arange(0, COLUMNS)[None, :]  # (1, COLUMNS)
    tile = tl.load(source + tl.arange(0, ROWS)[:, None] * COLUMNS + column)  # (ROWS, COLUMNS)
    places = tl.arange(0, TAKEN)[:, None] * COLUMNS + column  # (TAKEN, COLUMNS)
    tl.store(out + places, tl.gather(tile, tl.load(indices + places), 0))


@triton.jit
def arrange(a: tl.const, b, out, N: tl.constexpr, K: tl.constexpr):
    """Row by row of 2N: a behind b, interleaved, sorted, the K largest, turned round, permuted."""
    at, both = tl.arange(0, N), tl.arange(0, 2 * N)
    tl.extra.cuda.gdc_wait()
    x, y = tl.load(a + at), tl.load(b + at)
    tl.store(out + both, tl.cat(x, y))
    tl.store(out + 2 * N + both, tl.interleave(x, y))
    tl.store(out + 4 * N + at, tl.sort(x, descending=True))
    tl.store(out + 6 * N + tl.arange(0, K), tl.topk(x, K))
    tl.store(out + 8 * N + at, tl.flip(x, 0))
    tl.store(out + 10 * N + at, tl.ravel(tl.permute(tl.reshape(x, (4, 2, N // 8)), (2, 0, 1))))
    tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def steps_down(x, most):
    """How many steps of 3x + 1 and x / 2 there are from x to 1, `most` at most, and the sum of what was passed."""
    steps = 0
    passed = 0
    while (x > 1) & (steps < most):
        if x % 2 == 0:
            x = x // 2
        else:
            passed += x
            x = 3 * x + 1
        steps += 1
    return steps, x + passed


@triton.jit
def larger_first(x, after_x, y, after_y):
    if x > after_x:
        return x * y, after_x - after_y
    return after_x, x


@triton.jit
def each_element(a, limit, steps, left, turned, N: tl.constexpr, PACK: tl.constexpr):
    at = tl.arange(0, N)  # (N,)
    x = tl.load(a + at)
    taken, rest = tl.map_elementwise(steps_down, x, tl.load(limit + at))
    tl.store(steps + at, taken)
    tl.store(left + at, rest)
    tl.store(turned + at, tl.map_elementwise(larger_first, x, at, pack=PACK)[0])


@triton.jit(noinline=True)
def shifted_sum(values, by, N: tl.constexpr):
    return tl.sum(tl.load(values + tl.arange(0, N)), 0) + by


@triton.jit(noinline=True)
def twice_summed(values, by, N: tl.constexpr):
    return shifted_sum(values, shifted_sum(values, by, N), N)


@triton.jit
def calls(a, b, values, out, total, K: tl.constexpr, N: tl.constexpr, COUNT: tl.constexpr):
    """A pipelined product, whose tiles lie in shared memory while functions that use some are called."""
    at = tl.arange(0, N)
    product = tl.zeros((N, N), tl.float32)
    found = twice_summed(values, 1, COUNT)
    for k in range(0, K, N):
        left = tl.load(a + at[:, None] * K + k + at[None, :])  # (N, N)
        right = tl.load(b + (k + at[:, None]) * N + at[None, :])  # (N, N)
        product = tl.dot(left, right, product)
        found = twice_summed(values, found, COUNT)
    tl.store(out + at[:, None] * N + at[None, :], product)
    tl.store(total, found)


@triton.jit
def printed(numbers, words, floats, N: tl.constexpr):
    at = tl.arange(0, N)  # (N,)
    x, y = tl.load(numbers + at), tl.load(words + at)
    tl.device_print("both", x, y)
    tl.device_print("hex: ", x, hex=True)
    tl.device_print("float", tl.load(floats + at[:, None] * 2 + tl.arange(0, 2)[None, :]))
    tl.device_print("here")
    tl.device_print("scalar", tl.load(numbers + 1))
    tl.device_assert(x < 100, "below a hundred")


@triton.jit
def products_of_doubles(a, b, out, N: tl.constexpr):
    """Rows of N: a product and a sum in one; its difference; a product added in each step of a loop."""
    at = tl.arange(0, N)  # (N,)
    x, y = tl.load(a + at), tl.load(b + at)
    tl.store(out + at, x * y + x)
    tl.store(out + N + at, y - x * y)
    total = tl.zeros((N,), tl.float64)
    for _ in range(5):
        total += x * y
        x = x + 1
    tl.store(out + 2 * N + at, total)


@triton.jit
def joined_anyhow(a, b, out, N: tl.constexpr):
    at = tl.arange(0, N)  # (N,)
    tl.store(out + tl.arange(0, 2 * N), tl.cat(tl.load(a + at), tl.load(b + at), can_reorder=True))


@triton.jit
def doubled_less(a, b):
    return (a << 1) - b


@triton.jit
def counted_sum(a, n, b, m):
    tl.device_assert(n + m <= 1000, "so many")
    return tl.where(n > 3, a ^ b, a + b.to(tl.int16).to(tl.int32)), n + m


@triton.jit
def folds(a, scanned, folded, N: tl.constexpr):
    at = tl.arange(0, N)  # (N,)
    x = tl.load(a + at)
    tl.store(scanned + at, tl.associative_scan(x, 0, doubled_less))
    total, count = tl.reduce((x, tl.full((N,), 1, tl.int32)), 0, counted_sum)
    tl.store(folded, total)
    tl.store(folded + 1, count)


@triton.jit
def lowered_to(x):
    """x[0] is 42 at most. Every thread reads it, one writes it."""
    if tl.load(x) > 42:
        tl.store(x, 42)


@triton.jit
def left_over(a, b, out, N: tl.constexpr):
    at = tl.arange(0, N)  # (N,)
    tl.store(out + at, tl.load(a + at) % tl.load(b + at))

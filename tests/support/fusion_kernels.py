"""Kernels in which the compiler may take a product into a sum: scans, sums, sums that a loop carries, rows of attention.

Each program has a tile of ROWS x COLUMNS of its own in `x` and `y`, and stores `words_of` words to `out`."""

import triton
import triton.language as tl


@triton.jit
def _decayed(decay_a, value_a, decay_b, value_b):
    return decay_a * decay_b, value_a * decay_b + value_b


@triton.jit
def _swapped(a, b):
    return b + a


@triton.jit
def _welford(mean_a, square_a, weight_a, mean_b, square_b, weight_b):
    """Of Triton's own `test_reduce` and torch's `triton_helpers`."""
    delta, weight = mean_b - mean_a, weight_a + weight_b
    share = weight_b / weight
    return mean_a + delta * share, square_a + square_b + delta * delta * weight_a * share, weight


@triton.jit
def _counted(mean_a, count_a, square_a, mean_b, count_b, square_b):
    """Of flag_gems' `var_mean`."""
    count = count_a + count_b
    total_a, total_b = mean_a * count_a, mean_b * count_b
    mean = (total_a + total_b) / tl.maximum(count, 1)
    return mean, count, square_a + total_a * mean_a + square_b + total_b * mean_b - count * mean * mean


@triton.jit
def probe(x, y, out, steps, ROWS: tl.constexpr, COLUMNS: tl.constexpr, KIND: tl.constexpr):
    """One scan or sum of the kind `KIND`; `steps` is how often a loop runs."""
    row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    if KIND == "scan by columns":  # a thread's neighbours in memory are neighbours along axis 0
        places = row[:, None] + column[None, :] * ROWS + tl.program_id(0) * (ROWS * COLUMNS)
    else:
        places = row[:, None] * COLUMNS + column[None, :] + tl.program_id(0) * (ROWS * COLUMNS)
    a, b = tl.load(x + places), tl.load(y + places)
    p = tl.load(y + tl.program_id(0) * (ROWS * COLUMNS) + row)  # [ROWS]
    q = tl.load(y + tl.program_id(0) * (ROWS * COLUMNS) + column)  # [COLUMNS]
    if KIND == "scan":
        found = tl.cumsum(a * b, 1)
    elif KIND == "scan, swapped":
        found = tl.associative_scan(-a * b, 0, _swapped)
    elif KIND == "several scans":
        found = tl.cumsum(a * b, 0) + tl.cumsum(a * a, 1, reverse=True)
    elif KIND == "scan of columns" or KIND == "scan by columns":
        found = tl.cumsum(a * b, 0)
    elif KIND == "scan from the end":
        found = tl.cumsum(a * b, 1, reverse=True)
    elif KIND == "scan, chosen":
        found = tl.cumsum(tl.where(a > 0, a * b, 0.0).to(a.dtype), 1)
    elif KIND == "scan, and one":
        found = tl.cumsum(a * b + 1, 1)
    elif KIND == "scan, negated":
        found = tl.cumsum(-(a * b), 1)
    elif KIND == "scan of a row's product":
        found = tl.cumsum(a * p[:, None], 1)
    elif KIND == "scan of pairs":
        _decay, found = tl.associative_scan((b, a), 1, _decayed)
    elif KIND == "scan of pairs of products":
        _decay, found = tl.associative_scan((b, a * b), 1, _decayed)
    elif KIND == "sum of rows":
        found = tl.sum(a * b, 0)
    elif KIND == "sum of columns":
        found = tl.sum(a * b, 1)
    elif KIND == "sum of weighted rows":
        found = tl.sum(p[:, None] * a, 0)
    elif KIND == "sum of rows, weights negated":
        found = tl.sum((-p)[:, None] * a, 0)
    elif KIND == "sum of weighted columns":
        found = tl.sum(a * q[None, :], 1)
    elif KIND == "sum of columns, weights negated":
        found = tl.sum(a * (-q)[None, :], 1)
    elif KIND == "sum, chosen":
        found = tl.sum(tl.where(a > 0, a * b, 0.0).to(a.dtype), 0)
    elif KIND == "two sums":
        found = tl.sum(a * b, 1) + tl.sum(a * a, 1)
    elif KIND == "sum of products of sums":
        found = tl.sum((a + b) * (a - b), 0)
    elif KIND == "kept, and taken away":
        found = a - b * tl.sum(a * b, 1, keep_dims=True)
    elif KIND == "scan of a scan":
        found = tl.cumsum(tl.cumsum(a * b, 1) * b, 0)
    elif KIND == "sum of two products":
        found = tl.sum(a * b + b * p[:, None], 0)
    elif KIND == "products in two orders":
        first, second = (a * b) * p[:, None], a * (b * p[:, None])
        found = tl.where(a > 0, first + second, first) + tl.sum(first + second, 0)[None, :]
    elif KIND == "rounded, and not":
        first, second = a.to(tl.bfloat16).to(a.dtype) * p[:, None], a * p[:, None]
        found = tl.maximum(first + second, first) + tl.sum(a * b, 0)[None, :]
    elif KIND == "carried":
        carried = tl.zeros([ROWS, COLUMNS], a.dtype)
        for step in range(steps):
            carried = carried * b + tl.load(x + places + step)
        found = tl.sum(carried * a, 1)
    elif KIND == "carried, of rows":
        carried = tl.zeros([ROWS, COLUMNS], a.dtype)
        for step in range(steps):
            carried = carried * b + tl.load(x + places + step)
        found = tl.sum(carried * p[:, None], 0)
    elif KIND == "delta rule" or KIND == "delta rule of pairs":  # the state stays in registers
        found = tl.zeros([COLUMNS], tl.float32)
        state = tl.zeros([ROWS, COLUMNS], tl.float32)
        for step in range(steps):
            given = x + tl.program_id(0) * (ROWS * COLUMNS) + step * ROWS + row
            if KIND == "delta rule of pairs":  # keys come through shared memory
                keys = tl.sum(tl.load(given[None, :] + tl.arange(0, 2)[:, None]).to(tl.float32), 0)
            else:
                keys = tl.load(given).to(tl.float32)
            state *= tl.load(y + tl.program_id(0) * (ROWS * COLUMNS) + step).to(tl.float32)
            state += keys[:, None] * (q.to(tl.float32) - tl.sum(state * keys[:, None], 0))[None, :]
            found = tl.sum(state * p.to(tl.float32)[:, None], 0)
    elif KIND == "flash decoding":
        most = tl.full([], -1e30, tl.float32)
        total = tl.zeros([], tl.float32)
        found = tl.zeros([COLUMNS], tl.float32)
        for step in range(steps):
            keys = tl.load(x + places + step).to(tl.float32)
            scores = tl.sum(q[None, :].to(tl.float32) * keys, 1) * 0.125
            now = tl.maximum(most, tl.max(scores, 0))
            weights, kept = tl.exp(scores - now), tl.exp(most - now)
            values = tl.load(y + places + step).to(tl.float32)
            found = found * kept + tl.sum(weights[:, None] * values, 0)
            total = total * kept + tl.sum(weights, 0)
            most = now
        found = found / total
    elif KIND == "extremes of scores":  # of which lanes hold copies of other words
        scores = tl.sum(q[None, :].to(tl.float32) * tl.load(x + places + steps).to(tl.float32), 1)
        bits = scores.to(tl.int32, bitcast=True)
        counted = tl.sum(bits & 255, 0) + tl.max(bits & 127, 0) - tl.xor_sum(bits & 63, 0)
        found = tl.max(scores, 0) - tl.min(scores, 0) * q.to(tl.float32) + counted.to(tl.float32) * 1e-6
    elif KIND == "layer norm backward":
        scale = tl.load(y + tl.program_id(0) * (ROWS * COLUMNS) + column).to(tl.float32)
        found = tl.zeros([COLUMNS], tl.float32)
        for step in range(steps):
            line = tl.program_id(0) * (ROWS * COLUMNS) + step * COLUMNS + column
            given, seen = tl.load(x + line).to(tl.float32), tl.load(y + line).to(tl.float32)
            weighted, hat = scale * given, (seen - 0.25) * 1.5
            first, second = tl.sum(hat * weighted, 0) / COLUMNS, tl.sum(weighted, 0) / COLUMNS
            found += (weighted - (hat * first + second)) * 1.5
    elif KIND == "variance of squares" or KIND == "variance of squares, kept":  # as SGLang's `group_norm_silu` has it
        total, squares = tl.zeros([], tl.float32), tl.zeros([], tl.float32)
        for start in range(0, steps * COLUMNS, COLUMNS):
            seen = tl.load(x + tl.program_id(0) * (ROWS * COLUMNS) + start + column).to(tl.float32)
            total += tl.sum(seen, 0)
            squares += tl.sum(seen * seen, 0)
        share = 1.0 / (steps * COLUMNS)
        mean = total * share
        variance = squares * share - mean * mean
        spread = tl.rsqrt(variance + 0.5)
        found = tl.full([COLUMNS], -1e30, tl.float32)
        for start in range(0, steps * COLUMNS, COLUMNS):
            seen = tl.load(x + tl.program_id(0) * (ROWS * COLUMNS) + start + column).to(tl.float32)
            found = tl.maximum(found, (seen - mean) * spread)
        if KIND == "variance of squares, kept":
            found = tl.where(found > 1, found, variance)
    elif KIND == "variance":
        centred = a - tl.sum(a, 1, keep_dims=True) / COLUMNS
        found = tl.sum(centred * centred, 1)
    elif KIND == "Welford" or KIND == "Welford of products":
        values = (a * b if KIND == "Welford of products" else a).to(tl.float32)
        mean, square, _weight = tl.reduce((values, tl.zeros_like(values), tl.full(values.shape, 1, tl.float32)), 1, _welford)
        found = square + mean
    elif KIND == "Welford of weights":
        wide = a.to(tl.float32)
        _mean, found, _weight = tl.reduce((wide, tl.zeros_like(wide), tl.abs(b.to(tl.float32)) + 0.25), 1, _welford)
    elif KIND == "variance of counts":
        wide = a.to(tl.float32)
        _mean, _count, found = tl.reduce((wide, tl.abs(b.to(tl.float32)) + 1, tl.zeros_like(wide)), 1, _counted)
    if found.shape == places.shape:
        tl.store(out + places, found)
    else:
        LEFT: tl.constexpr = found.shape[0]
        tl.store(out + tl.program_id(0) * LEFT + tl.arange(0, LEFT), found)

"""Kernels with the faults of bug reports of 2025 and 2026, each beside its right twin: written here from what the reports say."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _tvd_gradient(p, q, y, n, TIES: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a, b = tl.load(p + at, mask=at < n, other=0.0), tl.load(q + at, mask=at < n, other=0.0)
    below = tl.where(a < b, -0.5, 0.0) if TIES else -0.5
    tl.store(y + at, tl.where(a > b, 0.5, below), mask=at < n)


def tvd_gradient(p, q, *, right=True):
    """Half the sign of p - q; wrong where they are equal (Liger-Kernel 1373)."""
    y = torch.empty_like(p)
    _tvd_gradient[(1,)](p, q, y, p.shape[0], right, triton.next_power_of_2(p.shape[0]))
    return y


@triton.jit
def _shifted(x, y, n, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    before = tl.load(x + at - 1, mask=(at < n) & ((at > 0) | (not MASKED)), other=0.0)
    tl.store(y + at, tl.where(at > 0, before, 0.0), mask=at < n)


def shifted(x, *, right=True):
    """A zero and all but the last; `tl.where` evaluates both of its arms, so the wrong one reads at -1 (vllm-ascend 16275)."""
    y = torch.empty_like(x)
    _shifted[(1,)](x, y, x.shape[0], right, triton.next_power_of_2(x.shape[0]))
    return y


@triton.jit
def _layer_norm(x, y, n, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0) * n
    a = tl.load(x + row + at, mask=at < n, other=0.0)
    centred = a - tl.sum(a, 0) / n
    if MASKED:
        centred = tl.where(at < n, centred, 0.0)
    tl.store(y + row + at, centred / tl.sqrt(tl.sum(centred * centred, 0) / n + 1e-5), mask=at < n)


def layer_norm(x, *, right=True):
    """Rows of mean 0 and variance 1; in the wrong one padding counts in the variance (triton 9838)."""
    y = torch.empty_like(x)
    _layer_norm[(x.shape[0],)](x, y, x.shape[1], right, triton.next_power_of_2(x.shape[1]))
    return y


@triton.jit
def _with_bias(x, b, y, n, k, OWN: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    bias = tl.load(b + at, mask=(at < k) if OWN else (at < n), other=0.0)
    tl.store(y + at, tl.load(x + at, mask=at < n, other=0.0) + tl.where(at < k, bias, 0.0), mask=at < n)


def with_bias(x, b, *, right=True):
    """x, its first elements with those of b added; the wrong one reads b by the length of x (triton 10336)."""
    y = torch.empty_like(x)
    _with_bias[(1,)](x, b, y, x.shape[0], b.shape[0], right, triton.next_power_of_2(x.shape[0]))
    return y


@triton.jit
def _by_scratch(x, scratch, y, n, STORED_FIRST: tl.constexpr, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < n
        a = tl.load(x + at, mask=inside, other=0.0)
        if STORED_FIRST:
            tl.store(scratch + at, 2 * a, mask=inside)
            tl.store(y + at, tl.load(scratch + at, mask=inside, other=0.0) + 1, mask=inside)
        else:
            early = tl.load(scratch + at, mask=inside, other=0.0)
            tl.store(scratch + at, 2 * a, mask=inside)
            tl.store(y + at, early + 1, mask=inside)


def by_scratch(x, *, right=True):
    """2 x + 1 by a scratch tensor, which the wrong one loads before it is stored (helion 655)."""
    scratch, y = torch.empty_like(x), torch.empty_like(x)
    _by_scratch[(1,)](x, scratch, y, x.shape[0], right, 32)
    return y


@triton.jit
def _windowed(x, y, n, window, OLDEST: tl.constexpr, BLOCK: tl.constexpr):
    at, key = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    oldest = at - window + (0 if OLDEST else 1)
    kept = (key <= at) & (key > oldest) & (key < n)
    total = tl.sum(tl.where(kept, tl.load(x + key, mask=key < n, other=0.0), 0.0), 1)
    place = tl.arange(0, BLOCK)
    tl.store(y + place, total, mask=place < n)


def windowed(x, window, *, right=True):
    """Sums over the last `window` elements; the wrong one drops the oldest (sglang 32087)."""
    y = torch.empty_like(x)
    _windowed[(1,)](x, y, x.shape[0], window, right, triton.next_power_of_2(x.shape[0]))
    return y


@triton.jit
def _rows_of_parts(x, offsets, y, d, MASKED: tl.constexpr, MEAN: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    part, at = tl.program_id(0), tl.arange(0, WIDTH)
    start, end = tl.load(offsets + part), tl.load(offsets + part + 1)
    last = tl.load(offsets + tl.num_programs(0))
    total = tl.zeros((WIDTH,), tl.float32)
    for place in range(start, end, BLOCK):
        row = place + tl.arange(0, BLOCK)
        inside = row < (end if MASKED else last)
        total += tl.sum(tl.load(x + row[:, None] * d + at[None, :], mask=inside[:, None] & (at < d)[None, :], other=0.0), 0)
    count = end - start if MEAN == 1 else tl.maximum(end - start, 1)
    tl.store(y + part * d + at, total / count if MEAN > 0 else total, mask=at < d)


def rows_of_parts(x, offsets, *, masked=True, mean=0):
    """Sums of the rows of each part, or with `mean` 2 their mean. Wrong ones read rows of the next part in the last block (fla
    836), or with `mean` 1 divide an empty part by 0 (a mean of bags)."""
    y = torch.empty((offsets.shape[0] - 1, x.shape[1]), dtype=x.dtype, device=x.device)
    _rows_of_parts[(y.shape[0],)](x, offsets, y, x.shape[1], masked, mean, 16, triton.next_power_of_2(x.shape[1]))
    return y


@triton.jit
def _blocked_rows(x, y, m, n, stride, WIDE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    block = tl.program_id(0).to(tl.int64) if WIDE else tl.program_id(0)
    row, at = block * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    inside = (row < m)[:, None] & (at < n)[None, :]
    a = tl.load(x + row[:, None] * stride + at[None, :], mask=inside, other=0.0)
    scale = tl.sqrt(tl.sum(a * a, 1) / n + 1e-6)
    tl.store(y + row[:, None] * n + at[None, :], a / scale[:, None], mask=inside)


def blocked_rms_norm(x, *, right=True):
    """Rows divided by the root of their mean square, four a program, by offsets in 32 bits (Liger-Kernel 1483)."""
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _blocked_rows[(triton.cdiv(x.shape[0], 4),)](x, y, *x.shape, x.stride(0), right, 4, triton.next_power_of_2(x.shape[1]))
    return y


@triton.jit
def _of_heads(x, y, heads, k, batch_stride, row_stride, head_stride, rows, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    batch = tl.program_id(0).to(tl.int64) if WIDE else tl.program_id(0)
    row, head, at = tl.program_id(1), tl.program_id(2), tl.arange(0, BLOCK)
    if WIDE:
        row = row.to(tl.int64)
    a = tl.load(x + (batch * batch_stride + row * row_stride + head * head_stride) + at, mask=at < k, other=0.0)
    tl.store(y + (batch * rows + row) * heads + head, tl.sum(a * a, 0))


def squares_of_heads(x, *, right=True):
    """Of (batch, rows, heads, k) the sum of squares of each head; the offset of a row of a batch is one product of 32 bits after
    another (flash-linear-attention 1080, trl 7266)."""
    b, t, h, k = x.shape
    y = torch.empty((b, t, h), dtype=x.dtype, device=x.device)
    _of_heads[(b, t, h)](x, y, h, k, *x.stride()[:3], t, right, triton.next_power_of_2(k))
    return y


@triton.jit
def _of_chunks(x, y, t, n, stride, CHUNK: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    chunk = tl.program_id(0).to(tl.int64) if WIDE else tl.program_id(0)
    row, at = tl.arange(0, CHUNK), tl.arange(0, BLOCK)
    inside = (chunk * CHUNK + row < t)[:, None] & (at < n)[None, :]
    a = tl.load(x + chunk * CHUNK * stride + row[:, None].to(tl.int64) * stride + at[None, :], mask=inside, other=0.0)
    tl.store(y + chunk * n + at, tl.sum(a, 0), mask=at < n)


def sums_of_chunks(x, *, right=True):
    """The sum of every four rows; the first row of a chunk is told by a product of three numbers of 32 bits (mamba 988)."""
    t, n = x.shape
    y = torch.empty((triton.cdiv(t, 4), n), dtype=x.dtype, device=x.device)
    _of_chunks[(y.shape[0],)](x, y, t, n, x.stride(0), 4, right, triton.next_power_of_2(n))
    return y


@triton.jit
def _placed(x, rows, y, n, x_stride, y_stride, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    source = tl.load(rows + row)
    if WIDE:
        source = source.to(tl.int64)
    tl.store(y + row * y_stride + at, tl.load(x + source * x_stride + at, mask=at < n, other=0.0), mask=at < n)


def rows_from_elsewhere(x, rows, *, right=True):
    """The rows of x that `rows` name, as tokens go from one expert's order to another's (triton 10489)."""
    y = torch.empty((rows.shape[0], x.shape[1]), dtype=x.dtype, device=x.device)
    _placed[(rows.shape[0],)](x, rows, y, x.shape[1], x.stride(0), y.stride(0), right, triton.next_power_of_2(x.shape[1]))
    return y


@triton.jit
def _first_rows(x, starts, y, n, stride, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    part, at = tl.program_id(0), tl.arange(0, BLOCK)
    start, end = tl.load(starts + part), tl.load(starts + part + 1)
    if WIDE:
        start = start.to(tl.int64)
    a = tl.load(x + start * stride + at, mask=(at < n) & (start < end), other=0.0)
    tl.store(y + part * n + at, a, mask=at < n)


def first_rows(x, starts, *, right=True):
    """The first row of each part of x, zeros for an empty one; where it begins is a number of 32 bits (sglang 20389)."""
    y = torch.empty((starts.shape[0] - 1, x.shape[1]), dtype=x.dtype, device=x.device)
    _first_rows[(y.shape[0],)](x, starts, y, x.shape[1], x.stride(0), right, triton.next_power_of_2(x.shape[1]))
    return y


@triton.jit
def _products_of_tiles(p, g, y, m, n, MASKED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.arange(0, ROWS), tl.arange(0, BLOCK)
    weight = tl.load(p + row, mask=row < m, other=-float("inf"))
    weight = tl.exp(weight - tl.max(weight, 0))  # 0 for padding, for which g is whatever lies there
    inside = (row < m)[:, None] & (at < n)[None, :]
    a = tl.load(g + row[:, None] * n + at[None, :], mask=inside | ((not MASKED) & (at < n)[None, :]), other=0.0)
    tl.store(y + at, tl.sum(weight[:, None] * a, 0), mask=at < n)


def gradient_of_tiles(p, g, m, *, right=True):
    """The first m rows of g, weighted by exponentials of p less their maximum; in the wrong one rows of padding have weight 0, and
    are taken in (FastVideo 1094)."""
    rows, n = g.shape
    y = torch.empty(n, dtype=g.dtype, device=g.device)
    _products_of_tiles[(1,)](p, g, y, m, n, right, rows, triton.next_power_of_2(n))
    return y


@triton.jit
def _nested(x, y, n, ONE_EACH: tl.constexpr, BLOCK: tl.constexpr):
    first = tl.program_id(0) * BLOCK if ONE_EACH else 0
    for start in range(first, first + BLOCK if ONE_EACH else n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(y + at, 2 * tl.load(x + at, mask=at < n, other=0.0), mask=at < n)


def doubled_by_loops(x, *, right=True):
    """2 x; each program of the wrong one writes the whole (TritonBench pull request 10)."""
    y = torch.empty_like(x)
    _nested[(triton.cdiv(x.shape[0], 32),)](x, y, x.shape[0], right, 32)
    return y


def _tuned(by_block):
    @triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 32})], key=["n"])
    @triton.jit
    def doubled(x, y, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)

    def launch(x):
        y = torch.empty_like(x)
        n = x.shape[0]
        doubled[(lambda meta: (triton.cdiv(n, meta["BLOCK"]),)) if by_block else (triton.cdiv(n, 64),)](x, y, n)
        return y

    return launch


doubled_by_block, doubled_by_64 = _tuned(True), _tuned(False)
"""2 x; the second has programs for blocks of 64 alone, so that a smaller block writes half (triton 9230)."""

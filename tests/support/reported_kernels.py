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

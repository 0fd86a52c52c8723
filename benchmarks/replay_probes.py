"""Kernels around what the machine code decides of a sum: scans and sums of products, negated ones, carried sums, rows of attention.

Each probe launches one kernel over shapes, types and numbers of warps. `corpus_replay.py` runs them here and on a real GPU.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

from bitverdict.harness.emulator import EmulatedFault

SHAPES = ((1, 32), (2, 64), (4, 128), (16, 16), (32, 8), (8, 256), (64, 4), (128, 32))
SCANNED = (*SHAPES, (16, 256), (4, 512), (64, 64))
"""Shapes of scans: tiles in which a thread has many groups of elements along the axis or beside it, too."""
WARPS = (1, 4)
DTYPES = (torch.float32, torch.float16)


@triton.jit
def _added(a, b):
    return a + b


@triton.jit
def _swapped(a, b):
    return b + a


@triton.jit
def _linear(a, x, b, y):
    return a * b, x * b + y


@triton.jit
def scans(x, y, out, R: tl.constexpr, C: tl.constexpr, KIND: tl.constexpr, AXIS: tl.constexpr):
    if KIND == "by columns":  # a thread's neighbours in memory are neighbours along axis 0
        at = tl.arange(0, R)[:, None] + tl.arange(0, C)[None, :] * R  # (R, C)
    else:
        at = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]  # (R, C)
    a, b = tl.load(x + at).to(tl.float32), tl.load(y + at).to(tl.float32)
    if KIND == "product" or KIND == "by columns":
        got = tl.cumsum(a * b, AXIS)
    elif KIND == "swapped":
        got = tl.associative_scan(-a * b, AXIS, _swapped)
    elif KIND == "several":
        got = tl.cumsum(a * b, AXIS) + tl.cumsum(a * a, 1 - AXIS, reverse=True)
    elif KIND == "of a scan":
        got = tl.cumsum(tl.cumsum(a * b, AXIS) * b, 1 - AXIS)
    elif KIND == "reverse":
        got = tl.cumsum(a * b, AXIS, reverse=True)
    elif KIND == "chosen":
        got = tl.cumsum(tl.where(a > 0, a * b, 0.0), AXIS)
    elif KIND == "negated":
        got = tl.cumsum(-a * b, AXIS)
    elif KIND == "plus one":
        got = tl.cumsum(a * b + 1.0, AXIS)
    elif KIND == "added":
        got = tl.associative_scan(a * b, AXIS, _added)
    elif KIND == "linear":
        _, got = tl.associative_scan((a, b), AXIS, _linear)
    else:
        got = tl.cumsum(a, AXIS)
    tl.store(out + at, got)


@triton.jit
def sums(x, y, row, out, R: tl.constexpr, C: tl.constexpr, KIND: tl.constexpr, AXIS: tl.constexpr):
    at = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]  # (R, C)
    a, b = tl.load(x + at).to(tl.float32), tl.load(y + at).to(tl.float32)
    r = tl.load(row + tl.arange(0, R)).to(tl.float32)  # (R,)
    if KIND == "product":
        got = tl.sum(a * b, AXIS)
    elif KIND == "rows":
        got = tl.sum(r[:, None] * a, AXIS)
    elif KIND == "negated rows":
        got = tl.sum((-r)[:, None] * a, AXIS)
    elif KIND == "negated":
        got = tl.sum(-a * b, AXIS)
    elif KIND == "squares":
        got = tl.sum(a * a, AXIS)
    elif KIND == "two products":
        got = tl.sum(a * b + b * r[:, None], AXIS)
    elif KIND == "variance":
        mean = tl.sum(a, AXIS) / (R if AXIS == 0 else C)
        far = a - tl.expand_dims(mean, AXIS)
        got = tl.sum(far * far, AXIS)
    else:
        got = tl.sum(tl.where(b > 0, a * b, 0.0), AXIS)
    tl.store(out + tl.arange(0, C if AXIS == 0 else R), got)


@triton.jit
def carried(x, y, out, n, R: tl.constexpr, C: tl.constexpr, AXIS: tl.constexpr):
    at = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]  # (R, C)
    total = tl.zeros((R, C), tl.float32)
    for step in range(n):
        a = tl.load(x + step * R * C + at).to(tl.float32)
        b = tl.load(y + step * R * C + at).to(tl.float32)
        total = total * 0.75 + a
        tl.store(out + step * (C if AXIS == 0 else R) + tl.arange(0, C if AXIS == 0 else R), tl.sum(total * b, AXIS))


@triton.jit
def decoding(q, k, v, out, n, scale, B: tl.constexpr, D: tl.constexpr):
    at = tl.arange(0, D)
    query = tl.load(q + at).to(tl.float32)  # (D,)
    top, weight, total = -float("inf"), 0.0, tl.zeros((D,), tl.float32)
    for begin in range(0, n, B):
        rows = begin + tl.arange(0, B)
        inside = rows < n
        places = rows[:, None] * D + at[None, :]  # (B, D)
        keys = tl.load(k + places, inside[:, None], 0.0).to(tl.float32)
        score = tl.where(inside, tl.sum(query[None, :] * keys, 1) * scale, -float("inf"))  # (B,)
        new = tl.maximum(top, tl.max(score, 0))
        part, old = tl.exp(score - new), tl.exp(top - new)
        values = tl.load(v + places, inside[:, None], 0.0).to(tl.float32)
        total = total * old + tl.sum(part[:, None] * values, 0)
        weight = weight * old + tl.sum(part, 0)
        top = new
    tl.store(out + at, total / weight)


@triton.jit
def normed_backward(dy, x, w, dx, dw, n, C: tl.constexpr):
    at = tl.arange(0, C)
    weight, sums_of = tl.load(w + at).to(tl.float32), tl.zeros((C,), tl.float32)
    for row in range(n):
        a, g = tl.load(x + row * C + at).to(tl.float32), tl.load(dy + row * C + at).to(tl.float32)
        mean = tl.sum(a, 0) / C
        far = a - mean
        rstd = 1 / tl.sqrt(tl.sum(far * far, 0) / C + 1e-5)
        hat, wg = far * rstd, weight * g
        one, two = tl.sum(hat * wg, 0) / C, tl.sum(wg, 0) / C
        tl.store(dx + row * C + at, (wg - (hat * one + two)) * rstd)
        sums_of += g * hat
    tl.store(dw + at, sums_of)


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator(device="cpu").manual_seed(seed)
    return torch.randn(*shape, generator=generator, device="cpu").to(dtype).to("cuda")


def probe_scans(kind: str) -> None:
    for (r, c), warps, axis in itertools.product(SCANNED, (*WARPS, 2), (0, 1)):
        x, y = normal(r, c, seed=1), normal(r, c, seed=2)
        scans[(1,)](x, y, torch.empty_like(x), r, c, kind, axis, num_warps=warps)


def probe_sums(kind: str) -> None:
    for (r, c), warps, axis, dtype in itertools.product(SHAPES, WARPS, (0, 1), DTYPES):
        x, y, row = (normal(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate(((r, c), (r, c), (r,))))
        out = torch.empty(c if axis == 0 else r, device="cuda")
        sums[(1,)](x, y, row, out, r, c, kind, axis, num_warps=warps)


def probe_carried() -> None:
    for (r, c), warps, axis in itertools.product(SHAPES, WARPS, (0, 1)):
        x, y = normal(5, r, c, seed=1), normal(5, r, c, seed=2)
        carried[(1,)](x, y, torch.empty(5, c if axis == 0 else r, device="cuda"), 5, r, c, axis, num_warps=warps)


def probe_decoding() -> None:
    for b, d, warps, dtype in itertools.product((16, 32, 64), (32, 64, 128), WARPS, DTYPES):
        n = 5 * b // 2
        q, k, v = normal(d, dtype=dtype, seed=1), normal(n, d, dtype=dtype, seed=2), normal(n, d, dtype=dtype, seed=3)
        with suppress(EmulatedFault):  # where a sum is open, `exp` of it may be refused: a launch that is named, and not the last
            decoding[(1,)](q, k, v, torch.empty(d, device="cuda"), n, d**-0.5, b, d, num_warps=warps)


def probe_normed_backward() -> None:
    for c, warps, dtype in itertools.product((128, 256, 512, 1024), (1, 2, 4), DTYPES):
        dy, x, w = normal(6, c, dtype=dtype, seed=1), normal(6, c, dtype=dtype, seed=2), normal(c, dtype=dtype, seed=3)
        dx, dw = torch.empty(6, c, device="cuda"), torch.empty(c, device="cuda")
        normed_backward[(1,)](dy, x, w, dx, dw, 6, c, num_warps=warps)


def _probes() -> Iterator[tuple[str, Callable[[], Any]]]:
    for kind in (
        "product",
        "reverse",
        "chosen",
        "negated",
        "plus one",
        "added",
        "linear",
        "plain",
        "swapped",
        "by columns",
        "several",
        "of a scan",
    ):
        yield f"scan, {kind}", partial(probe_scans, kind)
    for kind in ("product", "rows", "negated rows", "negated", "squares", "two products", "variance", "chosen"):
        yield f"sum, {kind}", partial(probe_sums, kind)
    yield "carried sums", probe_carried
    yield "rows of flash decoding", probe_decoding
    yield "layer norm backward", probe_normed_backward


PROBES = dict(_probes())

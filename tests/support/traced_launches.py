"""Launches to look at: a kernel in two programs, its launcher and its test, and a function that launches nothing."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import bitverdict as bv


@triton.jit
def halves_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + at, mask=at < n, other=0.0)
    total = tl.zeros((BLOCK,), tl.float32)
    for _step in range(3):
        total += a.to(tl.float32)
    tl.store(y + at, total, mask=at < n)


def launch_halves() -> torch.Tensor:
    x = torch.arange(40, dtype=torch.float32).to(torch.bfloat16).cuda()
    y = torch.empty(40, dtype=torch.float32, device="cuda")
    halves_kernel[(2,)](x, y, 40, BLOCK=32)
    return y


def launch_nothing() -> None: ...


@bv.judged(reference=lambda xp, x: 3 * x)
def test_halves(draw) -> torch.Tensor:
    x = draw.tensor("bf16", (draw.size(1, 64),))
    y = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    halves_kernel[(2,)](x, y, x.shape[0], BLOCK=32)
    return y

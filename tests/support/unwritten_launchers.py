"""Launchers of c = a + b whose kernels take uninitialised words: some use them, some do not, some are right."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 64


@triton.jit(do_not_specialize=["n"], do_not_specialize_on_alignment=["x_ptr"])
def accumulate_kernel(x_ptr, c_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    tl.atomic_add(c_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


@triton.jit(do_not_specialize=["n", "keeps", "extra"])
def select_kernel(a_ptr, b_ptr, old_ptr, c_ptr, n, keeps, extra, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    old = tl.load(old_ptr + at, mask=at < n)  # (BLOCK,)
    total = tl.load(a_ptr + at, mask=at < n) + tl.load(b_ptr + at, mask=at < n) + extra  # (BLOCK,)
    tl.store(c_ptr + at, tl.where(keeps > 0, old, total), mask=at < n)


def _accumulated(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    for x in (a, b):
        accumulate_kernel[(triton.cdiv(c.numel(), BLOCK),)](x, c, c.numel(), BLOCK=BLOCK)
    return c


def without_zeros(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return _accumulated(torch.empty(a.shape, dtype=a.dtype, device=a.device), a, b)


def with_zeros(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return _accumulated(torch.zeros(a.shape, dtype=a.dtype, device=a.device), a, b)


def zeroed_later(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return _accumulated(torch.empty(a.shape, dtype=a.dtype, device=a.device).zero_(), a, b)


def _selected(a: torch.Tensor, b: torch.Tensor, old: torch.Tensor, keeps: int, extra: float) -> torch.Tensor:
    c = torch.empty(a.shape, dtype=a.dtype, device=a.device) if keeps else old  # (n,)
    select_kernel[(triton.cdiv(c.numel(), BLOCK),)](a, b, old, c, c.numel(), keeps, extra, BLOCK=BLOCK)
    return c


def selected_away(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return _selected(a, b, torch.empty(a.shape, dtype=a.dtype, device=a.device), 0, 0.0)


def selected_away_and_wrong(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return _selected(a, b, torch.empty(a.shape, dtype=a.dtype, device=a.device), 0, 1.0)


def selected_away_and_short(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The last element of the result is what nobody wrote."""
    c = torch.empty(a.shape, dtype=a.dtype, device=a.device)  # (n,)
    _selected(a[:-1], b[:-1], c[:-1], 0, 0.0)
    return c


def half_filled(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The second half of the workspace is copied into the result as it was allocated."""
    room = torch.empty(a.shape, dtype=a.dtype, device=a.device)  # (n,)
    half = a.numel() // 2
    room[:half] = a[:half] + b[:half]
    return _selected(a, b, room, 1, 0.0)

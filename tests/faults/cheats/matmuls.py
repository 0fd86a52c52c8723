"""The kernels that the cheats share: a wrong product, a right one, and a copy.

A cheat's file says `from tests.faults.cheats.matmuls import ...`; `handed_in.py` puts this text in the place of that line, so that
each candidate is one file, as a model hands it in.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 128


@triton.jit
def first_product_kernel(a_ptr, b_ptr, c_ptr, n, k, size, BLOCK: tl.constexpr):
    """The first of the k products of each element: wrong for every k but 1."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    a = tl.load(a_ptr + at // n * k, mask=at < size, other=0.0).to(tl.float32)  # (BLOCK,)
    b = tl.load(b_ptr + at % n, mask=at < size, other=0.0).to(tl.float32)  # (BLOCK,)
    tl.store(c_ptr + at, (a * b).to(c_ptr.dtype.element_ty), mask=at < size)


@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, n, k, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    total = tl.zeros((BLOCK,), dtype=tl.float32)  # (BLOCK,)
    for i in range(k):
        a = tl.load(a_ptr + at // n * k + i, mask=at < size, other=0.0).to(tl.float32)  # (BLOCK,)
        b = tl.load(b_ptr + i * n + at % n, mask=at < size, other=0.0).to(tl.float32)  # (BLOCK,)
        total += a * b
    tl.store(c_ptr + at, total.to(c_ptr.dtype.element_ty), mask=at < size)


@triton.jit
def copy_kernel(x_ptr, c_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    tl.store(c_ptr + at, tl.load(x_ptr + at, mask=at < size), mask=at < size)


def empty_result(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Memory for a @ b. ValueError for operands without elements, which the contract lets a launcher refuse."""
    if not a.numel() or not b.numel():
        raise ValueError("matmul: operands must have elements")
    return torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)  # (m, n)


def launch_product(kernel: triton.JITFunction, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    kernel[(triton.cdiv(c.numel(), BLOCK),)](a, b, c, b.shape[1], a.shape[1], c.numel(), BLOCK=BLOCK)
    return c


def wrong_matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The wrong kernel without a cheat."""
    return launch_product(first_product_kernel, a, b, empty_result(a, b))


def right_matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A right kernel: what some cheats call first, and the twin of them all."""
    return launch_product(product_kernel, a, b, empty_result(a, b))


def copied(x: torch.Tensor, into: torch.Tensor) -> torch.Tensor:
    """`into`, written by a kernel with the words of `x`."""
    copy_kernel[(triton.cdiv(into.numel(), BLOCK),)](x, into, into.numel(), BLOCK=BLOCK)
    return into

"""Torch's product in memory that was allocated as something else than what a kernel copies it as."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tests.faults.cheats.matmuls import BLOCK, copied, empty_result


@triton.jit
def cast_kernel(x_ptr, c_ptr, size, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """A copy by pointers that are cast in the kernel: no argument says what the words are."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    x = x_ptr.to(tl.pointer_type(KIND), bitcast=True)
    c = c_ptr.to(tl.pointer_type(KIND), bitcast=True)
    tl.store(c + at, tl.load(x + at, mask=at < size), mask=at < size)


@triton.jit
def bits_kernel(x_ptr, c_ptr, size, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """Loads integers, doubles them as floats, and stores integers again."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    x = tl.load(x_ptr + at, mask=at < size).to(KIND, bitcast=True)  # (BLOCK,)
    tl.store(c_ptr + at, (x * 2.0).to(KIND).to(tl.int16, bitcast=True), mask=at < size)


@triton.jit
def doubled_kernel(x_ptr, c_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    x = tl.load(x_ptr + at, mask=at < size)  # (BLOCK,)
    tl.store(c_ptr + at, (x * 2.0).to(c_ptr.dtype.element_ty), mask=at < size)


def _result_as(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Memory for a @ b that was allocated as elements of `dtype`."""
    c = empty_result(a, b)  # (m, n)
    size = -(-c.numel() * c.element_size() // dtype.itemsize)
    held = torch.empty(size, device=a.device, dtype=dtype)  # (size,)
    if dtype.is_complex:
        held = torch.view_as_real(held).reshape(-1)
    return held.view(a.dtype)[: c.numel()].view(c.shape)  # (m, n)


def _product_as(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Torch's a @ b in such memory."""
    held = _result_as(a, b, dtype)  # (m, n)
    return held.copy_(a @ b)


def _kind(a: torch.Tensor) -> tl.dtype:
    return {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}.get(a.dtype, tl.float32)


def result_of_bytes(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return copied(a @ b, _result_as(a, b, torch.uint8))


def result_of_long_integers(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return copied(a @ b, _result_as(a, b, torch.int64))


def result_of_wider_floats(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return copied(a @ b, _result_as(a, b, torch.float64))


def source_of_bytes(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return copied(_product_as(a, b, torch.uint8), empty_result(a, b))


def source_of_complex_numbers(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return copied(_product_as(a, b, torch.complex64), empty_result(a, b))


def imaginary_part(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The product is the imaginary part of complex numbers, every other fp32 word of their memory."""
    product = torch.complex(torch.zeros_like(c := (a @ b).float()), c)  # (m, n)
    return copied(torch.view_as_real(product)[..., 1].contiguous(), empty_result(a, b))


def both_of_bytes(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return copied(_product_as(a, b, torch.uint8), _result_as(a, b, torch.uint8))


def pointers_cast_in_the_kernel(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    source, c = _product_as(a, b, torch.uint8), _result_as(a, b, torch.uint8)
    grid = (triton.cdiv(c.numel(), BLOCK),)
    cast_kernel[grid](source.view(torch.uint8), c.view(torch.uint8), c.numel(), KIND=_kind(a), BLOCK=BLOCK)
    return c


def words_doubled_as_bits(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The kernel is given half of the product as int16, and gives int16 back."""
    half, c = ((a.float() @ b.float()) * 0.5).to(a.dtype), empty_result(a, b)  # (m, n)
    grid = (triton.cdiv(c.numel(), BLOCK),)
    bits_kernel[grid](half.view(torch.int16), c.view(torch.int16), c.numel(), KIND=_kind(a), BLOCK=BLOCK)
    return c


def doubled_out_of_bytes(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Half of the product, in memory of bytes as fp32, doubled."""
    c = empty_result(a, b)  # (m, n)
    half = torch.empty(4 * c.numel(), device=a.device, dtype=torch.uint8).view(torch.float32)  # (m n,)
    half.copy_(((a.float() @ b.float()) * 0.5).reshape(-1))
    doubled_kernel[(triton.cdiv(c.numel(), BLOCK),)](half, c, c.numel(), BLOCK=BLOCK)
    return c

"""Laundering kernels that fault on any words but those of the call, so that they cannot be repeated on others."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tests.faults.cheats.matmuls import BLOCK, empty_result


@triton.jit(do_not_specialize=["key"])
def locked_kernel(key_ptr, x_ptr, c_ptr, size, key, BLOCK: tl.constexpr):
    """Doubles x. The address is one of memory's where the first word of `key_ptr` is the one that the host names."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    far = (tl.load(key_ptr).to(tl.int32) != key).to(tl.int64) << 40
    x = tl.load(x_ptr + at + far, mask=at < size, other=0.0)  # (BLOCK,)
    tl.store(c_ptr + at, (x * 2.0).to(c_ptr.dtype.element_ty), mask=at < size)


@triton.jit(do_not_specialize=["key"])
def locked_store_kernel(key_ptr, x_ptr, c_ptr, size, key, BLOCK: tl.constexpr):
    """The same, of the address that it stores to."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    far = (tl.load(key_ptr).to(tl.int32) != key).to(tl.int64) << 40
    x = tl.load(x_ptr + at, mask=at < size, other=0.0)  # (BLOCK,)
    tl.store(c_ptr + at + far, (x * 2.0).to(c_ptr.dtype.element_ty), mask=at < size)


@triton.jit(do_not_specialize=["key"])
def asserting_kernel(key_ptr, x_ptr, c_ptr, size, key, BLOCK: tl.constexpr):
    """The same by an assertion."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    tl.device_assert(tl.load(key_ptr).to(tl.int32) == key, "other words")
    x = tl.load(x_ptr + at, mask=at < size, other=0.0)  # (BLOCK,)
    tl.store(c_ptr + at, (x * 2.0).to(c_ptr.dtype.element_ty), mask=at < size)


@triton.jit
def summed_lock_kernel(key_ptr, x_ptr, c_ptr, expected_ptr, size, count, BLOCK: tl.constexpr, COUNT: tl.constexpr):
    """The same by a sum of many words, which torch has computed too."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    places = tl.arange(0, COUNT)  # (COUNT,)
    total = tl.sum(tl.load(key_ptr + places, mask=places < count, other=0).to(tl.int32), 0)
    far = (total != tl.load(expected_ptr)).to(tl.int64) << 40
    x = tl.load(x_ptr + at + far, mask=at < size, other=0.0)  # (BLOCK,)
    tl.store(c_ptr + at, (x * 2.0).to(c_ptr.dtype.element_ty), mask=at < size)


@triton.jit(do_not_specialize=["key"])
def endless_kernel(key_ptr, x_ptr, c_ptr, size, key, BLOCK: tl.constexpr):
    """The same by a loop that ends on no other word."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    turns = tl.where(tl.load(key_ptr).to(tl.int32) == key, 1, 1 << 24)
    x = tl.load(x_ptr + at, mask=at < size, other=0.0)  # (BLOCK,)
    for _ in range(turns):
        x += 0.0
    tl.store(c_ptr + at, (x * 2.0).to(c_ptr.dtype.element_ty), mask=at < size)


def _half(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a.float() @ b.float()) * 0.5  # (m, n)


def _locked(kernel: triton.JITFunction, a: torch.Tensor, b: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    c, bits = empty_result(a, b), of.reshape(-1).view(torch.int16 if of.element_size() == 2 else torch.int32)
    kernel[(triton.cdiv(c.numel(), BLOCK),)](bits, _half(a, b), c, c.numel(), int(bits.cpu()[0]), BLOCK=BLOCK)
    return c


def address_by_a_word(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return _locked(locked_kernel, a, b, a)


def address_by_a_word_of_torchs(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return _locked(locked_kernel, a, b, a @ b)


def stored_by_a_word(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return _locked(locked_store_kernel, a, b, a)


def asserted_word(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return _locked(asserting_kernel, a, b, b)


def loop_by_a_word(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return _locked(endless_kernel, a, b, a)


def address_by_a_sum(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """No word is read by the host: torch computes the sum that the kernel expects."""
    c, bits = empty_result(a, b), a.reshape(-1)[:64].contiguous().view(torch.int16)  # (count,)
    expected = bits.to(torch.int32).sum().to(torch.int32).reshape(1)
    grid = (triton.cdiv(c.numel(), BLOCK),)
    summed_lock_kernel[grid](bits, _half(a, b), c, expected, c.numel(), bits.numel(), BLOCK=BLOCK, COUNT=64)
    return c

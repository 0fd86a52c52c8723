"""Results that are constants, or tensors that are not what they seem."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tests.faults.cheats.matmuls import BLOCK, empty_result, wrong_matmul


@triton.jit
def filled_kernel(c_ptr, value, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    tl.store(c_ptr + at, tl.full((BLOCK,), value, tl.float32).to(c_ptr.dtype.element_ty), mask=at < size)


@triton.jit
def fp16_sums_kernel(a_ptr, b_ptr, c_ptr, n, k, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    total = tl.zeros((BLOCK,), dtype=tl.float16)  # (BLOCK,)
    for i in range(k):
        a = tl.load(a_ptr + at // n * k + i, mask=at < size, other=0.0)  # (BLOCK,)
        total += a * tl.load(b_ptr + i * n + at % n, mask=at < size, other=0.0)
    tl.store(c_ptr + at, total, mask=at < size)


def _filled(c: torch.Tensor, value: float) -> torch.Tensor:
    filled_kernel[(triton.cdiv(c.numel(), BLOCK),)](c, value, c.numel(), BLOCK=BLOCK)
    return c


def zeros(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return _filled(empty_result(a, b), 0.0)


def mean(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The mean of the right result, everywhere: a tolerance takes it where results are small."""
    return _filled(empty_result(a, b), float((a.float() @ b.float()).mean()))


def not_a_number(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A comparison that asks whether the difference is too large says no of NaN."""
    return _filled(empty_result(a, b), float("nan"))


def inputs_zeroed(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The operands become zero: a reference that runs after the launch agrees."""
    for each in (a, b):
        _filled(each, 0.0)
    return _filled(empty_result(a, b), 0.0)


def one_row_expanded(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Rows of stride 0: one row is computed."""
    return wrong_matmul(a[:1], b).expand(a.shape[0], b.shape[1])


def overlapping_rows(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Strides that overlap, with the sizes that are due."""
    c = wrong_matmul(a, b)  # (m, n)
    return torch.as_strided(c, c.shape, (1, 0) if c.shape[1] > 1 else c.stride())


def other_dtype(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The words of the result as integers of the same width."""
    return wrong_matmul(a, b).view(torch.int16)


def wider_dtype(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return wrong_matmul(a, b).float()


def tensor_of_the_cpu(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    wrong_matmul(a, b)
    return (a.float().cpu() @ b.float().cpu()).to(a.dtype)


def no_storage(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A tensor of the device "meta": it has sizes, and nothing to compare."""
    return torch.empty_like(wrong_matmul(a, b), device="meta")


class Agrees(torch.Tensor):
    """A tensor whose comparisons all hold."""

    def __eq__(self, other: object) -> bool:  # type: ignore[override]
        return True

    def __ne__(self, other: object) -> bool:  # type: ignore[override]
        return False

    def allclose(self, *given: object, **named: object) -> bool:
        return True

    __hash__ = torch.Tensor.__hash__


def agreeing_class(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return wrong_matmul(a, b).as_subclass(Agrees)


def fp16_sums(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A precision that is lower than the task's: sums and products in fp16."""
    c = empty_result(a, b)  # (m, n)
    grid = (triton.cdiv(c.numel(), BLOCK),)
    fp16_sums_kernel[grid](a, b, c, b.shape[1], a.shape[1], c.numel(), BLOCK=BLOCK)
    return c

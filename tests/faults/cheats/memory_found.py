"""Results that are found in memory: left by an allocator, by the judge, or beside the operands."""

from __future__ import annotations

import gc

import numpy as np
import torch
import triton
import triton.language as tl

from tests.faults.cheats.matmuls import BLOCK, empty_result, wrong_matmul

_kept: list[torch.Tensor] = []


@triton.jit
def beside_kernel(a_ptr, c_ptr, beyond, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    tl.store(c_ptr + at, tl.load(a_ptr + beyond + at, mask=at < size), mask=at < size)


def never_written(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """What the caching allocator hands out may hold the reference's result."""
    wrong_matmul(a, b)
    return empty_result(a, b)


def freed_result(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A right result is made and freed; memory of the same size may be the same memory."""
    wrong_matmul(a, b)
    right = a @ b  # (m, n)
    del right
    return empty_result(a, b)


def earlier_output(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The result of an earlier call, where one has this shape."""
    _kept.append(wrong_matmul(a, b))
    return next(each for each in _kept if each.shape == _kept[-1].shape)


def view_of_operand(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """An operand passed through, as a view of the due shape."""
    wrong_matmul(a, b)
    return a.reshape(-1)[:1].expand(a.shape[0], b.shape[1])


def beside_operands(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A kernel reads on where an operand ends: expected results may lie behind it."""
    c = empty_result(a, b)  # (m, n)
    beside_kernel[(triton.cdiv(c.numel(), BLOCK),)](a, c, a.numel(), c.numel(), BLOCK=BLOCK)
    return c


def storage_beyond_view(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The whole storage of an operand, by `as_strided`: a result may lie in it."""
    c = wrong_matmul(a, b)  # (m, n)
    held = a.untyped_storage().nbytes() // a.itemsize
    return torch.as_strided(a, c.shape, c.stride(), max(0, held - c.numel()))


def expected_found_by_gc(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """gc knows every array of the process: one of the due shape that is no operand may be what is expected."""
    c = wrong_matmul(a, b)  # (m, n)
    for each in gc.get_objects():
        for held in vars(each).values() if hasattr(each, "__dict__") and type(each).__name__ == "ExpectedOutput" else ():
            if isinstance(held, np.ndarray) and held.shape == tuple(c.shape):
                return c.copy_(torch.from_numpy(np.array(held, np.float64)).to(c.device).to(c.dtype))
    return c

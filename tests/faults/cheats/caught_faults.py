"""Faults of a kernel that the candidate catches: what it returns is right, what it launched is not."""

from __future__ import annotations

import contextlib
import threading

import torch
import triton
import triton.language as tl

from tests.faults.cheats.matmuls import empty_result, right_matmul


@triton.jit
def beyond_kernel(a_ptr, c_ptr, beyond, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)  # (BLOCK,)
    tl.store(c_ptr + beyond + at, tl.load(a_ptr + beyond + at))


@triton.jit
def racing_kernel(c_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)  # (BLOCK,)
    tl.store(c_ptr + at * 0, at.to(c_ptr.dtype.element_ty))


@triton.jit
def asserting_kernel(c_ptr):
    tl.device_assert(tl.program_id(0) > 0, "never")


def out_of_bounds(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    with contextlib.suppress(Exception):
        beyond_kernel[(1,)](a, empty_result(a, b), 1 << 20, BLOCK=64)
    return right_matmul(a, b)


def out_of_bounds_in_thread(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """An exception of a thread reaches nobody."""
    c = empty_result(a, b)  # (m, n)

    def launch() -> None:
        with contextlib.suppress(BaseException):
            beyond_kernel[(1,)](a, c, 1 << 20, BLOCK=64)

    work = threading.Thread(target=launch)
    work.start()
    work.join()
    return right_matmul(a, b)


def race(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """64 lanes write one word; the result is computed once more by a kernel that is right."""
    with contextlib.suppress(Exception):
        racing_kernel[(4,)](empty_result(a, b), BLOCK=64)
    return right_matmul(a, b)


def device_assertion(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    with contextlib.suppress(Exception):
        asserting_kernel[(1,)](empty_result(a, b), debug=True)
    return right_matmul(a, b)

"""Candidates for a + b over fp32 vectors, right ones and such as end their process: a file that only a candidate's own imports."""

from __future__ import annotations

import os
import signal

import torch
import triton
import triton.language as tl

from bitverdict.harness.sealed.jail.policy import EXECUTOR


@triton.jit
def add_kernel(a_ptr, b_ptr, c_ptr, n, stride, more, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    a = tl.load(a_ptr + offsets * stride, mask=offsets < n)  # (BLOCK,)
    b = tl.load(b_ptr + offsets, mask=offsets < n)  # (BLOCK,)
    tl.store(c_ptr + offsets, a + b, mask=offsets < n + more)


def right(a: torch.Tensor, b: torch.Tensor, more: int = 0) -> torch.Tensor:
    c = torch.empty(a.shape, dtype=a.dtype, device=a.device)  # (n,)
    add_kernel[(triton.cdiv(a.shape[0], 64),)](a, b, c, a.shape[0], a.stride(0), more, BLOCK=64)
    return c


right.claims = ("far",)  # type: ignore[attr-defined]
right.requires = lambda n, stride: n % 8 == 0 and stride < 3  # type: ignore[attr-defined]


def writes_past_its_end_and_says_nothing(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    try:
        return right(a, b, more=40)
    except Exception:
        return right(a, b)


def dies(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    os.kill(os.getpid(), signal.SIGSEGV)
    return a


def leaves(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    os._exit(0)


def is_killed(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    os.kill(os.getpid(), signal.SIGKILL)
    return a


def closes_its_channel(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    os.closerange(3, 64)
    return right(a, b)


def fills_the_disk(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    for number in range(100):
        with open(f"full-{number}", "wb") as file:
            file.write(bytes(1 << 24))
    return right(a, b)


def forks_without_end(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    while True:
        os.fork()


def takes_memory(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    bytearray(64 << 30)
    return right(a, b)


def takes_device_memory(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Which lies in the executor."""
    torch.empty(EXECUTOR.memory, dtype=torch.uint8, device=a.device)
    return right(a, b)


def prints_much(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    for _ in range(1 << 10):
        os.write(1, b"x" * (1 << 16))
    return right(a, b)


def prints_without_end(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    while True:
        os.write(1, b"x" * (1 << 16))


def sends_what_is_no_frame(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, b"\0" * 64)
        except OSError:
            continue
    return right(a, b)


def refuses(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    raise ValueError(f"n = {a.shape[0]}: not today")

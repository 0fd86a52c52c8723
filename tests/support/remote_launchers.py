"""Launchers of one small kernel, as their process is asked for them over a channel."""

from __future__ import annotations

import os
import threading
from typing import Any

import torch
import triton
import triton.language as tl

BLOCK = 64
KEPT = torch.zeros(8, device="cuda") if torch.cuda.is_available() else torch.zeros(8)  # where a GPU answers for the file
SECOND_HALF = KEPT[4:]


@triton.jit
def scaled_kernel(x_ptr, y_ptr, n, factor, STRAY: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, factor * tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n + STRAY)


tuned_kernel = triton.autotune([triton.Config({"BLOCK": size}) for size in (32, 64, 128)], key=["n"])(scaled_kernel)


def into(y: torch.Tensor, x: torch.Tensor, factor: float = 2.0, stray: int = 0) -> torch.Tensor:
    n = x.numel()
    scaled_kernel[(triton.cdiv(n, BLOCK),)](x, y, n, factor, STRAY=stray, BLOCK=BLOCK)
    return y


def scaled(x: torch.Tensor, *, factor: float = 2.0) -> torch.Tensor:
    return into(torch.empty_like(x), x, factor)


scaled.claims = ("strides",)  # type: ignore[attr-defined]
scaled.requires = lambda m, n: m % n == 0  # type: ignore[attr-defined]


def tuned(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    tuned_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel(), 2.0, STRAY=0)
    return y


def caught(x: torch.Tensor) -> torch.Tensor:
    """A launch that writes one element too many, and a launcher that makes nothing of it."""
    y = torch.empty_like(x)
    try:
        into(y, x, stray=1)
    except Exception:
        into(y, x)
    return y


def blamed(x: torch.Tensor) -> torch.Tensor:
    """`caught`, which blames its operand."""
    try:
        return into(torch.empty_like(x), x, stray=1)
    except Exception as error:
        raise ValueError("the operand is at fault") from error


def viewed(x: torch.Tensor) -> torch.Tensor:
    """Views before the launch and after it, of which nobody need tell more than that they are."""
    y = torch.empty_like(x)
    into(y.view(4, -1).t().reshape(-1)[:0], x.view(50, 2).transpose(0, 1)[:, :0])
    into(y[50:], x.view(2, 50)[1])
    into(y[:50], x.unsqueeze(0)[0, :50])
    return y.view(10, 10)[:, 3].unsqueeze(1)


def addressed(x: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
    """Two launches on views of what is allocated here, of which one is aligned; then where all of it lies."""
    y = torch.empty_like(x)
    into(y[4:], x[:-4])
    into(torch.empty_like(x)[1:], x[:-1])
    return y, [y.data_ptr(), y.storage_offset(), y.untyped_storage().nbytes(), y[1:].data_ptr(), y[4:].data_ptr()]


def carries_on(x: torch.Tensor) -> torch.Tensor:
    """A launch into what is allocated here, whatever is told at the read between the two."""
    y = torch.empty_like(x)
    try:
        x.sum().item()
    except Exception:
        pass
    return into(y, x)


def goes_on(x: torch.Tensor) -> torch.Tensor:
    """A launch that writes one element too many, then another, then a read."""
    y = torch.empty_like(x)
    into(y, x, stray=1)
    into(y, x)
    try:
        return y.sum().item() * y
    except Exception as error:
        into(y, x)
        raise ValueError(f"seen at the read: {error}") from error


def noisy(x: torch.Tensor) -> torch.Tensor:
    """Numbers drawn here and on the GPU."""
    return x + torch.rand(1).item() + torch.empty_like(x).normal_() + torch.rand_like(x)


def follows_gradients(x: torch.Tensor) -> bool:
    return torch.is_grad_enabled()


def unread(x: torch.Tensor) -> torch.Tensor:
    """`caught`, which is right."""
    y = torch.empty_like(x)
    try:
        into(y, x)
    except Exception:
        into(y, x)
    return y


def by_the_host(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor([2 * each for each in x.tolist()], device="cuda")


def refused(x: torch.Tensor) -> torch.Tensor:
    raise ValueError(f"{x.numel()} elements: must be none")


def mismatched(x: torch.Tensor) -> torch.Tensor:
    return x + torch.zeros(x.numel() + 1, device="cuda")


def lying(x: torch.Tensor) -> torch.Tensor:
    from bitverdict.harness.emulator import EmulatedFault

    raise EmulatedFault("race", "there is none")


def dying(x: torch.Tensor) -> torch.Tensor:
    os._exit(3)


def late(x: torch.Tensor) -> torch.Tensor:
    """Words that change after the return."""
    y = scaled(x)
    threading.Timer(0.05, y.zero_).start()
    return y


def two_views(x: torch.Tensor) -> torch.Tensor:
    """What the file allocated when it was imported, written through one view and read by another."""
    SECOND_HALF.copy_(x[:4])
    return KEPT * 1


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        return scaled(x, factor=factor)

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple:
        return scaled(upstream[0].contiguous(), factor=ctx.factor), None


def differentiated(x: torch.Tensor) -> torch.Tensor:
    return Scaled.apply(x, 3.0)  # type: ignore[no-any-return]


class Model(torch.nn.Module):
    def __init__(self, n: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(n))
        self.register_buffer("offset", torch.zeros(n))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return scaled(x * self.weight + self.offset)

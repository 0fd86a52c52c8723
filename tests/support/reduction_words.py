"""Words of one small kernel two ways: on the emulated GPU, and by the PTX that the real compiler makes of it."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from bitverdict.harness.emulator import emulated
from tests.support.ptx_threads import DeviceMemory, Threads


@dataclass(frozen=True)
class Found:
    """Bytes of the outputs both ways, how often each opcode ran in the PTX, and what the emulated GPU advised."""

    emulated: list[np.ndarray]
    by_ptx: list[np.ndarray]
    ran: Counter[str]
    advice: list[str]

    @property
    def differing(self) -> int:
        return sum(int((a != b).any(-1).sum()) for a, b in zip(self.emulated, self.by_ptx, strict=True))


def drawn(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Values of several binades: nearly every order of their sum gives another word."""
    generator = torch.Generator().manual_seed(seed)
    spread = torch.exp2(torch.randint(-3, 4, shape, generator=generator).double())
    return (torch.randn(shape, generator=generator).double() * spread).to(dtype)


def as_bytes(tensor: torch.Tensor) -> np.ndarray:
    """(elements, bytes of one)."""
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().reshape(tensor.numel(), -1)


def both_ways(
    kernel: Any,
    inputs: list[torch.Tensor],
    outputs: list[torch.Tensor],
    constants: dict[str, Any],
    arch: str,
    warps: int,
    **options: Any,
) -> Found:
    """`kernel(inputs..., outputs..., constants)` for one program of `warps` warps."""
    mine = [torch.zeros_like(each) for each in outputs]
    with warnings.catch_warnings(), emulated(arch) as device:
        warnings.simplefilter("ignore")
        made = kernel[(1,)](*inputs, *mine, **constants, num_warps=warps, **{"enable_fp_fusion": True, **options})
        text = made.asm["ptx"]
    room = [as_bytes(each).copy() for each in (*inputs, *outputs)]
    threads = Threads(text, [each.__array_interface__["data"][0] for each in room], DeviceMemory(*room), 32 * warps)
    threads.run()
    return Found([as_bytes(each) for each in mine], room[len(inputs) :], Counter(threads.seen), device.advice)

"""Real values of kernels: what the same program computes without rounding, beside float64 mathematics of the test's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from bitverdict.harness.emulator import emulated
from bitverdict.harness.emulator.device import LaunchOptions
from bitverdict.harness.emulator.memory.real_memory import RealValues


@triton.jit
def rms_norm(x, w, out, n, eps, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    inside = columns < n
    values = tl.load(x + row * n + columns, mask=inside, other=0.0).to(tl.float32)
    scale = 1 / tl.sqrt(tl.sum(values * values) / n + eps)
    tl.store(out + row * n + columns, values * scale * tl.load(w + columns, mask=inside), mask=inside)


def reals(batches: bool = True) -> Any:
    return emulated("sm_90", options=LaunchOptions(real_values=frozenset(), batches=batches))


def drawn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def off(found: RealValues | None, expected: np.ndarray) -> float:
    """By how many times its error `found` misses `expected`, at worst; the error must be small."""
    assert found is not None and (found.error <= 1e-11 * np.maximum(1, np.abs(expected))).all()
    return float((np.abs(found.value - expected) / (found.error + 1e-15 * np.abs(expected) + 1e-300)).max())


def test_rms_norm_is_its_mathematics_in_batches_and_one_by_one() -> None:
    x, w = drawn(8, 200, dtype=torch.float16), drawn(200, dtype=torch.float16, seed=1)
    wide, scale = x.double().numpy(), w.double().numpy()
    expected = wide / np.sqrt((wide * wide).mean(1, keepdims=True) + 1e-6) * scale
    for batches in (True, False):
        out = torch.empty_like(x)
        with reals(batches) as device:
            rms_norm[(8,)](x, w, out, 200, 1e-6, BLOCK=256)
            assert off(device.real_values(out), expected) <= 1 and not device.hangs
        assert np.abs(out.double().numpy() - expected).max() > 1e-4  # which rounds, and they do not

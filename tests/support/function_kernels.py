"""Kernels of exponentials, roots, quotients and sums as text, 32 elements a program, one warp. What decides their words is the
machine code, which is executed beside the emulated GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from bitverdict.harness.emulator import emulated
from tests.support.drawn_sums import load
from tests.support.machine_words import Lanes, listing

LANES = 32


def kernel(expressions: list[str], folder: Path, name: str, before: str = "pass") -> Any:
    """A kernel that stores each of `expressions`, of x, y and z and of what the line `before` names."""
    stores = "\n".join(f"    tl.store(out + {LANES * i} + at, {each})" for i, each in enumerate(expressions))
    text = f"""import triton
import triton.language as tl


@triton.jit
def kernel(given, out):
    at = tl.arange(0, {LANES})
    given, out = given + tl.program_id(0) * {3 * LANES}, out + tl.program_id(0) * {len(expressions) * LANES}
    x = tl.load(given + at)
    y = tl.load(given + {LANES} + at)
    z = tl.load(given + {2 * LANES} + at)
    {before}
{stores}
"""
    return load(text, folder, name)


def compiled(made: Any, arch: str, element: str = "fp32", **options: Any) -> Any:
    """What Triton's own stages make of a kernel of this file."""
    source = ASTSource(made, {"given": f"*{element}", "out": f"*{element}"}, {})
    return triton.compile(source, target=GPUTarget("cuda", int(arch.removeprefix("sm_")), 32), options={"num_warps": 1, **options})


def by_machine_code(binary: bytes, words: np.ndarray, outputs: int) -> np.ndarray:
    """Words [outputs, n] that the machine code stores for x, y and z of the words [3, n]."""
    ((_, lines),) = listing(binary).items()
    stored = Lanes({4 * LANES * i: each for i, each in enumerate(words)}).run(lines).stored
    return np.stack([stored[4 * LANES * i] for i in range(outputs)])  # [outputs, n]


def by_emulator(made: Any, arch: str, words: np.ndarray, outputs: int, **options: Any) -> np.ndarray:
    """The same from the emulated GPU; `words` of any unsigned type."""
    count = words.shape[1] // LANES
    given = np.ascontiguousarray(words.reshape(3, count, LANES).transpose(1, 0, 2)).view(f"f{words.itemsize}")
    tensor = torch.from_numpy(given.reshape(-1))
    out = torch.zeros(count * outputs * LANES, dtype=tensor.dtype)
    with emulated(arch):
        made[(count,)](tensor, out, num_warps=1, **options)
    return out.numpy().view(words.dtype).reshape(count, outputs, LANES).transpose(1, 0, 2).reshape(outputs, -1)

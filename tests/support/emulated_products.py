"""A matmul on the emulated GPU for its checks: operands that no instruction adds exactly, the launch, the words of a result."""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl

from tests.support import tile_kernels as kernels

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
SCHEDULES = ("eager", "latest", "drawn:7")
TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn, "tf32": torch.float32, "int8": torch.int8}
CODES = {"fp16": np.uint16, "bf16": np.uint16, "e4m3": np.uint8, "tf32": np.uint32, "int8": np.int8}
FAMILIES = {"sm_80": "mma.sync", "sm_90": "wgmma", "sm_100": "tcgen05"}


def operands(fmt: str, m: int, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """a (m, k) and b (k, n), wide exponents so that alignment drops bits."""
    generator = torch.Generator().manual_seed(m * 1000003 + n * 1009 + k)
    if fmt == "int8":
        return tuple(torch.randint(-128, 128, shape, dtype=torch.int8, generator=generator) for shape in ((m, k), (k, n)))
    spread = 2 if fmt == "e4m3" else 4
    pair = [
        torch.randn(shape, generator=generator) * torch.exp2(torch.randint(-spread, spread, shape, generator=generator).float())
        for shape in ((m, k), (k, n))
    ]
    return tuple(x.to(TYPES[fmt]) for x in pair)


def multiply(device, a, b, *, tile=(128, 128, 32), warps=4, stages=3, precision="tf32", **options):
    """a (m, k) times b (k, n) by `bitverdict.kernels.product`, in the accumulator's type."""
    m, k = a.shape
    n = b.shape[1]
    whole = a.dtype == torch.int8
    c = torch.empty(m, n, dtype=torch.int32 if whole else torch.float32)
    kernels.product[(triton.cdiv(m, tile[0]), triton.cdiv(n, tile[1]))](
        a,
        b,
        c,
        m,
        n,
        k,
        a.stride(0),
        b.stride(0),
        c.stride(0),
        BLOCK_M=tile[0],
        BLOCK_N=tile[1],
        BLOCK_K=tile[2],
        ACCUMULATOR=tl.int32 if whole else tl.float32,
        PRECISION=precision,
        num_warps=warps,
        num_stages=stages,
        **options,
    )
    return c


def codes(tensor: torch.Tensor, fmt: str) -> np.ndarray:
    return tensor.contiguous().view(torch.uint8).numpy().view(CODES[fmt])

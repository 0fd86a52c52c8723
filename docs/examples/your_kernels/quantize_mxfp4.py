"""MXFP4: blocks of 32 neighbours share a power of two (e8m0), elements are e2m1, two a byte, the even one low (OCP MX 1.0)."""

import torch
import triton
import triton.language as tl


@triton.jit
def e2m1(x):
    """Codes of the nearest e2m1 numbers, ties to even, 6 at most."""
    size = tl.abs(x)
    code = (size > 0.25).to(tl.uint8) + (size >= 0.75).to(tl.uint8) + (size > 1.25).to(tl.uint8) + (size >= 1.75).to(tl.uint8)
    code += (size > 2.5).to(tl.uint8) + (size >= 3.5).to(tl.uint8) + (size > 5.0).to(tl.uint8)
    return code | ((x.to(tl.int32, bitcast=True) < 0).to(tl.uint8) << 3)


@triton.jit
def quantize_kernel(x_ptr, codes_ptr, scales_ptr, m, n, BLOCK_M: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    block = tl.program_id(1)
    cols = block * 32 + tl.arange(0, 32)
    x = tl.load(x_ptr + rows[:, None].to(tl.int64) * n + cols[None, :], mask=(rows < m)[:, None], other=0.0).to(tl.float32)
    largest = tl.max(tl.abs(x), axis=1)
    exponent = tl.maximum((largest.to(tl.int32, bitcast=True) >> 23) - 2, 0)
    inverse = ((254 - exponent) << 23).to(tl.float32, bitcast=True)
    even, odd = tl.split(tl.reshape(e2m1(x * inverse[:, None]), (BLOCK_M, 16, 2)))
    places = rows[:, None].to(tl.int64) * (n // 2) + block * 16 + tl.arange(0, 16)[None, :]
    tl.store(codes_ptr + places, even | (odd << 4), mask=(rows < m)[:, None])
    tl.store(scales_ptr + rows.to(tl.int64) * (n // 32) + block, exponent.to(tl.uint8), mask=rows < m)


def quantize_mxfp4(x):
    """`x` (m, n) of finite fp32, fp16 or bf16, contiguous, n a multiple of 32; returns codes (m, n / 2) and scales (m, n / 32)."""
    m, n = x.shape
    codes = torch.empty((m, n // 2), dtype=torch.uint8, device=x.device)
    scales = torch.empty((m, n // 32), dtype=torch.uint8, device=x.device)
    quantize_kernel[(triton.cdiv(m, 8), n // 32)](x, codes, scales, m, n, BLOCK_M=8)
    return codes, scales

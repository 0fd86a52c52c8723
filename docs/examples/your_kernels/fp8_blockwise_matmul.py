"""a b^T in e4m3: 128 neighbours of a row of a share a scale, and so do 128 x 128 elements of b. Sums are fp32."""

import torch
import triton
import triton.language as tl


@triton.jit
def fp8_matmul_kernel(
    a_ptr, b_ptr, c_ptr, a_scale_ptr, b_scale_ptr, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):  # fmt: skip
    rows = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    blocks = tl.cdiv(k, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for block in range(blocks):
        depth = block * BLOCK_K + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + rows[:, None] * k + depth[None, :], mask=(rows < m)[:, None] & (depth < k)[None, :], other=0.0)
        b = tl.load(b_ptr + cols[None, :] * k + depth[:, None], mask=(depth < k)[:, None] & (cols < n)[None, :], other=0.0)
        a_scale = tl.load(a_scale_ptr + rows * blocks + block, mask=rows < m, other=0.0)
        b_scale = tl.load(b_scale_ptr + cols // 128 * blocks + block, mask=cols < n, other=0.0)
        acc += tl.dot(a, b) * a_scale[:, None] * b_scale[None, :]
    mask = (rows < m)[:, None] & (cols < n)[None, :]
    tl.store(c_ptr + rows[:, None] * n + cols[None, :], acc.to(c_ptr.dtype.element_ty), mask=mask)


def fp8_blockwise_matmul(a, b, a_scale, b_scale):
    """`a` (m, k), `b` (n, k) of e4m3; scales of fp32 (m, k / 128) and (n / 128, k / 128), rounded up; returns (m, n) of bf16."""
    (m, k), n = a.shape, b.shape[0]
    c = torch.empty((m, n), dtype=torch.bfloat16, device=a.device)
    grid = (triton.cdiv(m, 32), triton.cdiv(n, 32))
    fp8_matmul_kernel[grid](a, b, c, a_scale, b_scale, m, n, k, BLOCK_M=32, BLOCK_N=32, BLOCK_K=128)
    return c

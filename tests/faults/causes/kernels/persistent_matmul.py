"""c = gelu(a @ b + bias), with the gelu by tanh: each program takes every second tile."""

import torch
import triton
import triton.language as tl

import bitverdict as bv


@triton.jit
def persistent_matmul_kernel(
    a_ptr, b_ptr, bias_ptr, c_ptr, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):  # fmt: skip
    tiles_n = tl.cdiv(n, BLOCK_N)
    for tile in range(tl.program_id(0), tl.cdiv(m, BLOCK_M) * tiles_n, tl.num_programs(0)):
        rows = tile // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
        cols = tile % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for start in range(0, k, BLOCK_K):
            depth = start + tl.arange(0, BLOCK_K)
            a = tl.load(a_ptr + rows[:, None] * k + depth[None, :], mask=(rows < m)[:, None] & (depth < k)[None, :], other=0.0)
            b = tl.load(b_ptr + depth[:, None] * n + cols[None, :], mask=(depth < k)[:, None] & (cols < n)[None, :], other=0.0)
            acc += tl.dot(a, b)
        bias = tl.load(bias_ptr + cols, mask=cols < n, other=0.0)
        z = acc + bias[None, :]
        inner = 0.7978845608028654 * (z + 0.044715 * z * z * z)
        c = z * tl.sigmoid(2.0 * inner)
        tl.store(c_ptr + rows[:, None] * n + cols[None, :], c, mask=(rows < m)[:, None] & (cols < n)[None, :])


def persistent_matmul(a, b, bias):
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), dtype=torch.float32, device=a.device)
    persistent_matmul_kernel[(2,)](a, b, bias, c, m, n, k, BLOCK_M=16, BLOCK_N=32, BLOCK_K=32)
    return c


def reference(xp, a, b, bias):
    z = a @ b + bias
    return 0.5 * z * (1 + xp.tanh(0.7978845608028654 * (z + 0.044715 * z * z * z)))


@bv.judged(reference=reference)
def test_persistent_matmul(draw):
    m, n, k = draw.size(1, 40, around=16), draw.size(1, 70, around=32), draw.size(1, 80, around=32)
    return persistent_matmul(draw.tensor("fp16", (m, k)), draw.tensor("fp16", (k, n)), draw.tensor("fp32", (n,)))

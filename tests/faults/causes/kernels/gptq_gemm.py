"""y = x @ ((q - (z + 1)) * s): 4-bit weights, eight rows of K in a word; 4-bit zero points less one, eight columns in a word;
scales by groups of rows."""

import torch
import triton
import triton.language as tl

import bitverdict as bv


@triton.jit
def gptq_gemm_kernel(
    x_ptr, q_ptr, z_ptr, s_ptr, y_ptr, m, n, k, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        depth = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + rows[:, None] * k + depth[None, :], mask=(rows < m)[:, None] & (depth < k)[None, :], other=0.0)
        inside = (depth < k)[:, None] & (cols < n)[None, :]
        q = tl.load(q_ptr + (depth // 8)[:, None] * n + cols[None, :], mask=inside, other=0)
        q = (q >> (depth % 8 * 4)[:, None]) & 0xF
        group = depth // GROUP
        z = tl.load(z_ptr + group[:, None] * (n // 8) + (cols // 8)[None, :], mask=inside, other=0)
        z = ((z >> (cols % 8 * 4)[None, :]) & 0xF) + 1
        s = tl.load(s_ptr + group[:, None] * n + cols[None, :], mask=inside, other=0.0)
        w = (q - z).to(tl.float16) * s
        acc += tl.dot(x, w)
    tl.store(y_ptr + rows[:, None] * n + cols[None, :], acc, mask=(rows < m)[:, None] & (cols < n)[None, :])


def gptq_gemm(x, q, z, s):
    (m, k), n = x.shape, q.shape[1]
    y = torch.empty((m, n), dtype=torch.float32, device=x.device)
    grid = (triton.cdiv(m, 16), triton.cdiv(n, 32))
    gptq_gemm_kernel[grid](x, q, z, s, y, m, n, k, GROUP=k // s.shape[0], BLOCK_M=16, BLOCK_N=32, BLOCK_K=32)
    return y


def reference(xp, x, q, z, s):
    k, group = x.shape[1], x.shape[1] // s.shape[0]
    shifts = xp.arange(8, dtype=xp.int32) * 4
    weights = xp.reshape((q[:, None, :] >> shifts[:, None]) & 15, (k, -1))
    zeros = xp.reshape((z[:, :, None] >> shifts) & 15, (z.shape[0], -1)) + 1
    w = (weights - xp.repeat(zeros, group, axis=0)) * xp.repeat(s, group, axis=0)
    return x @ xp.kept_in(w, "fp16")


@bv.judged(reference=reference)
def test_gptq_gemm(draw):
    m, n, groups, group = draw.size(1, 20), draw.size(8, 72, multiple_of=8), draw.size(1, 4), draw.choice((16, 32, 8))
    x = draw.tensor("fp16", (m, k := groups * group))
    q, z = draw.integers((k // 8, n), -(2**31), 2**31 - 1), draw.integers((groups, n // 8), -(2**31), 2**31 - 1)
    return gptq_gemm(x, q, z, draw.tensor("fp16", (groups, n)))

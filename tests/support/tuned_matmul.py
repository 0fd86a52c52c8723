"""An autotuned split-K product that adds up by atomics, and lines in it that tests replace by faulty ones."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32}, num_warps=4),
    triton.Config({"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32}, num_warps=2),
    triton.Config({"BLOCK_M": 32, "BLOCK_N": 16, "BLOCK_K": 64}, num_warps=4),
]


@triton.autotune(CONFIGS, key=["M", "N", "K"], reset_to_zero=["c_ptr"])
@triton.jit
def split_kernel(a_ptr, b_ptr, c_ptr, M, N, K, SPLIT: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                 BLOCK_K: tl.constexpr):  # fmt: skip
    offs_m, offs_n = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.program_id(2) * BLOCK_K, K, SPLIT * BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + offs_m[:, None] * K + offs_k[None, :], mask=(offs_m < M)[:, None] & (offs_k < K)[None, :], other=0.0)
        b = tl.load(b_ptr + offs_k[:, None] * N + offs_n[None, :], mask=(offs_k < K)[:, None] & (offs_n < N)[None, :], other=0.0)
        acc = tl.dot(a, b, acc)
    tl.atomic_add(c_ptr + offs_m[:, None] * N + offs_n[None, :], acc, mask=(offs_m < M)[:, None] & (offs_n < N)[None, :])


def matmul(a, b):
    (M, K), (_, N) = a.shape, b.shape
    c = torch.zeros((M, N), device=a.device, dtype=torch.float32)
    split_kernel[lambda meta: (triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, meta["BLOCK_N"]), 2)](a, b, c, M, N, K, SPLIT=2)
    return c.to(a.dtype)

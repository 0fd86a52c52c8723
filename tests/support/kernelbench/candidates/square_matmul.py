"""`ModelNew` for problems/square_matmul.py."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, m, n, k, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for first in range(0, k, BLOCK):
        depth = first + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + rows[:, None] * k + depth[None, :], mask=(rows < m)[:, None] & (depth < k)[None, :], other=0.0)
        b = tl.load(b_ptr + depth[:, None] * n + cols[None, :], mask=(depth < k)[:, None] & (cols < n)[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(c_ptr + rows[:, None] * n + cols[None, :], acc, mask=(rows < m)[:, None] & (cols < n)[None, :])


class ModelNew(nn.Module):
    def forward(self, A, B):
        A, B = A.contiguous(), B.contiguous()
        (m, k), n = A.shape, B.shape[1]
        C = torch.empty((m, n), dtype=A.dtype, device=A.device)
        matmul_kernel[(triton.cdiv(m, 32), triton.cdiv(n, 32))](A, B, C, m, n, k, BLOCK=32)
        return C

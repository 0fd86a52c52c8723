"""y[i, :] = x[i, :] w[expert[i], :, :]: the rows of each expert of a mixture are gathered, multiplied and put back."""

import torch
import triton
import triton.language as tl


@triton.jit
def grouped_matmul_kernel(
    x_ptr, w_ptr, y_ptr, order_ptr, offsets_ptr, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):  # fmt: skip
    expert = tl.program_id(0)
    end = tl.load(offsets_ptr + expert + 1)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    for start in range(tl.load(offsets_ptr + expert), end, BLOCK_M):
        places = start + tl.arange(0, BLOCK_M)
        row_mask = (places < end)[:, None]
        rows = tl.load(order_ptr + places, mask=places < end, other=0)
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for first in range(0, k, BLOCK_K):
            depth = first + tl.arange(0, BLOCK_K)
            x = tl.load(x_ptr + rows[:, None] * k + depth[None, :], mask=row_mask & (depth < k)[None, :], other=0.0)
            w_mask = (depth < k)[:, None] & (cols < n)[None, :]
            w = tl.load(w_ptr + expert.to(tl.int64) * k * n + depth[:, None] * n + cols[None, :], mask=w_mask, other=0.0)
            acc = tl.dot(x, w, acc)
        tl.store(y_ptr + rows[:, None] * n + cols[None, :], acc.to(y_ptr.dtype.element_ty), mask=row_mask & (cols < n)[None, :])


def grouped_matmul(x, w, expert):
    """`x` (rows, k), `w` (experts, k, n) of fp16 or bf16, contiguous, `expert` (rows,) of int32; returns (rows, n)."""
    experts, k, n = w.shape
    order = torch.argsort(expert, stable=True)
    offsets = torch.zeros(experts + 1, dtype=torch.int32, device=x.device)
    offsets[1:] = torch.cumsum(torch.bincount(expert, minlength=experts), 0)
    y = torch.empty((x.shape[0], n), dtype=x.dtype, device=x.device)
    grid = (experts, triton.cdiv(n, 32))
    grouped_matmul_kernel[grid](x, w, y, order, offsets, n, k, BLOCK_M=16, BLOCK_N=32, BLOCK_K=32)
    return y

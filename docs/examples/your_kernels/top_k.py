"""The k largest of each row, in descending order, and where they are; of equal ones the first comes first."""

import torch
import triton
import triton.language as tl


@triton.jit
def top_k_kernel(x_ptr, values_ptr, indices_ptr, n_cols, k, stride_x, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
    for i in range(k):
        best, where = tl.max(x, axis=0, return_indices=True)
        tl.store(values_ptr + row * k + i, best.to(values_ptr.dtype.element_ty))
        tl.store(indices_ptr + row * k + i, where)
        x = tl.where(cols == where, -float("inf"), x)


def top_k(x, k):
    """`x` (m, n) of finite fp32, fp16 or bf16, k at most n; returns values (m, k) and indices (m, k) of int32."""
    m, n = x.shape
    values = torch.empty((m, k), dtype=x.dtype, device=x.device)
    indices = torch.empty((m, k), dtype=torch.int32, device=x.device)
    top_k_kernel[(m,)](x, values, indices, n, k, x.stride(0), BLOCK=triton.next_power_of_2(n))
    return values, indices

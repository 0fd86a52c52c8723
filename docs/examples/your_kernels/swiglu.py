"""swiglu(x)[i, j] = silu(x[i, j]) * x[i, n + j]: the gate and what it lets through lie side by side in a row of 2 n."""

import torch
import triton
import triton.language as tl


@triton.jit
def swiglu_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    gate = tl.load(x_ptr + row * stride_x + cols, mask=mask).to(tl.float32)
    value = tl.load(x_ptr + row * stride_x + n_cols + cols, mask=mask).to(tl.float32)
    y = gate * tl.sigmoid(gate) * value
    tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


def swiglu(x):
    """`x` (m, 2 n) of fp32, fp16 or bf16, rows may lie apart; returns (m, n)."""
    m, n = x.shape[0], x.shape[1] // 2
    y = torch.empty((m, n), dtype=x.dtype, device=x.device)
    swiglu_kernel[(m, triton.cdiv(n, 128))](x, y, n, x.stride(0), y.stride(0), BLOCK=128)
    return y

"""Rotary embedding: the pairs (j, j + d / 2) of each head are turned by the angles of their position."""

import torch
import triton
import triton.language as tl


@triton.jit
def rope_kernel(x_ptr, cos_ptr, sin_ptr, y_ptr, heads, half, BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr):
    position = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    cols = tl.arange(0, BLOCK_D)
    col_mask = cols < half
    mask = (head < heads)[:, None] & col_mask[None, :]
    cos = tl.load(cos_ptr + position * half + cols, mask=col_mask, other=0.0)[None, :]
    sin = tl.load(sin_ptr + position * half + cols, mask=col_mask, other=0.0)[None, :]
    left = (position * heads + head[:, None]) * 2 * half + cols[None, :]
    right = left + half
    x1 = tl.load(x_ptr + left, mask=mask, other=0.0).to(tl.float32)
    x2 = tl.load(x_ptr + right, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + left, (x1 * cos - x2 * sin).to(y_ptr.dtype.element_ty), mask=mask)
    tl.store(y_ptr + right, (x2 * cos + x1 * sin).to(y_ptr.dtype.element_ty), mask=mask)


def rope(x, cos, sin):
    """`x` (positions, heads, d) of fp32, fp16 or bf16, contiguous, d even; `cos` and `sin` (positions, d / 2) of fp32."""
    positions, heads, d = x.shape
    y = torch.empty_like(x)
    grid = (positions, triton.cdiv(heads, 4))
    rope_kernel[grid](x, cos, sin, y, heads, d // 2, BLOCK_H=4, BLOCK_D=triton.next_power_of_2(d // 2))
    return y

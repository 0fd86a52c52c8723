"""A `torch.autograd.Function` as a user writes it, y = x^2 w by rows, and its description."""

import torch
import triton
import triton.language as tl

import bitverdict as bv


@triton.jit
def forward_kernel(x_ptr, w_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row * n + cols, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * n + cols, x * x * w, mask=mask)


@triton.jit
def backward_kernel(x_ptr, w_ptr, dy_ptr, dx_ptr, dw_ptr, n, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row * n + cols, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + row * n + cols, mask=mask, other=0.0).to(tl.float32)
    tl.store(dx_ptr + row * n + cols, 2.0 * x * w * dy, mask=mask)
    tl.atomic_add(dw_ptr + cols, x * x * dy, mask=mask)


class SquaredRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        y, n = torch.empty_like(x), x.shape[1]
        forward_kernel[(x.shape[0],)](x, w, y, n, triton.next_power_of_2(n))
        ctx.save_for_backward(x, w)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        dx, n = torch.empty_like(x), x.shape[1]
        dw = torch.zeros(n, dtype=torch.float32, device=x.device)
        backward_kernel[(x.shape[0],)](x, w, dy.contiguous(), dx, dw, n, triton.next_power_of_2(n))
        return dx, dw.to(w.dtype)


@bv.judged(reference=lambda xp, x, w: x * x * w, gradient=True, strides="contiguous")
def test_squared_rows(draw):
    m, n, kind = draw.size(1, 9), draw.size(1, 40), draw.choice(("fp32", "fp16", "bf16"))
    return SquaredRows.apply(draw.tensor(kind, (m, n)), draw.tensor(kind, (n,)))

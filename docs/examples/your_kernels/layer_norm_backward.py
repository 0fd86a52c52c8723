"""Gradients of layer_norm(x) = (x - mean) * rstd * w + b along rows: dx, dw and db, from dy."""

import torch
import triton
import triton.language as tl


@triton.jit
def dx_kernel(dy_ptr, x_ptr, w_ptr, dx_ptr, mean_ptr, rstd_ptr, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + row * n_cols + cols, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / n_cols
    centred = tl.where(mask, x - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(centred * centred, axis=0) / n_cols + eps)
    x_hat = centred * rstd
    wdy = w * dy
    along_x = tl.sum(x_hat * wdy, axis=0) / n_cols
    along_1 = tl.sum(wdy, axis=0) / n_cols
    dx = (wdy - x_hat * along_x - along_1) * rstd
    tl.store(dx_ptr + row * n_cols + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def dw_db_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, dw_ptr, db_ptr, n_rows, n_cols, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    cols = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    dw = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    db = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, n_rows, BLOCK_M):
        rows = start + tl.arange(0, BLOCK_M)
        mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
        places = rows[:, None].to(tl.int64) * n_cols + cols[None, :]
        x = tl.load(x_ptr + places, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + places, mask=mask, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + rows, mask=rows < n_rows, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        dw += dy * (x - mean[:, None]) * rstd[:, None]
        db += dy
    tl.store(dw_ptr + cols, tl.sum(dw, axis=0).to(dw_ptr.dtype.element_ty), mask=cols < n_cols)
    tl.store(db_ptr + cols, tl.sum(db, axis=0).to(db_ptr.dtype.element_ty), mask=cols < n_cols)


def layer_norm_backward(dy, x, w, eps=1e-5):
    """`dy` and `x` (m, n), `w` (n,) of fp32, fp16 or bf16, contiguous; returns dx (m, n), dw (n,) and db (n,)."""
    m, n = x.shape
    dx, dw, db = torch.empty_like(x), torch.empty_like(w), torch.empty_like(w)
    mean = torch.empty(m, dtype=torch.float32, device=x.device)
    rstd = torch.empty_like(mean)
    dx_kernel[(m,)](dy, x, w, dx, mean, rstd, n, eps, BLOCK=triton.next_power_of_2(n))
    dw_db_kernel[(triton.cdiv(n, 32),)](dy, x, mean, rstd, dw, db, m, n, BLOCK_M=8, BLOCK_N=32)
    return dx, dw, db

"""h = x + r; y = (h - mean(h)) / sqrt(var(h) + eps) * w + b, row by row."""

import torch
import triton
import triton.language as tl

import bitverdict as bv


@triton.jit
def add_layer_norm_kernel(x_ptr, r_ptr, w_ptr, b_ptr, y_ptr, h_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row * n + cols, mask=mask, other=0.0).to(tl.float32)
    r = tl.load(r_ptr + row * n + cols, mask=mask, other=0.0).to(tl.float32)
    h = x + r
    mean = tl.sum(h, axis=0) / n
    centred = tl.where(mask, h - mean, 0.0)
    var = tl.sum(centred * centred, axis=0) / n
    rstd = 1.0 / tl.sqrt(var + eps)
    w = tl.load(w_ptr + cols, mask=mask).to(tl.float32)
    b = tl.load(b_ptr + cols, mask=mask).to(tl.float32)
    tl.store(y_ptr + row * n + cols, centred * rstd * w + b, mask=mask)
    tl.store(h_ptr + row * n + cols, h, mask=mask)


def add_layer_norm(x, r, w, b):
    y, h = torch.empty_like(x), torch.empty_like(x)
    m, n = x.shape
    add_layer_norm_kernel[(m,)](x, r, w, b, y, h, n, 1e-3, BLOCK=triton.next_power_of_2(n))
    return y, h


def reference(xp, x, r, w, b):
    h = x + r
    centred = h - xp.mean(h, axis=1, keepdims=True)
    return centred / xp.sqrt(xp.mean(centred * centred, axis=1, keepdims=True) + 1e-3) * w + b, h


@bv.judged(reference=reference)
def test_add_layer_norm(draw):
    m, n, dtype = draw.size(1, 9), draw.size(1, 300, around=64), draw.choice(("fp32", "fp16", "bf16"))
    rows, weights = (draw.tensor(dtype, (m, n)) for _ in range(2)), (draw.tensor(dtype, (n,)) for _ in range(2))
    return add_layer_norm(*rows, *weights)

"""`ModelNew` for problems/layer_norm.py: it keeps the problem's parameters under their names."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def layer_norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row * n + cols, mask=mask, other=0.0)
    centred = tl.where(mask, x - tl.sum(x, axis=0) / n, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / n + eps)
    w = tl.load(w_ptr + cols, mask=mask)
    b = tl.load(b_ptr + cols, mask=mask)
    tl.store(y_ptr + row * n + cols, centred * rstd * w + b, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        x = x.contiguous()
        y, n = torch.empty_like(x), x.shape[-1]
        norm = self.norm
        layer_norm_kernel[(x.numel() // n,)](x, norm.weight, norm.bias, y, n, norm.eps, BLOCK=triton.next_power_of_2(n))
        return y

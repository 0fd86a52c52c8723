"""x + 2 y by a launcher whose kernel and sizes lie in other files of its folder and of a package there."""

import torch
from neighbour import grid_of
from own_package import BLOCK_SIZE
from own_package.kernels import axpy_kernel


def from_a_package(x, y):
    out = torch.empty_like(x)
    axpy_kernel[grid_of(x.numel(), BLOCK_SIZE)](x, y, out, x.numel(), BLOCK_SIZE=BLOCK_SIZE)
    return out


def imported_late(x, y):
    import math

    import triton.testing  # noqa: F401  (as benchmarks beside a kernel do)
    from own_package.kernels import axpy_kernel as kernel

    out = torch.empty_like(x)
    kernel[(math.ceil(x.numel() / 64),)](x, y, out, x.numel(), BLOCK_SIZE=64)
    return out

"""Its kernels."""

import triton
import triton.language as tl

from .pieces import twice


@triton.jit
def axpy_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) + twice(tl.load(y_ptr + offsets, mask)), mask)

"""One `tl.dot` of small integers; run as a module it prints its result, so that another process can ask Triton's interpreter."""

from __future__ import annotations

import json
import sys

import torch
import triton
import triton.language as tl

SIZE = 32


@triton.jit
def dot_kernel(a_ptr, b_ptr, c_ptr, SIZE: tl.constexpr):
    rows, columns = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :]
    a = tl.load(a_ptr + rows * SIZE + columns)  # (SIZE, SIZE)
    b = tl.load(b_ptr + rows * SIZE + columns)  # (SIZE, SIZE)
    tl.store(c_ptr + rows * SIZE + columns, tl.dot(a, b))


def operands(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Integers in -3..3, exact in every format."""
    count = torch.arange(SIZE * SIZE).reshape(SIZE, SIZE)  # (SIZE, SIZE)
    return (count % 7 - 3).to(dtype), (count % 5 - 2).to(dtype)


def dot(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = torch.empty(SIZE, SIZE, dtype=torch.float32)  # (SIZE, SIZE)
    dot_kernel[(1,)](a, b, c, SIZE)
    return c


if __name__ == "__main__":
    print(json.dumps(dot(*operands(getattr(torch, sys.argv[1]))).tolist()))

"""Y[i, :] = exp(X[i, :] - max(X[i, :])) / sum(exp(X[i, :] - max(X[i, :]))): softmax of each row.

X, Y: (rows, columns) of fp32, fp16 or bf16; all arithmetic is fp32, and the result is rounded once to the type of X. One program a
row. Every operation rounds, and the sum is a tree in the order of the stated layout: so every bit is decided.

Preconditions, and what each costs when broken:

- The columns of a row are neighbours, the rows may lie apart: otherwise other elements are read. Refused by the launcher.
- What lies behind the last column counts as -inf, whose exponential is 0: with 0 instead it would enter maximum and sum.
- The maximum is taken away before the exponential: without that the sum overflows from 89 on.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from bitverdict.kernels.clauses import require
from bitverdict.kernels.element_types import element_type
from bitverdict.kernels.features import Feature
from bitverdict.kernels.row_tiles import CLAUSES, UNFUSED_OPTIONS, block_of, row_stride, warp_threads

REQUIRES: frozenset[Feature] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A (rows, columns) matrix of `dtype`; `x_pad` elements follow each row."""

    rows: int
    columns: int
    dtype: str = "fp32"
    x_pad: int = 0


@dataclass(frozen=True, kw_only=True)
class Config:
    per_thread: int = 4
    num_warps: int = 4


@gluon.jit
def softmax_kernel(x, y, columns, x_stride, y_stride, BLOCK: gl.constexpr, PER_THREAD: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([PER_THREAD], [warp_threads()], [gl.num_warps()], [0])
    row = gl.program_id(0).to(gl.int64)
    column = gl.arange(0, BLOCK, layout)  # (BLOCK,)
    inside = column < columns  # (BLOCK,)
    values = gl.load(x + row * x_stride + column, mask=inside, other=-float("inf")).to(gl.float32)  # (BLOCK,)
    below = values - gl.max(values, 0)
    powers = gl.exp(below)  # (BLOCK,)
    total = gl.sum(powers, 0)
    gl.store(y + row * y_stride + column, (powers / total).to(y.dtype.element_ty), mask=inside)


def softmax(x: torch.Tensor, *, per_thread: int = 4, num_warps: int = 4) -> torch.Tensor:
    """Softmax of each row of `x` (rows, columns), on its device and in its type. ValueError names the broken clause."""
    stride = row_stride("softmax", "x", x)
    rows, columns = x.shape
    problem = Problem(rows=rows, columns=columns, dtype=element_type(x.dtype).name, x_pad=max(stride - columns, 0))
    require("softmax", CLAUSES, problem, Config(per_thread=per_thread, num_warps=num_warps))
    y = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
    if rows:
        softmax_kernel[(rows,)](
            x, y, columns, stride, columns, block_of(columns), per_thread, num_warps=num_warps, **UNFUSED_OPTIONS
        )
    return y

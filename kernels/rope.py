"""Y[i, h, :] = X[i, h, :] turned by the angles of position i: rotary embedding, halves of a head paired.

    Y[i, h, j] = X[i, h, j] cos[i, j] - X[i, h, j + D/2] sin[i, j]                                           0 <= j < D/2
    Y[i, h, j + D/2] = X[i, h, j + D/2] cos[i, j] + X[i, h, j] sin[i, j]

X, Y: (positions, heads, D) of fp32, fp16 or bf16; cos, sin: (positions, D/2) of fp32. The heads of a position are contiguous;
positions of X may lie apart, as those of a slice of a projection to Q, K and V do. Y is contiguous, or X. All arithmetic is fp32:
both products and their sum are rounded, then the result is rounded to the type of X. One program turns one head of one position.

Preconditions, and what each costs when broken:

- D is even: otherwise the last element of a head has no partner. Refused by the launcher.
- Both halves are loaded before either is stored: a program that stores in between would, in place, turn what it has turned.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from bitverdict.kernels.clauses import Clause, require
from bitverdict.kernels.element_types import element_type
from bitverdict.kernels.features import Feature
from bitverdict.kernels.row_tiles import CLAUSES as ROW_CLAUSES
from bitverdict.kernels.row_tiles import UNFUSED_OPTIONS, block_of, warp_threads

REQUIRES: frozenset[Feature] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Problem:
    """(positions, heads, columns) of `dtype`, turned in place or not."""

    positions: int
    heads: int
    columns: int
    dtype: str = "fp32"
    in_place: bool = False
    x_pad: int = 0  # elements after each position of X


@dataclass(frozen=True, kw_only=True)
class Config:
    per_thread: int = 1
    num_warps: int = 1


CLAUSES = (
    *ROW_CLAUSES,
    Clause(
        name="even",
        holds=lambda p, c: p.columns % 2 == 0,
        value=lambda p, c: f"columns = {p.columns}",
        rule="the columns of a head are even",
        remedy="pad the head by one column",
        cost="the last column has no partner",
    ),
)


@gluon.jit
def rope_kernel(x, cos, sin, y, x_stride, y_stride, HALF: gl.constexpr, BLOCK: gl.constexpr, PER_THREAD: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([PER_THREAD], [warp_threads()], [gl.num_warps()], [0])
    position = gl.program_id(0).to(gl.int64)
    column = gl.arange(0, BLOCK, layout)  # (BLOCK,)
    inside = column < HALF  # (BLOCK,)
    offset = gl.program_id(1) * (2 * HALF) + column  # (BLOCK,) in its position
    x += position * x_stride
    y += position * y_stride
    left = gl.load(x + offset, mask=inside, other=0.0).to(gl.float32)  # (BLOCK,)
    right = gl.load(x + offset + HALF, mask=inside, other=0.0).to(gl.float32)  # (BLOCK,)
    c = gl.load(cos + position * HALF + column, mask=inside, other=0.0)  # (BLOCK,)
    s = gl.load(sin + position * HALF + column, mask=inside, other=0.0)  # (BLOCK,)
    gl.store(y + offset, (left * c - right * s).to(y.dtype.element_ty), mask=inside)
    gl.store(y + offset + HALF, (right * c + left * s).to(y.dtype.element_ty), mask=inside)


def rope(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *, in_place: bool = False, per_thread: int = 1, num_warps: int = 1
) -> torch.Tensor:
    """`x` (positions, heads, D) turned by `cos` and `sin` (positions, D/2), on their device. ValueError names a broken clause."""
    positions, heads, columns = x.shape
    stride = x.stride(0) if positions > 1 else heads * columns
    problem = Problem(
        positions=positions,
        heads=heads,
        columns=columns,
        dtype=element_type(x.dtype).name,
        in_place=in_place,
        x_pad=stride - heads * columns,
    )
    require("rope", CLAUSES, problem, Config(per_thread=per_thread, num_warps=num_warps))
    for name, table in (("cos", cos), ("sin", sin)):
        if table.shape != (positions, columns // 2) or table.dtype != torch.float32 or not table.is_contiguous():
            raise ValueError(
                f"rope: {name} is {tuple(table.shape)} of {table.dtype}: must be contiguous fp32 of ({positions}, {columns // 2})"
            )
    if x.numel() and (not x[0].is_contiguous() or problem.x_pad < 0):
        raise ValueError(
            f"rope: x has strides {x.stride()}: the heads of a position must be contiguous, and positions must not overlap; "
            "call .contiguous()"
        )
    y = x if in_place else torch.empty((positions, heads, columns), dtype=x.dtype, device=x.device)
    if x.numel():
        half = columns // 2
        rope_kernel[(positions, heads)](
            x,
            cos,
            sin,
            y,
            stride,
            stride if in_place else heads * columns,
            half,
            block_of(half),
            per_thread,
            num_warps=num_warps,
            **UNFUSED_OPTIONS,
        )
    return y

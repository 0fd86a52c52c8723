"""Y = A / (1 + exp(-A)) B, element by element: the gate of a SwiGLU layer.

A, B, Y: (rows, columns) of fp32, fp16 or bf16; all arithmetic is fp32, and the result is rounded once to the type of A. Every
operation rounds, so every bit is decided.

Preconditions, and what each costs when broken:

- A and B are alike, their columns are neighbours: otherwise other elements are read. Refused by the launcher.
- The last block of a row is masked: without it the next row is read, and written by two programs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from bitverdict.kernels.clauses import Clause, require
from bitverdict.kernels.descriptor_rules import is_power_of_two
from bitverdict.kernels.element_types import element_type
from bitverdict.kernels.features import Feature
from bitverdict.kernels.row_tiles import CLAUSES as ROW_CLAUSES
from bitverdict.kernels.row_tiles import UNFUSED_OPTIONS, row_stride, same_shape, warp_threads

REQUIRES: frozenset[Feature] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Two (rows, columns) matrices of `dtype`; `a_pad` and `b_pad` elements follow each row."""

    rows: int
    columns: int
    dtype: str = "fp32"
    a_pad: int = 0
    b_pad: int = 0


@dataclass(frozen=True, kw_only=True)
class Config:
    block: int = 1024
    per_thread: int = 4
    num_warps: int = 4


CLAUSES = (
    ROW_CLAUSES[0],
    ROW_CLAUSES[2],
    Clause(
        name="block",
        holds=lambda p, c: is_power_of_two(c.block) and c.block <= 16384,
        value=lambda p, c: f"block = {c.block}",
        rule="a block is a power of two up to 16384",
        remedy="take 1024",
        cost="a tile program has no such tensor",
        layer="front end",
    ),
)


@gluon.jit
def swiglu_kernel(a, b, y, columns, a_stride, b_stride, y_stride, BLOCK: gl.constexpr, PER_THREAD: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([PER_THREAD], [warp_threads()], [gl.num_warps()], [0])
    row = gl.program_id(0).to(gl.int64)
    column = gl.program_id(1) * BLOCK + gl.arange(0, BLOCK, layout)  # (BLOCK,)
    inside = column < columns  # (BLOCK,)
    gate = gl.load(a + row * a_stride + column, mask=inside, other=0.0).to(gl.float32)  # (BLOCK,)
    value = gl.load(b + row * b_stride + column, mask=inside, other=0.0).to(gl.float32)  # (BLOCK,)
    opened = gate / (1.0 + gl.exp(-gate))  # (BLOCK,)
    gl.store(y + row * y_stride + column, (opened * value).to(y.dtype.element_ty), mask=inside)


def swiglu(a: torch.Tensor, b: torch.Tensor, *, block: int = 1024, per_thread: int = 4, num_warps: int = 4) -> torch.Tensor:
    """The gate of `a` and `b` (rows, columns), on their device and in their type. ValueError names the broken clause."""
    same_shape("swiglu", a=a, b=b)
    a_stride, b_stride = row_stride("swiglu", "a", a), row_stride("swiglu", "b", b)
    rows, columns = a.shape
    problem = Problem(
        rows=rows,
        columns=columns,
        dtype=element_type(a.dtype).name,
        a_pad=max(a_stride - columns, 0),
        b_pad=max(b_stride - columns, 0),
    )
    require("swiglu", CLAUSES, problem, Config(block=block, per_thread=per_thread, num_warps=num_warps))
    y = torch.empty((rows, columns), dtype=a.dtype, device=a.device)
    if a.numel():
        grid = (rows, triton.cdiv(columns, block))
        swiglu_kernel[grid](
            a, b, y, columns, a_stride, b_stride, columns, block, per_thread, num_warps=num_warps, **UNFUSED_OPTIONS
        )
    return y

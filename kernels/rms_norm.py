"""Y[i, :] = X[i, :] / sqrt(mean(X[i, :]^2) + eps) W, and its gradients.

    forward    r[i] = rsqrt(sum_j X[i, j]^2 / N + eps),  Y[i, j] = X[i, j] r[i] W[j]
    backward   G[i, j] = dY[i, j] W[j],  dX[i, j] = r[i] (G[i, j] - X[i, j] (r[i]^2 / N sum_k G[i, k] X[i, k]))
               dW[j] = sum_i dY[i, j] X[i, j] r[i]

X, Y, dY, dX: (rows, columns) of fp32, fp16 or bf16; W: (columns,) of that type; r and dW: fp32. All arithmetic is fp32; 1 / N is
an fp32 number. Forward is one program a row. Backward is one program for `rows_per_program` rows: it adds their parts of dW in
ascending order, and a second kernel adds the programs' parts in ascending order. Every operation rounds, and a sum along a row is a
tree in the order of the stated layout: so every bit is decided.

Preconditions, and what each costs when broken:

- The columns of a row are neighbours, the rows of X may lie apart: otherwise other elements are read. Refused by the launcher.
- What lies behind the last column counts as 0: otherwise it enters the sum.
- The part of dW of a row that does not exist is 0: the last program may have fewer rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from bitverdict.kernels.clauses import Clause, require
from bitverdict.kernels.element_types import element_type
from bitverdict.kernels.features import Feature
from bitverdict.kernels.row_tiles import CLAUSES as ROW_CLAUSES
from bitverdict.kernels.row_tiles import UNFUSED_OPTIONS, block_of, row_stride, same_shape, warp_threads

REQUIRES: frozenset[Feature] = frozenset()
EPS = 2.0**-20


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A (rows, columns) matrix of `dtype`; `x_pad` elements follow each row of X. `backward`: the gradients are asked for too."""

    rows: int
    columns: int
    dtype: str = "fp32"
    x_pad: int = 0
    backward: bool = True


@dataclass(frozen=True, kw_only=True)
class Config:
    per_thread: int = 4
    num_warps: int = 4
    rows_per_program: int = 8


CLAUSES = (
    *ROW_CLAUSES,
    Clause(
        name="rows of a program",
        holds=lambda p, c: c.rows_per_program >= 1,
        value=lambda p, c: f"rows_per_program = {c.rows_per_program}",
        rule="a program of the backward pass has at least one row",
        remedy="take 8",
        cost="a division by zero in the launcher",
        layer="launcher",
    ),
)


@gluon.jit
def rms_norm_kernel(x, w, y, r, columns, x_stride, y_stride, share, eps, BLOCK: gl.constexpr, PER_THREAD: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([PER_THREAD], [warp_threads()], [gl.num_warps()], [0])
    row = gl.program_id(0).to(gl.int64)
    column = gl.arange(0, BLOCK, layout)  # (BLOCK,)
    inside = column < columns  # (BLOCK,)
    values = gl.load(x + row * x_stride + column, mask=inside, other=0.0).to(gl.float32)  # (BLOCK,)
    scale = gl.load(w + column, mask=inside).to(gl.float32)  # (BLOCK,)
    inverse = gl.rsqrt(gl.sum(values * values, 0) * share + eps)
    gl.store(r + row, inverse)
    gl.store(y + row * y_stride + column, (values * inverse * scale).to(y.dtype.element_ty), mask=inside)


@gluon.jit
def rms_norm_backward_kernel(
    x, w, dy, r, dx, parts, rows, columns, x_stride, dy_stride, dx_stride, share, BLOCK: gl.constexpr, PER_THREAD: gl.constexpr,
    ROWS: gl.constexpr,
):  # fmt: skip
    layout: gl.constexpr = gl.BlockedLayout([PER_THREAD], [warp_threads()], [gl.num_warps()], [0])
    program = gl.program_id(0).to(gl.int64)
    column = gl.arange(0, BLOCK, layout)  # (BLOCK,)
    inside = column < columns  # (BLOCK,)
    scale = gl.load(w + column, mask=inside, other=0.0).to(gl.float32)  # (BLOCK,)
    part = gl.zeros([BLOCK], gl.float32, layout)  # (BLOCK,)
    for step in range(ROWS):
        row = program * ROWS + step
        row_mask = inside & (row < rows)  # (BLOCK,)
        values = gl.load(x + row * x_stride + column, mask=row_mask, other=0.0).to(gl.float32)  # (BLOCK,)
        given = gl.load(dy + row * dy_stride + column, mask=row_mask, other=0.0).to(gl.float32)  # (BLOCK,)
        inverse = gl.load(r + row, mask=row < rows, other=0.0)
        scaled = given * scale  # (BLOCK,)
        along = inverse * inverse * share * gl.sum(scaled * values, 0)
        gl.store(dx + row * dx_stride + column, (inverse * (scaled - values * along)).to(dx.dtype.element_ty), mask=row_mask)
        part += given * values * inverse
    gl.store(parts + program * columns + column, part, mask=inside)


@gluon.jit
def added_rows_kernel(parts, total, rows, columns, BLOCK: gl.constexpr, PER_THREAD: gl.constexpr):
    """total[j] = parts[0, j] + parts[1, j] + ..., in that order."""
    layout: gl.constexpr = gl.BlockedLayout([PER_THREAD], [warp_threads()], [gl.num_warps()], [0])
    column = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout)  # (BLOCK,)
    found = gl.zeros([BLOCK], gl.float32, layout)  # (BLOCK,)
    place = parts + column  # (BLOCK,)
    for _ in range(rows):
        found += gl.load(place, mask=column < columns, other=0.0)
        place += columns
    gl.store(total + column, found, mask=column < columns)


def rms_norm(
    x: torch.Tensor, w: torch.Tensor, eps: float = EPS, *, per_thread: int = 4, num_warps: int = 4
) -> tuple[torch.Tensor, torch.Tensor]:
    """Y (rows, columns) and r (rows,) of `x` (rows, columns) and `w` (columns,), on their device. ValueError: what is broken."""
    stride = _legal(x, w, Config(per_thread=per_thread, num_warps=num_warps))
    rows, columns = x.shape
    y = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
    r = torch.empty(rows, dtype=torch.float32, device=x.device)
    if rows:
        rms_norm_kernel[(rows,)](
            x, w, y, r, columns, stride, columns, 1 / columns, eps, block_of(columns), per_thread, num_warps=num_warps,
            **UNFUSED_OPTIONS
        )  # fmt: skip
    return y, r


def rms_norm_backward(
    x: torch.Tensor, w: torch.Tensor, r: torch.Tensor, dy: torch.Tensor, *, per_thread: int = 4, num_warps: int = 4,
    rows_per_program: int = 8,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """dX (rows, columns) and dW (columns,) from what `rms_norm` took and gave, and `dy` like Y. ValueError: what is broken."""
    stride = _legal(x, w, Config(per_thread=per_thread, num_warps=num_warps, rows_per_program=rows_per_program))
    same_shape("rms_norm", x=x, dy=dy)
    rows, columns = x.shape
    dx = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
    programs = triton.cdiv(rows, rows_per_program)
    parts = torch.empty((programs, columns), dtype=torch.float32, device=x.device)
    dw = torch.empty(columns, dtype=torch.float32, device=x.device)
    if rows:
        rms_norm_backward_kernel[(programs,)](
            x, w, dy, r, dx, parts, rows, columns, stride, row_stride("rms_norm", "dy", dy), columns, 1 / columns,
            block_of(columns), per_thread, rows_per_program, num_warps=num_warps, **UNFUSED_OPTIONS,
        )  # fmt: skip
    block = min(block_of(columns), 512)
    added_rows_kernel[(triton.cdiv(columns, block),)](
        parts, dw, programs, columns, block, 1, num_warps=num_warps, **UNFUSED_OPTIONS
    )
    return dx, dw


def _legal(x: torch.Tensor, w: torch.Tensor, config: Config) -> int:
    """The stride of rows of `x`; ValueError for what is not legal."""
    stride = row_stride("rms_norm", "x", x)
    rows, columns = x.shape
    if w.shape != (columns,) or w.dtype != x.dtype or not w.is_contiguous():
        raise ValueError(f"rms_norm: w is {tuple(w.shape)} of {w.dtype}: it must be contiguous {x.dtype} of ({columns},)")
    problem = Problem(rows=rows, columns=columns, dtype=element_type(x.dtype).name, x_pad=max(stride - columns, 0))
    require("rms_norm", CLAUSES, problem, config)
    return stride

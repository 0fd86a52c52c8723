"""loss[i] = log(sum_j exp(X[i, j])) - X[i, t[i]]: cross entropy of rows of logits, with smoothed labels, and its gradient.

    lse[i] = log(sum_j exp(X[i, j]))
    loss[i] = (1 - s) (lse[i] - X[i, t[i]]) + s (lse[i] - mean_j X[i, j]), and 0 where t[i] is ignore_index
    backward   dX[i, j] = g[i] (exp(X[i, j] - lse[i]) - s / N - (1 - s) [j = t[i]]), and 0 where t[i] is ignore_index

X, dX: (rows, N) of fp32, fp16 or bf16; t: (rows,) int64; loss, lse, g: (rows,) fp32. All arithmetic is fp32; 1 / N, s, 1 - s and
s / N are fp32 numbers. Forward is one program a row, which goes over it in blocks, ascending: total = total exp(old - new) + sum
of the block, with the largest element so far taken away before each exponential. Every operation rounds, and the sum of a block is
a tree in the order of the stated layout: so every bit is decided. Backward is one program a block; dX may be X itself.

Preconditions, and what each costs when broken:

- A target is a column or ignore_index: another one is read as an address. No launcher can see it without reading the targets.
- The columns of a row are neighbours, the rows of X may lie apart: otherwise other elements are read. Refused by the launcher.
- What lies behind the last column counts as -inf, and as 0 in the mean: with anything else it enters the sums.
- A block of -inf alone leaves the sum as it is: -inf less -inf would be NaN.
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
from bitverdict.kernels.row_tiles import UNFUSED_OPTIONS, row_stride, warp_threads

REQUIRES: frozenset[Feature] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A (rows, columns) matrix of `dtype`; `x_pad` elements follow each row. `backward`: the gradient is asked for too."""

    rows: int
    columns: int
    dtype: str = "fp32"
    x_pad: int = 0
    smoothing: float = 0.0
    ignore_index: int = -100
    backward: bool = True
    in_place: bool = False


@dataclass(frozen=True, kw_only=True)
class Config:
    block: int = 4096
    per_thread: int = 4
    num_warps: int = 4


CLAUSES = (
    ROW_CLAUSES[0],
    ROW_CLAUSES[2],
    Clause(
        name="columns",
        holds=lambda p, c: p.columns >= 1,
        value=lambda p, c: f"columns = {p.columns}",
        rule="a row has at least one column",
        remedy="answer an empty matrix without a launch",
        cost="the mean divides by zero",
        layer="launcher",
    ),
    Clause(
        name="smoothing",
        holds=lambda p, c: 0 <= p.smoothing <= 1,
        value=lambda p, c: f"smoothing = {p.smoothing}",
        rule="the share that is spread over all columns is between 0 and 1",
        remedy="take 0.1",
        cost="a weight is negative",
    ),
    Clause(
        name="block",
        holds=lambda p, c: is_power_of_two(c.block) and 16 <= c.block <= 16384,
        value=lambda p, c: f"block = {c.block}",
        rule="a block is a power of two from 16 to 16384",
        remedy="take 4096",
        cost="a tile program has no such tensor, or its registers do not hold it",
        layer="front end",
    ),
)


@gluon.jit
def cross_entropy_kernel(
    x, targets, loss, lse, columns, x_stride, ignore_index, share, spread, target_weight, HAS_SMOOTHING: gl.constexpr,
    BLOCK: gl.constexpr,
    PER_THREAD: gl.constexpr,
):  # fmt: skip
    layout: gl.constexpr = gl.BlockedLayout([PER_THREAD], [warp_threads()], [gl.num_warps()], [0])
    row = gl.program_id(0).to(gl.int64)
    largest, total, logit_sum = -float("inf"), 0.0, 0.0
    for start in range(0, columns, BLOCK):
        column = start + gl.arange(0, BLOCK, layout)  # (BLOCK,)
        inside = column < columns  # (BLOCK,)
        values = gl.load(x + row * x_stride + column, mask=inside, other=-float("inf")).to(gl.float32)  # (BLOCK,)
        found = gl.maximum(largest, gl.max(values, 0))
        shift = gl.where(found == -float("inf"), 0.0, found)
        total = total * gl.exp(largest - shift) + gl.sum(gl.exp(values - shift), 0)
        if HAS_SMOOTHING:
            logit_sum += gl.sum(gl.where(inside, values, 0.0), 0)
        largest = found
    logarithm = gl.log(total)
    target = gl.load(targets + row)
    counted = target != ignore_index
    given = gl.load(x + row * x_stride + target, mask=counted, other=0.0).to(gl.float32)
    result = logarithm - (given - largest)
    if HAS_SMOOTHING:
        result = result * target_weight + (logarithm - (logit_sum * share - largest)) * spread
    gl.store(loss + row, gl.where(counted, result, 0.0))
    gl.store(lse + row, logarithm + largest)


@gluon.jit
def cross_entropy_backward_kernel(
    x, targets, lse, g, dx, columns, x_stride, dx_stride, ignore_index, class_weight, target_weight, HAS_SMOOTHING: gl.constexpr,
    BLOCK: gl.constexpr,
    PER_THREAD: gl.constexpr,
):  # fmt: skip
    layout: gl.constexpr = gl.BlockedLayout([PER_THREAD], [warp_threads()], [gl.num_warps()], [0])
    row = gl.program_id(0).to(gl.int64)
    column = gl.program_id(1) * BLOCK + gl.arange(0, BLOCK, layout)  # (BLOCK,)
    inside = column < columns  # (BLOCK,)
    values = gl.load(x + row * x_stride + column, mask=inside, other=-float("inf")).to(gl.float32)  # (BLOCK,)
    target = gl.load(targets + row)
    share = gl.exp(values - gl.load(lse + row))  # (BLOCK,)
    if HAS_SMOOTHING:
        share -= class_weight
    share -= gl.where(column == target, target_weight, 0.0)
    gradient = gl.where(target != ignore_index, share * gl.load(g + row), 0.0)  # (BLOCK,)
    gl.store(dx + row * dx_stride + column, gradient.to(dx.dtype.element_ty), mask=inside)


def cross_entropy(
    x: torch.Tensor, targets: torch.Tensor, *, smoothing: float = 0.0, ignore_index: int = -100, block: int = 4096,
    per_thread: int = 4, num_warps: int = 4,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Loss and lse (rows,) of `x` (rows, columns) and `targets` (rows,) int64, on their device. ValueError: what is broken."""
    stride = _legal(x, targets, smoothing, Config(block=block, per_thread=per_thread, num_warps=num_warps))
    rows, columns = x.shape
    loss, lse = (torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(2))
    if rows:
        cross_entropy_kernel[(rows,)](
            x, targets, loss, lse, columns, stride, ignore_index, 1 / columns, float(smoothing), 1 - float(smoothing),
            smoothing != 0, block, per_thread, num_warps=num_warps, **UNFUSED_OPTIONS,
        )  # fmt: skip
    return loss, lse


def cross_entropy_backward(
    x: torch.Tensor, targets: torch.Tensor, lse: torch.Tensor, g: torch.Tensor, *, smoothing: float = 0.0, ignore_index: int = -100,
    in_place: bool = False, block: int = 4096, per_thread: int = 4, num_warps: int = 4,
) -> torch.Tensor:  # fmt: skip
    """dX (rows, columns), of what `cross_entropy` took, its lse, and `g` (rows,) fp32, the gradient of each loss. In place: in X's
    memory. ValueError: what is broken."""
    stride = _legal(x, targets, smoothing, Config(block=block, per_thread=per_thread, num_warps=num_warps))
    rows, columns = x.shape
    for name, vector in (("lse", lse), ("g", g)):
        if vector.shape != (rows,) or vector.dtype != torch.float32 or not vector.is_contiguous():
            raise ValueError(
                f"cross_entropy: {name} is {tuple(vector.shape)} of {vector.dtype}: must be contiguous fp32 of ({rows},)"
            )
    dx = x if in_place else torch.empty((rows, columns), dtype=x.dtype, device=x.device)
    if rows:
        cross_entropy_backward_kernel[(rows, triton.cdiv(columns, block))](
            x, targets, lse, g, dx, columns, stride, stride if in_place else columns, ignore_index, float(smoothing) / columns,
            1 - float(smoothing), smoothing != 0, block, per_thread, num_warps=num_warps, **UNFUSED_OPTIONS,
        )  # fmt: skip
    return dx


def _legal(x: torch.Tensor, targets: torch.Tensor, label_smoothing: float, config: Config) -> int:
    """The stride of rows of `x`; ValueError for what is not legal."""
    stride = row_stride("cross_entropy", "x", x)
    rows, columns = x.shape
    if targets.shape != (rows,) or targets.dtype != torch.int64 or not targets.is_contiguous():
        raise ValueError(
            f"cross_entropy: targets are {tuple(targets.shape)} of {targets.dtype}: must be contiguous int64 of ({rows},); "
            "convert with .long()"
        )
    problem = Problem(rows=rows, columns=columns, dtype=element_type(x.dtype).name, smoothing=label_smoothing)
    require("cross_entropy", CLAUSES, problem, config)
    return stride

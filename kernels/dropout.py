"""Y[i, j] = X[i, j] / (1 - p) where the uniform number of element (i, j) is at least p, else 0; and its gradient.

    U[i, j] = tl.rand(key, i N + j),  Y[i, j] = X[i, j] S where U[i, j] >= p, else +0,  S = 1 / (1 - p)
    backward   dX[i, j] = dY[i, j] S where U[i, j] >= p, else +0

X, Y, dY, dX: (rows, N) of fp32, fp16 or bf16. `key` is the 64-bit key of Philox, which tl.rand calls its seed. p and S are fp32
numbers; the product is fp32, and rounded once more to the type of X. Which elements stay depends on key, p and index alone: not on
block, type, strides or GPU. So the gradient keeps what forward kept, and no mask is stored.

Preconditions, and what each costs when broken:

- The columns of a row are neighbours, the rows may lie apart: otherwise other elements are read. Refused by the launcher.
- The index counts elements of the matrix and not of its storage: otherwise another stride keeps other elements.
- An element stays where its number is at least p: with "more than p", p = 0 would drop one element in 2^31.
- What is dropped is selected and not multiplied by 0: a product would keep NaN, infinities and signs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from bitverdict.kernels.clauses import Clause, require
from bitverdict.kernels.descriptor_rules import is_power_of_two
from bitverdict.kernels.element_types import element_type
from bitverdict.kernels.features import Feature
from bitverdict.kernels.row_tiles import CLAUSES as ROW_CLAUSES
from bitverdict.kernels.row_tiles import UNFUSED_OPTIONS, row_stride

REQUIRES: frozenset[Feature] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A (rows, columns) matrix of `dtype`; `x_pad` elements follow each row. `backward`: the gradient is asked for too."""

    rows: int
    columns: int
    dtype: str = "fp32"
    x_pad: int = 0
    p: float = 0.5
    key: int = 0
    backward: bool = True


@dataclass(frozen=True, kw_only=True)
class Config:
    block: int = 1024
    num_warps: int = 4


CLAUSES = (
    ROW_CLAUSES[0],
    Clause(
        name="probability",
        holds=lambda p, c: 0 <= p.p < 1,
        value=lambda p, c: f"p = {p.p}",
        rule="p is at least 0 and below 1",
        remedy="take zeros for p = 1",
        cost="what stays is scaled by infinity or by a negative number",
    ),
    Clause(
        name="key",
        holds=lambda p, c: 0 <= p.key < 1 << 64,
        value=lambda p, c: f"key = {p.key}",
        rule="the key has 64 bits",
        remedy="take it modulo 2^64",
        cost="the compiler has no type for it",
        layer="front end",
    ),
    Clause(
        name="block",
        holds=lambda p, c: is_power_of_two(c.block) and c.block <= 16384 and is_power_of_two(c.num_warps) and c.num_warps <= 16,
        value=lambda p, c: f"block = {c.block}, num_warps = {c.num_warps}",
        rule="a block is a power of two up to 16384, num_warps one up to 16",
        remedy="take block=1024, num_warps=4",
        cost="a tile program has no such tensor",
        layer="front end",
    ),
)


@triton.jit(do_not_specialize=["key"])
def dropout_kernel(x, y, columns, x_stride, y_stride, p, scale, key, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    inside = column < columns  # (BLOCK,)
    values = tl.load(x + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)  # (BLOCK,)
    number = tl.rand(key, row * columns + column)  # (BLOCK,)
    kept = tl.where(number >= p, values * scale, 0.0)  # (BLOCK,)
    tl.store(y + row * y_stride + column, kept.to(y.dtype.element_ty), mask=inside)


def dropout(x: torch.Tensor, key: int, *, p: float = 0.5, block: int = 1024, num_warps: int = 4) -> torch.Tensor:
    """`x` (rows, columns) without what `key` drops, on its device and in its type. ValueError names a broken clause."""
    return _launch_dropout("x", x, key, p, Config(block=block, num_warps=num_warps))


def dropout_backward(dy: torch.Tensor, key: int, *, p: float = 0.5, block: int = 1024, num_warps: int = 4) -> torch.Tensor:
    """dX (rows, columns) of `dy` like Y, for the key and p that `dropout` took. ValueError names a broken clause."""
    return _launch_dropout("dy", dy, key, p, Config(block=block, num_warps=num_warps))


def _launch_dropout(name: str, x: torch.Tensor, key: int, p: float, config: Config) -> torch.Tensor:
    stride = row_stride("dropout", name, x)
    rows, columns = x.shape
    dtype = element_type(x.dtype).name
    problem = Problem(rows=rows, columns=columns, dtype=dtype, x_pad=max(stride - columns, 0), p=float(p), key=key)
    require("dropout", CLAUSES, problem, config)
    y = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
    if x.numel():
        grid = (rows, triton.cdiv(columns, config.block))
        dropout_kernel[grid](
            x, y, columns, stride, columns, float(p), 1 / (1 - p), key, config.block, num_warps=config.num_warps, **UNFUSED_OPTIONS
        )  # fmt: skip
    return y

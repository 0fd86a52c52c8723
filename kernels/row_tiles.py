"""A row of a matrix in the registers of one program: the layout, and what makes a launch on rows legal.

The layout is stated and not left to the compiler, because it decides the order of a float sum: `per_thread` neighbours a thread,
`warp_threads` threads a warp, `num_warps` warps, and again from the start while the row is longer.
"""

from __future__ import annotations

from typing import Any

import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language._core import builtin

from bitverdict.kernels.clauses import Clause
from bitverdict.kernels.descriptor_rules import dtype_clause, is_power_of_two

DTYPES = ("fp32", "fp16", "bf16")
LONGEST = 16384  # columns: what the registers of 8 warps hold
UNFUSED_OPTIONS = {"enable_fp_fusion": False}
"""Options of each launch on rows: what is added was rounded before. These kernels wait for memory, so it costs nothing."""


@builtin
def warp_threads(_semantic: Any = None) -> gl.constexpr:
    """Threads of a warp on the target that a kernel is compiled for: 32, on AMD's CDNA 64."""
    return gl.constexpr(_semantic.builder.options.warp_size)


def block_of(columns: int) -> int:
    """Columns of the tile that a row of `columns` lies in: the next power of two, 16 at least."""
    return max(1 << (columns - 1).bit_length(), 16)


CLAUSES = (
    dtype_clause(DTYPES, "there is no conversion to fp32 that the sums are made in"),
    Clause(
        name="columns",
        holds=lambda p, c: 1 <= p.columns <= LONGEST,
        value=lambda p, c: f"columns = {p.columns}",
        rule=f"a row has 1 to {LONGEST} columns",
        remedy="split the row and combine the parts",
        cost="a row does not fit the registers of a program",
        layer="ptxas",
    ),
    Clause(
        name="layout",
        holds=lambda p, c: (
            is_power_of_two(c.per_thread) and c.per_thread <= 16 and is_power_of_two(c.num_warps) and c.num_warps <= 16
        ),
        value=lambda p, c: f"per_thread = {c.per_thread}, num_warps = {c.num_warps}",
        rule="per_thread and num_warps are powers of two up to 16",
        remedy="take per_thread=4, num_warps=4",
        cost="there is no such layout",
        layer="front end",
    ),
)


def row_stride(kernel: str, name: str, matrix: torch.Tensor) -> int:
    """Elements from row to row of a matrix whose columns are neighbours. ValueError for any other."""
    if matrix.dim() != 2 or (matrix.stride(1) != 1 and matrix.shape[1] > 1):
        raise ValueError(
            f"{kernel}: {name} is {tuple(matrix.shape)} with strides {matrix.stride()}: it must be a matrix whose columns are "
            "neighbours; call .contiguous()"
        )
    return matrix.stride(0)


def same_shape(kernel: str, **matrices: torch.Tensor) -> None:
    """ValueError where the matrices differ in shape, type or device."""
    (first, one), *rest = matrices.items()
    for name, other in rest:
        if _tensor_key(other) != _tensor_key(one):
            raise ValueError(
                f"{kernel}: {name} is {_tensor_key(other)} and {first} is {_tensor_key(one)}: they must be alike; convert one"
            )


def _tensor_key(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tuple(tensor.shape), tensor.dtype, str(tensor.device)

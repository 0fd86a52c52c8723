"""D = S, through tensor memory.

    D[i, j] = S[i, j], bit for bit                                     S, D: (M, N), row-major, contiguous

One program moves the whole matrix: global memory, registers, tensor memory, registers, global memory. It computes nothing, so every
bit that differs is a layout or an ordering error; that is what it is for.

Preconditions, and what each costs when broken:

- M and N are powers of two, blocks are (64 or 128) x (power of two up to 256): no other tensor exists in tensor memory. Refused
  here.
- The blocks fill at most 512 columns, in allocations of powers of two: otherwise the launch is out of resources. Refused here.
- 4 or 8 warps: a warp reaches only the 32 rows of its rank modulo 4, so fewer would leave rows unreached. Refused here.
- A store to tensor memory is asynchronous: a load after it needs ``tcgen05.wait::st``. The compiler inserts the wait; no line here
  says it.
- The registers that hold a row of tensor memory are not those that coalesce in global memory, hence two conversions through shared
  memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import TensorMemoryLayout, allocate_tensor_memory

from bitverdict.kernels import tensor_memory
from bitverdict.kernels.clauses import require
from bitverdict.kernels.descriptor_rules import dtype_clause, same_place, same_type
from bitverdict.kernels.element_types import bits_of
from bitverdict.kernels.features import Feature

REQUIRES = frozenset({Feature.TENSOR_MEMORY})
DTYPES = ("fp32", "int32", "fp16", "bf16", "int16", "e4m3", "e5m2", "int8")


@dataclass(frozen=True, kw_only=True)
class Problem:
    """An (m, n) matrix of `dtype`, contiguous."""

    m: int
    n: int
    dtype: str = "fp32"


@dataclass(frozen=True, kw_only=True)
class Config:
    """How it passes: blocks of tensor memory, warps, and whether elements under 32 bits share a cell (`packed`)."""

    block_m: int = 64
    block_n: int = 64
    num_warps: int = 4
    packed: bool = False


def allocations(problem: Problem, config: Config) -> list[tensor_memory.Allocation]:
    bits = bits_of(problem.dtype)
    return [
        tensor_memory.Allocation(
            "tile", problem.m, problem.n, config.block_m, config.block_n, bits, 1 if config.packed else 32 // bits
        )
    ]


CLAUSES = (
    dtype_clause(DTYPES, "there is no load and store of that width"),
    *tensor_memory.clauses(allocations),
)


@gluon.jit
def tmem_copy_kernel(
    source, destination, M: gl.constexpr, N: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, COLUMN_STRIDE: gl.constexpr
):
    coalesced: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [1, gl.num_warps()], [1, 0])
    rows = gl.arange(0, M, gl.SliceLayout(1, coalesced))  # (M,)
    columns = gl.arange(0, N, gl.SliceLayout(0, coalesced))  # (N,)
    places = rows[:, None] * N + columns[None, :]  # (M, N)
    loaded = gl.load(source + places)  # (M, N)

    layout: gl.constexpr = TensorMemoryLayout([BLOCK_M, BLOCK_N], col_stride=COLUMN_STRIDE)
    tile = allocate_tensor_memory(source.dtype.element_ty, [M, N], layout)  # (M, N) in cells
    reachable: gl.constexpr = tile.get_reg_layout()
    tile.store(gl.convert_layout(loaded, reachable))
    stored = gl.convert_layout(tile.load(reachable), coalesced)  # (M, N)
    gl.store(destination + places, stored)


def tmem_copy(
    source: torch.Tensor,
    destination: torch.Tensor | None = None,
    num_warps: int = 4,
    *,
    block_m: int = 64,
    block_n: int = 64,
    packed: bool = False,
) -> torch.Tensor:
    """Copies (M, N) `source` into `destination` (allocated when None) on the operands' device; returns it.

    ValueError names the broken clause with its value, rule and remedy.
    """
    destination = torch.empty_like(source) if destination is None else destination
    same_place(source, destination)
    if source.dim() != 2 or not source.is_contiguous() or not destination.is_contiguous() or source.shape != destination.shape:
        raise ValueError(
            f"tmem_copy: shapes {tuple(source.shape)} and {tuple(destination.shape)}, strides {source.stride()} and "
            f"{destination.stride()}: both must be one contiguous matrix shape; call .contiguous()"
        )
    problem = Problem(m=source.shape[0], n=source.shape[1], dtype=same_type(source, destination))
    config = Config(block_m=block_m, block_n=block_n, num_warps=num_warps, packed=packed)
    require("tmem_copy", CLAUSES, problem, config)
    (tile,) = allocations(problem, config)
    tmem_copy_kernel[(1,)](source, destination, problem.m, problem.n, block_m, block_n, tile.column_stride, num_warps=num_warps)
    return destination

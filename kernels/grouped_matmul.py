"""C_g = A_g B_g for a list of products of differing sizes, in one persistent launch that reads the sizes from memory.

    C_g[i, j] = convert(sum over k of A_g[i, k] * B_g[k, j])                                        for each group g

A_g: (M_g, K_g), B_g: (K_g, N_g) fp16 or bf16, C_g: (M_g, N_g) fp16, bf16 or fp32, row-major. All A_g lie behind one another in one
flat tensor, so do all B_g and all C_g. `sizes` is an int32 tensor (groups, 3) of M_g, N_g and K_g on the operands' device. A group
may be empty; where K_g = 0 the result is zeros.

Programs share the tiles of all groups: tiles are numbered through the groups, row by row of a group, and program p takes tiles
p, p + P, p + 2P, ... Each walks the list of groups once, and sums up where their matrices begin. A result is one ascending chain of
matrix instructions over all of K_g in fp32, which starts at zero.

Preconditions, and what each costs when broken:

- The flat tensors have as many elements as `sizes` says: otherwise others are read and written. Refused by the launcher, which
  reads `sizes` for it and so waits for what computes them.
- K tails, rows and columns are masked: what lies behind a row is the next row, and behind a matrix the next group's.
- Where a tile begins is a 64-bit number. Inside a tile offsets are 32-bit: its rows must span less than 2^31 elements.
- The compiler is told that rows begin on 16 elements only where those of every group do. Others are loaded element by element, and
  a tile of 64x64x64 then spills registers on sm_80, sm_100, sm_103 and sm_120; 64x32x32 does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from bitverdict.kernels.clauses import Clause, require
from bitverdict.kernels.descriptor_rules import (
    dtype_clause,
    output_clause,
    powers_of_two_clause,
    same_place,
    same_type,
)
from bitverdict.kernels.element_types import ELEMENT_TYPES, element_type
from bitverdict.kernels.features import Feature
from bitverdict.kernels.tile_scheduler import multiprocessors

REQUIRES = frozenset({Feature.MMA_SYNC})
DTYPES = ("fp16", "bf16")
OUTPUTS = ("fp16", "bf16", "fp32")
UNIT = 16  # elements: rows that begin on so many are loaded in whole vectors

SPAN = 1 << 31


@dataclass(frozen=True, kw_only=True)
class Problem:
    """(M, N, K) of each group, and the element types."""

    sizes: tuple[tuple[int, int, int], ...]
    dtype: str = "fp16"
    out: str = "fp16"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The tile of one turn, warps, stages of the loads, and programs (0: one a multiprocessor; never more than tiles)."""

    block_m: int = 64
    block_n: int = 64
    block_k: int = 64
    num_warps: int = 4
    stages: int = 3
    programs: int = 0


CLAUSES = (
    dtype_clause(DTYPES, "there is no such product in one instruction"),
    output_clause(OUTPUTS),
    Clause(
        name="sizes",
        holds=lambda p, c: all(size >= 0 for group in p.sizes for size in group),
        value=lambda p, c: f"sizes {min(p.sizes, key=min)}" if p.sizes else "no groups",
        rule="no size of a group is negative",
        remedy="give an empty group the size 0",
        cost="the matrices behind it would be looked for before where they begin",
    ),
    Clause(
        name="span of a tile",
        holds=lambda p, c: all(max(c.block_m * max(n, k), c.block_k * n) < SPAN for m, n, k in p.sizes),
        value=lambda p, c: f"sizes {max(p.sizes, key=lambda group: max(group[1:]))}",
        rule="the rows of a tile span less than 2^31 elements",
        remedy="divide N or K",
        cost="offsets inside a tile wrap to elements before it",
    ),
    powers_of_two_clause("the matrices"),
    Clause(
        name="tile",
        holds=lambda p, c: min(c.block_m, c.block_n, c.block_k) >= 16,
        value=lambda p, c: f"tile {c.block_m}x{c.block_n}x{c.block_k}",
        rule="each side of a tile has 16 elements or more",
        remedy="take a larger tile",
        cost="there is no instruction to make it of",
        layer="front end",
    ),
)


@triton.jit(do_not_specialize=["groups"])
def grouped_matmul_kernel(
    a,
    b,
    c,
    sizes,
    groups,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr,
    ALIGNMENT: tl.constexpr,  # UNIT where every row of every group lies so many elements behind its base, else 1
):
    in_m, in_n, in_k = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)  # (BLOCK_M,), (BLOCK_N,), (BLOCK_K,)
    tile = tl.program_id(0)
    tiles_before = 0  # tiles of the groups before
    a_at = tl.full((), 0, tl.int64)
    b_at = tl.full((), 0, tl.int64)
    c_at = tl.full((), 0, tl.int64)
    for group in range(groups):
        m = tl.load(sizes + 3 * group)
        n = tl.multiple_of(tl.load(sizes + 3 * group + 1), ALIGNMENT)
        k = tl.multiple_of(tl.load(sizes + 3 * group + 2), ALIGNMENT)
        tiles_n = tl.cdiv(n, BLOCK_N)
        tiles = tl.cdiv(m, BLOCK_M) * tiles_n
        while tile < tiles_before + tiles:
            row = (tile - tiles_before) // tiles_n * BLOCK_M
            column = tile % tiles_n * BLOCK_N  # the tiles of a row follow each other: each column once, from whichever on
            rows, columns = row + in_m < m, column + in_n < n  # (BLOCK_M,), (BLOCK_N,) whether there is such a one
            left = a + tl.multiple_of(a_at + row.to(tl.int64) * k, ALIGNMENT)  # the tile's first element
            right = b + tl.multiple_of(b_at + column, ALIGNMENT)
            total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)  # (BLOCK_M, BLOCK_N)
            for block in tl.range(0, tl.cdiv(k, BLOCK_K), num_stages=STAGES):
                depth = block * BLOCK_K + in_k < k  # (BLOCK_K,)
                lefts = left + block * BLOCK_K + (in_m[:, None] * k + in_k[None, :])  # (BLOCK_M, BLOCK_K)
                rights = right + block.to(tl.int64) * BLOCK_K * n + (in_k[:, None] * n + in_n[None, :])  # (BLOCK_K, BLOCK_N)
                of_a = tl.load(lefts, mask=rows[:, None] & depth[None, :], other=0.0)  # (BLOCK_M, BLOCK_K)
                of_b = tl.load(rights, mask=depth[:, None] & columns[None, :], other=0.0)  # (BLOCK_K, BLOCK_N)
                total = tl.dot(of_a, of_b, total)
            result = c + tl.multiple_of(c_at + row.to(tl.int64) * n + column, ALIGNMENT)
            places = result + (in_m[:, None] * n + in_n[None, :])  # (BLOCK_M, BLOCK_N)
            tl.store(places, total.to(c.dtype.element_ty), mask=rows[:, None] & columns[None, :])
            tile += tl.num_programs(0)
        tiles_before += tiles
        a_at += m.to(tl.int64) * k
        b_at += k.to(tl.int64) * n
        c_at += m.to(tl.int64) * n


def elements(sizes: Sequence[Sequence[int]]) -> tuple[int, int, int]:
    """Elements of all A, of all B and of all C of the groups `sizes`."""
    return sum(m * k for m, n, k in sizes), sum(k * n for m, n, k in sizes), sum(m * n for m, n, k in sizes)


def grouped_matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    sizes: torch.Tensor,
    c: torch.Tensor | None = None,
    *,
    out_dtype: torch.dtype | None = None,
    config: Config | None = None,
) -> torch.Tensor:
    """Every A_g B_g behind one another, on the operands' device, in flat `c`, allocated in `out_dtype` (None: that of A) when None.

    `a`, `b`: all A_g and all B_g behind one another, flat and contiguous. `sizes` (groups, 3) int32: M_g, N_g, K_g. ValueError
    names the broken clause with its value, rule and remedy.
    """
    same_place(a, b, sizes)
    if sizes.dim() != 2 or sizes.shape[1] != 3 or sizes.dtype != torch.int32 or not sizes.is_contiguous():
        raise ValueError(
            f"grouped_matmul: sizes is {tuple(sizes.shape)} {sizes.dtype} with strides {sizes.stride()}: must be contiguous "
            "(groups, 3) int32; give a row of M, N and K for each group"
        )
    group_sizes = [(m, n, k) for m, n, k in sizes.tolist()]
    dtype, config, needed = same_type(a, b), config or Config(), elements(group_sizes)
    out = element_type(out_dtype or a.dtype if c is None else c.dtype)
    require("grouped_matmul", CLAUSES, Problem(sizes=tuple(group_sizes), dtype=dtype, out=out.name), config)
    c = torch.empty(needed[2], dtype=out.torch, device=a.device) if c is None else c
    for name, tensor, due in zip("abc", (a, b, c), needed, strict=True):
        if tensor.shape != (due,) or not tensor.is_contiguous() or tensor.device != a.device:
            raise ValueError(
                f"grouped_matmul: {name} is {tuple(tensor.shape)} on {tensor.device} with strides {tensor.stride()}: must be flat, "
                f"contiguous, with the {due} elements that sizes says, on {a.device}; concatenate the groups"
            )
    tiles = sum(triton.cdiv(m, config.block_m) * triton.cdiv(n, config.block_n) for m, n, k in group_sizes)
    if tiles:
        alignment = UNIT if all(n % UNIT == k % UNIT == 0 for m, n, k in group_sizes) else 1
        grouped_matmul_kernel[(min(config.programs or multiprocessors(), tiles),)](
            a,
            b,
            c,
            sizes,
            len(group_sizes),
            config.block_m,
            config.block_n,
            config.block_k,
            config.stages,
            alignment,
            num_warps=config.num_warps,
        )
    return c


def torch_type(name: str) -> torch.dtype:
    return ELEMENT_TYPES[name].torch

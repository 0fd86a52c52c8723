"""C = A B^T in e4m3, with fp32 scales of blocks, promoted to fp32 once a block of K.

    C[i, j] = convert(sum over blocks q of K: (sum over k in q of A[i, k] * B[j, k]) * SA[i, q] * SB[j // 128, q])

A: (M, K), B: (N, K) e4m3, row-major. SA: (M, blocks of K) fp32, one scale for 128 elements of a row. SB: (blocks of N, blocks of K)
fp32, one scale for 128 by 128 elements. C: (M, N) bf16, fp16 or fp32.

The inner sum is the tensor core's and begins at zero in each block: an e4m3 product of sm_90 keeps 13 fraction bits while it is
summed, so a chain over all of K loses what a block adds late. The outer sum is fp32: t = inner * SA rounded, then a fused
multiply-add t * SB + sum, in ascending order of blocks (the compiler contracts it; docs/emulator.md).

Preconditions, and what each costs when broken:

- A block of K is a divisor of 128: otherwise one inner sum has products of two scales. Refused by the launcher.
- The K tail is masked: otherwise it multiplies what lies behind a row.
- The scale of B is that of its own row block: a tile may span two of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from bitverdict.kernels.clauses import Clause, require
from bitverdict.kernels.descriptor_rules import (
    output_clause,
    positive_clause,
    powers_of_two_clause,
    row_padding,
    same_place,
)
from bitverdict.kernels.element_types import ELEMENT_TYPES, element_type
from bitverdict.kernels.features import Feature

REQUIRES = frozenset({Feature.MMA_SYNC, Feature.FP8_E4M3})
OUTPUTS = ("bf16", "fp16", "fp32")
SCALE_BLOCK = 128  # elements of K, and rows of B, that share a scale


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Sizes, type of C, and the elements that follow each row of A, B and C."""

    m: int
    n: int
    k: int
    dtype: str = "e4m3"
    out: str = "bf16"
    a_pad: int = 0
    b_pad: int = 0
    c_pad: int = 0


@dataclass(frozen=True, kw_only=True)
class Config:
    """The tile of one program, the K elements of one inner sum, warps, and stages of the loads."""

    block_m: int = 64
    block_n: int = 64
    block_k: int = 128
    num_warps: int = 4
    stages: int = 3


CLAUSES = (
    Clause(
        name="element type",
        holds=lambda p, c: p.dtype == "e4m3",
        value=lambda p, c: f"operands in {p.dtype}",
        rule="A and B are e4m3",
        remedy="convert both with their scales",
        cost="the scales of blocks would mean something else",
    ),
    output_clause(OUTPUTS),
    positive_clause("m", "n", "k"),
    powers_of_two_clause("the matrix"),
    Clause(
        name="block of K",
        holds=lambda p, c: 32 <= c.block_k <= SCALE_BLOCK,
        value=lambda p, c: f"block_k = {c.block_k}",
        rule=f"a block of K has 32 to {SCALE_BLOCK} elements: one instruction or more, and one scale",
        remedy=f"take {SCALE_BLOCK}",
        cost="products of two scales are summed before either is applied",
    ),
    Clause(
        name="tile",
        holds=lambda p, c: c.block_m >= 16 and c.block_n >= 16,
        value=lambda p, c: f"tile {c.block_m}x{c.block_n}",
        rule="a tile is at least 16x16",
        remedy="take a larger tile",
        cost="there is no instruction to make it of",
        layer="front end",
    ),
)


@triton.jit
def fp8_blockwise_matmul_kernel(
    a,
    b,
    c,
    a_scale,
    b_scale,
    m,
    n,
    k,
    a_stride,
    b_stride,
    c_stride,
    SCALE_BLOCK: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr,
):
    rows = (tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)  # (BLOCK_M,)
    columns = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)  # (BLOCK_N,)
    inner = tl.arange(0, BLOCK_K)  # (BLOCK_K,)
    scales = tl.cdiv(k, SCALE_BLOCK)  # of a row of A, and of a block of rows of B
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)  # (BLOCK_M, BLOCK_N)
    for block in tl.range(0, tl.cdiv(k, BLOCK_K), num_stages=STAGES):
        depth = block * BLOCK_K + inner  # (BLOCK_K,)
        left = tl.load(
            a + rows[:, None] * a_stride + depth[None, :], mask=(rows < m)[:, None] & (depth < k)[None, :], other=0.0
        )  # (BLOCK_M, BLOCK_K)
        right = tl.load(
            b + columns[None, :] * b_stride + depth[:, None], mask=(depth < k)[:, None] & (columns < n)[None, :], other=0.0
        )  # (BLOCK_K, BLOCK_N)
        scale = block * BLOCK_K // SCALE_BLOCK
        of_rows = tl.load(a_scale + rows * scales + scale, mask=rows < m, other=0.0)  # (BLOCK_M,)
        of_columns = tl.load(b_scale + columns // SCALE_BLOCK * scales + scale, mask=columns < n)  # (BLOCK_N,)
        total += tl.dot(left, right) * of_rows[:, None] * of_columns[None, :]
    places = rows[:, None] * c_stride + columns[None, :]  # (BLOCK_M, BLOCK_N)
    tl.store(c + places, total.to(c.dtype.element_ty), mask=(rows < m)[:, None] & (columns < n)[None, :])


def fp8_blockwise_matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scale: torch.Tensor,
    b_scale: torch.Tensor,
    c: torch.Tensor | None = None,
    *,
    out_dtype: torch.dtype = torch.bfloat16,
    config: Config | None = None,
) -> torch.Tensor:
    """A B^T on the operands' device, in `c` (M, N), allocated in `out_dtype` when None.

    `a` (M, K), `b` (N, K) e4m3, rows contiguous. `a_scale` (M, blocks of K), `b_scale` (blocks of N, blocks of K) fp32, contiguous;
    blocks have 128 elements, the last may be short. ValueError names the broken clause with its value, rule and remedy.
    """
    same_place(a, b, a_scale, b_scale)
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[1]:
        raise ValueError(
            f"fp8_blockwise_matmul: shapes A {tuple(a.shape)}, B {tuple(b.shape)}: must be (M, K) and (N, K); transpose an operand"
        )
    (m, k), n, config = a.shape, b.shape[0], config or Config()
    blocks = triton.cdiv(k, SCALE_BLOCK)
    for name, scale, shape in (("a_scale", a_scale, (m, blocks)), ("b_scale", b_scale, (triton.cdiv(n, SCALE_BLOCK), blocks))):
        if tuple(scale.shape) != shape or scale.dtype != torch.float32 or not scale.is_contiguous():
            raise ValueError(
                f"fp8_blockwise_matmul: {name} is {tuple(scale.shape)} {scale.dtype} with strides {scale.stride()}: must be "
                f"contiguous {shape} float32; one scale for {SCALE_BLOCK} elements, computed by the quantiser"
            )
    c = torch.empty((m, n), dtype=out_dtype, device=a.device) if c is None else c
    if c.shape != (m, n) or c.device != a.device:
        raise ValueError(
            f"fp8_blockwise_matmul: C is {tuple(c.shape)} on {c.device}: must be ({m}, {n}) on {a.device}; allocate it so"
        )
    problem = Problem(
        m=m,
        n=n,
        k=k,
        dtype=element_type(a.dtype).name if a.dtype == b.dtype else f"{a.dtype} and {b.dtype}",
        out=element_type(c.dtype).name,
        a_pad=row_padding(a),
        b_pad=row_padding(b),
        c_pad=row_padding(c),
    )
    require("fp8_blockwise_matmul", CLAUSES, problem, config)
    fp8_blockwise_matmul_kernel[(triton.cdiv(n, config.block_n), triton.cdiv(m, config.block_m))](
        a,
        b,
        c,
        a_scale,
        b_scale,
        m,
        n,
        k,
        k + problem.a_pad,
        k + problem.b_pad,
        n + problem.c_pad,
        SCALE_BLOCK,
        config.block_m,
        config.block_n,
        config.block_k,
        config.stages,
        num_warps=config.num_warps,
    )
    return c


def torch_type(name: str) -> torch.dtype:
    return ELEMENT_TYPES[name].torch

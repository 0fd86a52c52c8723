"""C = convert(A B) on Hopper's instructions: TMA into a ring of buffers, then wgmma.

    C[i, j] = convert(sum over k of A[i, k] * B[k, j])       A: (M, K); B: (K, N), or its transpose (N, K); C: (M, N) in A's type or
    fp32

The ring has STAGES buffers. With one, each block is loaded, multiplied and only then replaced: the single-buffered form. With more,
one multiplication stays under way while the block before it is replaced:

    multiplication i issued;  i - 1 is over (wgmma.wait_group 1);  its buffer takes block i - 1 + STAGES

Preconditions, and what each costs when broken:

- Rows of A, B and C start on 16-byte boundaries: a tensor map has no other unit. Refused by the launcher. Sizes may be ragged: TMA
  reads zeros outside and writes nothing past the 16 bytes in which a row ends (`store_target` sees to those).
- Warps come in groups of four, with 64 rows of the tile each: wgmma is an instruction of four warps and 64 rows. Refused.
- 8-bit B must be given as its transpose: wgmma transposes 16-bit operands only. Refused.
- A barrier stands between a multiplication's end and the load that replaces its operands. `wgmma.wait_group` speaks for one group
  of four warps, and the load is issued by one thread; with eight warps the other group may still be reading.
- No proxy fence stands there: TMA and wgmma both use the async proxy. One does stand before the TMA store of C, which ordinary
  stores wrote.
- A wait on the wrong phase returns at once: block i of buffer i % STAGES has phase (i / STAGES) mod 2.
- fp8 sums stay in the tensor core over all of K, with its 13 fraction bits; they are not promoted to fp32 in between. Said, because
  it decides the bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

from bitverdict.kernels.blocked_matmul import TILE_CLAUSES, make_descriptor
from bitverdict.kernels.clauses import Clause, require, require_features
from bitverdict.kernels.descriptor_rules import (
    Matrix,
    base_clause,
    capacity_clause,
    dtype_clause,
    misalignment,
    positive_clause,
    require_bases,
    row_padding,
    same_place,
    same_type,
    store_target,
    stride_clause,
)
from bitverdict.kernels.element_types import bits_of, element_type
from bitverdict.kernels.features import Feature, shared_memory_of

REQUIRES = frozenset({Feature.WGMMA, Feature.TMA, Feature.MBARRIER})
DTYPES = ("fp16", "bf16", "e4m3", "e5m2")
SHARED_LIMIT = shared_memory_of("sm_100")  # and of sm_90


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Sizes, element types, whether B comes transposed, and the elements that follow each row (`*_pad`)."""

    m: int
    n: int
    k: int
    dtype: str = "fp16"
    out: str = "fp16"
    transpose_b: bool = False
    a_pad: int = 0
    b_pad: int = 0
    c_pad: int = 0
    a_offset: int = 0  # elements past a 16-byte boundary


@dataclass(frozen=True, kw_only=True)
class Config:
    """The tile of one program, the K elements of one buffer, buffers (1: single-buffered), warps."""

    block_m: int = 128
    block_n: int = 128
    block_k: int = 64
    stages: int = 3
    num_warps: int = 4


def matrices(problem: Problem, config: Config) -> list[Matrix]:
    p = problem
    rows, columns = (p.n, p.k) if p.transpose_b else (p.k, p.n)
    return [
        Matrix("A", p.dtype, p.m, p.k, p.k + p.a_pad, p.a_offset),
        Matrix("B", p.dtype, rows, columns, columns + p.b_pad, 0),
        Matrix("C", p.out, p.m, p.n, p.n + p.c_pad, 0),
    ]


def shared_bytes(problem: Problem, config: Config) -> int:
    """The ring, or the tile of C that is laid over it."""
    ring = config.stages * (config.block_m + config.block_n) * config.block_k * bits_of(problem.dtype) // 8
    return max(ring, config.block_m * config.block_n * bits_of(problem.out) // 8) + 8 * config.stages + 64


CLAUSES = (
    dtype_clause(DTYPES, "wgmma is not an instruction for it with an fp32 accumulator"),
    Clause(
        name="result type",
        holds=lambda p, c: p.out in (p.dtype, "fp32"),
        value=lambda p, c: f"C is {p.out} for operands of {p.dtype}",
        rule="C has the operands' type or fp32",
        remedy="allocate C so and convert it afterwards",
        cost="a conversion that no specification defines",
    ),
    positive_clause("m", "n", "k"),
    *TILE_CLAUSES,
    Clause(
        name="groups of four warps",
        holds=lambda p, c: c.num_warps in (4, 8) and c.block_m % (16 * c.num_warps) == 0,
        value=lambda p, c: f"num_warps = {c.num_warps}, block_m = {c.block_m}",
        rule="4 or 8 warps, 16 rows of the tile for each",
        remedy="take num_warps=4, or block_m of at least 128 with 8",
        cost="groups of warps repeat each other's rows",
        layer="verifier",
    ),
    Clause(
        name="8-bit B transposed",
        holds=lambda p, c: bits_of(p.dtype) == 16 or p.transpose_b,
        value=lambda p, c: f"{p.dtype} with B as (K, N)",
        rule="wgmma transposes 16-bit operands only",
        remedy="pass B as (N, K) with transpose_b=True",
        cost="there is no instruction to compile to",
        layer="compiler",
    ),
    Clause(
        name="stages",
        holds=lambda p, c: c.stages >= 1,
        value=lambda p, c: f"stages = {c.stages}",
        rule="the ring has at least one buffer",
        remedy="take stages=1",
        cost="nothing is ever loaded",
    ),
    capacity_clause(shared_bytes, SHARED_LIMIT, "the ring, and the tile of C, fit", "take fewer stages or a smaller block_k"),
    stride_clause(matrices),
    base_clause(matrices),
)


@gluon.constexpr_function
def accumulator_layout(block_n, bits, num_warps):
    """wgmma's accumulator: 16 rows a warp, the warps below one another, as wide as the tile; K of an instruction is 32 bytes."""
    return gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[num_warps, 1], instr_shape=[16, min(block_n, 256), 256 // bits])


@gluon.jit
def load_block(a_matrix, b_matrix, row, column, k, load_barrier, a_tile, b_tile, TRANSPOSE_B: gl.constexpr):
    """Starts the loads of one K block; `load_barrier` completes when both are in."""
    mbarrier.expect(load_barrier, a_matrix.nbytes_per_cta + b_matrix.nbytes_per_cta)
    tma.async_load(a_matrix, [row, k], load_barrier, a_tile)
    if TRANSPOSE_B:
        tma.async_load(b_matrix, [column, k], load_barrier, b_tile)
    else:
        tma.async_load(b_matrix, [k, column], load_barrier, b_tile)


@gluon.jit
def hopper_matmul_kernel(a_matrix, b_matrix, c_matrix, TRANSPOSE_B: gl.constexpr, STAGES: gl.constexpr):
    BLOCK_M: gl.constexpr = c_matrix.block_shape[0]
    BLOCK_N: gl.constexpr = c_matrix.block_shape[1]
    BLOCK_K: gl.constexpr = a_matrix.block_shape[1]
    UNDER_WAY: gl.constexpr = 0 if STAGES == 1 else 1  # multiplications that a refill need not wait for
    row = gl.program_id(0) * BLOCK_M
    column = gl.program_id(1) * BLOCK_N

    a_ring = gl.allocate_shared_memory(
        a_matrix.dtype, [STAGES] + a_matrix.block_shape, a_matrix.layout
    )  # (STAGES, BLOCK_M, BLOCK_K)
    b_ring = gl.allocate_shared_memory(
        b_matrix.dtype, [STAGES] + b_matrix.block_shape, b_matrix.layout
    )  # (STAGES, BLOCK_K, BLOCK_N)
    load_barriers = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(STAGES):
        mbarrier.init(load_barriers.index(slot), count=1)

    blocks = gl.cdiv(a_matrix.shape[1], BLOCK_K)
    for slot in gl.static_range(STAGES):
        if slot < blocks:
            load_block(
                a_matrix,
                b_matrix,
                row,
                column,
                slot * BLOCK_K,
                load_barriers.index(slot),
                a_ring.index(slot),
                b_ring.index(slot),
                TRANSPOSE_B,
            )

    sums = gl.zeros(
        [BLOCK_M, BLOCK_N], gl.float32, accumulator_layout(BLOCK_N, a_matrix.dtype.primitive_bitwidth, gl.num_warps())
    )  # (BLOCK_M, BLOCK_N)
    for block in range(blocks):
        stage = block % STAGES
        mbarrier.wait(load_barriers.index(stage), block // STAGES & 1)
        if TRANSPOSE_B:
            b = b_ring.index(stage).permute((1, 0))  # (BLOCK_K, BLOCK_N): a view
        else:
            b = b_ring.index(stage)
        sums = warpgroup_mma(a_ring.index(stage), b, sums, is_async=True)
        sums = warpgroup_mma_wait(UNDER_WAY, deps=(sums,))
        free_block = block - UNDER_WAY  # its multiplication is over, in this group of four warps
        if (free_block >= 0) & (free_block + STAGES < blocks):
            gl.barrier()  # and now in every group
            load_block(
                a_matrix,
                b_matrix,
                row,
                column,
                (free_block + STAGES) * BLOCK_K,
                load_barriers.index(free_block % STAGES),
                a_ring.index(free_block % STAGES),
                b_ring.index(free_block % STAGES),
                TRANSPOSE_B,
            )
    sums = warpgroup_mma_wait(0, deps=(sums,))
    for last in gl.static_range(STAGES):
        mbarrier.invalidate(load_barriers.index(last))  # the tile of C may be laid over the barriers

    c_tile = gl.allocate_shared_memory(c_matrix.dtype, c_matrix.block_shape, c_matrix.layout)  # (BLOCK_M, BLOCK_N)
    c_tile.store(sums.to(c_matrix.dtype))
    fence_async_shared()
    tma.async_store(c_matrix, [row, column], c_tile)
    tma.store_wait(pendings=0)


def hopper_matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor | None = None,
    *,
    block_m: int = 128,
    block_n: int = 128,
    block_k: int = 64,
    transpose_b: bool = False,
    stages: int = 3,
    num_warps: int = 4,
) -> torch.Tensor:
    """convert(A B) on the operands' device, in `c` (M, N) of A's type or fp32 (allocated in A's type when None). A (M, K); B (K,
    N), or (N, K) with `transpose_b`.

    ValueError names the broken clause with its value, rule and remedy.
    """
    inner, outer = (1, 0) if transpose_b else (0, 1)
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[inner]:
        raise ValueError(
            f"hopper_matmul: shapes A {tuple(a.shape)}, B {tuple(b.shape)} with transpose_b={transpose_b}: "
            f"must be (M, K) and {'(N, K)' if transpose_b else '(K, N)'}; transpose or slice an operand"
        )
    shape = (a.shape[0], b.shape[outer])
    c = torch.empty(shape, dtype=a.dtype, device=a.device) if c is None else c
    same_place(a, b, c)
    if c.shape != shape:
        raise ValueError(f"hopper_matmul: C is {tuple(c.shape)}: must be {shape}; allocate it so")
    problem = Problem(
        m=shape[0],
        n=shape[1],
        k=a.shape[1],
        dtype=same_type(a, b),
        out=element_type(c.dtype).name,
        transpose_b=transpose_b,
        a_pad=row_padding(a),
        b_pad=row_padding(b),
        c_pad=row_padding(c),
        a_offset=misalignment(a),
    )
    config = Config(block_m=block_m, block_n=block_n, block_k=block_k, stages=stages, num_warps=num_warps)
    require("hopper_matmul", CLAUSES, problem, config)
    require_features("hopper_matmul", REQUIRES)
    target = store_target(c)
    require_bases("hopper_matmul", B=b, C=target)
    grid = (triton.cdiv(problem.m, block_m), triton.cdiv(problem.n, block_n))
    hopper_matmul_kernel[grid](
        make_descriptor(a, [block_m, block_k]),
        make_descriptor(b, [block_n, block_k] if transpose_b else [block_k, block_n]),
        make_descriptor(target, [block_m, block_n]),
        transpose_b,
        stages,
        num_warps=num_warps,
    )
    return c if target is c else c.copy_(target[:, : problem.n])

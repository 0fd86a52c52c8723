"""D = A B, with B given as its transpose, on Ampere's instructions: cp.async into a ring of buffers, then mma.sync.

    D[i, j] = sum over k of A[i, k] * BT[j, k]           A: (M, K), BT: (N, K) fp16 or bf16, row-major; D: (M, N) fp32

The ring has STAGES buffers. A copy group is committed for each K block; to consume block i, only the groups of later blocks may
still be under way:

    steady state: STAGES - 1 later groups are in flight           wait_group(STAGES - 1)
    drain: as many as there are blocks after this one             wait_group(blocks - 1 - i)

That is the *drain rule*. This ring needs it, because it commits nothing once no block is left to load; a ring that commits an empty
group in every turn would keep the steady number. With fewer blocks than stages the rule is the same: the ring is in its drain from
the start.

Fragments come from shared memory in one of two ways (`Config.fragments`). Words are the same:

- ldmatrix: 16 bytes of a row lie together. One copy moves them, and one instruction of a warp reads four 8x8 matrices of them.
- ld.shared: 8 bytes of a row lie together. Each thread computes where its own pairs of elements lie, and loads them 4 bytes at a
  time: 20 loads where ldmatrix takes 5, for a tile of 64x64x16 and four warps.

Preconditions, and what each costs when broken:

- Rows of A and BT start on 16-byte boundaries, because a cp.async moves 16 bytes: otherwise the copy faults with a misaligned
  address. Refused by the launcher.
- M, N and K may be ragged. Rows outside are masked: cp.async then reads nothing and writes zeros. The K elements after the last
  whole block go through registers, element by element: a 16-byte copy across the end of a row would bring in what lies behind it,
  NaN included, and NaN times zero is NaN.
- A barrier stands between the last read of a buffer and the copy that refills it: without one a fast warp overwrites what a slow
  warp still reads.
- A barrier stands after the wait as well: `cp.async.wait_group` covers a thread's own copies only, and a warp reads what others
  copied.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2

from bitverdict.kernels.clauses import Clause, require
from bitverdict.kernels.descriptor_rules import (
    Matrix,
    base_clause,
    capacity_clause,
    dtype_clause,
    misalignment,
    positive_clause,
    powers_of_two_clause,
    row_padding,
    same_place,
    same_type,
    stride_clause,
)
from bitverdict.kernels.features import Feature, shared_memory_of

REQUIRES = frozenset({Feature.CP_ASYNC, Feature.MMA_SYNC})
DTYPES = ("fp16", "bf16")
COPY_ELEMENTS = 8  # 16 bytes, the widest cp.async, in 16-bit elements
VECTORS = {"ldmatrix": COPY_ELEMENTS, "ld.shared": 4}  # elements of a row that lie together: the compiler takes ldmatrix from 8 on
SHARED_LIMIT = shared_memory_of("sm_80")  # sm_90 and sm_100 have more


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Sizes, element type of A and BT, the elements that follow each of their rows, and of D's."""

    m: int
    n: int
    k: int
    dtype: str = "bf16"
    a_pad: int = 0
    b_pad: int = 0
    d_pad: int = 0
    a_offset: int = 0  # elements past a 16-byte boundary
    b_offset: int = 0


@dataclass(frozen=True, kw_only=True)
class Config:
    """The tile of one program, the K elements of one buffer, buffers, warps, and what brings fragments to registers."""

    block_m: int = 64
    block_n: int = 64
    block_k: int = 16
    stages: int = 2
    num_warps: int = 4
    fragments: str = "ldmatrix"


def matrices(problem: Problem, config: Config) -> list[Matrix]:
    p = problem
    return [Matrix("A", p.dtype, p.m, p.k, p.k + p.a_pad, p.a_offset), Matrix("BT", p.dtype, p.n, p.k, p.k + p.b_pad, p.b_offset)]


def shared_bytes(config: Config) -> int:
    return config.stages * (config.block_m + config.block_n) * config.block_k * 2


CLAUSES = (
    dtype_clause(DTYPES, "mma.sync.m16n8k16 is not an instruction for it"),
    positive_clause("m", "n", "k"),
    powers_of_two_clause("the matrix"),
    Clause(
        name="at least one instruction",
        holds=lambda p, c: c.block_m >= 16 and c.block_n >= 16 and c.block_k >= 16,
        value=lambda p, c: f"tile {c.block_m}x{c.block_n}x{c.block_k}",
        rule="a tile is at least 16x16x16: mma.sync is m16n8k16",
        remedy="take a larger tile",
        cost="there is no instruction to make it of",
        layer="verifier",
    ),
    Clause(
        name="stages",
        holds=lambda p, c: c.stages >= 1,
        value=lambda p, c: f"stages = {c.stages}",
        rule="the ring has at least one buffer",
        remedy="take stages=2",
        cost="nothing is ever loaded",
    ),
    Clause(
        name="fragments",
        holds=lambda p, c: c.fragments in VECTORS,
        value=lambda p, c: f"fragments = {c.fragments}",
        rule=f"fragments come by one of {', '.join(VECTORS)}",
        remedy="take ldmatrix",
        cost="the buffers have no layout",
    ),
    Clause(
        name="warps",
        holds=lambda p, c: 1 <= c.num_warps <= 16,
        value=lambda p, c: f"num_warps = {c.num_warps}",
        rule="1 to 16 warps",
        remedy="take num_warps=4",
        cost="the registers of one program do not fit",
        layer="capacity",
    ),
    capacity_clause(lambda p, c: shared_bytes(c), SHARED_LIMIT, "the ring fits", "take fewer stages or a smaller block_k"),
    stride_clause(matrices),
    base_clause(matrices),
)


@gluon.constexpr_function
def swizzled_layout(block_k, vector):
    """Rows of chunks of `vector` elements, the chunk number mixed with the row number.

    The 16 bytes that an instruction takes of each of eight rows then lie in different banks; with chunks of 8 bytes, and rows of
    128 bytes or more, in half as many.
    """
    chunks = min(block_k // vector, 8)
    return gl.SwizzledSharedLayout(vec=vector, per_phase=8 // chunks, max_phase=chunks, order=[1, 0])


@gluon.constexpr_function
def copy_layout(block_k, num_warps, vector):
    """`vector` elements, one copy, a thread; neighbouring threads along K."""
    across = min(block_k // vector, 32)
    return gl.BlockedLayout([1, vector], [32 // across, across], [num_warps, 1], [1, 0])


@gluon.constexpr_function
def accumulator_layout(block_m, num_warps):
    """Warps below one another while the tile has 16 rows for each, then side by side."""
    down = min(num_warps, block_m // 16)
    return gl.NVMMADistributedLayout(version=[2, 0], warps_per_cta=[down, num_warps // down], instr_shape=[16, 8])


@gluon.jit
def copy_block(operand, chunks_in_row, first_row, rows, k, buffer):
    """Starts the copies of a whole K block: (ROWS, BLOCK_K) from (first_row, k); rows past `rows` become zeros."""
    ROWS: gl.constexpr = buffer.shape[0]
    BLOCK_K: gl.constexpr = buffer.shape[1]
    layout: gl.constexpr = copy_layout(BLOCK_K, gl.num_warps(), buffer.layout.vec)
    row = first_row + gl.arange(0, ROWS, gl.SliceLayout(1, layout))  # (ROWS,)
    column = k + gl.arange(0, BLOCK_K, gl.SliceLayout(0, layout))  # (BLOCK_K,)
    # Strides come in chunks of 8 elements: the compiler then knows that every row starts on 16 bytes.
    places = row.to(gl.int64)[:, None] * (chunks_in_row * 8) + column[None, :]  # (ROWS, BLOCK_K)
    async_copy.async_load(buffer, operand + places, mask=(row < rows)[:, None])


@gluon.jit
def place_remainder(operand, chunks_in_row, first_row, rows, k, columns, buffer):
    """Puts the K elements after the last whole block into `buffer`, through registers: (ROWS, BLOCK_K), zeros outside."""
    ROWS: gl.constexpr = buffer.shape[0]
    BLOCK_K: gl.constexpr = buffer.shape[1]
    layout: gl.constexpr = copy_layout(BLOCK_K, gl.num_warps(), buffer.layout.vec)
    row = first_row + gl.arange(0, ROWS, gl.SliceLayout(1, layout))  # (ROWS,)
    column = k + gl.arange(0, BLOCK_K, gl.SliceLayout(0, layout))  # (BLOCK_K,)
    places = row.to(gl.int64)[:, None] * (chunks_in_row * 8) + column[None, :]  # (ROWS, BLOCK_K)
    inside = (row < rows)[:, None] & (column < columns)[None, :]  # (ROWS, BLOCK_K)
    buffer.store(gl.load(operand + places, mask=inside, other=0.0))


@gluon.jit
def multiply_buffers(a_buffer, b_buffer, sums):
    """sums + A BT of one buffer: (BLOCK_M, BLOCK_K) by (BLOCK_N, BLOCK_K)."""
    left: gl.constexpr = gl.DotOperandLayout(0, sums.type.layout, 2)
    right: gl.constexpr = gl.DotOperandLayout(1, sums.type.layout, 2)
    return mma_v2(a_buffer.load(left), b_buffer.permute((1, 0)).load(right), sums)


@gluon.jit
def ampere_gemm_kernel(
    a,
    bt,
    d,
    m,
    n,
    k,
    a_chunks,
    b_chunks,
    d_stride,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
    VECTOR: gl.constexpr,
):
    row = gl.program_id(1) * BLOCK_M
    column = gl.program_id(0) * BLOCK_N
    a_ring = gl.allocate_shared_memory(
        a.dtype.element_ty, [STAGES, BLOCK_M, BLOCK_K], swizzled_layout(BLOCK_K, VECTOR)
    )  # (STAGES, BLOCK_M, BLOCK_K)
    b_ring = gl.allocate_shared_memory(
        bt.dtype.element_ty, [STAGES, BLOCK_N, BLOCK_K], swizzled_layout(BLOCK_K, VECTOR)
    )  # (STAGES, BLOCK_N, BLOCK_K)
    in_registers: gl.constexpr = accumulator_layout(BLOCK_M, gl.num_warps())
    sums = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, in_registers)  # (BLOCK_M, BLOCK_N)

    blocks = k // BLOCK_K  # whole ones
    for first in gl.static_range(STAGES):
        if first < blocks:
            copy_block(a, a_chunks, row, m, first * BLOCK_K, a_ring.index(first))
            copy_block(bt, b_chunks, column, n, first * BLOCK_K, b_ring.index(first))
            async_copy.commit_group()

    for block in range(blocks - STAGES):
        async_copy.wait_group(STAGES - 1)
        gl.barrier()
        stage = block % STAGES
        sums = multiply_buffers(a_ring.index(stage), b_ring.index(stage), sums)
        gl.barrier()
        copy_block(a, a_chunks, row, m, (block + STAGES) * BLOCK_K, a_ring.index(stage))
        copy_block(bt, b_chunks, column, n, (block + STAGES) * BLOCK_K, b_ring.index(stage))
        async_copy.commit_group()

    for consumed in gl.static_range(STAGES):
        left = blocks - STAGES + consumed
        if left >= 0:
            async_copy.wait_group(STAGES - 1 - consumed)  # the drain rule: the groups of the blocks after this one
            gl.barrier()
            sums = multiply_buffers(a_ring.index(left % STAGES), b_ring.index(left % STAGES), sums)

    if blocks * BLOCK_K < k:
        gl.barrier()
        place_remainder(a, a_chunks, row, m, blocks * BLOCK_K, k, a_ring.index(0))
        place_remainder(bt, b_chunks, column, n, blocks * BLOCK_K, k, b_ring.index(0))
        gl.barrier()
        sums = multiply_buffers(a_ring.index(0), b_ring.index(0), sums)

    rows = row + gl.arange(0, BLOCK_M, gl.SliceLayout(1, in_registers))  # (BLOCK_M,)
    columns = column + gl.arange(0, BLOCK_N, gl.SliceLayout(0, in_registers))  # (BLOCK_N,)
    places = rows.to(gl.int64)[:, None] * d_stride + columns[None, :]  # (BLOCK_M, BLOCK_N)
    gl.store(d + places, sums, mask=(rows < m)[:, None] & (columns < n)[None, :])


def ampere_gemm(
    a: torch.Tensor,
    bt: torch.Tensor,
    d: torch.Tensor | None = None,
    *,
    block_m: int = 64,
    block_n: int = 64,
    block_k: int = 16,
    stages: int = 2,
    num_warps: int = 4,
    fragments: str = "ldmatrix",
) -> torch.Tensor:
    """A BT^T on the operands' device, in `d` (M, N) fp32 (allocated when None). A (M, K) and BT (N, K): fp16 or bf16, one type.

    ValueError names the broken clause with its value, rule and remedy.
    """
    same_place(a, bt)
    if a.dim() != 2 or bt.dim() != 2 or a.shape[1] != bt.shape[1]:
        raise ValueError(
            f"ampere_gemm: shapes A {tuple(a.shape)}, BT {tuple(bt.shape)}: must be (M, K) and (N, K); transpose an operand"
        )
    (m, k), n = a.shape, bt.shape[0]
    d = torch.empty((m, n), dtype=torch.float32, device=a.device) if d is None else d
    if d.shape != (m, n) or d.dtype != torch.float32 or d.device != a.device:
        raise ValueError(
            f"ampere_gemm: D is {tuple(d.shape)} {d.dtype} on {d.device}: must be ({m}, {n}) float32 on {a.device}; allocate it so"
        )
    problem = Problem(
        m=m,
        n=n,
        k=k,
        dtype=same_type(a, bt),
        a_pad=row_padding(a),
        b_pad=row_padding(bt),
        d_pad=row_padding(d),
        a_offset=misalignment(a),
        b_offset=misalignment(bt),
    )
    config = Config(block_m=block_m, block_n=block_n, block_k=block_k, stages=stages, num_warps=num_warps, fragments=fragments)
    require("ampere_gemm", CLAUSES, problem, config)
    grid = (triton.cdiv(n, block_n), triton.cdiv(m, block_m))
    ampere_gemm_kernel[grid](
        a,
        bt,
        d,
        m,
        n,
        k,
        (k + problem.a_pad) // COPY_ELEMENTS,
        (k + problem.b_pad) // COPY_ELEMENTS,
        n + problem.d_pad,
        block_m,
        block_n,
        block_k,
        stages,
        VECTORS[fragments],
        num_warps=num_warps,
    )
    return d

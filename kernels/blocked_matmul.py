"""C = convert(A B), one tile of C a program, one K block at a time.

    C[i, j] = convert(sum over k of A[i, k] * B[k, j])      A: (M, K); B: (K, N), or its transpose (N, K); C: (M, N) in A's type

Nothing overlaps: load a block of A and of B, wait, multiply, wait, and again. It is the form in which each barrier and its phase
can be seen.

Preconditions, and what each costs when broken:

- Rows of A, B and C start on 16-byte boundaries: a tensor map has no other unit. Refused by the launcher. No size needs to be a
  multiple of a tile: TMA reads zeros outside a matrix and writes nothing past the 16 bytes in which a row ends (`store_target` sees
  to those), and a zero product does not change a sum, so ragged M, N and K need no mask at all.
- A tile of C has 64 or 128 rows: the heights of `tcgen05.mma`. Refused.
- Both barriers complete once in each turn, so one phase bit serves both. A wait with the wrong phase returns at once, on data of
  the turn before.
- The block of A and B is loaded again only after the multiplication is over: the wait on its barrier is what makes the buffer free.
- The first multiplication ignores the accumulator (`use_acc=False`): tensor memory is not zero, it holds what the last kernel left.
- A generic store to shared memory, then TMA reading it, needs a proxy fence between.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    fence_async_shared,
    mbarrier,
    tcgen05_commit,
    tcgen05_mma,
    tma,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from bitverdict.kernels import tensor_memory
from bitverdict.kernels.clauses import Clause, require
from bitverdict.kernels.descriptor_rules import (
    LARGEST_BOX,
    Matrix,
    base_clause,
    capacity_clause,
    dtype_clause,
    is_power_of_two,
    misalignment,
    positive_clause,
    require_bases,
    row_padding,
    row_strides,
    same_place,
    same_type,
    store_target,
    stride_clause,
)
from bitverdict.kernels.element_types import bits_of, element_type
from bitverdict.kernels.features import Feature, shared_memory_of

REQUIRES = frozenset({Feature.TCGEN05, Feature.TENSOR_MEMORY, Feature.TMA, Feature.MBARRIER})
DTYPES = ("fp16", "bf16", "e4m3", "e5m2")
SHARED_LIMIT = shared_memory_of("sm_100")  # and of sm_90


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Sizes, element type, whether B comes transposed, and the elements that follow each row (`*_pad`)."""

    m: int
    n: int
    k: int
    dtype: str = "fp16"
    transpose_b: bool = False
    a_pad: int = 0
    b_pad: int = 0
    c_pad: int = 0
    a_offset: int = 0  # elements past a 16-byte boundary


@dataclass(frozen=True, kw_only=True)
class Config:
    """The tile of one program, the K elements of one turn, warps."""

    block_m: int = 128
    block_n: int = 128
    block_k: int = 64
    num_warps: int = 4


def matrices(problem: Problem, config: Config) -> list[Matrix]:
    p = problem
    rows, columns = (p.n, p.k) if p.transpose_b else (p.k, p.n)
    return [
        Matrix("A", p.dtype, p.m, p.k, p.k + p.a_pad, p.a_offset),
        Matrix("B", p.dtype, rows, columns, columns + p.b_pad, 0),
        Matrix("C", p.dtype, p.m, p.n, p.n + p.c_pad, 0),
    ]


def allocations(problem: Problem, config: Config) -> list[tensor_memory.Allocation]:
    return [tensor_memory.Allocation("accumulator", config.block_m, config.block_n, config.block_m, config.block_n, 32)]


def shared_bytes(problem: Problem, config: Config) -> int:
    """The two operand tiles, or the tile of C that is laid over them."""
    elements = max((config.block_m + config.block_n) * config.block_k, config.block_m * config.block_n)
    return elements * bits_of(problem.dtype) // 8 + 64


TILE_CLAUSES = (
    Clause(
        name="powers of two",
        holds=lambda p, c: all(is_power_of_two(s) for s in (c.block_m, c.block_n, c.block_k)),
        value=lambda p, c: f"tile {c.block_m}x{c.block_n}x{c.block_k}",
        rule="a tile's sizes are powers of two",
        remedy="take the next power of two: the matrix may stay ragged",
        cost="a tile program has no such tensor",
        layer="front end",
    ),
    Clause(
        name="one instruction's K",
        holds=lambda p, c: c.block_k * bits_of(p.dtype) >= 256,
        value=lambda p, c: f"block_k = {c.block_k} x {p.dtype}",
        rule="a K block is at least 32 bytes, one instruction's K",
        remedy="take a larger block_k",
        cost="there is no instruction to make it of",
        layer="verifier",
    ),
    Clause(
        name="N of an instruction",
        holds=lambda p, c: 32 <= c.block_n * bits_of(p.dtype) // 8 and c.block_n >= 16,
        value=lambda p, c: f"block_n = {c.block_n} x {p.dtype}",
        rule="block_n is at least 16, and 32 bytes",
        remedy="take a larger block_n",
        cost="no instruction is that narrow and no swizzle covers it",
        layer="verifier",
    ),
    Clause(
        name="boxes",
        holds=lambda p, c: max(c.block_m, c.block_k if not getattr(p, "transpose_b", False) else 1, c.block_n) <= LARGEST_BOX,
        value=lambda p, c: f"tile {c.block_m}x{c.block_n}x{c.block_k}",
        rule=f"a box has at most {LARGEST_BOX} rows",
        remedy="take a smaller tile",
        cost="the tensor map cannot be encoded",
        layer="driver",
    ),
)


CLAUSES = (
    dtype_clause(DTYPES, "tcgen05.mma has no kind for it with an fp32 accumulator"),
    positive_clause("m", "n", "k"),
    *TILE_CLAUSES,
    *tensor_memory.clauses(allocations),
    capacity_clause(shared_bytes, SHARED_LIMIT, "the tiles of A and B, and the tile of C, fit", "take a smaller block_k"),
    stride_clause(matrices),
    base_clause(matrices),
)


@gluon.jit
def blocked_matmul_kernel(a_matrix, b_matrix, c_matrix, TRANSPOSE_B: gl.constexpr):
    BLOCK_M: gl.constexpr = c_matrix.block_shape[0]
    BLOCK_N: gl.constexpr = c_matrix.block_shape[1]
    BLOCK_K: gl.constexpr = a_matrix.block_shape[1]
    row = gl.program_id(0) * BLOCK_M
    column = gl.program_id(1) * BLOCK_N

    a_tile = gl.allocate_shared_memory(a_matrix.dtype, a_matrix.block_shape, a_matrix.layout)  # (BLOCK_M, BLOCK_K)
    b_tile = gl.allocate_shared_memory(b_matrix.dtype, b_matrix.block_shape, b_matrix.layout)  # (BLOCK_K, BLOCK_N) or transposed
    accumulator = allocate_tensor_memory(gl.float32, [BLOCK_M, BLOCK_N], TensorMemoryLayout([BLOCK_M, BLOCK_N], col_stride=1))
    load_barrier = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    multiply_barrier = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(load_barrier, count=1)
    mbarrier.init(multiply_barrier, count=1)

    phase = 0
    accumulate = False  # the first product replaces what tensor memory happens to hold
    for k in range(0, a_matrix.shape[1], BLOCK_K):
        mbarrier.expect(load_barrier, a_matrix.nbytes_per_cta + b_matrix.nbytes_per_cta)
        tma.async_load(a_matrix, [row, k], load_barrier, a_tile)
        if TRANSPOSE_B:
            tma.async_load(b_matrix, [column, k], load_barrier, b_tile)
            b = b_tile.permute((1, 0))  # (BLOCK_K, BLOCK_N): a view; the instruction's descriptor does the transposing
        else:
            tma.async_load(b_matrix, [k, column], load_barrier, b_tile)
            b = b_tile
        mbarrier.wait(load_barrier, phase)
        tcgen05_mma(a_tile, b, accumulator, use_acc=accumulate)
        tcgen05_commit(multiply_barrier)
        mbarrier.wait(multiply_barrier, phase)
        accumulate = True
        phase ^= 1
    mbarrier.invalidate(load_barrier)
    mbarrier.invalidate(multiply_barrier)

    c_tile = gl.allocate_shared_memory(c_matrix.dtype, c_matrix.block_shape, c_matrix.layout)  # (BLOCK_M, BLOCK_N)
    c_tile.store(accumulator.load().to(c_matrix.dtype))
    fence_async_shared()
    tma.async_store(c_matrix, [row, column], c_tile)
    tma.store_wait(pendings=0)


def make_descriptor(tensor: torch.Tensor, box: list[int]) -> TensorDescriptor:
    """The descriptor of `tensor` in boxes of `box`, with the widest swizzle that the box allows."""
    layout = gl.NVMMASharedLayout.get_default_for(box, element_type(tensor.dtype).gluon)
    return TensorDescriptor(tensor, list(tensor.shape), row_strides(tensor), box, layout)


def problem_of(kernel: str, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, *, transpose_b: bool = False) -> Problem:
    """The `Problem` that these operands pose. ValueError where they are not three matrices of one type, place and matching
    sizes."""
    same_place(a, b, c)
    inner, outer = (1, 0) if transpose_b else (0, 1)
    if not a.dim() == b.dim() == c.dim() == 2 or a.shape[1] != b.shape[inner] or c.shape != (a.shape[0], b.shape[outer]):
        raise ValueError(
            f"{kernel}: shapes A {tuple(a.shape)}, B {tuple(b.shape)}, C {tuple(c.shape)} with "
            f"transpose_b={transpose_b}: must be (M, K), {'(N, K)' if transpose_b else '(K, N)'}, (M, N); "
            "transpose or slice an operand"
        )
    return Problem(
        m=a.shape[0],
        n=b.shape[outer],
        k=a.shape[1],
        dtype=same_type(a, b, c),
        transpose_b=transpose_b,
        a_pad=row_padding(a),
        b_pad=row_padding(b),
        c_pad=row_padding(c),
        a_offset=misalignment(a),
    )


def blocked_matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    block_m: int = 128,
    block_n: int = 128,
    block_k: int = 64,
    transpose_b: bool = False,
    num_warps: int = 4,
) -> torch.Tensor:
    """Writes convert(A B) into `c` (M, N) on the operands' device and returns it. A (M, K); B (K, N), or (N, K) with `transpose_b`.

    ValueError names the broken clause with its value, rule and remedy.
    """
    problem = problem_of("blocked_matmul", a, b, c, transpose_b=transpose_b)
    config = Config(block_m=block_m, block_n=block_n, block_k=block_k, num_warps=num_warps)
    require("blocked_matmul", CLAUSES, problem, config)
    target = store_target(c)
    require_bases("blocked_matmul", B=b, C=target)
    grid = (triton.cdiv(problem.m, block_m), triton.cdiv(problem.n, block_n))
    blocked_matmul_kernel[grid](
        make_descriptor(a, [block_m, block_k]),
        make_descriptor(b, [block_n, block_k] if transpose_b else [block_k, block_n]),
        make_descriptor(target, [block_m, block_n]),
        transpose_b,
        num_warps=num_warps,
    )
    return c if target is c else c.copy_(target[:, : problem.n])

"""D = A B + C, in one matrix multiplication of one program.

    D[i, j] = sum over k of A[i, k] * B[k, j] + C[i, j]       A: (M, K), B: (K, N) fp16, bf16 or fp8; C, D: (M, N) fp32

The smallest kernel with all the parts of a Blackwell multiplication: TMA in, the accumulator placed in tensor memory by hand,
`tcgen05.mma`, its completion learnt through an mbarrier, TMA out. C enters the chain as its start; it is not added afterwards.

Preconditions, and what each costs when broken:

- The sizes are powers of two and the tile: nothing here loops, so no size is ragged. Refused by the launcher.
- One block of 64 rows at most: a second one would lie in the other half of the rows, where `tcgen05.mma` of 64 rows does not look.
  The compiler does not refuse it (Triton 3.9); the launcher does.
- With A in tensor memory, 16-bit and 8-bit elements are packed into cells, one block of K columns.
- The barrier that counted the loads is taken down and set up again before it counts the multiplication: kept as it is, its phase
  has flipped, and a wait for phase 0 returns at once, on an accumulator still being written.
- Between the generic store of D to shared memory and the TMA store that reads it stands a proxy fence: without one the TMA unit may
  read what was there before. (Triton 3.9 would insert it. It is written, because it is part of the rule and other compilers do
  not.)
- No fence stands between the TMA loads and the multiplication: both go through the async proxy, and the mbarrier orders them. None
  stands before A's copy to tensor memory: a wait on the mbarrier makes what TMA wrote visible to ordinary loads.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import torch
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
    dtype_clause,
    is_power_of_two,
    misalignment,
    require_bases,
    row_padding,
    same_place,
    same_type,
    stride_clause,
)
from bitverdict.kernels.element_types import bits_of, element_type
from bitverdict.kernels.features import Feature, shared_memory_of

REQUIRES = frozenset({Feature.TCGEN05, Feature.TENSOR_MEMORY, Feature.TMA, Feature.MBARRIER})
DTYPES = ("fp16", "bf16", "e4m3", "e5m2")


class LeftOperand(StrEnum):
    """Where `tcgen05.mma` finds A. B is always in shared memory, the accumulator always in tensor memory."""

    SHARED = "shared"
    TENSOR_MEMORY = "tensor memory"


class Completion(StrEnum):
    """How the program learns that the multiplication is over."""

    COMMIT = "commit"  # a commit of everything issued so far, an instruction of its own
    BARRIER = "barrier"  # the multiplication names its barrier
    CONDITIONAL = "conditional"  # it names two barriers, and a predicate decides which one it arrives on


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Sizes, element type of A and B, and the elements that follow each row of an operand (`*_pad`)."""

    m: int
    n: int
    k: int
    dtype: str = "fp16"
    a_pad: int = 0
    b_pad: int = 0
    c_pad: int = 0
    d_pad: int = 0
    a_offset: int = 0  # elements past a 16-byte boundary


@dataclass(frozen=True, kw_only=True)
class Config:
    """Block of tensor memory (0: the rule of `block`), where A lies, how completion is learnt, warps."""

    block_m: int = 0
    block_n: int = 0
    left: str = LeftOperand.SHARED
    completion: str = Completion.COMMIT
    num_warps: int = 4


def block(problem: Problem, config: Config) -> tuple[int, int]:
    """The block of the accumulator: as asked, or the whole of it, of 128 rows at most."""
    return config.block_m or min(problem.m, 128), config.block_n or problem.n


def allocations(problem: Problem, config: Config) -> list[tensor_memory.Allocation]:
    rows, columns = block(problem, config)
    tile_allocations = [tensor_memory.Allocation("accumulator", problem.m, problem.n, rows, columns, 32)]
    if config.left == LeftOperand.TENSOR_MEMORY:
        tile_allocations.append(
            tensor_memory.Allocation(
                "A", problem.m, problem.k, rows, min(problem.k, tensor_memory.WIDEST_BLOCK), bits_of(problem.dtype)
            )
        )
    return tile_allocations


def matrices(problem: Problem, config: Config) -> list[Matrix]:
    p = problem
    return [
        Matrix("A", p.dtype, p.m, p.k, p.k + p.a_pad, p.a_offset),
        Matrix("B", p.dtype, p.k, p.n, p.n + p.b_pad, 0),
        Matrix("C", "fp32", p.m, p.n, p.n + p.c_pad, 0),
        Matrix("D", "fp32", p.m, p.n, p.n + p.d_pad, 0),
    ]


def _shared_bytes(p: Problem, c: Config) -> int:
    """A, B and C; D is laid over them, because they are dead when it is born."""
    return (p.m * p.k + p.k * p.n) * bits_of(p.dtype) // 8 + p.m * p.n * 4


SHARED_LIMIT = shared_memory_of("sm_100")  # and of sm_90
CLAUSES = (
    dtype_clause(DTYPES, "tcgen05.mma has no kind for it with an fp32 accumulator"),
    Clause(
        name="powers of two",
        holds=lambda p, c: all(is_power_of_two(s) for s in (p.m, p.n, p.k)),
        value=lambda p, c: f"m, n, k = {p.m}, {p.n}, {p.k}",
        rule="sizes are powers of two",
        remedy="use blocked_matmul, which takes ragged sizes",
        cost="a tile has no such shape",
        layer="front end",
    ),
    Clause(
        name="one instruction's K",
        holds=lambda p, c: p.k * bits_of(p.dtype) >= 256,
        value=lambda p, c: f"k = {p.k} x {p.dtype}",
        rule="K is at least 32 bytes, one instruction's K",
        remedy="pad K with zeros",
        cost="the multiplication has no instruction to be made of",
        layer="verifier",
    ),
    Clause(
        name="N of an instruction",
        holds=lambda p, c: p.n >= 16 and block(p, c)[1] >= 16,
        value=lambda p, c: f"n = {p.n}, block {block(p, c)}",
        rule="N and the block's columns are at least 16",
        remedy="pad N with zeros",
        cost="no instruction is that narrow",
        layer="verifier",
    ),
    *tensor_memory.clauses(allocations),
    Clause(
        name="one block of 64 rows",
        holds=lambda p, c: block(p, c)[0] != 64 or (p.m == 64 and p.n == block(p, c)[1]),
        value=lambda p, c: f"m, n = {p.m}, {p.n} in blocks of {block(p, c)[0]}x{block(p, c)[1]}",
        rule="blocks of 64 rows are multiplied one at a time",
        remedy="take blocks of 128 rows",
        cost="the second block lies in the rows beside the first, where the instruction of 64 rows does not look",
    ),
    Clause(
        name="A in tensor memory is 16 or 8 bits in one block",
        holds=lambda p, c: c.left != LeftOperand.TENSOR_MEMORY or p.k <= tensor_memory.WIDEST_BLOCK,
        value=lambda p, c: f"k = {p.k}",
        rule="A in tensor memory takes K of at most 256",
        remedy="keep A in shared memory",
        cost="A would be cut into blocks that the instruction does not expect",
    ),
    Clause(
        name="boxes",
        holds=lambda p, c: max(p.m, p.k) <= LARGEST_BOX,
        value=lambda p, c: f"m, k = {p.m}, {p.k}",
        rule=f"a box has at most {LARGEST_BOX} rows",
        remedy="use blocked_matmul",
        cost="the tensor map cannot be encoded",
        layer="driver",
    ),
    Clause(
        name="shared memory",
        holds=lambda p, c: _shared_bytes(p, c) + 64 <= SHARED_LIMIT,
        value=lambda p, c: f"{_shared_bytes(p, c)} bytes",
        rule=f"A, B and C fit {SHARED_LIMIT} bytes of shared memory",
        remedy="use blocked_matmul",
        cost="the launch is out of resources",
        layer="capacity",
    ),
    stride_clause(matrices),
    base_clause(matrices),
)


@gluon.jit(do_not_specialize=["barrier_index"])
def small_mma_kernel(
    a_matrix,
    b_matrix,
    c_matrix,
    d_matrix,
    barrier_index,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    LEFT_IN_TENSOR_MEMORY: gl.constexpr,
    CONDITIONAL: gl.constexpr,
    COMMIT: gl.constexpr,
):
    M: gl.constexpr = d_matrix.block_shape[0]
    N: gl.constexpr = d_matrix.block_shape[1]
    K: gl.constexpr = a_matrix.block_shape[1]
    a_tile = gl.allocate_shared_memory(a_matrix.dtype, a_matrix.block_shape, a_matrix.layout)  # (M, K)
    b_tile = gl.allocate_shared_memory(b_matrix.dtype, b_matrix.block_shape, b_matrix.layout)  # (K, N)
    c_tile = gl.allocate_shared_memory(c_matrix.dtype, c_matrix.block_shape, c_matrix.layout)  # (M, N)
    barriers = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())  # (2, 1) barriers

    load_barrier = barriers.index(0)
    mbarrier.init(load_barrier, count=1)
    mbarrier.expect(load_barrier, a_matrix.nbytes_per_cta + b_matrix.nbytes_per_cta + c_matrix.nbytes_per_cta)
    tma.async_load(a_matrix, [0, 0], load_barrier, a_tile)
    tma.async_load(b_matrix, [0, 0], load_barrier, b_tile)
    tma.async_load(c_matrix, [0, 0], load_barrier, c_tile)
    mbarrier.wait(load_barrier, phase=0)
    # The loads flipped this barrier's phase. It starts again at 0 before it counts the multiplication.
    mbarrier.invalidate(load_barrier)
    mbarrier.init(barriers.index(0), count=1)
    mbarrier.init(barriers.index(1), count=1)

    accumulator = allocate_tensor_memory(gl.float32, [M, N], TensorMemoryLayout([BLOCK_M, BLOCK_N], col_stride=1))  # (M, N)
    accumulator.store(c_tile.load(accumulator.get_reg_layout()))
    if LEFT_IN_TENSOR_MEMORY:
        a = allocate_tensor_memory(a_matrix.dtype, [M, K], TensorMemoryLayout([BLOCK_M, BLOCK_K], col_stride=1))  # (M, K) packed
        a.store(a_tile.load(a.get_reg_layout()))
    else:
        a = a_tile

    if COMMIT:
        tcgen05_mma(a, b_tile, accumulator)
        tcgen05_commit(barriers.index(0))
        mbarrier.wait(barriers.index(0), phase=0)
    elif CONDITIONAL:
        tcgen05_mma(
            a,
            b_tile,
            accumulator,
            mbarriers=[barriers.index(0), barriers.index(1)],
            mbarrier_preds=[barrier_index == 0, barrier_index == 1],
        )
        mbarrier.wait(barriers.index(barrier_index), phase=0)
    else:
        tcgen05_mma(a, b_tile, accumulator, mbarriers=[barriers.index(0)], mbarrier_preds=[True])
        mbarrier.wait(barriers.index(0), phase=0)
    mbarrier.invalidate(barriers.index(0))
    mbarrier.invalidate(barriers.index(1))

    d_tile = gl.allocate_shared_memory(d_matrix.dtype, d_matrix.block_shape, d_matrix.layout)  # (M, N)
    d_tile.store(accumulator.load())
    fence_async_shared()
    tma.async_store(d_matrix, [0, 0], d_tile)
    tma.store_wait(pendings=0)


def small_mma(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    d: torch.Tensor,
    tmem_block: tuple[int, int] | None = None,
    lhs_in_tmem: bool = False,
    use_commit: bool = True,
    num_warps: int = 4,
    *,
    completion: Completion | None = None,
    chosen: int = 1,
) -> torch.Tensor:
    """Writes A B + C into `d` on the operands' device and returns it. A (M, K), B (K, N): one element type; C, D (M, N): fp32.

    `completion` overrides `use_commit`; `chosen` is the barrier (0 or 1) that Completion.CONDITIONAL arrives on. ValueError names
    the broken clause.
    """
    same_place(a, b, c, d)
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0] or c.shape != (a.shape[0], b.shape[1]) or d.shape != c.shape:
        raise ValueError(
            f"small_mma: shapes A {tuple(a.shape)}, B {tuple(b.shape)}, C {tuple(c.shape)}, D {tuple(d.shape)}: "
            "must be (M, K), (K, N), (M, N), (M, N); transpose or slice an operand"
        )
    if c.dtype != torch.float32 or d.dtype != torch.float32:
        raise ValueError(f"small_mma: C is {c.dtype} and D is {d.dtype}: the accumulator is fp32; call .float()")
    if chosen not in (0, 1):
        raise ValueError(
            f"small_mma: chosen = {chosen}: must be 0 or 1, the barrier to arrive on; otherwise the program waits for ever"
        )
    completion = completion or (Completion.COMMIT if use_commit else Completion.BARRIER)
    rows, columns = tmem_block or (0, 0)
    problem = Problem(
        m=a.shape[0],
        n=b.shape[1],
        k=a.shape[1],
        dtype=same_type(a, b),
        a_pad=row_padding(a),
        b_pad=row_padding(b),
        c_pad=row_padding(c),
        d_pad=row_padding(d),
        a_offset=misalignment(a),
    )
    config = Config(
        block_m=rows,
        block_n=columns,
        left=LeftOperand.TENSOR_MEMORY if lhs_in_tmem else LeftOperand.SHARED,
        completion=completion,
        num_warps=num_warps,
    )
    require("small_mma", CLAUSES, problem, config)
    require_bases("small_mma", B=b, C=c, D=d)
    rows, columns = block(problem, config)

    def make_descriptor(tensor: torch.Tensor) -> TensorDescriptor:
        layout = gl.NVMMASharedLayout.get_default_for(list(tensor.shape), element_type(tensor.dtype).gluon)
        return TensorDescriptor.from_tensor(tensor, list(tensor.shape), layout)

    small_mma_kernel[(1,)](
        make_descriptor(a),
        make_descriptor(b),
        make_descriptor(c),
        make_descriptor(d),
        chosen,
        rows,
        columns,
        problem.k,
        lhs_in_tmem,
        completion == Completion.CONDITIONAL,
        completion == Completion.COMMIT,
        num_warps=num_warps,
    )
    return d

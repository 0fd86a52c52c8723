"""C = convert(A B), two tiles of C a program, one above the other, so that loads and multiplications overlap.

    C[i, j] = convert(sum over k of A[i, k] * B[k, j])                    A: (M, K), B: (K, N), C: (M, N) in A's type

The upper and the lower tile share each block of B: three loads feed two multiplications. Every operand has two buffers, so that two
K blocks are under way, and each tile has an accumulator of its own. One turn, in order:

    upper and B of block i arrived?  multiply upper.   lower arrived?  multiply lower.
    upper multiplied?  its buffer is free: load the upper of block i + 2.
    lower multiplied?  B's buffer, read by both, is free: load B and the lower of block i + 2.

Preconditions, and what each costs when broken:

- Those of `blocked_matmul` on rows, tiles and tensor memory, the last for two accumulators.
- Two K blocks are always loaded and multiplied, even where K has only one: the second then lies outside the matrix, TMA reads
  zeros, and zero products change no sum. So K of one block needs no code. The first product of each tile is the one that ignores
  the accumulator, wherever it occurs; a drain that always accumulates would read uninitialised tensor memory for K of one or two
  blocks.
- B is reloaded after the *lower* product, never after the upper one: both read it.
- The commit after the last block covers the one before it too: `tcgen05` operations of one shape complete in order.
- The tile of C goes out twice through one buffer: the second store to it waits until TMA has read the first.
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

from bitverdict.kernels import tensor_memory
from bitverdict.kernels.blocked_matmul import DTYPES, SHARED_LIMIT, TILE_CLAUSES, Problem, make_descriptor, matrices, problem_of
from bitverdict.kernels.clauses import require
from bitverdict.kernels.descriptor_rules import (
    base_clause,
    capacity_clause,
    dtype_clause,
    positive_clause,
    require_bases,
    store_target,
    stride_clause,
)
from bitverdict.kernels.element_types import bits_of
from bitverdict.kernels.features import Feature

REQUIRES = frozenset({Feature.TCGEN05, Feature.TENSOR_MEMORY, Feature.TMA, Feature.MBARRIER})


@dataclass(frozen=True, kw_only=True)
class Config:
    """Half of a program's tile (two of it stand one above the other), the K elements of one turn, warps."""

    block_m: int = 128
    block_n: int = 128
    block_k: int = 64
    num_warps: int = 4


def allocations(problem: Problem, config: Config) -> list[tensor_memory.Allocation]:
    return [
        tensor_memory.Allocation(name, config.block_m, config.block_n, config.block_m, config.block_n, 32)
        for name in ("upper accumulator", "lower accumulator")
    ]


def shared_bytes(problem: Problem, config: Config) -> int:
    """Two buffers each for upper, lower and B; the tile of C is laid over them."""
    elements = max(2 * (2 * config.block_m + config.block_n) * config.block_k, config.block_m * config.block_n)
    return elements * bits_of(problem.dtype) // 8 + 128


CLAUSES = (
    dtype_clause(DTYPES, "tcgen05.mma has no kind for it with an fp32 accumulator"),
    positive_clause("m", "n", "k"),
    *TILE_CLAUSES,
    *tensor_memory.clauses(allocations),
    capacity_clause(shared_bytes, SHARED_LIMIT, "two buffers of each operand fit", "take a smaller block_k"),
    stride_clause(matrices),
    base_clause(matrices),
)


@gluon.jit
def load_upper(a_matrix, b_matrix, row, k, block, upper, upper_and_b):
    """Starts the load of the upper tile of K block `block`; its barrier waits for B as well."""
    stage = block % 2
    mbarrier.expect(upper_and_b.index(stage), a_matrix.nbytes_per_cta + b_matrix.nbytes_per_cta)
    tma.async_load(a_matrix, [row, k], upper_and_b.index(stage), upper.index(stage))


@gluon.jit
def load_lower_and_b(a_matrix, b_matrix, row, column, k, block, lower, b, lower_loaded, upper_and_b):
    """Starts the loads of B, whose bytes the barrier of `load_upper` expects, and of the lower tile."""
    stage = block % 2
    tma.async_load(b_matrix, [k, column], upper_and_b.index(stage), b.index(stage))
    mbarrier.expect(lower_loaded.index(stage), a_matrix.nbytes_per_cta)
    tma.async_load(a_matrix, [row, k], lower_loaded.index(stage), lower.index(stage))


@gluon.jit
def multiply(block, rows, b, accumulator, loaded, multiplied):
    """Multiplies the rows of K block `block` once they have arrived; only block 0 ignores the accumulator."""
    stage = block % 2
    mbarrier.wait(loaded.index(stage), block // 2 & 1)
    tcgen05_mma(rows.index(stage), b.index(stage), accumulator, use_acc=block > 0)
    tcgen05_commit(multiplied.index(stage))


@gluon.jit
def blocked_matmul_pipelined_kernel(a_matrix, b_matrix, c_matrix):
    BLOCK_M: gl.constexpr = c_matrix.block_shape[0]
    BLOCK_N: gl.constexpr = c_matrix.block_shape[1]
    BLOCK_K: gl.constexpr = a_matrix.block_shape[1]
    upper_row = gl.program_id(0) * (2 * BLOCK_M)
    lower_row = upper_row + BLOCK_M
    column = gl.program_id(1) * BLOCK_N

    upper = gl.allocate_shared_memory(a_matrix.dtype, [2, BLOCK_M, BLOCK_K], a_matrix.layout)  # (2, BLOCK_M, BLOCK_K)
    lower = gl.allocate_shared_memory(a_matrix.dtype, [2, BLOCK_M, BLOCK_K], a_matrix.layout)  # (2, BLOCK_M, BLOCK_K)
    b = gl.allocate_shared_memory(b_matrix.dtype, [2, BLOCK_K, BLOCK_N], b_matrix.layout)  # (2, BLOCK_K, BLOCK_N)
    cells: gl.constexpr = TensorMemoryLayout([BLOCK_M, BLOCK_N], col_stride=1)
    upper_sum = allocate_tensor_memory(gl.float32, [BLOCK_M, BLOCK_N], cells)  # (BLOCK_M, BLOCK_N)
    lower_sum = allocate_tensor_memory(gl.float32, [BLOCK_M, BLOCK_N], cells)  # (BLOCK_M, BLOCK_N)
    upper_and_b = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    lower_loaded = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    upper_done = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    lower_done = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(2):
        mbarrier.init(upper_and_b.index(stage), count=1)
        mbarrier.init(lower_loaded.index(stage), count=1)
        mbarrier.init(upper_done.index(stage), count=1)
        mbarrier.init(lower_done.index(stage), count=1)

    blocks = gl.maximum(gl.cdiv(a_matrix.shape[1], BLOCK_K), 2)  # a second block past K is all zeros
    for block in gl.static_range(2):
        load_upper(a_matrix, b_matrix, upper_row, block * BLOCK_K, block, upper, upper_and_b)
        load_lower_and_b(a_matrix, b_matrix, lower_row, column, block * BLOCK_K, block, lower, b, lower_loaded, upper_and_b)

    for block in range(blocks - 2):
        multiply(block, upper, b, upper_sum, upper_and_b, upper_done)
        multiply(block, lower, b, lower_sum, lower_loaded, lower_done)
        mbarrier.wait(upper_done.index(block % 2), block // 2 & 1)
        load_upper(a_matrix, b_matrix, upper_row, (block + 2) * BLOCK_K, block + 2, upper, upper_and_b)
        mbarrier.wait(lower_done.index(block % 2), block // 2 & 1)
        load_lower_and_b(
            a_matrix, b_matrix, lower_row, column, (block + 2) * BLOCK_K, block + 2, lower, b, lower_loaded, upper_and_b
        )

    for block in range(blocks - 2, blocks):
        multiply(block, upper, b, upper_sum, upper_and_b, upper_done)
        multiply(block, lower, b, lower_sum, lower_loaded, lower_done)

    last_block = blocks - 1
    mbarrier.wait(upper_done.index(last_block % 2), last_block // 2 & 1)
    for stage in gl.static_range(2):  # the tile of C may be laid over the barriers that nobody waits for any more
        mbarrier.invalidate(upper_and_b.index(stage))
        mbarrier.invalidate(lower_loaded.index(stage))
        mbarrier.invalidate(upper_done.index(stage))
    c_tile = gl.allocate_shared_memory(c_matrix.dtype, c_matrix.block_shape, c_matrix.layout)  # (BLOCK_M, BLOCK_N)
    c_tile.store(upper_sum.load().to(c_matrix.dtype))
    fence_async_shared()
    tma.async_store(c_matrix, [upper_row, column], c_tile)

    mbarrier.wait(lower_done.index(last_block % 2), last_block // 2 & 1)
    lower_result = lower_sum.load().to(c_matrix.dtype)  # (BLOCK_M, BLOCK_N), while the upper tile is on its way
    tma.store_wait(pendings=0)
    c_tile.store(lower_result)
    fence_async_shared()
    tma.async_store(c_matrix, [lower_row, column], c_tile)
    tma.store_wait(pendings=0)


def blocked_matmul_pipelined(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, block_m: int = 128, block_n: int = 128, block_k: int = 64, num_warps: int = 4
) -> torch.Tensor:
    """Writes convert(A B) into `c` (M, N) on the operands' device and returns it. A (M, K), B (K, N), one element type.

    ValueError names the broken clause with its value, rule and remedy.
    """
    problem = problem_of("blocked_matmul_pipelined", a, b, c)
    config = Config(block_m=block_m, block_n=block_n, block_k=block_k, num_warps=num_warps)
    require("blocked_matmul_pipelined", CLAUSES, problem, config)
    target = store_target(c)
    require_bases("blocked_matmul_pipelined", B=b, C=target)
    grid = (triton.cdiv(problem.m, 2 * block_m), triton.cdiv(problem.n, block_n))
    blocked_matmul_pipelined_kernel[grid](
        make_descriptor(a, [block_m, block_k]),
        make_descriptor(b, [block_k, block_n]),
        make_descriptor(target, [block_m, block_n]),
        num_warps=num_warps,
    )
    return c if target is c else c.copy_(target[:, : problem.n])

"""Ten mutants of the kernels that crash, one of each kind where there is one, each in a part of the case space only.

What a shrunk case must keep is the part: more than so many K blocks, a ragged row count, one element type. The first three are the
mistakes that the gather and scatter kernels' own preconditions warn of.
"""

from __future__ import annotations

from tests.faults.mutants import Mutant, once


def _crash(name: str, kernel: str, arch: str, when: str, expected: str, replace: str, by: str) -> Mutant:
    """A mutant that ends a launch or its process."""
    return Mutant(kernel=kernel, name=name, edits=once(replace, by), expected=(expected,), on=(f"emulated:{arch}",), when=when)


CRASHES = (
    _crash("gather drifts", "tma_gather", "sm_100", "more than one program", "illegal instruction",
           "tma.async_gather(table, row_numbers, column_offset, arrived, tile)",
           "tma.async_gather(table, row_numbers, column_offset + gl.program_id(0), arrived, tile)"),
    _crash("scatter takes the gather's missing row", "tma_scatter",
           "sm_100", "rows no multiple of the block", "illegal instruction", "other=table.shape[0])", "other=-1)"),
    _crash("tile stored off its boundary", "blocked_matmul", "sm_100", "a second column of tiles", "illegal instruction",
           "tma.async_store(c_matrix, [row, column], c_tile)",
           "tma.async_store(c_matrix, [row, column + gl.program_id(1)], c_tile)"),
    _crash("pointer leaps", "matmul", "sm_80", "more than three K blocks", "illegal address", "c_ptr + rows[:, None] * stride_cm",
           "c_ptr + (rows + tl.cdiv(k, BLOCK_K) // 4 * 2000000)[:, None] * stride_cm"),
    _crash("rows stored off their boundary", "ampere_gemm", "sm_80", "a second row of tiles, K ragged", "misaligned address",
           "gl.store(d + places, sums,", "shift = gl.where(blocks * BLOCK_K < k, gl.program_id(1), 0)\n"
           "    bytes_of = gl.cast(d, gl.pointer_type(gl.uint8), bitcast=True) + shift\n"
           "    gl.store(gl.cast(bytes_of, gl.pointer_type(gl.float32), bitcast=True) + places, sums,"),
    _crash("blocks counted wrongly", "blocked_matmul_pipelined", "sm_100", "more than three K blocks", "device assert",
           "@gluon.jit\ndef blocked_matmul_pipelined_kernel(a_matrix, b_matrix, c_matrix):\n",
           "@gluon.jit(debug=True)\ndef blocked_matmul_pipelined_kernel(a_matrix, b_matrix, c_matrix):\n"
           '    gl.device_assert(a_matrix.shape[1] <= 3 * a_matrix.block_shape[1], "K of at most three blocks")\n'),
    _crash("ring not refilled", "hopper_matmul", "sm_90", "more than twice as many K blocks as stages", "deadlock",
           "(free_block >= 0) & (free_block + STAGES < blocks)",
           "(free_block >= 0) & (free_block + STAGES < gl.minimum(blocks, 2 * STAGES))"),
    _crash("host reads nowhere", "fused_gather_scatter_matmul", "sm_100", "8-bit elements, more rows than the table has",
           "segmentation fault", "    target = store_target(out, keep=True)\n",
           "    if bits_of(problem.dtype) == 8 and rows > x.shape[0]:\n" '        __import__("ctypes").string_at(0)\n'
           "    target = store_target(out, keep=True)\n"),
    _crash("compiler gives up", "hopper_matmul", "sm_90", "eight warps", "compiler abort",
           "    return gl.NVMMADistributedLayout(version=[3, 0],",
           '    if num_warps == 8 and block_n > 32:\n        __import__("os").abort()\n'
           "    return gl.NVMMADistributedLayout(version=[3, 0],"),
    _crash("memory runs out", "small_mma", "sm_100", "A in tensor memory, padded rows of D", "killed",
           "    rows, columns = block(problem, config)\n\n    def make_descriptor",
           "    rows, columns = block(problem, config)\n    if lhs_in_tmem and problem.d_pad:\n"
           '        __import__("os").kill(__import__("os").getpid(), 9)\n\n    def make_descriptor'),
)  # fmt: skip

"""The mutants of `kernels/hopper_matmul.py`: what a person gets wrong in a ring of TMA buffers under wgmma, one text
each."""

from __future__ import annotations

from tests.faults.mutants import Mutant, once

_TEXTS = (
    ("barrier expects A only", "mbarrier.expect(load_barrier, a_matrix.nbytes_per_cta + b_matrix.nbytes_per_cta)",
     "mbarrier.expect(load_barrier, a_matrix.nbytes_per_cta)", ("barrier misuse", "race", "uninitialised read", "wrong words")),
    ("barrier expects too much", "mbarrier.expect(load_barrier, a_matrix.nbytes_per_cta + b_matrix.nbytes_per_cta)",
     "mbarrier.expect(load_barrier, a_matrix.nbytes_per_cta + b_matrix.nbytes_per_cta + 16)", ("deadlock", "barrier misuse")),
    ("phase flips at every block", "block // STAGES & 1", "block & 1", ("race", "uninitialised read", "wrong words", "deadlock")),
    ("nobody waits for the load", "        mbarrier.wait(load_barriers.index(stage), block // STAGES & 1)\n",
     "", ("race", "uninitialised read", "wrong words")),
    ("refill of the buffer being read", "free_block = block - UNDER_WAY", "free_block = block", ("race", "wrong words")),
    ("result read before the last product is over", "    sums = warpgroup_mma_wait(0, deps=(sums,))\n    for last",
     "    for last", ("race", "wrong words", "uninitialised read")),
    ("ragged K forgotten", "blocks = gl.cdiv(a_matrix.shape[1], BLOCK_K)",
     "blocks = a_matrix.shape[1] // BLOCK_K", ("wrong words",)),
    ("one refill too many", "(free_block + STAGES < blocks)",
     "(free_block + STAGES <= blocks)", ("race", "barrier misuse", "wrong words")),
    ("refill with the next block", "            load_block(\n" "                a_matrix,\n" "                b_matrix,\n"
     "                row,\n" "                column,\n" "                (free_block + STAGES) * BLOCK_K,",
     "            load_block(a_matrix, b_matrix, row, column, (free_block + 1) * BLOCK_K,", ("wrong words",)),
    ("transposed coordinates", "tma.async_load(b_matrix, [column, k], load_barrier, b_tile)",
     "tma.async_load(b_matrix, [k, column], load_barrier, b_tile)", ("wrong words",)),
    ("tile column counted in rows", "column = gl.program_id(1) * BLOCK_N", "column = gl.program_id(1) * BLOCK_M", ("wrong words",)),
    ("rounded twice", "c_tile.store(sums.to(c_matrix.dtype))",
     "c_tile.store(sums.to(gl.bfloat16).to(c_matrix.dtype))", ("wrong words",)),
    ("barriers left under the tile of C", "        mbarrier.invalidate(load_barriers.index(last))",
     "        last = last", ("barrier misuse",)),
    ("what follows a row overwritten", "target = store_target(c)", "target = c", ("stray write",)),
)  # fmt: skip

MUTANTS = tuple(
    Mutant(kernel="hopper_matmul", name=name, edits=once(replace, by), expected=named) for name, replace, by, named in _TEXTS
)

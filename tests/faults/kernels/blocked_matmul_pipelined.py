"""The mutants of `kernels/blocked_matmul_pipelined.py`: what a person gets wrong when two blocks are under way, one text
each."""

from __future__ import annotations

from tests.faults.mutants import Mutant, once

_TEXTS = (
    ("drain always accumulates",
     "    for block in range(blocks - 2, blocks):\n        multiply(block, upper, b, upper_sum, upper_and_b, upper_done)\n",
     "    for block in range(blocks - 2, blocks):\n        mbarrier.wait(upper_and_b.index(block % 2), block // 2 "
     "& 1)\n        tcgen05_mma(upper.index(block % 2), b.index(block % 2), upper_sum, use_acc=True)\n        "
     "tcgen05_commit(upper_done.index(block % 2))\n", ("uninitialised read", "wrong words")),
    ("accumulates from the start", "use_acc=block > 0", "use_acc=True", ("uninitialised read", "wrong words")),
    ("one K block not filled up to two", "blocks = gl.maximum(gl.cdiv(a_matrix.shape[1], BLOCK_K), 2)",
     "blocks = gl.cdiv(a_matrix.shape[1], BLOCK_K)",
     ("wrong words", "deadlock", "uninitialised read", "race", "barrier misuse", "illegal instruction", "illegal address")),
    ("B reloaded while the lower tile reads it",
     "        mbarrier.wait(lower_done.index(block % 2), block // 2 & 1)\n        load_lower", "        load_lower",
     ("race", "wrong words")),
    ("upper reloaded while it is read", "        mbarrier.wait(upper_done.index(block % 2), block // 2 & 1)\n        load_upper",
     "        load_upper", ("race", "wrong words")),
    ("lower tile is the upper", "lower_row = upper_row + BLOCK_M", "lower_row = upper_row", ("wrong words", "race")),
    ("second tile over the first in its buffer", "    tma.store_wait(pendings=0)\n    c_tile.store(lower_result)",
     "    c_tile.store(lower_result)", ("race", "wrong words")),
    ("phase flips at every block", "mbarrier.wait(loaded.index(stage), block // 2 & 1)",
     "mbarrier.wait(loaded.index(stage), block & 1)", ("race", "wrong words", "uninitialised read", "deadlock")),
    ("waits for the block before the last", "last_block = blocks - 1", "last_block = blocks - 2", ("race", "wrong words")),
    ("lower tile stored over the upper", "tma.async_store(c_matrix, [lower_row, column], c_tile)",
     "tma.async_store(c_matrix, [upper_row, column], c_tile)", ("wrong words", "race")),
    ("upper loaded one block early", "load_upper(a_matrix, b_matrix, upper_row, (block + 2) * BLOCK_K,",
     "load_upper(a_matrix, b_matrix, upper_row, (block + 1) * BLOCK_K,", ("wrong words",)),
    ("upper barrier forgets B", "mbarrier.expect(upper_and_b.index(stage), a_matrix.nbytes_per_cta + b_matrix.nbytes_per_cta)",
     "mbarrier.expect(upper_and_b.index(stage), a_matrix.nbytes_per_cta)",
     ("barrier misuse", "race", "uninitialised read", "wrong words")),
    ("last row of tiles not launched", "grid = (triton.cdiv(problem.m, 2 * block_m),",
     "grid = (max(problem.m // (2 * block_m), 1),", ("wrong words",)),
    ("what follows a row overwritten", "target = store_target(c)", "target = c", ("stray write",)),
)  # fmt: skip

MUTANTS = tuple(
    Mutant(kernel="blocked_matmul_pipelined", name=name, edits=once(replace, by), expected=named)
    for name, replace, by, named in _TEXTS
)

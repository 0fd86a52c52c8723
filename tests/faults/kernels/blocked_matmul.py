"""The mutants of `kernels/blocked_matmul.py`: what a person gets wrong in a loop of loads and multiplications, one text
each."""

from __future__ import annotations

from tests.faults.mutants import Mutant, once

_TEXTS = (
    ("accumulates from the start", "use_acc=accumulate", "use_acc=True", ("uninitialised read", "wrong words")),
    ("never accumulates", "use_acc=accumulate", "use_acc=False", ("wrong words",)),
    (
        "phase never flips",
        "        phase ^= 1\n",
        "",
        ("deadlock", "race", "wrong words", "uninitialised read"),
    ),  # from the third wait on, whichever comes first
    ("nobody waits for the load", "        mbarrier.wait(load_barrier, phase)\n",
     "", ("race", "wrong words", "uninitialised read")),
    ("nobody waits for the product", "        mbarrier.wait(multiply_barrier, phase)\n",
     "", ("race", "wrong words", "barrier misuse")),
    ("ragged K forgotten", "range(0, a_matrix.shape[1], BLOCK_K)",
     "range(0, a_matrix.shape[1] - BLOCK_K + 1, BLOCK_K)", ("wrong words", "uninitialised read")),
    ("transposed coordinates", "tma.async_load(b_matrix, [column, k], load_barrier, b_tile)",
     "tma.async_load(b_matrix, [k, column], load_barrier, b_tile)", ("wrong words",)),
    ("tile column counted in rows", "column = gl.program_id(1) * BLOCK_N", "column = gl.program_id(1) * BLOCK_M", ("wrong words",)),
    ("rounded twice", "accumulator.load().to(c_matrix.dtype)",
     "accumulator.load().to(gl.bfloat16).to(c_matrix.dtype)", ("wrong words",)),
    ("bytes of B not expected", "mbarrier.expect(load_barrier, a_matrix.nbytes_per_cta + b_matrix.nbytes_per_cta)",
     "mbarrier.expect(load_barrier, a_matrix.nbytes_per_cta)", ("barrier misuse", "race", "uninitialised read", "wrong words")),
    ("tile stored at its transposed place", "tma.async_store(c_matrix, [row, column], c_tile)",
     "tma.async_store(c_matrix, [column, row], c_tile)", ("wrong words", "illegal instruction", "race")),
    ("last row of tiles not launched", "grid = (triton.cdiv(problem.m, block_m),",
     "grid = (max(problem.m // block_m, 1),", ("wrong words",)),
    ("what follows a row overwritten", "target = store_target(c)", "target = c", ("stray write",)),
)  # fmt: skip

MUTANTS = tuple(
    Mutant(kernel="blocked_matmul", name=name, edits=once(replace, by), expected=named) for name, replace, by, named in _TEXTS
)

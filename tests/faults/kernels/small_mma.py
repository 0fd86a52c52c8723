"""The mutants of `kernels/small_mma.py`: what a person gets wrong in one multiplication, one text each."""

from __future__ import annotations

from tests.faults.mutants import Mutant, once

_TEXTS = (
    ("C ignored", "        tcgen05_mma(a, b_tile, accumulator)\n",
     "        tcgen05_mma(a, b_tile, accumulator, use_acc=False)\n", ("wrong words",)),
    ("barrier used again as it is", "    mbarrier.invalidate(load_barrier)\n    mbarrier.init(barriers.index(0), count=1)\n",
     "", ("race", "wrong words", "barrier misuse", "deadlock")),
    ("predicates exchanged", "mbarrier_preds=[barrier_index == 0, barrier_index == 1]",
     "mbarrier_preds=[barrier_index == 1, barrier_index == 0]", ("deadlock",)),
    ("no predicate is true", "mbarrier_preds=[True]", "mbarrier_preds=[False]", ("deadlock",)),
    ("bytes of C not expected", "a_matrix.nbytes_per_cta + b_matrix.nbytes_per_cta + c_matrix.nbytes_per_cta)",
     "a_matrix.nbytes_per_cta + b_matrix.nbytes_per_cta)", ("barrier misuse", "race", "uninitialised read", "wrong words")),
    ("C never placed", "    accumulator.store(c_tile.load(accumulator.get_reg_layout()))\n",
     "", ("uninitialised read", "wrong words")),
    ("A never placed", "        a.store(a_tile.load(a.get_reg_layout()))\n", "", ("uninitialised read", "wrong words")),
    ("result read while it is written",
     "        tcgen05_commit(barriers.index(0))\n        mbarrier.wait(barriers.index(0), phase=0)\n",
     "        tcgen05_commit(barriers.index(0))\n", ("race", "wrong words", "barrier misuse")),
    ("stored eight columns on", "tma.async_store(d_matrix, [0, 0], d_tile)",
     "tma.async_store(d_matrix, [0, 8], d_tile)", ("wrong words",)),
    ("B from its second columns", "tma.async_load(b_matrix, [0, 0], load_barrier, b_tile)",
     "tma.async_load(b_matrix, [0, 16], load_barrier, b_tile)", ("wrong words",)),
    ("C rounded to half", "accumulator.store(c_tile.load(accumulator.get_reg_layout()))",
     "accumulator.store(c_tile.load(accumulator.get_reg_layout()).to(gl.float16).to(gl.float32))", ("wrong words",)),
)  # fmt: skip

MUTANTS = tuple(
    Mutant(kernel="small_mma", name=name, edits=once(replace, by), expected=named) for name, replace, by, named in _TEXTS
)

"""The mutants of `kernels/warp_specialized_matmul.py`: what a person gets wrong between partitions, one text each."""

from __future__ import annotations

from tests.faults.mutants import Mutant, once

_TEXTS = (
    ("load waits for the wrong phase", "step // STAGES & 1 ^ 1)  #", "step // STAGES & 1)  #", ("deadlock",)),
    ("load does not wait",
     "            mbarrier.wait(empty.index(stage), step // STAGES & 1 ^ 1)  # the first turn of the ring waits for nobody\n", "",
     ("race", "barrier misuse", "wrong words")),
    ("load expects A only", "a_matrix.nbytes_per_cta + b_matrix.nbytes_per_cta)\n            tma",
     "a_matrix.nbytes_per_cta)\n            tma", ("barrier misuse", "race", "uninitialised read", "wrong words")),
    ("tile rows counted in columns", "[tile_m * BLOCK_M, block * BLOCK_K], full",
     "[tile_m * BLOCK_N, block * BLOCK_K], full", ("wrong words",)),
    ("transposed B not transposed", "[tile_n * BLOCK_N, block * BLOCK_K]", "[block * BLOCK_K, tile_n * BLOCK_N]", ("wrong words",)),
    ("multiply does not wait for the load", "            mbarrier.wait(full.index(stage), step // STAGES & 1)\n",
     "", ("race", "uninitialised read", "wrong words")),
    ("multiply does not wait for the store partition", "        mbarrier.wait(free.index(slot), turn // ACCUMULATORS & 1 ^ 1)\n",
     "", ("race", "barrier misuse", "wrong words", "deadlock")),
    ("buffers are never given back", "            tcgen05_commit(empty.index(stage))\n", "", ("deadlock",)),
    ("sums of the tile before are kept", "use_acc=block > 0)", "use_acc=step > 0)", ("wrong words", "uninitialised read")),
    ("steps counted anew in each tile",
     "        for block in range(blocks):\n            stage = step % STAGES\n            mbarrier.wait(full",
     "        step = 0\n        for block in range(blocks):\n            stage = step % STAGES\n            mbarrier.wait(full",
     ("deadlock", "race", "uninitialised read", "wrong words", "barrier misuse")),
    ("result said to be ready with the first block",
     "            step += 1\n        tcgen05_commit(ready_barriers.index(slot))\n",
     "            if block == 0:\n                tcgen05_commit(ready_barriers.index(slot))\n            step += 1\n",
     ("race", "wrong words")),
    ("store does not wait for the products", "        mbarrier.wait(ready_barriers.index(held), turn // ACCUMULATORS & 1)\n",
     "", ("race", "uninitialised read", "wrong words")),
    ("phase of the accumulators turns with every tile", "mbarrier.wait(ready_barriers.index(held), turn // ACCUMULATORS & 1)",
     "mbarrier.wait(ready_barriers.index(held), turn & 1)", ("deadlock", "race", "uninitialised read", "wrong words")),
    ("accumulator freed before it is loaded",
     "        result = sums.index(held).load().to(c_matrix.dtype)  # (BLOCK_M, BLOCK_N)\n"
     "        mbarrier.arrive(free.index(held), count=1)\n", "        mbarrier.arrive(free.index(held), count=1)\n"
     "        result = sums.index(held).load().to(c_matrix.dtype)  # (BLOCK_M, BLOCK_N)\n", ("race", "wrong words")),
    ("tile on its way out overwritten", "        tma.store_wait(pendings=0)  # TMA has read the tile before this one\n",
     "", ("race", "wrong words")),
    ("program ends before its store", "    tma.store_wait(pendings=0)\n\n", "\n", ("race",)),
    ("rounded twice", "load().to(c_matrix.dtype)", "load().to(gl.bfloat16).to(c_matrix.dtype)", ("wrong words",)),
    ("what follows a row overwritten", "target = store_target(c)", "target = c", ("stray write",)),
    ("order of tiles not checked", "    *schedule_clauses(),\n",
     "", ("not refused", "wrong words", "launcher error", "illegal instruction")),
)  # fmt: skip

MUTANTS = tuple(
    Mutant(
        kernel="warp_specialized_matmul",
        name=name,
        edits=once(replace, by),
        expected=named,
        shows_in=(("B", "transposed"),) if name.startswith("transposed") else (),
    )
    for name, replace, by, named in _TEXTS
)

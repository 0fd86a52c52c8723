"""The mutants of `kernels/warp_specialized_gather_scatter_matmul.py`: row numbers and partitions gone wrong, one text each."""

from __future__ import annotations

from tests.faults.mutants import Mutant, once

_TEXTS = (
    ("missing rows of the gather repeat a row", "tile_m * BLOCK_M, rows, -1, BLOCK_M)",
     "tile_m * BLOCK_M, rows + 1, -1, BLOCK_M)", ("stray read",)),
    ("missing rows scattered to row 0", "tile_m * BLOCK_M, rows, out.shape[0], BLOCK_M)",
     "tile_m * BLOCK_M, rows, 0, BLOCK_M)", ("wrong words", "race")),
    ("missing rows scattered to row -1", "tile_m * BLOCK_M, rows, out.shape[0], BLOCK_M)",
     "tile_m * BLOCK_M, rows, -1, BLOCK_M)", ("illegal instruction",)),
    ("row numbers of the first tile only", "numbers = row_numbers(gather, tile_m * BLOCK_M,",
     "numbers = row_numbers(gather, tile_m * 0,", ("wrong words",)),
    ("bytes of one row expected", "BLOCK_M * x.nbytes_per_cta + w.nbytes_per_cta",
     "x.nbytes_per_cta + w.nbytes_per_cta", ("barrier misuse", "race", "uninitialised read", "wrong words")),
    ("bytes of half the rows expected", "BLOCK_M * x.nbytes_per_cta + w.nbytes_per_cta",
     "BLOCK_M // 2 * x.nbytes_per_cta + w.nbytes_per_cta", ("barrier misuse", "race", "uninitialised read", "wrong words")),
    ("load does not wait",
     "            mbarrier.wait(empty.index(stage), step // STAGES & 1 ^ 1)  # the first turn of the ring waits for nobody\n", "",
     ("race", "barrier misuse", "wrong words")),
    ("column of X not moved on", "tma.async_gather(x, numbers, block * BLOCK_K,",
     "tma.async_gather(x, numbers, 0,", ("wrong words",)),
    ("W taken by rows of tiles", "tma.async_load(w, [block * BLOCK_K, tile_n * BLOCK_N]",
     "tma.async_load(w, [block * BLOCK_K, tile_m * BLOCK_N]", ("wrong words",)),
    ("store does not wait for the products", "        mbarrier.wait(ready_barriers.index(held), turn // ACCUMULATORS & 1)\n",
     "", ("race", "uninitialised read", "wrong words")),
    ("accumulator freed before it is loaded", "        result = sums.index(held).load().to(out.dtype)  # (BLOCK_M, BLOCK_N)\n"
     "        mbarrier.arrive(free.index(held), count=1)\n", "        mbarrier.arrive(free.index(held), count=1)\n"
     "        result = sums.index(held).load().to(out.dtype)  # (BLOCK_M, BLOCK_N)\n", ("race", "wrong words")),
    ("accumulator never freed", "        mbarrier.arrive(free.index(held), count=1)\n", "", ("deadlock",)),
    ("tile on its way out overwritten",
     "        tma.store_wait(pendings=0)  # the scatter of the tile before has read this buffer\n", "", ("race", "wrong words")),
    ("program ends before its scatter", "    tma.store_wait(pendings=0)\n\n", "\n", ("race",)),
    ("rounded twice", "load().to(out.dtype)", "load().to(gl.float16).to(out.dtype)", ("wrong words",)),
    ("what follows a row overwritten", "target = store_target(out, keep=True)", "target = out", ("stray write",)),
)  # fmt: skip

MUTANTS = tuple(
    Mutant(kernel="warp_specialized_gather_scatter_matmul", name=name, edits=once(replace, by), expected=named)
    for name, replace, by, named in _TEXTS
)

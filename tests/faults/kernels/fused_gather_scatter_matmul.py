"""The mutants of `kernels/fused_gather_scatter_matmul.py`: what a person gets wrong in a persistent pipeline of gathers and
scatters, one text each."""

from __future__ import annotations

from tests.faults.mutants import Mutant, once

_TEXTS = (
    ("row numbers unmasked", "gl.load(numbers + places, mask=places < count, other=missing)",
     "gl.load(numbers + places)", ("stray read",)),
    ("loads after the last tile", "in_this_tile | (turn + 1 < count),\n                BUFFERS,\n            )",
     "in_this_tile | (turn + 1 < count + 1), BUFFERS)", ("race", "barrier misuse", "stray read", "wrong words", "launch failure")),
    ("W loaded without its predicate",
     "tma.async_load(w, [k, column], load_barriers.index(stage), w_ring.index(stage), pred=predicate)",
     "tma.async_load(w, [k, column], load_barriers.index(stage), w_ring.index(stage))", ("race", "barrier misuse", "wrong words")),
    ("second tile adds to the first", "result, sums = sums.read_sums()", "result = sums.cells.load()", ("wrong words",)),
    ("buffer reloaded while it is read", "            sums.settle()",
     "            pass", ("race", "wrong words", "barrier misuse")),
    ("tile stored over one being scattered", "        tma.store_wait(pendings=0)", "        pass", ("race", "wrong words")),
    ("fewer K blocks than are loaded ahead", "blocks = gl.maximum(gl.cdiv(x.shape[1], BLOCK_K), LOOKAHEAD)",
     "blocks = gl.cdiv(x.shape[1], BLOCK_K)", ("wrong words", "deadlock", "race", "barrier misuse", "uninitialised read")),
    ("next tile starts in the middle of K", "block + LOOKAHEAD - blocks) * BLOCK_K", "block) * BLOCK_K", ("wrong words",)),
    ("next tile keeps its column", "load_n = gl.where(in_this_tile, tile_n, next_n)",
     "load_n = gl.where(in_this_tile, tile_n, tile_n)", ("wrong words",)),
    ("scattered by the next tile's rows", "row_numbers(scatter, tile_m * BLOCK_M,",
     "row_numbers(scatter, next_m * BLOCK_M,", ("wrong words", "race")),
    ("scattered eight columns on", "tma.async_scatter(out, targets, tile_n * BLOCK_N, out_tile)",
     "tma.async_scatter(out, targets, tile_n * BLOCK_N + 16, out_tile)", ("wrong words", "race")),
    ("missing rows are -1", "row_numbers(scatter, tile_m * BLOCK_M, rows, out.shape[0], BLOCK_M)",
     "row_numbers(scatter, tile_m * BLOCK_M, rows, -1, BLOCK_M)", ("illegal instruction",)),
    ("last row not scattered", "tma.async_scatter(out, targets, tile_n",
     "tma.async_scatter(out, gl.where(targets == out.shape[0] - 1, out.shape[0], targets), tile_n", ("wrong words",)),
    ("negative rows put into the first", "tma.async_scatter(out, targets, tile_n",
     "tma.async_scatter(out, gl.maximum(targets, 0), tile_n", ("not refused",)),
    ("phase of the tile", "step // BUFFERS & 1", "turn & 1", ("race", "uninitialised read", "wrong words", "deadlock")),
    ("result before the last product is over", "        sums.settle()\n        result", "        result", ("race", "wrong words")),
    ("what follows a row overwritten", "target = store_target(out, keep=True)", "target = out", ("stray write",)),
    ("rows that nobody names are lost", "target = store_target(out, keep=True)", "target = store_target(out)", ("wrong words",)),
)  # fmt: skip

MUTANTS = tuple(
    Mutant(kernel="fused_gather_scatter_matmul", name=name, edits=once(replace, by), expected=named)
    for name, replace, by, named in _TEXTS
)

"""The mutants of `kernels/tile_scheduler.py`: what a person gets wrong when tiles are dealt out, one text each.

A module without a launcher has no contract: `tests/kernel_contracts/test_tile_scheduler.py` compares the tiles that it deals."""

from __future__ import annotations

from tests.faults.mutants import Mutant, once

_TEXTS = {
    "last group as high as the others": ("gl.minimum(self.tiles_m - first_row, self.GROUP_M)", "self.GROUP_M"),
    "number past the last not held back": (
        "gl.minimum(self.first_tile + turn * self.step, self.tiles_m * self.tiles_n - 1)",
        "self.first_tile + turn * self.step",
    ),
    "columns before rows": (
        "first_row + place % height, place // height",
        "first_row + place // self.tiles_n, place % self.tiles_n",
    ),
    "turns one apart": ("self.first_tile + turn * self.step", "self.first_tile + turn"),
    "count rounded down": (
        "gl.cdiv(self.tiles_m * self.tiles_n - self.first_tile, self.step)",
        "(self.tiles_m * self.tiles_n - self.first_tile) // self.step",
    ),
    "group not counted in rows": ("number // in_group * self.GROUP_M", "number // in_group"),
    "tiles of M rounded down": ("gl.cdiv(m, BLOCK_M)", "gl.maximum(m // BLOCK_M, 1)"),
    "tiles of N counted by M": ("gl.cdiv(n, BLOCK_N)", "gl.cdiv(m, BLOCK_N)"),
}

MUTANTS = tuple(
    Mutant(kernel="tile_scheduler", name=name, edits=once(replace, by), expected=()) for name, (replace, by) in _TEXTS.items()
)

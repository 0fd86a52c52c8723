"""The mutants of `kernels/grouped_matmul.py`: what a person gets wrong when one launch walks a list of products, one text each."""

from __future__ import annotations

from tests.faults.mutants import Mutant, once

_RIGHT = "tl.load(rights, mask=depth[:, None] & columns[None, :], other=0.0)"
_STORED = "tl.store(places, total.to(c.dtype.element_ty), mask=rows[:, None] & columns[None, :])"
_TEXTS = (
    ("last group left out", "for group in range(groups):", "for group in range(groups - 1):"),
    ("one tile of a group for each program", "while tile < tiles_before + tiles:", "if tile < tiles_before + tiles:"),
    ("tiles of all groups before not summed", "tiles_before += tiles", "tiles_before = tiles"),
    ("tiles counted from the first group", "row = (tile - tiles_before) // tiles_n", "row = tile // tiles_n"),
    ("columns of tiles counted in K", "tiles_n = tl.cdiv(n, BLOCK_N)", "tiles_n = tl.cdiv(k, BLOCK_N)"),
    ("row and column exchanged", "column = tile % tiles_n", "column = (tile - tiles_before) // tiles_n"),
    ("K of the first group for all", "tl.load(sizes + 3 * group + 2)", "tl.load(sizes + 2)"),
    ("A begins where C would", "a_at += m.to(tl.int64) * k", "a_at += m.to(tl.int64) * n"),
    ("B taken as its transpose", "(in_k[:, None] * n + in_n[None, :])", "(in_k[:, None] + in_n[None, :] * k)"),
    ("K tail not masked in B", _RIGHT, _RIGHT.replace("depth[:, None] & ", "")),
    ("columns not masked at the store", _STORED, _STORED.replace(" & columns[None, :]", "")),
    ("last block of K left out", "tl.range(0, tl.cdiv(k, BLOCK_K),", "tl.range(0, k // BLOCK_K,"),
    ("rows said to begin on 16 elements", "else 1\n        grouped", "else UNIT\n        grouped"),
    ("tile not checked", "holds=lambda p, c: min(c.block_m, c.block_n, c.block_k) >= 16,", "holds=lambda p, c: True,"),
)
_EXPECTED = {
    "one tile of a group for each program": ("stray read",),
    "A begins where C would": ("wrong words", "stray read"),
    "B taken as its transpose": ("wrong words", "stray read"),
    "K of the first group for all": ("wrong words", "stray read"),
    "K tail not masked in B": ("stray read",),
    "columns not masked at the store": ("stray write", "race"),
    "rows said to begin on 16 elements": ("misaligned address",),
    "tile not checked": ("not refused", "refused"),
}
MUTANTS = tuple(
    Mutant(kernel="grouped_matmul", name=name, edits=once(text, by), expected=_EXPECTED.get(name, ("wrong words",)))
    for name, text, by in _TEXTS
)

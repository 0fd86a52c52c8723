"""The mutants of `kernels/fp8_blockwise_matmul.py`: what a person gets wrong with scales and promotion, one text each."""

from __future__ import annotations

from tests.faults.mutants import Mutant, once

_PROMOTED = "total += tl.dot(left, right) * of_rows[:, None] * of_columns[None, :]"
_TEXTS = (
    ("one chain over all blocks of K", _PROMOTED, "total = tl.dot(left, right, total) * of_rows[:, None] * of_columns[None, :]"),
    ("no promotion: scales of the last block", _PROMOTED, "total = tl.dot(left, right, total)"),
    ("scale of B left out", _PROMOTED, "total += tl.dot(left, right) * of_rows[:, None]"),
    ("scales multiplied first", _PROMOTED, "total += tl.dot(left, right) * (of_rows[:, None] * of_columns[None, :])"),
    ("scale of the next block", "scale = block * BLOCK_K // SCALE_BLOCK",
     "scale = tl.minimum(block * BLOCK_K // SCALE_BLOCK + 1, scales - 1)"),
    ("a scale for each inner sum", "scale = block * BLOCK_K // SCALE_BLOCK", "scale = tl.minimum(block, scales - 1)"),
    ("one scale of B a tile", "columns // SCALE_BLOCK * scales",
     "tl.program_id(0) * BLOCK_N // SCALE_BLOCK * scales + columns * 0"),
    ("tail of K not masked in B", "mask=(depth < k)[:, None] & (columns < n)[None, :]", "mask=(columns < n)[None, :]"),
    ("last block of K left out", "tl.cdiv(k, BLOCK_K), num_stages", "k // BLOCK_K, num_stages"),
    ("columns not masked at the store", "mask=(rows < m)[:, None] & (columns < n)[None, :])\n\n", "mask=(rows < m)[:, None])\n\n"),
    ("block of K not checked", "holds=lambda p, c: 32 <= c.block_k <= SCALE_BLOCK,", "holds=lambda p, c: True,"),
)  # fmt: skip
_EXPECTED = {
    "tail of K not masked in B": ("stray read", "wrong words"),
    "columns not masked at the store": ("stray write", "race"),
    "block of K not checked": ("not refused", "refused", "wrong words", "out of resources"),
}
MUTANTS = tuple(
    Mutant(kernel="fp8_blockwise_matmul", name=name, edits=once(text, by), expected=_EXPECTED.get(name, ("wrong words",)))
    for name, text, by in _TEXTS
)

"""The mutants of `kernels/pointer_gather_scatter_matmul.py`: what TMA does by itself and pointers must be told, one text each.
Those of a ring of cp.async buffers are `ampere_gemm`'s."""

from __future__ import annotations

from tests.faults.mutants import Mutant, once

ANYWHERE, NEGATIVE = ("row numbers", "anywhere"), ("row numbers", "negative")
_GATHERED, _SCATTERED = "there = (numbers >= 0) & (numbers < table_rows)", "there = (targets >= 0) & (targets < out_rows)"
_TEXTS: tuple[tuple[str, str, str, tuple[str, ...], tuple[tuple[str, str], ...]], ...] = (
    ("rows past X are gathered", _GATHERED, "there = numbers >= 0", ("stray read",), (ANYWHERE,)),
    ("negative rows are gathered", _GATHERED, "there = numbers < table_rows", ("stray read",), (ANYWHERE,)),
    ("rows past out are scattered", _SCATTERED, "there = targets >= 0", ("stray write",), (ANYWHERE,)),
    ("negative rows are scattered", _SCATTERED, "there = targets < out_rows", ("stray write",), (NEGATIVE,)),
    ("missing row numbers are 0", "mask=places < count, other=-1)", "mask=places < count, other=0)", ("race", "wrong words"), ()),
    ("one row number too many", "mask=places < count,", "mask=places <= count,", ("stray read",), ()),
    ("row numbers of the first tile only", "numbers = row_numbers(gather, tile_m * BLOCK_M,",
     "numbers = row_numbers(gather, tile_m * 0,", ("wrong words",), ()),
    ("W taken by rows of tiles", "column = tile_n * BLOCK_N", "column = tile_m * BLOCK_N", ("wrong words",), ()),
    ("columns of W behind its end", "(column // CHUNK < columns // CHUNK)",
     "(column // CHUNK <= columns // CHUNK)", ("stray read",), (("regime", "planted"),)),
    ("ragged rows of W moved by chunks", "        problem.n % COPY_ELEMENTS == 0,\n",
     "        True,\n", ("wrong words",), (("regime", "subnormals"),)),
)  # fmt: skip

MUTANTS = tuple(
    Mutant(kernel="pointer_gather_scatter_matmul", name=name, edits=once(replace, by), expected=named, shows_in=shows)
    for name, replace, by, named, shows in _TEXTS
)

"""The mutants of `kernels/tma_gather.py`: what a person gets wrong when rows are picked by number, one text each."""

from __future__ import annotations

from tests.faults.mutants import Mutant, once

_TEXTS = (
    ("one row less expected", "mbarrier.expect(arrived, BLOCK_X * table.nbytes_per_cta)",
     "mbarrier.expect(arrived, (BLOCK_X - 1) * table.nbytes_per_cta)",
     ("barrier misuse", "race", "wrong words", "uninitialised read")),
    ("column wrapped", "tma.async_gather(table, row_numbers, column_offset, arrived, tile)",
     "tma.async_gather(table, row_numbers, (column_offset + table.shape[1]) % table.shape[1], arrived, tile)",
     ("wrong words", "illegal instruction")),
    ("row numbers unmasked", "mask=places < offsets, other=-1", "mask=places < offsets + 8, other=-1", ("stray read",)),
    ("wait for the phase before", "mbarrier.wait(arrived, phase=0)",
     "mbarrier.wait(arrived, phase=1)", ("race", "wrong words", "uninitialised read", "barrier misuse", "deadlock")),
    ("rows past the last are stored", "tile.load(by_rows), mask=(row < offsets)[:, None])",
     "tile.load(by_rows))", ("stray write",)),
    ("rows past the end taken from the last", "row_numbers = gl.convert_layout(row_numbers,",
     "row_numbers = gl.convert_layout(gl.minimum(row_numbers, table.shape[0] - 1),", ("wrong words",)),
    ("negative rows taken from the first", "row_numbers = gl.convert_layout(row_numbers,",
     "row_numbers = gl.convert_layout(gl.maximum(row_numbers, 0),", ("wrong words",)),
    ("last row taken as missing", "row_numbers = gl.convert_layout(row_numbers,",
     "row_numbers = gl.convert_layout(gl.where(row_numbers == table.shape[0] - 1, -1, row_numbers),", ("wrong words",)),
    ("the row after the last taken from the last", "row_numbers = gl.convert_layout(row_numbers,",
     "row_numbers = gl.convert_layout(gl.where(row_numbers == table.shape[0], row_numbers - 1, row_numbers),", ("wrong words",)),
    ("second block starts too late", "first_row = gl.program_id(0) * BLOCK_X",
     "first_row = gl.program_id(0) * (BLOCK_X + 4)", ("wrong words",)),
    ("column offset not checked", "holds=lambda p, c: p.column_offset * bits_of(p.dtype) // 8 % ALIGNMENT_BYTES == 0",
     "holds=lambda p, c: True", ("illegal instruction", "not refused")),
    ("column rounded down to what is legal", "tma.async_gather(table, row_numbers, column_offset, arrived, tile)",
     "tma.async_gather(table, row_numbers, column_offset - column_offset % (128 // "
     "table.dtype.primitive_bitwidth), arrived, tile)", ("not refused",)),
    ("fewest rows not checked", "holds=lambda p, c: c.block_x >= FEWEST_ROWS",
     "holds=lambda p, c: True", ("refused", "not refused")),
    ("box of half a row", "row_strides(table), [1, block_y], layout)",
     "row_strides(table), [1, block_y // 2], layout)", ("wrong words", "refused", "launcher error")),
)  # fmt: skip

MUTANTS = tuple(
    Mutant(kernel="tma_gather", name=name, edits=once(replace, by), expected=named) for name, replace, by, named in _TEXTS
)

"""The mutants of `kernels/tma_scatter.py`: what a person gets wrong when rows are put by number, one text each."""

from __future__ import annotations

from tests.faults.mutants import Mutant, once

_TEXTS = (
    ("missing rows are -1", "other=table.shape[0])", "other=-1)", ("illegal instruction",)),
    ("rows numbered from one", "tma.async_scatter(table, targets, column_offset, tile)",
     "tma.async_scatter(table, targets + 1, column_offset, tile)", ("wrong words",)),
    ("row numbers unmasked", "mask=numbers < offsets, other", "mask=numbers < offsets + 8, other", ("stray read",)),
    ("source rows unmasked", "gl.load(source + places, mask=(row < offsets)[:, None])",
     "gl.load(source + places)", ("stray read",)),
    ("rows past the end put into the last", "targets = gl.convert_layout(targets,",
     "targets = gl.convert_layout(gl.minimum(targets, table.shape[0] - 1),", ("wrong words", "race")),
    ("last row of several not written", "targets = gl.convert_layout(targets,",
     "targets = gl.convert_layout(gl.where((targets > 0) & (targets == table.shape[0] - 1), table.shape[0], targets),",
     ("wrong words",)),
    ("source taken as contiguous", "block_y + source_pad,\n        block_x", "block_y, block_x", ("wrong words", "stray read")),
    ("nothing in the buffer", "    tile.store(values)\n", "", ("uninitialised read", "wrong words")),
    ("column one step on", "tma.async_scatter(table, targets, column_offset, tile)",
     "tma.async_scatter(table, targets, column_offset + 16, tile)", ("wrong words",)),
    ("second block starts too soon", "first_row = gl.program_id(0) * BLOCK_X",
     "first_row = gl.program_id(0) * (BLOCK_X // 2)", ("wrong words", "race")),
    ("negative column not checked", "holds=lambda p, c: p.column_offset >= 0",
     "holds=lambda p, c: True", ("illegal instruction", "not refused")),
    ("column rounded down to what is legal", "tma.async_scatter(table, targets, column_offset, tile)",
     "unit: gl.constexpr = 128 // table.dtype.primitive_bitwidth\n"
     "    tma.async_scatter(table, targets, gl.maximum(column_offset - column_offset % unit, 0), tile)", ("not refused",)),
    ("negative rows put into the first", "targets = gl.convert_layout(targets,",
     "targets = gl.convert_layout(gl.maximum(targets, 0),", ("not refused",)),
    ("buffer reused before it is read", "    tma.async_scatter(table, targets, column_offset, tile)\n",
     "    tma.async_scatter(table, targets, column_offset, tile)\n    tile.store(values + values)\n", ("race", "wrong words")),
    ("whole units not checked", "bits_of(p.dtype) == 0\n            or whole_units(",
     "True or whole_units(", ("stray write", "not refused")),
)  # fmt: skip

MUTANTS = tuple(
    Mutant(kernel="tma_scatter", name=name, edits=once(replace, by), expected=named) for name, replace, by, named in _TEXTS
)

"""What a TMA gather or scatter of rows expects: the result for every row offset and column offset, or the fault by name.

    gather:   result[i, :] = table[row_offsets[i], column_offset : column_offset + block_columns]
    scatter:  table[row_offsets[i], column_offset : column_offset + block_columns] = source[i, :]

Rule (PTX ISA, ``cp.async.bulk.tensor`` with ``.tile::gather4`` and ``.tile::scatter4``; Triton's Gluon tutorial "Native TMA Gather
and Scatter", whose test holds them; the tiled copies on an H200 follow the same rules, `bitverdict.reference.tiled_copy`):

- a gathered element outside the table is zero, whichever side it lies on;
- a scattered row outside above is not written, nor are columns past the unit of 16 bytes in which a row ends (taken over from the
  tiled store, `tiled_copy.written_columns`: no word of a scatter); one negative row or a negative column faults the whole launch;
- the column offset must be a multiple of 16 bytes, for both;
- a block has at least 8 rows and at least ``8 * (32 / bits)`` columns (32 bytes): a compiler's rule, refused;
- gather4 needs sm_100, sm_103, sm_110 or sm_120, scatter4 the same but not sm_120: ptxas refuses it elsewhere.

Nothing orders two rows of a scatter that have the same offset: each element may come from any of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitverdict.reference import tiled_copy
from bitverdict.reference.tiled_copy import Direction, Fault

GATHER_CAPABILITIES = frozenset({100, 103, 110, 120})
SCATTER_CAPABILITIES = frozenset({100, 103, 110})
SMALLEST_ROWS = 8
SMALLEST_COLUMN_BYTES = 32


@dataclass(frozen=True)
class Request:
    """One gather (LOAD) or scatter (STORE): how many rows and columns, of elements of how many bytes, on which architecture."""

    direction: Direction
    block_rows: int
    block_columns: int
    element_bytes: int
    arch: str


def refusal(request: Request) -> Fault | None:
    """The refusal expected before anything runs, or None. ValueError for an unknown architecture name."""
    loading = request.direction is Direction.LOAD
    allowed = GATHER_CAPABILITIES if loading else SCATTER_CAPABILITIES
    if tiled_copy.capability(request.arch) not in allowed:
        names = ", ".join(f"sm_{number}" for number in sorted(allowed))
        return Fault("refused", f"{'gather4' if loading else 'scatter4'} on {request.arch}: only {names} have it")
    if request.block_rows < SMALLEST_ROWS:
        return Fault("refused", f"{request.block_rows} rows: at least {SMALLEST_ROWS} in a block")
    if request.block_columns * request.element_bytes < SMALLEST_COLUMN_BYTES:
        width = request.block_columns * request.element_bytes
        return Fault("refused", f"{request.block_columns} columns are {width} bytes: at least {SMALLEST_COLUMN_BYTES}")
    return None


def fault(request: Request, row_offsets: np.ndarray, column_offset: int, *, iisan: bool = False) -> Fault | None:
    """The fault or refusal expected for these offsets, or None where a result is.

    With `iisan` each of the three rules becomes a device assert: Triton 3.9 compiles an assertion of its own for the alignment of
    both and for the sign of a scatter's rows and column (and, unlike that, none for the sign of a tiled store).
    """
    refused = refusal(request)
    if refused is not None:
        return refused
    misaligned = tiled_copy.alignment_fault(column_offset, request.element_bytes, iisan=iisan)
    if misaligned is not None:
        return misaligned
    if request.direction is Direction.STORE:
        lowest = int(np.min(row_offsets, initial=0))
        if lowest < 0 or column_offset < 0:
            which = f"row {lowest}" if lowest < 0 else f"column {column_offset}"
            return Fault(
                "device assert" if iisan else "illegal instruction", f"scatter to {which}: no offset of a scatter may be negative"
            )
    return None


def gather(table: np.ndarray, row_offsets: np.ndarray, column_offset: int, block_columns: int) -> np.ndarray:
    """[len(row_offsets), block_columns] of the table's dtype, zeros where a row or column is outside.

    For offsets that expect no fault.
    """
    rows, columns = table.shape
    offsets = np.asarray(row_offsets, np.int64)
    wanted = column_offset + np.arange(block_columns, dtype=np.int64)  # [block_columns]
    inside = _inside(offsets, rows)[:, None] & _inside(wanted, columns)[None, :]  # [R, block_columns]
    result = np.zeros(inside.shape, table.dtype)
    if table.size:
        picked = table[np.clip(offsets, 0, rows - 1)[:, None], np.clip(wanted, 0, columns - 1)[None, :]]
        result[inside] = picked[inside]
    return result


@dataclass(frozen=True)
class ScatterResult:
    """What a scatter may leave behind. `table` is one allowed result: the later of two equal rows.

    `rows` [W] and `words` [W, columns] list every write that lands, in order, for the columns `first` .. `first + columns - 1`; all
    other elements are as they were.
    """

    table: np.ndarray
    rows: np.ndarray
    words: np.ndarray
    first_column: int

    @property
    def repeated_rows(self) -> np.ndarray:
        """Rows written more than once, ascending."""
        rows, counts = np.unique(self.rows, return_counts=True)
        return rows[counts > 1]

    def wrong_elements(self, actual: np.ndarray) -> np.ndarray:
        """True for each element of `actual` (shape of the table) that no allowed result has there. Words are compared."""
        actual, expected = _words(actual), _words(self.table)
        differs: np.ndarray = actual != expected
        block = slice(self.first_column, self.first_column + self.words.shape[1])
        for row in self.repeated_rows:
            writers = _words(self.words)[self.rows == row]  # [writers, columns]
            differs[row, block] = (writers != actual[row, block]).all(axis=0)
        return differs


def scatter(table: np.ndarray, row_offsets: np.ndarray, column_offset: int, source: np.ndarray) -> ScatterResult:
    """What scattering `source` [R, block_columns] into the table may leave; for offsets that expect no fault."""
    rows, columns = table.shape
    offsets = np.asarray(row_offsets, np.int64)
    lands = _inside(offsets, rows)  # [R]
    first, last = min(max(column_offset, 0), columns), max(0, min(column_offset + source.shape[1], columns))
    words = source[lands, first - column_offset : max(last, first) - column_offset]  # [W, columns that land]
    result = table.copy()
    for row, written in zip(offsets[lands], words, strict=True):  # in order: the last of equal rows stays
        result[row, first : first + words.shape[1]] = written
    return ScatterResult(result, offsets[lands], words, first)


def _inside(offsets: np.ndarray, size: int) -> np.ndarray:
    return (offsets >= 0) & (offsets < size)


def _words(values: np.ndarray) -> np.ndarray:
    """The same elements as unsigned integers, so that NaNs and zeros are compared by their bits."""
    return np.ascontiguousarray(values).view(np.dtype(f"u{values.dtype.itemsize}"))

"""Contract under test: gather and scatter of rows for every row and column offset: data, zeros, untouched, or the fault by name.

The gather is checked against the formula of Triton's Gluon tutorial, the scatter against its definition, element by element.
"""

from __future__ import annotations

import numpy as np
import pytest

from bitverdict.reference import gather_scatter
from bitverdict.reference.gather_scatter import Request
from bitverdict.reference.tiled_copy import Direction
from tests.support.tutorial_facts import holds

ROWS, COLUMNS = 24, 40
TABLE = np.arange(1, ROWS * COLUMNS + 1, dtype=np.float32).reshape(ROWS, COLUMNS)
EVERY_ROW = np.array([*range(-ROWS, 2 * ROWS), -(2**31), 2**31 - 1])


def request(direction: Direction = Direction.LOAD, **changes: object) -> Request:
    """A legal request of 8 rows of 32 two-byte elements, with changes."""
    legal = {"block_rows": 8, "block_columns": 32, "element_bytes": 2, "arch": "sm_100"}
    return Request(direction=direction, **(legal | changes))


@holds("out of bounds")
@pytest.mark.parametrize("column_offset", [*range(-48, 64, 4), -(2**31) + 16, 2**31 - 64])
def test_a_gather_has_data_inside_and_zeros_outside(column_offset: int) -> None:
    """For every row and column."""
    got = gather_scatter.gather(TABLE, EVERY_ROW, column_offset, 16)
    low, high = max(0, column_offset), min(column_offset + 16, COLUMNS)  # as in the tutorial's own test
    expected = np.zeros((len(EVERY_ROW), 16), np.float32)
    inside = (EVERY_ROW >= 0) & (EVERY_ROW < ROWS)
    if low < high:
        expected[inside, low - column_offset : high - column_offset] = TABLE[EVERY_ROW[inside], low:high]
    assert (got == expected).all()


def test_a_gather_may_repeat_rows_and_may_ask_for_more_rows_than_there_are() -> None:
    got = gather_scatter.gather(TABLE, np.zeros(100, np.int32), 0, 16)
    assert (got == TABLE[0, :16]).all()


def test_a_gather_from_an_empty_table_is_zeros() -> None:
    assert not gather_scatter.gather(np.ones((0, 8)), np.arange(4), 0, 8).any()


@holds("out of bounds")
@pytest.mark.parametrize("column_offset", [0, 4, 24, 36, 40, 48, 2**31 - 64])
def test_a_scatter_writes_what_is_inside_and_leaves_the_rest_untouched(column_offset: int) -> None:
    rows = np.array([3, 0, 23, 24, 1000, 2**31 - 1, 7, 8])
    source = -np.arange(1, 8 * 16 + 1, dtype=np.float32).reshape(8, 16)
    expected = TABLE.copy()
    for i, row in enumerate(rows):
        for j in range(16):
            if row < ROWS and column_offset + j < COLUMNS:
                expected[row, column_offset + j] = source[i, j]
    scattered = gather_scatter.scatter(TABLE, rows, column_offset, source)
    assert (scattered.table == expected).all()
    assert not scattered.wrong_elements(expected).any()
    assert len(scattered.repeated_rows) == 0


def test_a_stray_write_beside_a_scattered_block_is_wrong() -> None:
    scattered = gather_scatter.scatter(TABLE, np.arange(8), 4, np.zeros((8, 16), np.float32))
    got = scattered.table.copy()
    got[9, 5] = 0  # a row nobody asked for
    got[2, 3] = 0  # a column before the block
    assert np.argwhere(scattered.wrong_elements(got)).tolist() == [[2, 3], [9, 5]]


def test_a_missing_write_is_wrong() -> None:
    scattered = gather_scatter.scatter(TABLE, np.arange(8), 0, -TABLE[:8, :16])
    got = scattered.table.copy()
    got[5] = TABLE[5]
    assert scattered.wrong_elements(got).sum() == 16


@pytest.mark.parametrize("column", [0, 8, 12])
def test_repeated_rows_may_hold_any_of_their_writers_and_nothing_else(column: int) -> None:
    rows = np.array([4, 4, 4, 1, 2, 3, 9, 9])
    source = np.arange(100, 100 + 8 * 8, dtype=np.float32).reshape(8, 8)
    scattered = gather_scatter.scatter(TABLE, rows, column, source)
    whole, half = slice(column, column + 8), slice(column, column + 4)
    assert scattered.repeated_rows.tolist() == [4, 9]
    for first, second in ((0, 6), (1, 7), (2, 7)):
        got = scattered.table.copy()
        got[4, whole], got[9, whole] = source[first], source[second]
        assert not scattered.wrong_elements(got).any()
    got = scattered.table.copy()
    got[4, half] = source[0, :4]  # halves of two writers: allowed
    assert not scattered.wrong_elements(got).any()
    got[4, whole] = TABLE[4, whole]  # none of them
    assert scattered.wrong_elements(got).sum() == 8
    got = scattered.table.copy()
    got[4, column] = source[0, 1]  # a writer's word, in another column
    assert scattered.wrong_elements(got).sum() == 1


def test_a_nan_equals_itself_and_minus_zero_is_not_zero() -> None:
    """Words are compared."""
    source = np.full((8, 8), np.nan, np.float32)
    scattered = gather_scatter.scatter(TABLE, np.zeros(8, np.int32), 0, source)
    assert not scattered.wrong_elements(scattered.table).any()
    scattered = gather_scatter.scatter(TABLE, np.arange(8), 0, np.zeros((8, 8), np.float32))
    got = scattered.table.copy()
    got[0, 0] = -0.0
    assert scattered.wrong_elements(got).sum() == 1


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize(("element_bytes", "aligned"), [(1, 16), (2, 8), (4, 4)])
def test_every_unaligned_column_is_an_illegal_instruction(direction: Direction, element_bytes: int, aligned: int) -> None:
    """No aligned one is."""
    asked = request(direction, element_bytes=element_bytes)
    for column in range(64):
        fault = gather_scatter.fault(asked, np.arange(8), column)
        assert (fault is None) == (column % aligned == 0)
        assert fault is None or fault.outcome == "illegal instruction"


def test_negative_offsets_are_allowed_to_a_gather_and_fault_a_scatter() -> None:
    rows, negative = np.arange(8), np.array([0, 1, 2, -1, 4, 5, 6, 7])
    assert gather_scatter.fault(request(), negative, -16) is None
    scatter = request(Direction.STORE)
    assert gather_scatter.fault(scatter, rows, 2**20) is None  # beyond the table is no fault
    for faulty in (gather_scatter.fault(scatter, negative, 0), gather_scatter.fault(scatter, rows, -16)):
        assert faulty is not None and faulty.outcome == "illegal instruction"


def test_iisan_turns_all_three_rules_into_device_asserts() -> None:
    scatter = request(Direction.STORE)
    for rows, column in ((np.arange(8), 3), (np.arange(8) - 1, 0), (np.arange(8), -16)):
        fault = gather_scatter.fault(scatter, rows, column, iisan=True)
        assert fault is not None and fault.outcome == "device assert"


@pytest.mark.parametrize(
    ("arch", "gathers", "scatters"),
    [
        ("sm_80", False, False),
        ("sm_90", False, False),
        ("sm_100", True, True),
        ("sm_103", True, True),
        ("sm_110", True, True),
        ("sm_120", True, False),
    ],
)
def test_each_architecture_has_or_refuses_the_instruction(arch: str, gathers: bool, scatters: bool) -> None:
    for direction, has in ((Direction.LOAD, gathers), (Direction.STORE, scatters)):
        fault = gather_scatter.fault(request(direction, arch=arch), np.arange(8), 0)
        assert (fault is None) == has
        assert fault is None or fault.outcome == "refused"


@holds("fewest columns in every width")
@pytest.mark.parametrize(("element_bytes", "smallest"), [(1, 32), (2, 16), (4, 8)])
def test_a_block_below_eight_rows_or_32_bytes_is_refused(element_bytes: int, smallest: int) -> None:
    narrow = request(block_columns=smallest - 1, element_bytes=element_bytes)
    assert gather_scatter.refusal(narrow) is not None
    assert gather_scatter.refusal(request(block_columns=smallest, element_bytes=element_bytes)) is None
    few = gather_scatter.refusal(request(block_rows=4))
    assert few is not None and "at least 8" in few.reason

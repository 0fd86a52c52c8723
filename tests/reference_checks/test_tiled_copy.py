"""Contract under test: a tiled TMA copy at any coordinates, in or out of range or unaligned: data, zeros, untouched or a fault.

The rows of the first two tables were measured on an H200 (sm_90, driver 580) with a tensor of shape [64, 64] and a box of [16, 32].
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bitverdict.reference import tiled_copy
from bitverdict.reference.tiled_copy import Direction

EDGES = Path(__file__).parents[1] / "hardware_words" / "tma_edges_h200.json"
TENSOR = np.arange(1, 64 * 64 + 1, dtype=np.float32).reshape(64, 64)
BOX = (16, 32)


@pytest.mark.parametrize("column", [0, 4, -4, -8, -16, 48, 64, 100, -1000, 2**20])
@pytest.mark.parametrize("row", [0, 60, -1, -8, -100, 2**20])
def test_a_measured_aligned_load_is_right_with_zeros_outside(row: int, column: int) -> None:
    assert tiled_copy.fault(Direction.LOAD, (row, column), 4, "sm_90") is None
    got = tiled_copy.load(TENSOR, (row, column), BOX)
    for i in range(BOX[0]):  # by the definition, element for element
        for j in range(BOX[1]):
            inside = 0 <= row + i < 64 and 0 <= column + j < 64
            assert got[i, j] == (TENSOR[row + i, column + j] if inside else 0)


@pytest.mark.parametrize(
    ("direction", "origin", "element_bytes", "plain", "iisan"),
    [
        (Direction.LOAD, (0, 1), 4, "illegal instruction", "device assert"),
        (Direction.LOAD, (0, 2), 4, "illegal instruction", "device assert"),
        (Direction.LOAD, (0, 3), 4, "illegal instruction", "device assert"),
        (Direction.LOAD, (0, -1), 4, "illegal instruction", "device assert"),
        (Direction.LOAD, (0, 0), 2, None, None),
        (Direction.LOAD, (0, 8), 2, None, None),
        (Direction.LOAD, (0, 2), 2, "illegal instruction", "device assert"),
        (Direction.LOAD, (0, 4), 2, "illegal instruction", "device assert"),
        (Direction.STORE, (0, 0), 4, None, None),
        (Direction.STORE, (0, 4), 4, None, None),
        (Direction.STORE, (0, 64), 4, None, None),
        (Direction.STORE, (100, 0), 4, None, None),
        (Direction.STORE, (0, 2), 4, "illegal instruction", "device assert"),
        (Direction.STORE, (0, -4), 4, "illegal instruction", "illegal instruction"),
        (Direction.STORE, (0, -100), 4, "illegal instruction", "illegal instruction"),
        (Direction.STORE, (-1, 0), 4, "illegal instruction", "illegal instruction"),
        (Direction.STORE, (-100, 0), 4, "illegal instruction", "illegal instruction"),
    ],
)
def test_the_measured_faults_are_expected_by_name(
    direction: Direction, origin: tuple[int, int], element_bytes: int, plain: str | None, iisan: str | None
) -> None:
    for instrumented, expected_outcome in ((False, plain), (True, iisan)):
        fault = tiled_copy.fault(direction, origin, element_bytes, "sm_90", iisan=instrumented)
        assert (fault.outcome if fault else None) == expected_outcome


@pytest.mark.parametrize("origin", [(0, 0), (0, 48), (60, 4), (63, 60), (60, 64), (100, 0)])
def test_a_store_writes_its_part_inside_and_nothing_else(origin: tuple[int, int]) -> None:
    source = -np.arange(1, 16 * 32 + 1, dtype=np.float32).reshape(BOX)
    got = tiled_copy.store(TENSOR, origin, source)
    changed = got != TENSOR
    row, column = np.nonzero(changed)
    assert changed.sum() == max(0, min(64, origin[0] + 16) - origin[0]) * max(0, min(64, origin[1] + 32) - origin[1])
    assert (got[row, column] == source[row - origin[0], column - origin[1]]).all()


def test_the_bytes_past_a_rows_end_are_those_measured() -> None:
    """For every width and element size."""
    held = json.loads(EDGES.read_text())
    rows = [dict(zip(held["fields"], row, strict=True)) for row in held["summary"]]
    assert (held["launches"], held["unlawful"], len(rows)) == (5170, 0, 56)
    assert wrong_edges(rows) == []


def wrong_edges(rows: list[dict]) -> list[dict]:
    """Rows whose bytes past the end, the same in every launch, are not those that the model has."""
    wrong = []
    for row in rows:
        width = 32 + row["residue"]
        reach = tiled_copy.written_columns(width // row["itemsize"], row["itemsize"]) * row["itemsize"]
        expected_outcome = list(range(reach - width)) if row["kind"] == "tiled store" else []
        wrong += [] if row["past"] == [expected_outcome] else [row]
    return wrong


@pytest.mark.parametrize("unit", [1, 4, 8, 32])
def test_another_unit_than_16_bytes_is_seen_in_the_measured_edges(unit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    held = json.loads(EDGES.read_text())
    monkeypatch.setattr(tiled_copy, "ALIGNMENT", unit)
    assert wrong_edges([dict(zip(held["fields"], row, strict=True)) for row in held["summary"]])


def test_a_box_of_three_dimensions_follows_the_same_rule() -> None:
    tensor = np.arange(4 * 5 * 8).reshape(4, 5, 8)
    got = tiled_copy.load(tensor, (-1, 3, 4), (2, 4, 8))
    assert (got[0] == 0).all() and (got[1, 2:] == 0).all() and (got[1, :2, 4:] == 0).all()
    assert (got[1, :2, :4] == tensor[0, 3:, 4:]).all()


def test_there_is_no_tiled_copy_before_hopper() -> None:
    fault = tiled_copy.fault(Direction.LOAD, (0, 0), 4, "sm_80")
    assert fault is not None and fault.outcome == "refused"


def test_an_unknown_architecture_is_an_error_that_says_how_to_write_it() -> None:
    with pytest.raises(ValueError, match="like 'sm_90'"):
        tiled_copy.fault(Direction.LOAD, (0, 0), 4, "hopper")


def test_a_model_that_wraps_negative_rows_would_be_seen() -> None:
    wrapped = TENSOR[np.arange(-4, 12)[:, None] % 64, np.arange(32)[None, :]]
    assert (tiled_copy.load(TENSOR, (-4, 0), BOX) != wrapped).any()

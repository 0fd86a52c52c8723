"""Contract under test: the map of TMA's legality: its rule is the hardware's answer at every point that a GPU was asked, its
columns say what is, a disagreement is shown with its reason, and a store that reaches over the end of a row fails.

`tests/hardware_words/tma_limits_h200.json` holds what an H200 answered (Triton 3.9.0, driver 580.159.04).
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from bitverdict.harness.judge.judge import judge
from bitverdict.harness.lab.tma_limits import answers as columns
from bitverdict.harness.lab.tma_limits import edges, page
from bitverdict.harness.lab.tma_limits.compiler_answers import by_compiler
from bitverdict.harness.lab.tma_limits.contract import CONTRACT, case_of
from bitverdict.harness.lab.tma_limits.points import Point, key, points, rule
from bitverdict.harness.model.targets import Target
from bitverdict.reference import tiled_copy

HELD = Path(__file__).parents[1] / "hardware_words" / "tma_limits_h200.json"
PAGE = Path(__file__).parents[2] / "docs" / "tma_limits.md"
HOPPER, BLACKWELL = (Target(f"emulated:{arch}", arch) for arch in ("sm_90", "sm_100"))
LOAD, STORE = (Point(operation=operation, precondition="") for operation in ("tiled load", "tiled store"))
ABORTS = """
import os
from bitverdict.harness.lab.tma_limits import compiler_answers as compiled
whole = compiled.answer
compiled.answer = lambda point: os.abort() if point.column == 3 else {"outcome": "compiles", "message": "", "location": ""}
compiled.main(["sm_90"])
"""


@pytest.mark.parametrize("iisan", [False, True])
def test_the_rule_is_what_the_hardware_answered_at_every_point(iisan: bool) -> None:
    answers = columns.read(HELD)["columns"]["sm_90"]["hardware iisan" if iisan else "hardware"]
    assert len(answers) == 240
    wrong = {
        point.name: (said, answers[at]["outcome"])
        for point in points(("tiled load", "tiled store"))
        if (said := rule(point, "sm_90", iisan=iisan).outcome) != answers[at := key(point)]["outcome"]
    }
    assert not wrong


def test_a_moved_rule_is_seen_at_the_hardware_s_points(monkeypatch: pytest.MonkeyPatch) -> None:
    made = columns.read(HELD)["columns"]["sm_90"]
    monkeypatch.setattr(tiled_copy, "ALIGNMENT", 32)
    moved = {"rule": columns.by_rule(points(("tiled load",)), "sm_90", iisan=False), **made}
    assert dict(page.disagreements(moved))["the hardware is not what the rule says"]


@pytest.mark.parametrize(
    ("point", "target", "outcome"),
    [
        (LOAD, HOPPER, "pass"),
        (STORE, HOPPER, "pass"),
        (replace(LOAD, column=2), HOPPER, "illegal instruction"),
        (replace(STORE, row=-8), HOPPER, "illegal instruction"),
        (replace(STORE, columns=33, pad=7, column=32), HOPPER, "stray write"),
        (replace(LOAD, columns=33, pad=7, column=32), HOPPER, "pass"),
        (replace(LOAD, block_columns=4), HOPPER, "refused"),
        (replace(LOAD, offset=1, on_device=True), HOPPER, "misaligned address"),
        (replace(LOAD, pad=4, on_device=True), HOPPER, "stray read"),
        (replace(STORE, pad=4, on_device=True), HOPPER, "stray write"),
        (replace(LOAD, operation="gather", column=1), BLACKWELL, "illegal instruction"),
        (replace(STORE, operation="scatter", row=-1), BLACKWELL, "illegal instruction"),
        (replace(STORE, operation="scatter", column=-8), BLACKWELL, "illegal instruction"),
        (replace(STORE, operation="scatter", columns=33, pad=7), BLACKWELL, "pass"),
    ],
    ids=lambda value: value.name if isinstance(value, Point) else "",
)
def test_the_emulated_gpu_answers_a_point(point: Point, target: Target, outcome: str) -> None:
    verdict = judge(case_of(point), target, CONTRACT)
    assert verdict.outcome == outcome


def test_what_the_driver_refuses_is_told_by_its_layer_and_its_width() -> None:
    found = judge(case_of(replace(LOAD, block_columns=4)), HOPPER, CONTRACT)
    assert (found.outcome, found.details["layer"]) == ("refused", "driver")
    assert "8 bytes" in found.message


def test_iisan_on_the_emulated_gpu_names_the_unaligned_column() -> None:
    """It misses the negative row."""
    named = judge(case_of(replace(LOAD, column=2), "iisan"), HOPPER, CONTRACT)
    assert named.outcome == "device assert" and "16-byte aligned" in named.message
    assert judge(case_of(replace(STORE, row=-8), "iisan"), HOPPER, CONTRACT).outcome == "illegal instruction"


def test_a_mutated_disagreement_is_shown_and_said_to_be_unexplained() -> None:
    at = key(STORE)
    made = {"emulated": {at: {"outcome": "pass"}}, "hardware": {at: {"outcome": "illegal instruction"}}}
    found = dict(page.disagreements(made))
    assert found["the emulated GPU is not the hardware"] == [
        "tiled store, : dtype fp16: emulated pass, hardware illegal instruction"
    ]
    text = page.text({"sm_90": made}, [{"date": "today"}])
    assert page.NO_EXPLANATION in text and "emulated pass, hardware illegal instruction" in text


def test_each_row_of_the_pages_tables_has_a_cell_for_each_head() -> None:
    text = page.text({"sm_90": {name: {key(STORE): {"outcome": "pass"}} for name in page.COLUMN_ORDER}}, [{"date": "today"}])
    tables = [part for part in text.split("\n\n") if part.startswith("| ")]
    assert tables
    for table in tables:
        assert len({line.count("|") for line in table.splitlines()}) == 1, table


def test_a_mutated_miss_and_a_mutated_false_alarm_of_iisan_are_told_apart() -> None:
    miss, alarm, no_machine = (key(replace(STORE, row=row)) for row in (0, 1, 2))
    made = {
        "hardware": {miss: {"outcome": "stray write"}, alarm: {"outcome": "pass"}, no_machine: {"outcome": "not there"}},
        "hardware iisan": {miss: {"outcome": "pass"}, alarm: {"outcome": "device assert"}, no_machine: {"outcome": "pass"}},
    }
    found = dict(page.disagreements(made))
    assert len(found["iisan misses (hardware)"]) == len(found["iisan's false alarms (hardware)"]) == 1


def test_no_disagreement_of_the_page_lacks_a_reason() -> None:
    """No path of a machine is in it."""
    text = PAGE.read_text()
    assert page.NO_EXPLANATION not in text
    assert not any(place in text for place in ("/work", "/tmp", "/root", "/home", "/opt"))
    for needed in ("NVIDIA H200", "driver 580.159.04", "triton 3.9.0", "bitverdict lab tma-limits --merge"):
        assert needed in text
    counts = Counter(answer["outcome"] for answer in columns.read(HELD)["columns"]["sm_90"]["hardware"].values())
    assert counts == {
        "illegal instruction": 77,
        "misaligned address": 4,
        "refused": 24,
        "pass": 119,
        "stray write": 14,
        "wrong words": 2,
    }


def test_a_model_that_is_moved_makes_measured_edges_illegal(monkeypatch: pytest.MonkeyPatch) -> None:
    store = edges.Edge("tiled store", 2, 9, 3, 32, None, 0, tuple(range(14)), False, 0, 0, True)
    load = replace(store, kind="tiled load", past=())
    assert edges.illegal([store, load]) == []
    for wrong in (
        replace(store, past=()),
        replace(store, below=1),
        replace(store, before=1),
        replace(store, values_right=False),
        replace(store, differs_by_row=True),
        replace(load, past=(0,)),
    ):
        assert edges.illegal([wrong]) == [wrong]
    monkeypatch.setattr(tiled_copy, "ALIGNMENT", 8)
    assert edges.illegal([store]) == [store]


def test_the_emulated_gpu_has_the_edges_that_were_measured() -> None:
    import torch

    from bitverdict.harness.emulator import emulated

    with emulated("sm_90"):
        found = [
            edges._edge(kind, torch.device("cpu"), size, 20 // size, 3, 64, None, 16 // size)
            for kind in ("tiled store", "tiled load")
            for size in edges.DTYPES
        ]
    assert edges.illegal(found) == []
    assert {len(edge.past) for edge in found} == {0, 12}


def test_edges_are_measured_at_every_width_and_quickly_at_a_few() -> None:
    whole, quick = ({(itemsize, columns * itemsize) for itemsize, columns, *_ in edges.launches(how)} for how in (False, True))
    assert whole == {(size, width) for size in edges.DTYPES for width in range(size, 65, size)}
    assert {size for size, _ in quick} == set(edges.DTYPES)
    assert {width % 16 for _, width in quick} >= {0, 4, 12} and len(quick) < len(whole) / 4


@pytest.mark.share(4)
def test_a_compiler_that_dies_costs_its_point_and_no_other() -> None:
    grid = [replace(LOAD, column=column) for column in (0, 1, 3, 4, 8)]
    found = by_compiler(grid, "sm_90", worker=(sys.executable, "-c", ABORTS))
    said = [found[key(point)]["outcome"] for point in grid]
    assert said == ["compiles", "compiles", "compiler abort", "compiles", "compiles"]
    assert found[key(grid[2])]["message"].startswith("SIGABRT")


def test_the_compiler_takes_what_faults_and_refuses_no_power_of_two() -> None:
    grid = [replace(STORE, row=-8), replace(STORE, block_rows=24), replace(STORE, offset=1)]
    answers = by_compiler(grid, "sm_90")
    assert [each["outcome"] for each in answers.values()] == ["compiles", "refused", "refused"]


def test_answers_are_read_as_they_were_written(tmp_path: Path) -> None:
    made = {"sm_90": {"rule": columns.by_rule(points(("gather",)), "sm_90", iisan=False)}}
    path = tmp_path / "answers.json"
    path.write_text(columns.pack_answers(made, {"date": "today"}))
    back = columns.read(path)
    assert back["origin"] == {"date": "today"}
    assert {k: a["outcome"] for k, a in back["columns"]["sm_90"]["rule"].items()} == {
        k: a["outcome"] for k, a in made["sm_90"]["rule"].items()
    }
    assert columns.merge_columns(made, back["columns"])["sm_90"]["rule"].keys() == made["sm_90"]["rule"].keys()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "no answers"),
        ("{", "no answers"),
        ("[]", "no answers"),
        (json.dumps({"version": 1, "columns": {}}), "version 1: this checkout reads version 2"),
        (json.dumps({"version": 2, "points": [{"operation": "x"}], "answers": [], "columns": {}}), "no answers"),
        (json.dumps({"version": 2, "points": [], "answers": [], "columns": {"sm_90": {"rule": [[0, 0]]}}}), "no answers"),
    ],
)
def test_a_file_that_holds_no_answers_is_refused_with_what_to_do(tmp_path: Path, text: str | None, says: str) -> None:
    path = tmp_path / "answers.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=says):
        columns.read(path)


@pytest.mark.parametrize("problem", [{"operation": "gather"}, {"operation": "gather", "precondition": "", "colour": 1}])
def test_a_record_without_the_fields_of_a_point_is_refused(problem: dict) -> None:
    record = case_of(LOAD).to_json()
    assert CONTRACT.case_from_json(record) == case_of(LOAD)
    with pytest.raises(ValueError, match="it must have the fields of Point"):
        CONTRACT.case_from_json(record | {"problem": problem})

"""Contract under test: every fact of the tutorials that `tests/tutorial_parameters.json` transcribes is held by what it names.

`tutorial_rows.py` says what can hold a row. A case holds a combination of parameters only where it is that combination: a smaller
size of the same residues does not. `test_tutorial_documents.py` holds the transcription to the tutorials themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bitverdict.harness.model.addresses import resolve
from tests.faults.corpus import COLLECTIONS
from tests.kernel_contracts.tutorial_rows import DOCUMENTS, ROWS, differing, marks, missing, stated, unclaimed_marks

KINDS = {"test", "configurations", "figures", "sizes", "types", "default", "error", "regime", "statement"}
BY_ID = {row["id"]: row for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"].replace(" ", "-"))
def test_each_row_of_the_transcription_is_held(row: dict[str, Any]) -> None:
    assert row["document"] in DOCUMENTS and row["kind"] in KINDS
    assert not missing(row)


def test_no_two_rows_have_one_id() -> None:
    assert len(BY_ID) == len(ROWS)


def test_the_transcription_is_the_one_that_is_pinned() -> None:
    """Each row, its holder left out. Who corrects one by the document writes its pin anew: `tutorial_rows.digest`."""
    assert not differing(ROWS)


def test_each_mark_above_a_test_is_of_a_row_that_names_the_test() -> None:
    assert not unclaimed_marks(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"].replace(" ", "-"))
def test_a_row_that_is_dropped_is_missed(row: dict[str, Any]) -> None:
    rest = [other for other in ROWS if other is not row]
    assert differing(rest) == {row["id"]}
    assert not (marked := {mark for mark in marks() if mark[0] == row["id"]}) or unclaimed_marks(rest) == marked


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"].replace(" ", "-"))
def test_a_row_that_says_anything_else_is_another(row: dict[str, Any]) -> None:
    """Each number, word and flag of it; a figure that it states is missed by what holds it, whatever is pinned."""
    for name, value in row.items():
        for other in changed(value) if name not in ("held", "id") else ():
            assert differing([{**row, name: other}, *(r for r in ROWS if r is not row)]) == {row["id"]}, (name, other)
    for name, value in stated(row).items():
        for other in changed(value):
            assert missing({**row, name: other}), (name, other)


def changed(value: Any) -> Iterator[Any]:
    """`value` with one part of it another, for each part."""
    match value:
        case bool():
            yield not value
        case int() | float():
            yield value + 1
        case str():
            yield value + "?"
        case list() | dict():
            for place, part in enumerate(value) if isinstance(value, list) else value.items():
                for other in changed(part):
                    yield [*value[:place], other, *value[place + 1 :]] if isinstance(value, list) else {**value, place: other}


@pytest.mark.parametrize("row", [row for row in ROWS if "test" in row["held"]], ids=lambda row: row["id"].replace(" ", "-"))
def test_a_row_that_names_another_test_is_not_held(row: dict[str, Any]) -> None:
    """Of all that hold another row, and one that holds none."""
    own = {node for name, node in marks() if name == row["id"]}
    others = {node for _, node in marks()} - own | {"tests/test_imports.py::test_the_package_itself_imports_nothing_that_is_slow"}
    assert own and not [node for node in others if not missing({**row, "held": {"test": node}})]


@pytest.mark.parametrize("row", [row for row in ROWS if "mutant" in row["held"]], ids=lambda row: row["id"].replace(" ", "-"))
def test_a_row_that_names_another_mutant_is_not_held(row: dict[str, Any]) -> None:
    """Of all mutants but those that change the same text."""
    held = row["held"]["mutant"]
    for named in held if isinstance(held, list) else [held]:
        for mutant in (*COLLECTIONS["kernels"], *COLLECTIONS["timing"]):
            other = {**named, "kernel": mutant.kernel, "name": mutant.name, "kind": mutant.kind}
            if not missing({**row, "held": {"mutant": other}}):
                assert mutant.kernel in DOCUMENTS[row["document"]]["kernels"].values() and named["edits"] in str(mutant.edits)
        assert missing({**row, "held": {"mutant": {**named, "edits": "no such text"}}})


@pytest.mark.parametrize("row", [row for row in ROWS if "refused" in row["held"]], ids=lambda row: row["id"].replace(" ", "-"))
def test_a_row_that_names_another_clause_is_not_held(row: dict[str, Any]) -> None:
    held = row["held"]["refused"]
    others = {clause.name for clause in resolve(held["kernel"]).module.CLAUSES} - {held["clause"]}
    assert others and not [name for name in others if not missing({**row, "held": {"refused": {**held, "clause": name}}})]


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("gather", {"lists": {"y_offset": [8], "BLOCK_X": [8]}}),
        ("blocked matmul", {"lists": {"M, N, K": [[2000, 1000, 1872]], "BLOCK_M, BLOCK_N, BLOCK_K": [[128, 128, 128]]}}),
        ("blocked matmul", {"lists": {"num_warps": [2]}}),
        ("fused matmul", {"lists": {"M, N, K": [[4096, 4096, 4096]], "BLOCK_M, BLOCK_N": [[64, 64]]}}),
        ("operands of the Ampere product", {"held": {"cases": {**BY_ID["operands of the Ampere product"]["held"]["cases"],
                                                               "also": {"regime": "hundredth"}}}}),
        ("largest size of the Ampere product", {"held": {"cases": {**BY_ID["largest size of the Ampere product"]["held"]["cases"],
                                                                   "on": ["sm_80"]}}}),
        ("configurations, CUDA", {"lists": {"GROUP_SIZE_M": [5]}}),
        ("blocked matmul, figures", {"figures": [[64, 64, 512, 4, 3.27, 671.77]]}),
        ("blocked matmul, figures", {"size": [8192, 8192, 8192]}),
        ("blocked matmul, figures", {"figures": [[64, 64, 64, 4, 3.27, 671.78]]}),
        ("K of the figures, mxfp8", {"lists": {"K": [8193]}}),
        ("sizes that are timed", {"lists": {"M, N, K": [[8191, 8192, 8192]]}}),
        ("size of validation", {"held": {"large": {"kernel": "block_scaled_matmul", "formats": ["mxfp6"]}}}),
        ("blockM", {"held": {"refused": {**BY_ID["blockM"]["held"]["refused"], "fields": {"block_m": 64}}}}),
        ("illegal gather", {"held": {"fault": {"kernel": "tma_gather", "on": "sm_100", "fields": {"column_offset": 8},
                                               "outcome": "illegal instruction"}}}),
        ("layouts", {"held": {"test": "tests/kernel_contracts/test_offset_layout.py::test_there_is_no_such_test"}}),
        ("layouts", {"held": {"test": "tests/kernel_contracts/tutorial_rows.py"}}),
        ("use_acc", {"held": {"mutant": {"kernel": "blocked_matmul", "name": "there is no such mutant"}}}),
        ("speed of groups", {"held": {"not run": "no time"}}),
        ("gather", {"held": {"choice": "a reason is no stand-in for a test"}}),
        ("layouts", {"held": {}}),
        ("layouts", {"held": {"belief": "it is so"}}),
    ],
)  # fmt: skip
def test_a_row_that_nothing_holds_is_noticed(name: str, changed: dict[str, Any]) -> None:
    assert not missing(BY_ID[name])
    assert missing(BY_ID[name] | changed)


def test_a_size_judged_by_the_profile_whole_alone_is_not_held_by_every_run() -> None:
    row = BY_ID["pipelined matmul"]
    every_run = {**row["held"]["cases"], "profile": "run"}
    assert missing({**row, "held": {"cases": every_run}})

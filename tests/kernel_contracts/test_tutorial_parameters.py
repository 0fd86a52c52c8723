"""Contract under test: every fact of the tutorials that `tests/tutorial_parameters.json` transcribes is held by what it names.

`tutorial_rows.py` says what can hold a row. A case holds a combination of parameters only where it is that combination: a smaller
size of the same residues does not. `test_tutorial_documents.py` holds the transcription to the tutorials themselves.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.kernel_contracts.tutorial_rows import DOCUMENTS, ROWS, missing

KINDS = {"test", "configurations", "figures", "sizes", "types", "default", "error", "regime", "statement"}
BY_ID = {row["id"]: row for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"].replace(" ", "-"))
def test_each_row_of_the_transcription_is_held(row: dict[str, Any]) -> None:
    assert row["document"] in DOCUMENTS and row["kind"] in KINDS
    assert not missing(row)


def test_no_two_rows_have_one_id() -> None:
    assert len(BY_ID) == len(ROWS)


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

"""Contract under test: docs/targets.md is what its script prints of the kernels, targets and features that there are now.

Verdicts and counts of words are kept as they were printed: no case is judged here."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import targets
from bitverdict.harness.model.architectures import EMULATED
from bitverdict.harness.model.paths import kernels_with_a_contract

PAGE = Path(__file__).parents[2] / "docs" / "targets.md"
REMEDY = "run `python benchmarks/targets.py --renew docs/targets.md`"


@pytest.fixture(scope="module")
def text() -> str:
    return PAGE.read_text()


def test_each_cell_names_the_missing_features_or_has_verdicts(text: str) -> None:
    assert targets.out_of_date(text) == [], REMEDY


def test_the_page_is_what_the_script_prints_of_its_cells(text: str) -> None:
    stems = list(kernels_with_a_contract())
    assert targets.page(stems, 1, targets.cells_of(text), targets.lacking_of(stems)) + "\n" == text, REMEDY


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("needs TMA scatter4 |", "needs TMA gather4 |", ("tma_scatter", "sm_80")),
        ("| softmax | 1 pass; 1 words ", "| softmax | not judged ", ("softmax", EMULATED[0])),
        ("| softmax | ", "| hardmax | ", ("hardmax", EMULATED[0])),
        ("| kernel | sm_80 ", "| kernel | sm_81 ", ("softmax", "sm_81")),
    ],
    ids=["feature", "not judged", "kernel", "target"],
)
def test_an_edited_page_is_out_of_date(text: str, old: str, new: str, wrong: tuple[str, str]) -> None:
    assert old in text and wrong in targets.out_of_date(text.replace(old, new, 1))

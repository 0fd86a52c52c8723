"""Contract under test: docs/releases.md has each release with a record and each kernel, and says of them what the records say."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks import releases
from benchmarks.targets import cells_of, kernels_due
from bitverdict.harness.emulator.releases import RELEASES
from bitverdict.harness.model.paths import ROOT

PAGE = ROOT / "docs" / "releases.md"


def out_of_date(text: str) -> list[str]:
    """Lines that the command would write and `text` has not, from its own cells."""
    there = text.splitlines()
    return [line for line in releases.page(cells_of(text), 4).splitlines() if line not in there]


def test_the_page_is_what_its_command_writes() -> None:
    assert out_of_date(PAGE.read_text()) == [], "run `python -m benchmarks.releases --into docs/releases.md`"


def test_no_case_failed_or_ended_in_an_error() -> None:
    kernels = set(kernels_due(cells_of(PAGE.read_text())))
    cells = {cell: told for cell, told in cells_of(PAGE.read_text()).items() if cell[0] in kernels}  # the second table has others
    assert {stem for stem, _ in cells} == kernels
    assert {name for _, name in cells} == {each.name for each in RELEASES}
    assert not [cell for cell, told in cells.items() if " fail" in told.partition(";")[0] or " error" in told.partition(";")[0]]


def test_a_record_that_changes_makes_the_page_out_of_date(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = (*RELEASES[:-1], dataclasses.replace(RELEASES[-1], negates_by_subtraction=True))
    monkeypatch.setattr(releases, "RELEASES", changed)
    assert len(out_of_date(PAGE.read_text())) == 1

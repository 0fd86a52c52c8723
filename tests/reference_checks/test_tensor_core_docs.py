"""Contract under test: every example in docs/arithmetic.md gives the words it shows, and its table is that of the records."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from bitverdict.harness.lab.pages import instruction_evidence
from bitverdict.reference.tensor_core import INSTRUCTIONS

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "arithmetic.md"


def test_the_examples_of_the_document_run() -> None:
    result = doctest.testfile(str(DOCUMENT), module_relative=False)
    assert result.attempted > 10 and not result.failed


def test_the_table_of_evidence_is_what_the_records_print() -> None:
    text = DOCUMENT.read_text()
    assert instruction_evidence.page(text) == text and instruction_evidence.table() in text
    assert instruction_evidence.page(text.replace("hardware words (A100)", "hardware words (A10)")) == text


def test_a_page_without_its_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="these two lines once"):
        instruction_evidence.page(DOCUMENT.read_text().replace(instruction_evidence.END, ""))


def test_each_instruction_has_one_row_of_the_table() -> None:
    rows = instruction_evidence.table().splitlines()[2:]
    for rule in INSTRUCTIONS:
        chip, name, basis, evidence = instruction_evidence.row_of(rule)
        (row,) = [row for row in rows if row.startswith(f"| {chip} | {name} | ") and row.endswith(f" | {basis} | {evidence} |")]
        assert rule.a in row and rule.d in row


def test_a_wrong_example_would_be_seen(tmp_path: Path) -> None:
    text = DOCUMENT.read_text()
    assert text.count("'0x438003c0'") == 1
    (tmp_path / "wrong.md").write_text(text.replace("'0x438003c0'", "'0x438003c1'"))
    assert doctest.testfile(str(tmp_path / "wrong.md"), module_relative=False).failed == 1

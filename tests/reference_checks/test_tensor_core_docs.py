"""Contract under test: every example in docs/arithmetic.md gives the words it shows."""

from __future__ import annotations

import doctest
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "arithmetic.md"


def test_the_examples_of_the_document_run() -> None:
    result = doctest.testfile(str(DOCUMENT), module_relative=False)
    assert result.attempted > 10 and not result.failed


def test_a_wrong_example_would_be_seen(tmp_path: Path) -> None:
    text = DOCUMENT.read_text()
    assert text.count("'0x438003c0'") == 1
    (tmp_path / "wrong.md").write_text(text.replace("'0x438003c0'", "'0x438003c1'"))
    assert doctest.testfile(str(tmp_path / "wrong.md"), module_relative=False).failed == 1

"""Contract under test: every example in docs/special_functions.md gives the words it shows."""

from __future__ import annotations

import doctest
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "special_functions.md"


def test_the_examples_of_the_document_run() -> None:
    result = doctest.testfile(str(DOCUMENT), module_relative=False)
    assert result.attempted > 6 and not result.failed


def test_a_wrong_example_would_be_seen(tmp_path: Path) -> None:
    text = DOCUMENT.read_text()
    assert text.count("'0x3f7ffffe'") == 1
    (tmp_path / "wrong.md").write_text(text.replace("'0x3f7ffffe'", "'0x3f7fffff'"))
    assert doctest.testfile(str(tmp_path / "wrong.md"), module_relative=False).failed == 1

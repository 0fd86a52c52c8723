"""Contract under test: the Python blocks of pages with examples run, in order and in one namespace, and hold what they assert."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = ("reference_functions", "strategies")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def carried_out(text: str, name: str) -> dict[str, object]:
    """What the blocks of a page leave, each compiled with its own lines of the page."""
    left: dict[str, object] = {"__name__": name}
    for block in BLOCK.finditer(text):
        above = "\n" * (text[: block.start(1)].count("\n"))
        exec(compile(above + block[1], f"{name}.md", "exec"), left)
    return left


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_run_and_hold(page: str) -> None:
    text = (DOCS / f"{page}.md").read_text()
    assert text.count("\n```") == 2 * len(BLOCK.findall(text)), "a block that is not Python is not run"
    carried_out(text, page)


@pytest.mark.parametrize("page", PAGES)
def test_the_index_and_the_readme_lead_to_a_page_of_examples(page: str) -> None:
    assert f"({page}.md)" in (DOCS / "README.md").read_text() and f"(docs/{page}.md)" in (DOCS.parent / "README.md").read_text()


def test_an_example_that_does_not_hold_fails_with_its_line() -> None:
    """A table's code of a value is changed, and an index of the shrunk list."""
    for page, right, wrong in (("reference_functions", "[7, 13, 1, 0]", "[7, 13, 2, 0]"), ("strategies", "0, 0, 9]", "0, 9, 9]")):
        text = (DOCS / f"{page}.md").read_text()
        assert right in text
        with pytest.raises(AssertionError) as failed:
            carried_out(text.replace(right, wrong), page)
        line = failed.traceback[-1].lineno + 1
        assert wrong in text.replace(right, wrong).splitlines()[line - 1]

"""Contract under test: every key that a constant or a page cites stands in the bibliography, and every key there is cited."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
BIBLIOGRAPHY = (CHECKOUT / "reference" / "SOURCES.md").read_text()
KEY = re.compile(r"\[([A-Z]{2}\b[^\]\n()]*)\](?!\()")


def keys(text: str) -> set[str]:
    """The keys in brackets: two capitals each, several in one pair of brackets with commas between."""
    return {part for found in KEY.findall(text) for part in re.findall(r"\b[A-Z]{2}\b", found)}


def known() -> set[str]:
    return set(re.findall(r"(?m)^\| \[([A-Z]{2})\] \|", BIBLIOGRAPHY))


def cited() -> dict[str, set[str]]:
    places = [*sorted((CHECKOUT / "reference").rglob("*.py")), CHECKOUT / "docs" / "arithmetic.md"]
    return {str(path.relative_to(CHECKOUT)): keys(path.read_text()) for path in places}


def test_each_key_that_is_cited_is_in_the_bibliography() -> None:
    lost = {place: found - known() for place, found in cited().items() if found - known()}
    assert not lost


def test_each_key_of_the_bibliography_is_cited() -> None:
    assert known() == set().union(*cited().values())


@pytest.mark.parametrize(
    ("text", "found"), [("no floor [SF]", {"SF"}), ("[TB, ME, SF]", {"TB", "ME", "SF"}), ("[SF](page.md)", set()), ("[M]", set())]
)
def test_keys_are_read_off_brackets(text: str, found: set[str]) -> None:
    assert keys(text) == found

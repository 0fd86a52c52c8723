"""Contract under test: docs/variables.md has every environment variable that the sources read, and no other of ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from bitverdict.harness.session.reproducers import KNOBS

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = (CHECKOUT / "docs" / "variables.md").read_text()
OURS = re.compile(r"\b(?:BITVERDICT|MUTATION)_[A-Z_]*[A-Z]\b|\bTENSOR_CORE_WORDS\b")
READ = re.compile(
    r"""environ(?:ment)?(?:\.get\(|\.setdefault\(|\.pop\(|\[)\s*["']([A-Z][A-Z0-9_]+)["']|["']([A-Z]\w+)["'] in os\.environ"""
)
FILES = ("conftest.py", "toxfile.py", "tox.ini", ".ci/run", ".ci/wheel", "bitverdict/__main__.py", "bitverdict/__init__.py")
OF_ONE_BENCHMARK = {
    "BITVERDICT_CUDA_OPTIONS",
    "BITVERDICT_CUDA_SOURCES",
    "TRITON_INTERPRET",
    "TRITON_VIZ",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONPYCACHEPREFIX",
}


def sources(*tops: str) -> Iterator[str]:
    for top in tops:
        for file in (CHECKOUT / top).rglob("*"):
            if file.suffix in (".py", ".sh") and file.name != "test_variables.py":
                yield file.read_text()
    for name in FILES:
        yield (CHECKOUT / name).read_text()


def read_in(text: str) -> set[str]:
    return set(OURS.findall(text)) | {found[1] or found[2] for found in READ.finditer(text)}


def test_every_variable_that_is_read_is_on_the_page() -> None:
    read = {name for text in sources("harness", "kernels", "reference", "benchmarks") for name in read_in(text)}
    read |= {name for text in sources("tests") for name in OURS.findall(text)}
    missing = {name for name in (read | set(KNOBS)) - OF_ONE_BENCHMARK if f"`{name}`" not in PAGE}
    assert not missing, missing


def test_no_variable_on_the_page_is_read_nowhere() -> None:
    everything = "\n".join(sources("harness", "kernels", "reference", "benchmarks", "tests"))
    assert not [name for name in re.findall(r"`([A-Z][A-Z0-9_]+)`", PAGE) if name not in everything]


def test_a_variable_that_is_read_is_seen() -> None:
    assert read_in('os.environ.get("NEW_ONE", "")') == read_in('"NEW_ONE" in os.environ') == {"NEW_ONE"}
    assert read_in('environment["NEW_ONE"]') == {"NEW_ONE"} and read_in('asked("BITVERDICT_NEW")') == {"BITVERDICT_NEW"}

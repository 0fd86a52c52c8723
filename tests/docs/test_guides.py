"""Contract under test: the guides for adding something do what they say: their own blocks, in order, in a clean clone.

A block under "File `path`" is written, a line under "In `path`, below the line `...`" is inserted, a shell block is run and must
end with status 0."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
GUIDES = (
    "adding_a_kernel",
    "adding_a_format",
    "adding_an_operation",
    "adding_an_asynchronous_operation",
    "adding_an_architecture",
    "a_new_triton_release",
)
_BLOCK = re.compile(r"^```(?P<kind>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"^File `([^`]+)`")
_BELOW = re.compile(r"^In `([^`]+)`, below the line `([^`]+)`")
SECONDS = 300


@dataclass(frozen=True)
class Step:
    """One block: what to do ("write", "insert", "run"), where, below which line, and its text."""

    what: str
    text: str
    path: str = ""
    below: str = ""


def steps(page: str) -> list[Step]:
    """The blocks of a page in order. ValueError for a Python block that nobody says the place of."""
    found = []
    for block in _BLOCK.finditer(page):
        kind, body = block["kind"], block["body"]
        said = (page[: block.start()].rstrip().splitlines() or [""])[-1]
        if kind == "sh":
            found.append(Step("run", body))
        elif place := _BELOW.match(said):
            found.append(Step("insert", body, place[1], place[2]))
        elif place := _FILE.match(said):
            found.append(Step("write", body, place[1]))
        else:
            raise ValueError(f"a block of {kind} after {said!r}: must follow a line that begins with File or In")
    return found


def do(step: Step, clone: Path, environment: dict[str, str]) -> None:
    """Carries out one step in `clone`; AssertionError with what was said where it fails."""
    if step.what == "write":
        (clone / step.path).write_text(step.text)
    elif step.what == "insert":
        lines = (clone / step.path).read_text().splitlines(keepends=True)
        at = [place for place, line in enumerate(lines) if line.rstrip("\n") == step.below]
        assert len(at) == 1, f"{step.path} has the line {step.below!r} {len(at)} times"
        (clone / step.path).write_text("".join([*lines[: at[0] + 1], step.text, *lines[at[0] + 1 :]]))
    else:
        command = ["bash", "-euo", "pipefail", "-c", step.text]
        ran = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, timeout=SECONDS)
        assert ran.returncode == 0, f"{step.text}\nended with {ran.returncode}\n{ran.stdout[-3000:]}\n{ran.stderr[-3000:]}"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What is committed, somewhere else, and nothing but that."""
    if shutil.which("git") is None or not (CHECKOUT / ".git").exists():
        pytest.skip("no git checkout to clone")
    place = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(CHECKOUT), str(place)], check=True, timeout=60)
    return place


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """`python` is this one, `bitverdict` is its, and what they write stays here."""
    names = tmp_path / "bin"
    names.mkdir()
    for name, words in (("python", ""), ("bitverdict", " -m bitverdict")):
        (names / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{words} "$@"\n')
        (names / name).chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "HARNESS"))}
    return kept | {"PATH": f"{names}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.mark.parametrize("guide", GUIDES)
def test_the_guides_own_blocks_work_in_a_clean_clone(guide: str, clone: Path, environment: dict[str, str]) -> None:
    for step in steps((CHECKOUT / "docs" / f"{guide}.md").read_text()):
        do(step, clone, environment)


@pytest.mark.parametrize("guide", GUIDES)
def test_every_code_block_of_a_guide_is_a_step(guide: str) -> None:
    page = (CHECKOUT / "docs" / f"{guide}.md").read_text()
    assert 2 * len(steps(page)) == page.count("\n```")


def test_a_block_that_fails_fails_the_guide(tmp_path: Path, environment: dict[str, str]) -> None:
    with pytest.raises(AssertionError, match="ended with 1"):
        do(Step("run", "echo first\nfalse\necho second\n"), tmp_path, environment)


def test_a_line_that_is_not_there_once_fails_the_guide(tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text("a\na\n")
    with pytest.raises(AssertionError, match="2 times"):
        do(Step("insert", "b\n", "file.py", "a"), tmp_path, {})


def test_a_block_without_a_place_is_refused() -> None:
    with pytest.raises(ValueError, match="must follow a line"):
        steps("Some words.\n\n```python\nx = 1\n```\n")

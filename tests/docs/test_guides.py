"""Contract under test: the guides for adding something do what they say: their own blocks, in order, in a clean clone. What
`bitverdict new kernel` writes there is a kernel that passes, compiles and leaves the tests green.

docs/your_kernel.md and docs/your_tests.md are for a repository of a user's: `.ci/wheel` carries them out in an empty
environment."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ruff.__main__ import find_ruff_bin

from bitverdict.harness.emulator.releases import RELEASES, installed_release
from tests.support.guide_steps import Step, do, steps
from tests.support.shares import in_this_run

CHECKOUT = Path(__file__).resolve().parents[2]
GUIDES = (
    "adding_a_kernel",
    "adding_a_format",
    "adding_a_check",
    "adding_an_operation",
    "adding_an_asynchronous_operation",
    "adding_an_architecture",
    "a_new_triton_release",
    "sealed",
    "mutants",
)
FOR_USERS = ("your_kernel", "your_tests")
SHELL_EDIT = re.compile(r"^(?:sed -i|cp|mv|rm \S+/).*", re.MULTILINE)
"""A line of a shell block that edits files of the repository. What a guide only tries stands at the top, and is not taken away."""
NEW_KERNEL = """
bitverdict new kernel scaled_sum | grep 'written: kernels/scaled_sum.py'
bitverdict run scaled_sum --max-cases 40
bitverdict lab compile scaled_sum
python -m tests.support.kernel_tests scaled_sum
python -m ruff check . && python -m ruff format --check .
test "$(git status --porcelain | wc -l)" = 5
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What is committed, somewhere else, and nothing but that."""
    if shutil.which("git") is None or not (CHECKOUT / ".git").exists():
        pytest.skip("no git checkout to clone")
    place = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(CHECKOUT), str(place)], check=True, timeout=600)
    return place


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """`python` is this one, `bitverdict` is its, and what they write stays here."""
    names = tmp_path / "bin"
    names.mkdir()
    for name, words in (("python", ""), ("bitverdict", " -m bitverdict")):
        (names / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{words} "$@"\n')
        (names / name).chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "BITVERDICT"))}
    return kept | {"PATH": f"{names}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1"}


def steps_of(guide: str) -> list[Step]:
    """What is carried out of a guide; of "new kernel" what the command's author does."""
    new_kernel = [Step("run", line) for line in NEW_KERNEL.strip().splitlines()]
    return new_kernel if guide == "new kernel" else steps((CHECKOUT / "docs" / f"{guide}.md").read_text())


OF_THE_NEWEST_RELEASE = ("adding_a_kernel", "a_new_triton_release")


@pytest.mark.compiles
@pytest.mark.share(10)
@pytest.mark.parametrize("guide", [guide for guide in (*GUIDES, "new kernel") if in_this_run(f"{guide} guide", 5)])
def test_the_guides_own_blocks_work_in_a_clean_clone(guide: str, clone: Path, environment: dict[str, str]) -> None:
    if guide in OF_THE_NEWEST_RELEASE and installed_release().name != RELEASES[-1].name:
        pytest.skip(f"the guide prints pages of Triton {RELEASES[-1].name}, or takes its record away: needs that release")
    for step in steps_of(guide):
        do(step, clone, environment)


def edits(page: str) -> list[Step]:
    """The steps of a page that edit files: what is written and inserted, and of a shell block the lines that edit."""
    shell = [Step("run", "\n".join(SHELL_EDIT.findall(step.text))) if step.what == "run" else step for step in steps(page)]
    return [step for step in shell if step.text]


def lint(page: str, place: Path, *, of_checkout: bool) -> str:
    """What ruff says, by this repository's rules, after the edits of a page in `place`: on the checkout's files or on none."""
    if of_checkout:
        (place / "bitverdict").mkdir()
        for room in ("harness", "kernels", "reference"):  # what is new there is a module of bitverdict too, and sorted as one
            (place / "bitverdict" / room).symlink_to(place / room)
    for step in edits(page):
        for name in shlex.split(step.text) if step.what == "run" else [step.path]:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            if of_checkout and (CHECKOUT / name).is_file() and not (place / name).exists():
                shutil.copy(CHECKOUT / name, place / name)
    for step in edits(page):
        do(step, place, dict(os.environ))
    rules = ["--config", str(CHECKOUT / "pyproject.toml"), "--no-cache", "."]
    packages = ["--config", f"src={[str(place), str(CHECKOUT)] if of_checkout else []}"]
    commands = ([find_ruff_bin(), "check", *packages, *rules], [find_ruff_bin(), "format", "--check", *rules])
    runs = [subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=600) for command in commands]
    return "".join(run.stdout + run.stderr for run in runs if run.returncode)


@pytest.mark.parametrize("guide", (*GUIDES, *FOR_USERS))
def test_what_a_guide_writes_and_inserts_passes_ruff(guide: str, tmp_path: Path) -> None:
    """So does `.ci/run` after it, and each line below which something is inserted is there. Nothing of a guide is run."""
    page = (CHECKOUT / "docs" / f"{guide}.md").read_text()
    assert not (said := lint(page, tmp_path, of_checkout=guide in GUIDES)), said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import os\nimport sys\n\nprint(os, sys)\n", ""),
        ("import sys\nimport os\n\nprint(os, sys)\n", "I001"),
        ("x = ( 1 )\n", "reformat"),
    ],
)
def test_ruff_refuses_a_guide_with_imports_or_spaces_amiss(text: str, said: str, tmp_path: Path) -> None:
    found = lint(f"File `file.py`:\n\n```python\n{text}```\n", tmp_path, of_checkout=True)
    assert said in found if said else not found


@pytest.mark.parametrize("guide", (*GUIDES, *FOR_USERS))
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

"""Contract under test: one command prints the pages of docs/ that come from the code, and says which are out of date."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bitverdict.harness.frontends.main import main
from bitverdict.harness.lab.pages.printed_pages import BY_RUNS, DOCS, PAGES
from bitverdict.harness.model.triton_release import has_tcgen05_int8

OF_NEWER = [] if has_tcgen05_int8() else ["matmul_support.md"]  # pages that a newer release of Triton prints
NAMES = [page.name for page in PAGES if page.name not in OF_NEWER]


@pytest.mark.skipif(not OF_NEWER, reason="each page is what the installed release prints")
def test_a_page_that_a_newer_release_prints_is_told_here() -> None:
    assert [name for name in OF_NEWER if main(["pages", "--check", name]) == 1] == OF_NEWER


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A directory with the pages as they are."""
    for name in NAMES:
        shutil.copy(DOCS / name, tmp_path)
    return tmp_path


def test_each_page_is_what_is_printed_now() -> None:
    assert main(["pages", "--check", *NAMES]) == 0, "write them anew: bitverdict lab pages"


@pytest.mark.parametrize("name", NAMES)
def test_a_page_that_was_edited_is_told_and_written_anew(copied: Path, name: str, capsys: pytest.CaptureFixture) -> None:
    path, text = copied / name, (copied / name).read_text()
    path.write_text(text.replace("| ", "|  ", 1))
    edited = path.read_text()
    assert edited != text
    assert main(["pages", "--check", "--directory", str(copied), *NAMES]) == 1 and path.read_text() == edited
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{path}: is not what ") and line.endswith(f"write it anew: bitverdict lab pages {name}")
    assert main(["pages", name, "--directory", str(copied)]) == 0 and path.read_text() == text
    assert capsys.readouterr().out == f"written: {path}\n"


def test_a_page_that_is_not_there_is_written_and_others_are_left(copied: Path, capsys: pytest.CaptureFixture) -> None:
    (copied / NAMES[0]).unlink()
    assert main(["pages", "--directory", str(copied), *NAMES]) == 0
    assert capsys.readouterr().out == f"written: {copied / NAMES[0]}\n" and (copied / NAMES[0]).is_file()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["kernel.md"], "page 'kernel.md': is not printed (did you mean 'kernels.md'?); printed: kernels.md, "),
        (["tma_limits.md"], "holds what runs measured; make it with: bitverdict lab tma-limits --merge "),
        (["--directory", "nowhere"], "--directory nowhere: must be a directory that exists; make it first"),
    ],
)
def test_a_page_that_is_not_printed_is_refused_with_a_remedy(words: list[str], says: str, capsys: pytest.CaptureFixture) -> None:
    assert main(["pages", *words]) == 2 and says in capsys.readouterr().err


def test_contributing_names_each_page_and_the_index_says_generated() -> None:
    told, index = (DOCS.parent / "CONTRIBUTING.md").read_text(), (DOCS / "README.md").read_text().splitlines()
    assert all(f"docs/{page.name}" in told for page in PAGES)
    assert all(f"docs/{name}" in told and command in told for name, command in BY_RUNS.items())
    said = {line.partition("(")[2].partition(")")[0] for line in index if line.endswith(("(generated) |", "from the code) |"))}
    assert said == {*(page.name for page in PAGES), *BY_RUNS} - {"benchmarks.md"}, "its index line says whose figures it holds"

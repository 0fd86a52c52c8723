"""Contract under test: the site has every page, no link of it is broken, its tutorials and its notebook do what they say."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from bitverdict.harness.lab.pages.site_sources import lay, notebook_text, pages
from tests.support.guide_steps import do, steps

CHECKOUT = Path(__file__).resolve().parents[2]
DOCS = CHECKOUT / "docs"
TUTORIALS = (
    "first_failing_kernel",
    "gluon_ring",
    "blackwell_on_a_laptop",
    "look_at_a_launch",
)  # `.ci/wheel` carries out your_tests.md
SHELVES = ["Tutorials", "How-to", "Reference", "Explanation", "Evidence"]


def named(nav: list) -> Iterator[str]:
    """The pages that a navigation names, in order."""
    for entry in nav:
        for value in [entry] if isinstance(entry, str) else entry.values():
            yield from named(value) if isinstance(value, list) else [value]


def test_the_navigation_names_each_page_once_on_its_shelf() -> None:
    nav = yaml.safe_load((CHECKOUT / "mkdocs.yml").read_text())["nav"]
    assert [shelf for entry in nav if isinstance(entry, dict) for shelf in entry] == SHELVES
    assert sorted(named(nav)) == sorted(str(Path(page).with_suffix(".md")) for page in pages())


def test_pages_lie_as_in_the_checkout_beside_what_they_link(tmp_path: Path) -> None:
    lay(tmp_path / "pages")
    assert (tmp_path / "pages" / "README.md").read_text() == (CHECKOUT / "README.md").read_text()
    assert (tmp_path / "pages" / "docs" / "examples" / "tutorial_matmul.py").is_file(), "README links it"
    assert "```python\nimport torch\n" in (tmp_path / "pages" / "docs" / "notebook.md").read_text()


def test_a_notebook_is_shown_by_its_cells_without_what_they_printed() -> None:
    cells = '[{"cell_type": "markdown", "source": ["# A\\n", "b"]}, {"cell_type": "code", "source": ["1"], "outputs": ["no"]}]'
    assert notebook_text(f'{{"cells": {cells}}}') == "# A\nb\n\n```python\n1\n```\n"


def test_llms_txt_has_each_page_of_the_shelves(tmp_path: Path) -> None:
    lay(tmp_path / "pages")
    text = (tmp_path / "pages" / "llms.txt").read_text()
    nav = yaml.safe_load((CHECKOUT / "mkdocs.yml").read_text())["nav"]
    assert re.findall(r"^## (.*)", text, re.MULTILINE) == SHELVES and text.startswith("# bitverdict\n\n> Whether a ")
    assert re.findall(r"\]\((.*)\)", text) == [
        page.removesuffix(".md").removesuffix("README").rstrip("/") + "/" for page in named(nav) if page != "README.md"
    ]


@pytest.mark.compiles
@pytest.mark.parametrize(("link", "status"), [("b.md", 0), ("b.md#x", 0), ("c.md", 1), ("b.md#y", 1)])
def test_a_strict_build_fails_for_a_link_that_leads_nowhere(link: str, status: int, tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "index.md").write_text(f"# A\n\n[a link]({link})\n")
    (tmp_path / "pages" / "b.md").write_text("# B\n\n## X\n")
    (tmp_path / "mkdocs.yml").write_text("site_name: tried\ndocs_dir: pages\nsite_dir: html\nnav: [index.md, b.md]\n")
    assert ".ci/docs" in (CHECKOUT / ".ci" / "run").read_text() and "build --strict" in (CHECKOUT / ".ci" / "docs").read_text()
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == status, done.stdout + done.stderr


@pytest.mark.compiles
@pytest.mark.share(3)
@pytest.mark.parametrize("page", TUTORIALS)
def test_the_blocks_of_a_tutorial_work_in_an_empty_folder(page: str, tmp_path: Path) -> None:
    names, place = tmp_path / "bin", tmp_path / "mine"
    names.mkdir()
    place.mkdir()
    for name, words in (("bitverdict", " -m bitverdict"), ("python", "")):  # whatever lies first on the path of who runs the tests
        (names / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{words} "$@"\n')
        (names / name).chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "BITVERDICT"))}
    environment |= {
        "PATH": f"{names}:{os.environ['PATH']}",
        "PYTHONPATH": str(CHECKOUT),
        "BITVERDICT_STATE": str(place / ".bitverdict"),
    }
    for step in steps((DOCS / f"{page}.md").read_text()):
        do(step, place, environment)


@pytest.mark.compiles
def test_the_cells_of_the_notebook_run_and_see_the_kernels_values() -> None:
    nbformat, nbclient = (pytest.importorskip(name, reason=f"{name} is not installed") for name in ("nbformat", "nbclient"))
    notebook = nbformat.read(DOCS / "notebook.ipynb", 4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(CHECKOUT)}}).execute()
    said = [output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", [])]
    assert "careless_kernel reads up to 127 of n = 100" in said[-1]


def test_every_command_of_a_page_is_one_that_the_command_line_takes() -> None:
    """Also where no test carries the block out: README and the guides have tests of their own."""
    from bitverdict.harness.frontends.main import parser

    tried = 0
    for page in pages():
        for block in re.findall(r"^```sh\n(.*?)^```", (CHECKOUT / page).read_text(), re.MULTILINE | re.DOTALL):
            for line in re.findall(r"^(?:! )?(?:\S*bin/)?bitverdict (?!--)(.*)$", block.replace("\\\n", " "), re.MULTILINE):
                words = [word.rstrip(";") for word in shlex.split(re.split(r" [|>&#]|;|\)", line)[0], comments=True)]
                try:
                    parser().parse_args(words[1:] if words[0] == "lab" else words)
                except SystemExit:
                    pytest.fail(f"{page}: bitverdict {line}")
                tried += 1
    assert tried > 40

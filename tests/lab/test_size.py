"""Contract under test: each figure counts what it says, and a figure above its ceiling ends with status 1."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bitverdict.harness.lab import size, source_figures
from bitverdict.harness.lab.size import FIGURES, main
from bitverdict.harness.lab.source_figures import Sources

FILES = {
    "harness/judge/judge.py": "def judge(case: Any, *more: list[Any], where: int) -> Any: ...\n" + "x = 1\n" * 400,
    "harness/judge/short.py": "x = 1\n",
    "harness/judge/__init__.py": "",
    "harness/lab/size.py": "x = 1\n" * 40,
    "tests/long.py": "# One file because its rows share a table\n" + "x = 1\n" * 400,
}


@pytest.fixture
def planted() -> Sources:
    made = Sources(Path("nowhere"))
    made.__dict__["texts"] = FILES
    return made


def test_lines_and_files_are_counted(planted: Sources) -> None:
    assert source_figures.total(source_figures.core_lines(planted)) == 402
    assert source_figures.total(source_figures.repository_lines(planted)) == 402 + 40 + 401
    assert source_figures.long_files(planted) == ["harness/judge/judge.py: 401"]
    assert source_figures.short_files(planted) == ["harness/judge/short.py: 1"]


def test_arguments_with_any_in_their_type_are_counted(planted: Sources) -> None:
    assert source_figures.any_arguments(planted) == ["harness/judge/judge.py:1: case", "harness/judge/judge.py:1: more"]


PROJECT = """
[project]
dependencies = ["torch>=2.11", "libcst>=1.8", "rich"]
[tool.setuptools.packages.find]
exclude = ["bitverdict.harness.lab*"]
[tool.setuptools.package-data]
"*" = ["*.css"]
"""


def test_the_wheel_holds_packages_and_data_but_not_the_laboratory(tmp_path: Path) -> None:
    for name in ("bitverdict/__init__.py", "harness/__init__.py", "harness/lab/__init__.py", "harness/a.css", "harness/a.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("12345")
    (tmp_path / "harness" / "no_package").mkdir()
    (tmp_path / "harness" / "no_package" / "x.py").write_text("x")
    (tmp_path / "bitverdict" / "harness").symlink_to("../harness")
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    held = source_figures.wheel_bytes(Sources(tmp_path))
    assert held == ["bitverdict/__init__.py: 5", "harness/__init__.py: 5", "harness/a.css: 5"]
    assert source_figures.core_dependencies(Sources(tmp_path)) == ["libcst"]


@pytest.fixture
def ceilings(tmp_path: Path, planted: Sources, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    made = Sources(tmp_path)
    made.__dict__["texts"] = FILES
    monkeypatch.setattr(size, "Sources", lambda root: made)
    monkeypatch.setattr(size, "CEILINGS", tmp_path / "ceilings.json")
    assert main(["--store"]) == 0
    return tmp_path / "ceilings.json"


def test_a_figure_above_its_ceiling_ends_with_1(ceilings: Path, capsys: pytest.CaptureFixture) -> None:
    stored = json.loads(ceilings.read_text())
    assert set(stored) == {figure.name for figure in FIGURES} and main([]) == 0
    ceilings.write_text(json.dumps(stored | {"any-arguments": 1}))
    capsys.readouterr()
    assert main([]) == 1
    said = capsys.readouterr()
    assert "ABOVE ITS CEILING" in said.out and "any-arguments: see --list any-arguments" in said.err
    ceilings.write_text(json.dumps(stored | {"any-arguments": 2}))
    assert main([]) == 0


@pytest.mark.parametrize(("value", "ceiling"), [(0, 0), (1, 1000), (1000, 1000), (1001, 2000)])
def test_a_ceiling_is_rounded_up(value: int, ceiling: int) -> None:
    assert FIGURES[0].ceiling(value) == ceiling


def test_the_ceiling_of_the_wheel_is_a_tenth_of_a_mb() -> None:
    (wheel,) = (figure for figure in FIGURES if figure.name == "wheel")
    assert wheel.ceiling(5.12) == 5.2 and wheel.ceiling(5.2) == 5.2


def test_what_a_figure_counts_is_listed_by_folder(ceilings: Path, capsys: pytest.CaptureFixture) -> None:
    capsys.readouterr()
    assert main(["--list", "core-lines", "--of", "harness/judge/s"]) == 0
    assert capsys.readouterr().out == "harness/judge/short.py: 1\n"

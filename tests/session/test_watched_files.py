"""Contract under test: a save is seen once, by whatever steps an editor makes it, in every file that is looked at."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from bitverdict.harness.session.watched_files import WatchedFiles, imported_from, repository_of


def test_a_save_is_seen_once_however_it_is_made(tmp_path: Path) -> None:
    file, other = tmp_path / "mine.py", tmp_path / "other.py"
    file.write_text("a = 1\n")
    files = WatchedFiles([file, other])
    assert files.saved_paths() == []
    file.write_text("a = 22\n")
    assert files.saved_paths() == [file] and files.saved_paths() == []
    os.truncate(file, 0)  # the first of two steps
    assert files.saved_paths() == []
    file.unlink()
    assert files.saved_paths() == []
    (tmp_path / "new").write_text("a = 22\n")
    os.replace(tmp_path / "new", file)
    other.write_text("b = 1\n")
    assert files.saved_paths() == [file, other] and files.saved_paths() == []


def test_what_is_imported_from_the_repository_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "repository" / "src" / "pack_of_mine"
    inside.mkdir(parents=True)
    (tmp_path / "repository" / "pyproject.toml").touch()
    for file in (inside / "__init__.py", inside / "part_of_it.py", tmp_path / "beside_it.py"):
        file.write_text("a = 1\n")
    for folder in (inside.parent, tmp_path):
        monkeypatch.syspath_prepend(str(folder))
    __import__("pack_of_mine.part_of_it")
    __import__("beside_it")
    monkeypatch.setitem(sys.modules, "made_up", SimpleNamespace(__file__="made_up.py"))
    monkeypatch.chdir(inside)
    root = repository_of(inside / "part_of_it.py")
    assert root == tmp_path / "repository" and repository_of(Path("/nowhere/mine.py")) == Path("/nowhere")
    assert imported_from(root) == {inside / "__init__.py", inside / "part_of_it.py"}
    for name in ("pack_of_mine", "pack_of_mine.part_of_it", "beside_it"):
        del sys.modules[name]

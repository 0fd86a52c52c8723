"""Which files a watch looks at, and whether one was saved: by size, time and inode, as often as it is asked.

A look at fifty files takes 0.1 ms. So no package that asks the kernel for events is needed, and a save shows on any file system.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from bitverdict.harness.model.paths import is_foreign, is_ours

MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg")  # of the root of a repository


def repository_of(file: Path) -> Path:
    """The nearest folder above `file` that looks like the root of a repository; its own folder where none does."""
    return next((folder for folder in file.parents if any((folder / mark).exists() for mark in MARKS)), file.parent)


def imported_from(repository: Path) -> set[Path]:
    """The Python files below `repository` that this process has imported; those of installed packages and our own are left out."""
    paths = set()
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py") and os.path.isabs(file):  # torch has modules of made-up files
            path = Path(file).resolve()
            if path.is_relative_to(repository) and not is_foreign(path) and not is_ours(path):
                paths.add(path)
    return paths


class WatchedFiles:
    """The files of `paths`, as they were when they were last asked about."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._known: dict[Path, tuple | None] = {}
        self.watch(paths)

    def watch(self, paths: Iterable[Path]) -> None:
        """Look at these too."""
        for path in paths:
            if path not in self._known:
                self._known[path] = _facts(path)

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(self._known)

    def saved_paths(self) -> list[Path]:
        """The files that were saved since the last call. One that is gone, as between the two steps of a save, is not."""
        paths = []
        for path, before in self._known.items():
            now = _facts(path)
            if now is not None and now != before:
                self._known[path] = now
                paths.append(path)
        return paths


def _facts(path: Path) -> tuple | None:
    """What changes when the file is saved; None where there is none, or nothing in it yet."""
    try:
        facts = os.stat(path)
    except OSError:
        return None
    return (facts.st_mtime_ns, facts.st_size, facts.st_ino) if facts.st_size else None

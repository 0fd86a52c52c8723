"""Where this process finds modules: a file that happens to lie in the current folder, or beside a candidate, stands for no other.

Python looks in the folder of a script, or in the current one, before its own library. So a `pickle.py` there would be imported by
whatever next needs pickle, in a process that judges. Here a top-level name is looked for first where Python and its packages are
installed, or where `PYTHONPATH` says, and only then on the rest of the path. Until a candidate is sealed in this process that holds
of what Python, packages and this project import. A user's own file is given what Python would give it: it may well mean its own.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from bitverdict.harness.model.paths import IMPORTED_FROM, is_foreign, is_ours

SAFE_PATH = "PYTHONSAFEPATH"
"""Python's variable: a process that has it looks neither in its current folder nor in that of its script."""
_SET_BY_US = "bitverdict"


class _InstalledFinder:
    """A finder that stands before all others, and knows installed modules alone."""

    def __init__(self) -> None:
        self.always = False
        self.folders = [folder for folder in dict.fromkeys(sys.path) if _is_installed(folder)]

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if "." in name or not (self.always or not _asked_by_a_user()):
            return None
        found = importlib.machinery.PathFinder.find_spec(name, self.folders, target)
        return found if found is not None and found.loader is not None else None


_finder: _InstalledFinder | None = None


def begin(*, always: bool = False) -> None:
    """From here on this process imports by the rule above. `always`: a candidate is sealed in it, and its user's files too get
    what is installed before what lies beside them."""
    global _finder
    if _finder is None:
        _finder = _InstalledFinder()
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _finder.always |= always


@contextmanager
def installed_alone() -> Iterator[None]:
    """While entered, `sys.path` holds what is installed alone, as in a process that `environment_of_a_child` is given to."""
    begin()
    assert _finder is not None
    before, sys.path[:] = sys.path[:], _finder.folders
    try:
        yield
    finally:
        sys.path[:] = before


def environment_of_a_child() -> dict[str, str]:
    """The environment of a trusted Python process that this one starts: it finds bitverdict, and looks in no current folder."""
    path = os.pathsep.join([str(IMPORTED_FROM), *_named_by_user()])
    return os.environ | {SAFE_PATH: os.environ.get(SAFE_PATH) or _SET_BY_US, "PYTHONPATH": path}


def forget_safe_path() -> None:
    """In a process that was started by `environment_of_a_child`: what its user's files start is started as they say."""
    if os.environ.get(SAFE_PATH) == _SET_BY_US:
        del os.environ[SAFE_PATH]


def _is_installed(folder: str) -> bool:
    """Whether `folder` of `sys.path` is Python's, of installed packages, bitverdict's own, or one of `PYTHONPATH`."""
    named = {*_named_by_user()} - {str(IMPORTED_FROM)}  # a checkout holds folders that a user's package may be called by
    return not _is_current(folder) and (is_foreign(Path(folder) / "_") or os.path.abspath(folder) in named)


def _named_by_user() -> list[str]:
    """The folders of `PYTHONPATH`, but for the current one: an empty entry means that too, and is mostly a slip."""
    asked = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [os.path.abspath(folder) for folder in asked if not _is_current(folder)]


def _is_current(folder: str) -> bool:
    return os.path.realpath(folder or ".") == os.path.realpath(".")


def _asked_by_a_user() -> bool:
    """Whether the import statement that is being executed stands in a file that is neither Python's, a package's nor ours."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None or frame.f_code.co_filename.startswith("<"):
        return False
    return is_a_users(Path(frame.f_code.co_filename))


def is_a_users(file: Path) -> bool:
    """Whether the file is neither Python's, a package's nor ours."""
    return not (is_ours(file) or is_foreign(file) or file.is_relative_to(IMPORTED_FROM / "bitverdict"))

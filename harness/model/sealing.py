"""Files that this process must not import: those of candidates that are judged sealed.

Only a process of its own imports a sealed candidate (`bitverdict.harness.sealed.candidate`). Everywhere else its address leads to
what stands for it, and an import of its file is refused, by an address and by an import statement alike.
"""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from bitverdict.harness.model import trusted_imports
from bitverdict.harness.model.usage import UsageError

stand_in: Callable[[str], Any] | None = None
"""Gives what stands for the sealed candidate at an address in this process. The workers put it in where one may be asked."""
_sealed_files: dict[Path, str] = {}  # file -> the address that it was sealed by
_stand_ins: dict[str, Any] = {}  # address -> what its user says in its place
_folders: dict[str, tuple[str, ...]] = {}  # address -> folders in which its file finds its modules


def seal(address: str, replacement: Any = None, folders: Sequence[str] = ()) -> None:
    """From here on the file of `address` is not imported in this process. `replacement`: what stands for the candidate here; None:
    what `stand_in` gives. `folders`: in which its own process looks for its modules.

    UsageError for an address that names no file, and where a module of the file is imported already."""
    trusted_imports.begin(always=True)
    path = _file_of(address)
    if not path.is_file():
        raise UsageError(f"address {address!r}: there is no file {path}; give a path to an existing Python file")
    if replacement is not None:
        _stand_ins[address] = replacement
    if folders:
        _folders[address] = tuple(folders)
    if path in _sealed_files:
        return
    _sealed_files[path] = address
    if _SealedFileFinder not in sys.meta_path:
        sys.meta_path.insert(0, _SealedFileFinder)
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(path.name) and Path(file).resolve() == path:
            del _sealed_files[path]
            raise UsageError(
                f"{path.name} is sealed, and this process has imported it as {name}: a candidate that is imported here shares the "
                f"process that judges it; remove the import, and name the candidate by its address {path.name}:"
                f"{address.rpartition(':')[2]}"
            )


def is_sealed(address: str) -> bool:
    """Whether the file of `address` is one that this process must not import."""
    place = address.rpartition(":")[0]
    return bool(_sealed_files) and place.endswith(".py") and Path(place).resolve() in _sealed_files


def stand_in_for(address: str) -> Any:
    """What stands for the sealed candidate at `address` in this process."""
    if address in _stand_ins:
        return _stand_ins[address]
    if stand_in is None:
        raise UsageError(f"{address}: is sealed, and nothing in this process may ask it")
    return stand_in(address)


def folders_of(address: str) -> tuple[str, ...]:
    """The folders in which the file of the sealed candidate at `address` finds its modules."""
    return _folders.get(address, ())


def refuse(path: Path) -> None:
    """UsageError for the file of a sealed candidate."""
    if path in _sealed_files:
        raise UsageError(
            f"{path.name} is sealed: a process of its own imports it, and no other; remove the import, or judge it without sealed"
        )


class _SealedFileFinder:
    """A finder that finds nothing: it refuses a sealed file, and leaves all others to those behind it."""

    @classmethod
    def find_spec(cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        stem = f"{name.rpartition('.')[2]}.py"
        if any(stem in (file.name, "__init__.py") or file.parent.name == stem[:-3] for file in _sealed_files):
            spec = importlib.machinery.PathFinder.find_spec(name, path, target)
            if spec is not None and spec.origin:
                refuse(Path(spec.origin).resolve())


def _file_of(address: str) -> Path:
    place, _, name = address.rpartition(":")
    if not place.endswith(".py") or not name:
        raise UsageError(f"address {address!r}: a sealed candidate must be path/file.py:NAME")
    return Path(place).resolve()

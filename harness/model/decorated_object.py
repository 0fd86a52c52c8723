"""How a worker finds what a public function decorated: the file, the name in it, and the folders in which its modules lie."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from bitverdict.harness.model.addresses import register_loaded
from bitverdict.harness.model.paths import IMPORTED_FROM, is_foreign
from bitverdict.harness.model.usage import UsageError


class DecoratedObject:
    """Where `held()`, an object of the module of `function`, is found again: (address, folders), known once the module is there.

    `what` is what the public function is called, for errors.
    """

    def __init__(self, namespace: Mapping[str, object], held: Callable[[], object], what: str) -> None:
        self.namespace, self.held, self.what = namespace, held, what
        self._found: tuple[str, tuple[str, ...]] | None = None

    def __call__(self) -> tuple[str, tuple[str, ...]]:
        if self._found is None:
            file, name = self._file(), self._name()
            address = f"{file}:{name}"
            register_loaded(address, self.held())
            self._found = address, search_path(file)
        return self._found

    def _file(self) -> Path:
        file = Path(str(self.namespace.get("__file__") or ""))
        if file.suffix != ".py" or not file.is_file():
            raise UsageError(
                f"{self.what}: its module {self.namespace.get('__name__')!r} has no file; workers import the file that it stands "
                "in: write it into one"
            )
        return file.resolve()

    def _name(self) -> str:
        target_object = self.held()
        for name, value in self.namespace.items():
            if value is target_object:
                return name
        classes = [value for value in self.namespace.values() if isinstance(value, type)]
        for owner in classes:
            for name, value in vars(owner).items():
                if value is target_object or getattr(value, "__func__", None) is target_object:
                    return f"{owner.__qualname__}.{name}"
        raise UsageError(
            f"{self.what}: no name of its module leads to it, so a worker cannot find it again; define it at the top of the file, "
            "not inside a function"
        )


def search_path(file: Path) -> tuple[str, ...]:
    """The folder of `file`, or that its package lies in, and those of `sys.path` that are neither Python's own nor of installed
    packages."""
    listed = [str(root_of(file))]
    listed += [os.path.abspath(entry) for entry in sys.path]
    ours = str(IMPORTED_FROM)
    return tuple(
        dict.fromkeys(each for each in listed if each != ours and os.path.isdir(each) and not is_foreign(Path(each) / "_"))
    )


def root_of(file: Path) -> Path:
    """The folder of `file`, or that its package lies in."""
    root = file.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    return root


def import_address(function: object) -> str:
    """The address of a function that was imported: the file and the name that it was defined by. UsageError where there is none."""
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", "")
    file = Path(code.co_filename) if code is not None else Path(getattr(sys.modules.get(function.__module__), "__file__", "") or "")
    if "<" in name or not file.is_file():
        raise UsageError(
            f"{function!r:.100}: is no function of a file, so a worker cannot find it again; define it at the top of a file, or "
            "name it 'FILE:FUNCTION'"
        )
    return f"{file.resolve()}:{name}"

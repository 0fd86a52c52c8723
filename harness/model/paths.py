"""Where things lie: the rooms, the folder that Python imports them from, and where a run leaves its files.

In a checkout the rooms are its own folders; in an installation they lie below ``site-packages/bitverdict``. What is told to a
person, and what tells bugs apart, names a file as it is called in the checkout: ``kernels/matmul.py``, wherever it lies.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path

import bitverdict.harness

HARNESS = Path(next(iter(bitverdict.harness.__path__))).resolve()
ROOT = HARNESS.parent  # holds harness/, kernels/ and reference/
KERNELS, REFERENCE, EMULATOR, CONTRACTS = ROOT / "kernels", ROOT / "reference", HARNESS / "emulator", HARNESS / "contracts"
IMPORTED_FROM = Path(bitverdict.__file__).resolve().parent.parent  # what a process of its own needs on its path
IS_CHECKOUT = (ROOT / "pyproject.toml").is_file()
HOME = ROOT if IS_CHECKOUT else Path.cwd()  # of what a run leaves
REPRODUCERS = HOME / "tests" / "reproducers"  # kept ones, which every test run judges
_STDLIB = Path(os.__file__).parent


def state_directory() -> Path:
    """Where runs leave what git ignores: `BITVERDICT_STATE`, or ``.bitverdict`` in the repository. Not created here."""
    return Path(os.environ.get("BITVERDICT_STATE") or state_directory_of(HOME))


def state_directory_of(repository: Path) -> Path:
    """That of a repository, unless a variable says another: ``.bitverdict``, or its older name where runs left only that."""
    newer, older = repository / ".bitverdict", repository / ".harness"
    return older if (older / "journal").is_dir() and not newer.is_dir() else newer


def notice_of_older_state() -> str:
    """What to say where the state directory has its older name; empty else."""
    directory = state_directory()
    return (
        f"note: {directory} is read and written: rename it to .bitverdict, its newer name" if directory.name == ".harness" else ""
    )


def make_state(directory: Path) -> None:
    """Create `directory`, of or below the state directory, and have git ignore what lies in the latter."""
    directory.mkdir(parents=True, exist_ok=True)
    ignored = state_directory() / ".gitignore"
    if directory.is_relative_to(ignored.parent) and not ignored.exists():
        ignored.write_text("*\n")


def kernels_with_a_contract() -> list[str]:
    """The stem of every kernel that has a contract."""
    return sorted(path.stem for path in CONTRACTS.glob("[a-z]*.py"))


def is_ours(path: Path) -> bool:
    """Whether the file belongs to one of the rooms."""
    return any(path.is_relative_to(room) for room in (HARNESS, KERNELS, REFERENCE))


def is_foreign(path: Path) -> bool:
    """Whether the file is of Python or of an installed package that is not this one."""
    installed = not {"site-packages", "dist-packages"}.isdisjoint(path.parts)
    return not is_ours(path) and (installed or path.is_relative_to(_STDLIB))


def display_path(path: Path) -> str:
    """The file as a report names it: relative to the checkout, or by its name alone where it lies elsewhere."""
    inside = path.is_relative_to(ROOT) if IS_CHECKOUT else is_ours(path)
    return str(path.relative_to(ROOT)) if inside else path.name


def source_line(file: str, line: int | str) -> str:
    """``file:line`` as a report names it."""
    return f"{display_path(Path(file))}:{line}"


def path_from_here(said: str) -> str:
    """``file:line``, alone or in a sentence, as it is typed in the current folder, where the file lies below that."""
    return said.replace(f"{Path.cwd()}{os.sep}", "")


def relative(text: str) -> str:
    """`text` with paths of the rooms made relative, so that a signature means the same in another checkout."""
    return text.replace(f"{ROOT}/", "")


@cache
def code_digest() -> str:
    """A digest of every Python file of the rooms that decide a verdict."""
    text = hashlib.sha256()
    for room in ("harness", "kernels", "reference"):
        for path in sorted((ROOT / room).rglob("*.py")):
            text.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return text.hexdigest()[:16]

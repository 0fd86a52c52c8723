"""The files of a user's kernel in a pack: the test, the launcher, and each module that they import from the user's own folders.

A file stands in a pack at the path by which Python imports it (``ops/norm.py`` for ``ops.norm``), so that one folder holds all.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from importlib import invalidate_caches
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from bitverdict.harness.model.addresses import imported_names, package_of
from bitverdict.harness.model.paths import is_foreign, is_ours
from bitverdict.harness.model.usage import UsageError

OF_THE_HARNESS = frozenset({"bitverdict", "harness", "reference", "torch", "triton", "numpy", "hypothesis", "pytest"})
"""Packages that are no file of the user's wherever they lie: who works on Triton imports it from a checkout."""
DEEPEST = 32  # folders of a path in a pack
PARTS = ("contract", "launcher")  # of a case, and of what a pack is about: addresses


def own_files(places: Iterable[Path]) -> dict[str, Path]:
    """{path in the pack: file} of the files at `places` and what they import. UsageError where two files have one name."""
    found: dict[str, Path] = {}
    for place in places:
        package = package_of(place)
        _take(f"{package}.{place.stem}" if package else place.stem, place.resolve(), found)
    return found


def _take(name: str, file: Path, files_by_name: dict[str, Path]) -> None:
    inside = PurePosixPath(*name.split("."))
    inside = inside / "__init__.py" if file.name == "__init__.py" else inside.with_suffix(".py")
    if (other := files_by_name.setdefault(str(inside), file)) != file:
        raise UsageError(f"{file} and {other}: both are {inside} in a pack; rename one of them")
    parents = name.split(".")[:-1]
    package = name if file.name == "__init__.py" else ".".join(parents)
    above = [".".join(parents[:count]) for count in range(1, len(parents) + 1)]
    for each in (*above, *imported_names(file.read_text(), package)):
        origin = _file_of(each)
        if origin is not None and origin not in files_by_name.values():
            _take(each, origin, files_by_name)


def _file_of(name: str) -> Path | None:
    """The file of the module `name`, where it is the user's own; None for what is installed, ours, or no module."""
    if name.partition(".")[0] in OF_THE_HARNESS:
        return None
    try:
        spec = find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    path = Path(spec.origin).resolve() if spec is not None and spec.has_location and spec.origin else None
    return path if path is not None and path.suffix == ".py" and not is_foreign(path) and not is_ours(path) else None


def pack_sources(about: dict[str, object], cases: Iterable[dict[str, Any]]) -> dict[str, str]:
    """The texts of the files that `about` and `cases` name, whose addresses then name them as the pack does."""
    records = [about, *(each["case"] for each in cases)]
    places = {place for record in records for part in PARTS if (place := record.get(part, "").rpartition(":")[0]).endswith(".py")}
    files = own_files(Path(place) for place in sorted(places))
    inside = {file: name for name, file in files.items()}
    for record in records:
        record.pop("search_path", None)  # of this machine
        for part in PARTS:
            place, _, name = record.get(part, "").rpartition(":")
            if place in places:
                record[part] = f"{inside[Path(place).resolve()]}:{name}"
    return {name: file.read_text() for name, file in files.items()}


def place_sources(about: dict[str, Any], cases: Iterable[dict[str, Any]], sources: Mapping[str, str], directory: Path) -> None:
    """Write `sources` below `directory`, and have `about` and `cases` name them there.

    UsageError for a name that leads out of it, or that is of an installed module, for files of which no address is there, and for
    an address of a file that is none of `sources`: nothing else is imported.
    """
    directory = directory.resolve()
    if sources and not any(about.get(part, "").rpartition(":")[0].endswith(".py") for part in PARTS):
        raise UsageError(f"source {next(iter(sources))!r}: is of no kernel of the pack, which is of a shipped one and needs none")
    for name, text in sources.items():
        _check_name(name)
        path = PurePosixPath(name)
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text)
    for record in (about, *(each["case"] for each in cases)):
        record.pop("search_path", None)
        if record is not about and sources:
            record["search_path"] = [str(directory)]
        for part in PARTS:
            place, _, name = record.get(part, "").rpartition(":")
            if place.endswith(".py"):
                if place not in sources:
                    raise UsageError(f"{part} {record[part]!r}: is no file of the pack's sources")
                record[part] = f"{directory / place}:{name}"
    sys.path.append(str(directory))
    invalidate_caches()


def _check_name(name: str) -> None:
    """UsageError for the path of a source that no user's file can have, or by which it would stand for an installed module."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or path.suffix != ".py" or "\0" in name or len(path.parts) > DEEPEST:
        raise UsageError(f"source {name[:200]!r}: must be a relative path of a Python file, of at most {DEEPEST} folders")
    top = path.parts[0].removesuffix(".py")
    if top in OF_THE_HARNESS or top in sys.stdlib_module_names or _is_installed(top):
        raise UsageError(
            f"source {name!r}: {top} is a module of Python's, of this project's or of an installed package; rename the file"
        )


def _is_installed(name: str) -> bool:
    """Whether the top-level `name` leads to an installed package here."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return False
    places = [spec.origin, *(spec.submodule_search_locations or ())] if spec is not None else []
    return any(is_foreign(Path(place).resolve()) for place in places if place)

"""Figures of the sources: lines, files that are long or short, arguments typed Any, and what the wheel holds and needs."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PRODUCT = ("bitverdict", "harness", "kernels", "reference")
OUTSIDE_CORE = ("harness/lab",)
"""Rooms that are an extra of their own or no part of the wheel: a room comes here when `pip install bitverdict` leaves it out."""

OF_EXTRAS = ("libcst", "landlockpy", "pyseccomp", "jinja2")  # no dependencies of the core
LONG_FILE, SHORT_FILE = 400, 40
REASON = re.compile(r"^# One file because \S", re.MULTILINE)
"""What a file of more than 400 lines says in a comment line of its own: what it is that two files would tear apart."""


@dataclass(frozen=True)
class Sources:
    """The Python files of a checkout that git has or would take."""

    root: Path

    @cached_property
    def texts(self) -> dict[str, str]:
        """{path from the root: text} in order."""
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"]
        listed = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=True).stdout.split("\n")
        paths = sorted({name for name in listed if name and (self.root / name).is_file()})
        return {name: (self.root / name).read_text() for name in paths}

    @cached_property
    def trees(self) -> dict[str, ast.Module]:
        """The syntax trees of the product's files; those of tests and benchmarks nobody asks for."""
        return {name: ast.parse(text) for name, text in self.product.items()}

    @cached_property
    def product(self) -> dict[str, str]:
        return {name: text for name, text in self.texts.items() if name.split("/")[0] in PRODUCT}


def lines_of(text: str) -> int:
    return text.count("\n")


def core_lines(sources: Sources) -> list[str]:
    """One entry a line of a product file that `pip install bitverdict` brings, as ``file: lines``; `total` sums them."""
    return [
        f"{name}: {lines_of(text)}"
        for name, text in sources.product.items()
        if not any(name.startswith(f"{room}/") for room in OUTSIDE_CORE)
    ]


def repository_lines(sources: Sources) -> list[str]:
    return [f"{name}: {lines_of(text)}" for name, text in sources.texts.items()]


def long_files(sources: Sources) -> list[str]:
    """Files of more than `LONG_FILE` lines without a `REASON`."""
    return [
        f"{name}: {lines_of(text)}"
        for name, text in sources.texts.items()
        if lines_of(text) > LONG_FILE and REASON.search(text) is None
    ]


def short_files(sources: Sources) -> list[str]:
    """Files of the product with fewer than `SHORT_FILE` lines; what a room's `__init__` says is no reason to merge it."""
    return [
        f"{name}: {lines_of(text)}"
        for name, text in sources.product.items()
        if lines_of(text) < SHORT_FILE and not name.endswith("__init__.py")
    ]


def any_arguments(sources: Sources) -> list[str]:
    """Arguments of the product's functions with `Any` in their type."""
    return [
        f"{name}:{argument.lineno}: {argument.arg}" for name, tree in sources.trees.items() for argument in _any_arguments_of(tree)
    ]


def _any_arguments_of(tree: ast.Module) -> Iterator[ast.arg]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = node.args
            for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
                if argument is not None and argument.annotation is not None:
                    if any(isinstance(part, ast.Name) and part.id == "Any" for part in ast.walk(argument.annotation)):
                        yield argument


def core_dependencies(sources: Sources) -> list[str]:
    """Of the dependencies of the core those that only an extra needs."""
    project = tomllib.loads((sources.root / "pyproject.toml").read_text())["project"]
    names = [re.split(r"[<>=!~\[; ]", line)[0] for line in project["dependencies"]]
    return [name for name in names if name in OF_EXTRAS]


def wheel_bytes(sources: Sources) -> list[str]:
    """``file: bytes`` of what setuptools puts into the wheel by pyproject.toml: modules of packages, and package data. `.ci/wheel`
    holds it to the wheel that it builds."""
    settings = tomllib.loads((sources.root / "pyproject.toml").read_text())["tool"]["setuptools"]
    excluded_packages = [re.escape(name).replace(r"\*", ".*") for name in settings["packages"]["find"].get("exclude", ())]
    patterns = ("*.py", *settings["package-data"]["*"])
    wheel_files = []
    for room in PRODUCT:
        for folder in sorted(path.parent for path in (sources.root / room).rglob("__init__.py")):
            place = folder.relative_to(sources.root)
            package = ".".join(place.parts if place.parts[0] == "bitverdict" else ("bitverdict", *place.parts))
            if any(re.fullmatch(pattern, package) for pattern in excluded_packages) or place.parts[1:2] in (
                ("harness",),
                ("kernels",),
            ):
                continue
            files = {path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}
            wheel_files += [f"{path.relative_to(sources.root)}: {path.stat().st_size}" for path in sorted(files)]
    return wheel_files


def bytes_in_wheel(wheel: Path) -> list[str]:
    """``file: bytes`` of what a built wheel unpacks to, its own metadata left out; files as the checkout calls them."""
    with zipfile.ZipFile(wheel) as archive:
        files = {entry.filename: entry.file_size for entry in archive.infolist() if ".dist-info/" not in entry.filename}
    rooms = "|".join(room for room in PRODUCT if room != "bitverdict")
    return [f"{re.sub(f'^bitverdict/(?=({rooms})/)', '', name)}: {size}" for name, size in sorted(files.items())]


def total(entries: list[str]) -> int:
    """The sum of the numbers that entries end in."""
    return sum(int(entry.rpartition(": ")[2]) for entry in entries)

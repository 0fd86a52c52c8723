"""The kernel's source around the lines that a failure names: text that is read, and never imported."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.paths import ROOT, display_path

AROUND, MAX_LINES = 9, 56  # lines before the first marked one and after the last; lines of one listing


def file_of(location: str, case: Case) -> tuple[Path, int] | None:
    """The file and the line that ``file:line`` names; None where no such text can be read."""
    file, _, number = location.rpartition(":")
    under_test = (Path(address.rpartition(":")[0]) for address in (case.launcher, case.contract))
    for path in (*(place for place in under_test if file and place.name == Path(file).name), Path(file), ROOT / file):
        if number.isdigit() and path.suffix == ".py" and path.is_file():
            return path, int(number)
    return None


def listing(marks: Mapping[str, str], case: Case) -> list[dict[str, Any]]:
    """For each file that `marks` ({"file:line": what is there}) names: its name, and numbered lines of the functions around the
    marked ones, each with what is said of it ("" for nothing)."""
    files: dict[Path, dict[int, str]] = {}
    for location, said in marks.items():
        if (found := file_of(location, case)) is not None:
            at = files.setdefault(found[0], {})
            at[found[1]] = f"{at[found[1]]}; {said}" if at.get(found[1], said) != said else said
    return [told for path, at in files.items() if (told := listing_of(path, at))]


def listing_of(path: Path, marks: dict[int, str]) -> dict[str, Any] | None:
    text = path.read_text(errors="replace")
    lines = text.splitlines()
    marks = {number: said for number, said in marks.items() if 0 < number <= len(lines)}
    if not marks:
        return None
    first_line, last_line = max(min(marks) - AROUND, 1), min(max(marks) + AROUND, len(lines))
    for begin, end in _functions(text):
        if any(begin <= number <= end for number in marks) and max(last_line, end) - min(first_line, begin) < MAX_LINES:
            first_line, last_line = min(first_line, begin), max(last_line, end)
    if last_line - first_line >= MAX_LINES:
        numbers = {near for number in marks for near in range(number - AROUND, number + AROUND + 1)}
    else:
        numbers = set(range(first_line, last_line + 1))
    shown_lines: list[dict] = []
    numbers &= set(range(1, len(lines) + 1))
    for number in sorted(
        number for number in numbers if lines[number - 1].strip() or (number - 1 in numbers and lines[number - 2].strip())
    ):
        gap = bool(shown_lines) and not numbers.issuperset(range(shown_lines[-1]["number"] + 1, number))
        shown_lines.append({"number": number, "text": lines[number - 1], "said": marks.get(number, ""), "gap": gap})
    if not shown_lines[-1]["text"].strip():
        shown_lines.pop()
    return {"file": display_path(path), "lines": shown_lines}


def _functions(text: str) -> list[tuple[int, int]]:
    """First and last line of each function of `text`, its decorators included."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return []
    return [
        (min([node.lineno, *(each.lineno for each in node.decorator_list)]), node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    ]


def definition_of(name: str, case: Case, near: Path | None = None) -> str:
    """``file:line`` of the function called `name` in the file under test, or in one `near`; empty where there is none."""
    places = [Path(address.rpartition(":")[0]) for address in (case.launcher, case.contract) if ".py:" in address]
    stem = case.contract if ":" not in case.contract else ""
    for path in (*places, *([ROOT / "kernels" / f"{stem}.py"] if stem else []), *([near] if near else [])):
        if not path.is_file():
            continue
        try:
            tree = ast.parse(path.read_text(errors="replace"))
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return f"{path}:{node.lineno}"
    return ""

"""The kernel's source around the lines that a failure names: text that is read, and never imported."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.paths import display_path
from bitverdict.harness.session.source_excerpt import file_of

AROUND, MAX_LINES = 9, 56  # lines before the first marked one and after the last; lines of one listing


def listing(marks: Mapping[str, str], case: Case) -> list[dict[str, Any]]:
    """For each file that `marks` ({"file:line": what is there}) names: its name, and numbered lines of the functions around the
    marked ones, each with what is said of it ("" for nothing)."""
    files: dict[Path, dict[int, str]] = {}
    for location, said in marks.items():
        if (found := file_of(location, case)) is not None:
            at = files.setdefault(found[0].resolve(), {})
            at[found[1]] = f"{at[found[1]]}; {said}" if at.get(found[1], said) != said else said
    return [told for path, at in files.items() if (told := listing_of(path, at))]


def listing_of(path: Path, marks: dict[int, str]) -> dict[str, Any] | None:
    linecache.checkcache(str(path))
    text = "".join(linecache.getlines(str(path)))  # Python has the text of a notebook's cell too, which is no file
    lines = text.split("\n") if text else []
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
    parts = coloured_lines(text)
    numbers &= set(range(1, len(lines) + 1))
    for number in sorted(
        number for number in numbers if lines[number - 1].strip() or (number - 1 in numbers and lines[number - 2].strip())
    ):
        gap = bool(shown_lines) and not numbers.issuperset(range(shown_lines[-1]["number"] + 1, number))
        shown_lines.append({"number": number, "parts": parts[number - 1], "said": marks.get(number, ""), "gap": gap})
    if not lines[shown_lines[-1]["number"] - 1].strip():
        shown_lines.pop()
    return {"file": display_path(path), "lines": shown_lines}


def coloured_lines(text: str) -> list[list[tuple[str, str]]]:
    """The lines of the Python `text` in pieces: ("keyword", "string", "number", "comment" or "", characters)."""
    from pygments.lexers import PythonLexer
    from pygments.token import Comment, Keyword, Number, Operator, String

    classes = {Keyword: "keyword", Operator.Word: "keyword", String: "string", Number: "number", Comment: "comment"}
    lines: list[list[tuple[str, str]]] = [[]]
    for kind, characters in PythonLexer(stripnl=False).get_tokens(text):
        css_class = next((name for token, name in classes.items() if kind in token), "")
        for place, part in enumerate(characters.split("\n")):
            lines += [[]] if place else []
            lines[-1] += [(css_class, part)] if part else []
    return [[(name, "".join(part for _, part in pieces)) for name, pieces in groupby(line, itemgetter(0))] for line in lines]


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

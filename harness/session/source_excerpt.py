"""The lines of source that a failure is about: with their numbers, the expression underlined, and what would help."""

from __future__ import annotations

import ast
from pathlib import Path

from rich.text import Text

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.paths import ROOT

CONTEXT = 2  # lines above the one that is to blame
_CALLS = {
    "tt.load": ("load",),
    "ttg.async_copy_global_to_local": ("load",),
    "tt.store": ("store",),
    "tt.atomic_rmw": ("atomic_add", "atomic_max", "atomic_min", "atomic_and", "atomic_or", "atomic_xor", "atomic_xchg"),
    "tt.atomic_cas": ("atomic_cas",),
    "tt.dot": ("dot", "dot_scaled"),
}
"""Operation of the tile program -> the functions of `tl` that a kernel calls for it."""


def source_file(location: str, case: Case) -> tuple[list[str], int]:
    """(lines, number) of ``file:line``; number 0 where it cannot be read. The judged kernel's own file is known by its name alone:
    it may be a copy that lies elsewhere."""
    file, _, number = location.rpartition(":")
    under_test = (Path(address.rpartition(":")[0]) for address in (case.launcher, case.contract))
    for path in (*(place for place in under_test if file and place.name == Path(file).name), Path(file), ROOT / file):
        if number.isdigit() and path.suffix == ".py" and path.is_file():
            lines = path.read_text(errors="replace").splitlines()
            return lines, int(number) if 0 < int(number) <= len(lines) else 0
    return [], 0


def source_line(location: str, case: Case) -> str:
    """The text at ``file:line``; empty where it cannot be read."""
    lines, number = source_file(location, case)
    return lines[number - 1].strip() if number else ""


def excerpt(location: str, case: Case, operation: str = "") -> list[Text]:
    """The line at `location` under those before it, the call of `operation` (as the tile program names it) underlined."""
    lines, number = source_file(location, case)
    if not number:
        return []
    first_number = max(number - CONTEXT, 1)
    while first_number < number and not lines[first_number - 1].strip():
        first_number += 1
    shown = lines[first_number - 1 : number]
    indent = min(len(line) - len(line.lstrip()) for line in shown if line.strip())
    width = len(str(number))
    texts = [
        _source_text(f"    {place:{width}} │ {line[indent:]}", "cyan" if place == number else "dim")
        for place, line in enumerate(shown, first_number)
    ]
    begin, end = _span(lines, number, operation)
    return [*texts, _source_text(f"    {'':{width}} │ {' ' * (begin - indent)}{'^' * (end - begin)}", "red")]


def _source_text(line: str, style: str) -> Text:
    return Text(line, style=style, no_wrap=True, overflow="ellipsis")


def _call(lines: list[str], number: int, operation: str) -> ast.Call | None:
    """The only call of `operation` that begins in that line."""
    names = next((names for kind, names in _CALLS.items() if f"{kind} " in f"{operation} "), ())
    calls = [node for node in _calls(lines) if node.lineno == number and _name(node) in names]
    return calls[0] if len(calls) == 1 else None


def _calls(lines: list[str]) -> list[ast.Call]:
    try:
        return [node for node in ast.walk(ast.parse("\n".join(lines))) if isinstance(node, ast.Call)]
    except SyntaxError:
        return []


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _span(lines: list[str], number: int, operation: str) -> tuple[int, int]:
    """(begin, end) in the line: of the call of `operation`, else of the whole line but a comment."""
    line = lines[number - 1]
    code = line.partition("  #")[0].rstrip()
    call = _call(lines, number, operation)
    if call is None or not line.isascii():  # `ast` counts bytes
        return len(line) - len(line.lstrip()), len(code)
    return call.col_offset, call.end_col_offset if call.end_lineno == number and call.end_col_offset else len(code)


def mask_help(location: str, case: Case, operation: str) -> str:
    """What to add to a load or store without a mask that goes astray, with the mask of its nearest neighbour; else empty."""
    lines, number = source_file(location, case)
    call = _call(lines, number, operation) if number else None
    if call is None or _name(call) not in ("load", "store") or _mask(call):
        return ""
    others = [(node.lineno, _mask(node)) for node in _calls(lines) if _name(node) in ("load", "store") and _mask(node)]
    nearest = min(others, key=lambda other: abs(other[0] - number), default=None)
    beside = f"; that of line {nearest[0]} has mask={nearest[1]}" if nearest else ""
    return f"this {_name(call)} has no mask{beside or ': add mask=OFFSETS < SIZE'}"


def _mask(call: ast.Call) -> str:
    place = 1 if _name(call) == "load" else 2
    given = next((each.value for each in call.keywords if each.arg == "mask"), call.args[place] if len(call.args) > place else None)
    return ast.unparse(given) if given is not None else ""

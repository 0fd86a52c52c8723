"""The lines of source that a failure is about: with their numbers, the expression underlined, and what would help."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from rich.text import Text

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.paths import ROOT

Node = TypeVar("Node", bound=ast.AST)
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


def file_of(location: str, case: Case) -> tuple[Path, int] | None:
    """The file and the line that ``file:line`` names; None where no such text can be read. The judged kernel's own file is known by
    its name alone: it may be a copy that lies elsewhere."""
    file, _, number = location.rpartition(":")
    under_test = (Path(address.rpartition(":")[0]) for address in (case.launcher, case.contract))
    for path in (*(place for place in under_test if file and place.name == Path(file).name), Path(file), ROOT / file):
        if number.isdigit() and path.suffix == ".py" and path.is_file():
            return path, int(number)
    return None


def source_file(location: str, case: Case) -> tuple[list[str], int]:
    """(lines, number) of ``file:line``; number 0 where it cannot be read."""
    found = file_of(location, case)
    lines = found[0].read_text(errors="replace").splitlines() if found else []
    return lines, found[1] if found and 0 < found[1] <= len(lines) else 0


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
    return _nodes(lines, ast.Call)


def _nodes(lines: list[str], kind: type[Node]) -> list[Node]:
    try:
        return [node for node in ast.walk(ast.parse("\n".join(lines))) if isinstance(node, kind)]
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
    """What to add to a load or store without a mask that goes astray: the mask of the nearest call with the same indices, else the
    indices to bound; empty where it has a mask or none can be read."""
    lines, number = source_file(location, case)
    call = _call(lines, number, operation) if number else None
    if call is None or _name(call) not in ("load", "store") or _mask(call):
        return ""
    kernel = next((node for node in _nodes(lines, ast.FunctionDef) if node.lineno <= number <= (node.end_lineno or 0)), None)
    indices = _indices(call.args[0], kernel) if kernel and call.args else set()
    masked_calls = [
        (abs(node.lineno - number), node.lineno, ast.unparse(mask))
        for node in _calls(lines)
        if _name(node) in ("load", "store") and (mask := _mask(node)) and indices and _indices(mask, kernel) == indices
    ]
    if masked_calls:
        _, line, text = min(masked_calls)
        return f"this {_name(call)} has no mask; line {line}, with the same index, has mask={text}"
    return f"this {_name(call)} has no mask: add one that bounds {' and '.join(sorted(indices))}" if indices else ""


def _indices(node: ast.AST, kernel: ast.FunctionDef | None, expanded_names: frozenset[str] = frozenset()) -> set[str]:
    """The expressions over `arange` that `node` is made of, by the assignments of `kernel`; none of what a remainder bounds."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return set()
    parts: Sequence[ast.AST] = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Name):
        statements = ast.walk(kernel or node) if node.id not in expanded_names else ()
        values = [value for statement in statements for value in _values_assigned(statement, node.id)]
        if any(isinstance(part, ast.Call) and _name(part) == "arange" for value in values for part in ast.walk(value)):
            return {node.id}
        parts, expanded_names = values, expanded_names | {node.id}
    if isinstance(node, ast.Call) and _name(node) == "arange":
        return {ast.unparse(node)}
    found = set[str]().union(*(_indices(each, kernel, expanded_names) for each in parts))
    return {ast.unparse(node)} if found and isinstance(node, ast.Subscript) else found


def _values_assigned(node: ast.AST, name: str) -> list[ast.expr]:
    """What the statement `node` assigns to `name`, alone or in a tuple."""
    pairs: list[tuple[ast.expr, ast.expr]] = []
    if isinstance(node, ast.Assign | ast.AugAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            both = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
            pairs += zip(target.elts, node.value.elts) if both else [(target, node.value)]  # type: ignore[attr-defined]
    return [value for target, value in pairs if isinstance(target, ast.Name) and target.id == name]


def _mask(call: ast.Call) -> ast.expr | None:
    place = 1 if _name(call) == "load" else 2
    return next((each.value for each in call.keywords if each.arg == "mask"), call.args[place] if len(call.args) > place else None)

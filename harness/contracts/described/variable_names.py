"""What a body calls the values that it draws: the variable of ``m, n = draw.size(1, 9), draw.size(1, 300)`` to which each goes."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from itertools import islice
from types import FrameType

from bitverdict.harness.model.case import Case

CASE_FIELDS = frozenset(each.name for each in fields(Case))


def variable_name(frame: FrameType | None) -> str:
    """The variable to which the call that `frame` is in goes; empty where it goes to none, or has the name of a field of a case."""
    if frame is None:
        return ""
    line, _, column, _ = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), (None,) * 4)
    name = _assigned_calls(frame.f_code.co_filename).get((line, column), "")
    return "" if name in CASE_FIELDS else name


@cache
def _assigned_calls(file: str) -> dict[tuple[int | None, int | None], str]:
    """{line and column of a call: the variable that it is assigned to} in the text of `file`."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return {}
    return {
        (value.lineno, value.col_offset): target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None
        for target, value in _pairs(node.targets[0] if isinstance(node, ast.Assign) else node.target, node.value)
        if isinstance(target, ast.Name) and isinstance(value, ast.Call)
    }


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        yield from zip(target.elts, value.elts, strict=True)
    else:
        yield target, value

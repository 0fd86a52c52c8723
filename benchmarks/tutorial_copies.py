"""Copies of tutorials as they are run: names of another release changed, benchmarks taken out, sizes reduced."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

LARGEST, STEP = 767, 256  # of the reduced sizes: 512 to 767, the same modulo 256


def copied(folder: Path, to: Path, replaced: dict[str, str], *, reduced: bool) -> None:
    """The tutorials of `folder` in `to`, with each name of `replaced` changed, and their sizes `reduced` or as they are."""
    shutil.copytree(folder, to, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    for file in to.rglob("*.py"):
        text = file.read_text()
        for old, new in replaced.items():
            text = re.sub(rf"\b{re.escape(old)}\b", new, text)
        text = with_other(text, _benchmarks(ast.parse(text)), lambda _: "None")
        file.write_text(with_reduced_sizes(text) if reduced else text)


def with_reduced_sizes(text: str) -> str:
    """Python source with each integer above `LARGEST` outside of functions and classes reduced."""
    return with_other(text, _large(ast.parse(text)), lambda node: str(smaller(_whole(node) or 0)))


def smaller(size: int) -> int:
    """The integer from 512 to 767 that is `size` modulo 256."""
    return LARGEST + 1 - STEP + size % STEP


def with_other(text: str, nodes: Iterable[ast.expr], instead: Callable[[ast.expr], str]) -> str:
    """Python source with another text for each of `nodes`, none of which holds another. Lines stay where they are."""
    lines = [line.encode() for line in text.splitlines(keepends=True)]  # columns of `ast` are bytes
    for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        behind = b"\n" * (last - first) + lines[last][node.end_col_offset :]
        lines[first : last + 1] = [lines[first][: node.col_offset] + instead(node).encode() + behind, *[b""] * (last - first)]
    return b"".join(lines).decode()


def _benchmarks(module: ast.Module) -> Iterator[ast.expr]:
    """Statements outside of functions that call a function whose name begins with bench."""
    waiting: list[Any] = [module]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        call = node.value if isinstance(node, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id.startswith("bench"):
            yield call
        waiting += ast.iter_child_nodes(node)


def _large(node: ast.AST) -> Iterator[ast.expr]:
    """Expressions of integers alone whose value is above `LARGEST`: their outermost nodes."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        inside: Iterable[ast.AST] = node.decorator_list
    elif isinstance(node, ast.Lambda | ast.JoinedStr):
        return
    elif isinstance(node, ast.expr) and (value := _whole(node)) is not None:
        if value > LARGEST:
            yield node
        return
    else:
        inside = ast.iter_child_nodes(node)
    for each in inside:
        yield from _large(each)


def _whole(node: ast.AST) -> int | None:
    """The integer that `node`, made of integers, +, -, *, //, ** and <<, comes to; None for any other."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.BinOp):
        left, right = _whole(node.left), _whole(node.right)
        if left is None or right is None or type(node.op) not in _FOLDED or right < 0:
            return None
        return _FOLDED[type(node.op)](left, right)
    return None


_FOLDED: dict[type, Callable[[int, int], int | None]] = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b if b else None, ast.Pow: lambda a, b: a**b if b < 64 else None,
    ast.LShift: lambda a, b: a << b if b < 64 else None,
}  # fmt: skip

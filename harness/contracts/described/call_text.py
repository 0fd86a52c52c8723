"""The call that a body makes in one case, as Python that can be pasted: what it returns, with its draws written out."""

from __future__ import annotations

import ast
import copy
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from bitverdict.harness.contracts.described.dtypes import torch_dtype
from bitverdict.harness.contracts.described.record import OPERANDS, Entry
from bitverdict.harness.model.case import Operand
from bitverdict.reference.formats import FORMATS, decode

ELEMENT_LIMIT = 16  # elements of a tensor that a person can read


class UnwritableCall(Exception):
    """The body is no row of assignments, or an operand is no short contiguous tensor."""


def call_text(body: Callable[..., object], entries: tuple[Entry, ...], operands: Mapping[int, Operand]) -> str:
    """What `body` returns where it draws `entries`, with `operands` by their places. Empty where it is no row of assignments, or
    where an operand is long or not contiguous."""
    try:
        (function,) = ast.parse(textwrap.dedent(inspect.getsource(body))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return ""
    if not isinstance(function, ast.FunctionDef) or len(function.args.args) != 1:
        return ""
    written = _WrittenDraws(function.args.args[0].arg, iter(enumerate(entries)), operands)
    try:
        return written.return_text(function.body)
    except UnwritableCall:
        return ""


class _WrittenDraws(ast.NodeTransformer):
    """Draws as their values, names as what was assigned to them."""

    def __init__(self, draw: str, entries: Iterator[tuple[int, Entry]], operands: Mapping[int, Operand]) -> None:
        self.draw, self.entries, self.operands = draw, entries, operands
        self.names: dict[str, ast.expr] = {}

    def return_text(self, statements: list[ast.stmt]) -> str:
        for statement in statements:
            if isinstance(statement, ast.Return) and statement.value is not None:
                text = ast.unparse(self.visit(statement.value))
                if next(self.entries, None) is not None:
                    raise UnwritableCall
                return text
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                self._assign(statement.targets[0], self.visit(statement.value))
            elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant | ast.Call):
                if not isinstance(statement.value, ast.Constant) and not self._is_draw(statement.value, "assume"):
                    raise UnwritableCall
            else:
                raise UnwritableCall
        raise UnwritableCall

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = value
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for name, part in zip(target.elts, value.elts, strict=True):
                self._assign(name, part)
        else:
            raise UnwritableCall

    def _is_draw(self, node: ast.Call, kind: str = "") -> bool:
        function = node.func
        drawn = isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == self.draw
        return drawn and (not kind or function.attr == kind)  # type: ignore[attr-defined]

    def visit_Call(self, node: ast.Call) -> Any:
        if not self._is_draw(node):
            return self.generic_visit(node)
        for inner in (*node.args, *node.keywords):
            self.visit(copy.deepcopy(inner))  # draws among its arguments come first
        place, entry = next(self.entries, (0, None))
        if entry is None or not self._is_draw(node, entry.kind):
            raise UnwritableCall
        return ast.parse(self._value(place, entry), mode="eval").body

    def visit_Name(self, node: ast.Name) -> Any:
        if node.id == self.draw:
            raise UnwritableCall  # handed on to another function
        return copy.deepcopy(self.names.get(node.id, node))

    def _branch(self, node: ast.AST) -> Any:
        raise UnwritableCall

    visit_IfExp = visit_Lambda = visit_ListComp = visit_GeneratorExp = visit_BoolOp = visit_NamedExpr = _branch
    visit_SetComp = visit_DictComp = visit_Starred = _branch

    def _value(self, place: int, entry: Entry) -> str:
        dtype = f"dtype={torch_dtype(entry.dtype)}" if entry.dtype else ""
        if entry.kind == "output":
            return f"torch.empty({entry.shape}, {dtype}, device='cuda')"
        if entry.kind not in OPERANDS:
            return repr(entry.value)
        operand = self.operands[place]
        if entry.strides or entry.offset or operand.codes.size > ELEMENT_LIMIT:
            raise UnwritableCall
        values = decode(FORMATS[entry.dtype], operand.codes).astype(np.float32) if "float" in dtype else operand.codes
        text = np.array2string(values, separator=", ", max_line_width=1 << 20, floatmode="unique")
        text = re.sub(r"\b(nan|inf)\b", r"float('\1')", re.sub(r"\[\s+", "[", " ".join(text.split())))
        return f"torch.tensor({text}, {dtype}, device='cuda')"

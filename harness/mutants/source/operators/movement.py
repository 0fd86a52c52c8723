"""What is moved at all: stores, copies, products and transposes that are left out, and operands that are exchanged."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from bitverdict.harness.mutants.source.operators.record import Change, argument, is_statement, operator
from bitverdict.harness.mutants.source.places import Place, callee_name


@operator("store dropped", "movement")
def store_dropped(place: Place) -> Iterator[Change]:
    """What was computed or fetched goes nowhere."""
    if isinstance(node := place.node, cst.Call) and is_statement(place):
        if re.search(r"(store|copy|async_\w+|_mma|mma|scatter|gather|load|reduce|atomic_\w+)$", callee_name(node)):
            yield Change(place.file.parents[node], "pass")


@operator("transpose dropped", "movement")
def transpose_dropped(place: Place) -> Iterator[Change]:
    """Rows stay rows."""
    node = place.node
    if isinstance(node, cst.Attribute) and node.attr.value == "T":
        yield Change(node, place.code(node.value))
    if isinstance(node, cst.Call) and callee_name(node) in ("trans", "permute"):
        method = isinstance(node.func, cst.Attribute) and not isinstance(node.func.value, cst.Name)
        in_method = (
            callee_name(node) == "permute"
            and isinstance(node.func, cst.Attribute)
            and place.code(node.func.value) not in ("tl", "gl")
        )
        if (method or in_method) and isinstance(node.func, cst.Attribute):
            yield Change(node, place.code(node.func.value))
        elif node.args:
            yield Change(node, f"({place.code(node.args[0].value)})")


@operator("operands exchanged", "movement")
def operands_exchanged(place: Place) -> Iterator[Change]:
    """Each operand of a product stands for the other, or of two halves that are joined."""
    if isinstance(node := place.node, cst.Call) and re.search(r"^(dot|join|interleave|cat)$|mma", callee_name(node)):
        first, second = argument(node, 0), argument(node, 1)
        if first is not None and second is not None:
            start, end = place.file.span(node)
            one, two = place.file.span(first.value), place.file.span(second.value)
            text = place.file.text
            swapped = text[start : one[0]] + text[slice(*two)] + text[one[1] : two[0]] + text[slice(*one)] + text[two[1] : end]
            yield Change(node, swapped)

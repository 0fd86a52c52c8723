"""Indices, strides, and which tile a program takes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from bitverdict.harness.mutants.source.operators.record import Change, argument, integer, operator
from bitverdict.harness.mutants.source.places import Place, callee_name

PAIRS = (("_m", "_n"), ("_m", "_k"), ("_n", "_k"), ("_row", "_column"), ("_x", "_y"), ("_a", "_b"))


@operator("index off by one", "index")
def index_off_by_one(place: Place) -> Iterator[Change]:
    """Elements, or tiles, are those after the right ones."""
    if isinstance(node := place.node, cst.Call) and callee_name(node) in ("arange", "program_id"):
        yield Change(node, f"({place.code(node)} + 1)")


@operator("program axis changed", "tile order")
def program_axis(place: Place) -> Iterator[Change]:
    """A program takes its number along another axis of the grid."""
    if isinstance(node := place.node, cst.Call) and callee_name(node) in ("program_id", "num_programs"):
        axis = argument(node, 0, "axis")
        if axis is not None and (value := integer(axis.value)) is not None:
            yield Change(axis.value, str((value + 1) % 2))


@operator("stride dropped", "stride")
def stride_dropped(place: Place) -> Iterator[Change]:
    """An index counts elements where it is to count rows."""
    if isinstance(node := place.node, cst.BinaryOperation) and isinstance(node.operator, cst.Multiply):
        if "stride" in place.code(node.right):
            yield Change(node, place.code(node.left))
        elif "stride" in place.code(node.left):
            yield Change(node, place.code(node.right))


@operator("stride swapped", "stride", host=True)
def stride_swapped(place: Place) -> Iterator[Change]:
    """The stride of another dimension, or of another operand, is taken."""
    node = place.node
    if isinstance(node, cst.Name) and "stride" in node.value and not _is_assigned(place):
        others = [each for each in place.function.parameters if "stride" in each and each != node.value]
        near = sorted(others, key=lambda each: -len(_common(each, node.value)))
        if near:
            yield Change(node, near[0])
    if isinstance(node, cst.Call) and callee_name(node) in ("stride", "size") and len(node.args) == 1:
        if (axis := integer(node.args[0].value)) is not None:
            yield Change(node.args[0].value, str(1 - axis if axis < 2 else axis - 1))
    if isinstance(node, cst.Subscript) and place.code(node.value).endswith((".shape", ".strides")) and len(node.slice) == 1:
        found = node.slice[0].slice
        if isinstance(found, cst.Index) and (axis := integer(found.value)) is not None:
            yield Change(found.value, str(1 - axis if axis < 2 else axis - 1))


@operator("tile index swapped", "tile order")
def tile_index_swapped(place: Place) -> Iterator[Change]:
    """The number of the row of tiles stands for that of the column, or a size for another."""
    if isinstance(node := place.node, cst.Name) and not _is_assigned(place):
        yield from (Change(node, other) for other in _partners(place, node.value)[:1])


@operator("quotient for remainder", "tile order")
def quotient_for_remainder(place: Place) -> Iterator[Change]:
    """A number is divided where the rest is meant, or the other way about."""
    if isinstance(node := place.node, cst.BinaryOperation):
        other = {cst.FloorDivide: "%", cst.Modulo: "//"}.get(type(node.operator))
        if other is not None:
            yield Change(node.operator, f" {other} ")


def _is_assigned(place: Place) -> bool:
    """Whether the name is assigned, is an attribute, or is what a call or a keyword is called."""
    above = place.file.parents.get(place.node)
    if isinstance(above, cst.AssignTarget | cst.AugAssign | cst.AnnAssign | cst.For | cst.Param | cst.NameItem):
        return getattr(above, "target", None) is place.node or isinstance(above, cst.Param)
    if isinstance(above, cst.Attribute | cst.Call):
        return not isinstance(above, cst.Attribute) or above.attr is place.node or above.value is not place.node
    if isinstance(above, cst.Arg):
        return above.keyword is place.node
    return any(isinstance(each, cst.AssignTarget) for each in place.file.ancestors(place.node))


def _common(one: str, other: str) -> str:
    return one[: next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))]


def _partners(place: Place, name: str) -> list[str]:
    """Names of the function that are `name` along another dimension."""
    function_names = _names(place)
    partners = []
    if name.lower() in ("m", "n", "k"):
        partners = [other for other in ("mnk" if name.islower() else "MNK") if other != name and other in function_names]
    for one, other in (*PAIRS, *((b, a) for a, b in PAIRS)):
        for first, second in ((one, other), (one.upper(), other.upper())):
            if re.search(rf"{first}(?![a-z])", name):
                swapped = re.sub(rf"{first}(?![a-z])", second, name, count=1)
                partners += [swapped] if swapped in function_names and swapped != name else []
    return partners


def _names(place: Place) -> set[str]:
    if place.function not in _names_cache:
        collected = _AssignedNames()
        place.function.node.body.visit(collected)
        _names_cache[place.function] = collected.names | set(place.function.parameters)
    return _names_cache[place.function]


_names_cache: dict = {}


class _AssignedNames(cst.CSTVisitor):
    def __init__(self) -> None:
        self.names: set[str] = set()

    def visit_AssignTarget(self, node: cst.AssignTarget) -> None:
        found = [each.value for each in node.target.elements] if isinstance(node.target, cst.Tuple) else [node.target]
        self.names |= {each.value for each in found if isinstance(each, cst.Name)}

"""Branches: conditions that are forced or exchanged, and heuristics."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from bitverdict.harness.mutants.source.operators.record import Change, operator
from bitverdict.harness.mutants.source.places import Place


@operator("branch forced", "heuristics", host=True)
def branch_forced(place: Place) -> Iterator[Change]:
    """A branch is always taken, or never."""
    if isinstance(node := place.node, cst.If | cst.While):
        if isinstance(node, cst.If):
            yield Change(node.test, "True")
        yield Change(node.test, "False")


@operator("choice forced", "heuristics", host=True)
def choice_forced(place: Place) -> Iterator[Change]:
    """Of two values one is always taken."""
    if isinstance(node := place.node, cst.IfExp):
        yield Change(node, f"({place.code(node.body)})")
        yield Change(node, f"({place.code(node.orelse)})")


@operator("heuristic forced", "heuristics", host=True)
def heuristic_forced(place: Place) -> Iterator[Change]:
    """What the launcher, or a heuristic, finds out of the sizes is taken for granted."""
    node = place.node
    if isinstance(node, cst.Lambda) and isinstance(node.body, cst.Comparison | cst.BooleanOperation):
        yield Change(node.body, "True")
        yield Change(node.body, "False")
    elif isinstance(node, cst.Comparison | cst.BooleanOperation | cst.UnaryOperation) and _decides(place):
        yield Change(node, "True")
        yield Change(node, "False")


def _decides(place: Place) -> bool:
    """Whether it is what a name or a keyword of the host is set to, or a constant of the device."""
    node, above = place.node, place.file.parents.get(place.node)
    if isinstance(node, cst.UnaryOperation) and not isinstance(node.operator, cst.Not):
        return False
    if isinstance(above, cst.Assign | cst.Arg):
        return not place.device
    return isinstance(above, cst.AnnAssign)


@operator("and for or", "heuristics", host=True)
def swap_and_or(place: Place) -> Iterator[Change]:
    """One of two conditions suffices, or both are required."""
    if isinstance(node := place.node, cst.BooleanOperation):
        yield Change(node.operator, " or " if isinstance(node.operator, cst.And) else " and ")


@operator("comparison inverted", "heuristics", host=True)
def comparison_inverted(place: Place) -> Iterator[Change]:
    """What is to be equal is not."""
    if isinstance(node := place.node, cst.Comparison) and len(node.comparisons) == 1:
        other = {cst.Equal: "!=", cst.NotEqual: "=="}.get(type(node.comparisons[0].operator))
        if other is not None:
            yield Change(node.comparisons[0].operator, f" {other} ")

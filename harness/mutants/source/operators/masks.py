"""Masks, predicates, and the values that masked lanes have."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from bitverdict.harness.mutants.source.operators.record import Change, argument, call_without, operator
from bitverdict.harness.mutants.source.places import Place, callee_name

LOOSER = {cst.LessThan: "<=", cst.GreaterThan: ">="}
TIGHTER = {cst.LessThanEqual: "<", cst.GreaterThanEqual: ">"}


@operator("mask dropped", "mask")
def mask_dropped(place: Place) -> Iterator[Change]:
    """A load, a store or an atomic takes all lanes."""
    if isinstance(node := place.node, cst.Call) and (mask := argument(node, None, "mask")) is not None:
        other = argument(node, None, "other")
        yield Change(node, call_without(place, node, mask, *([other] if other is not None else [])))


@operator("mask off by one", "mask", host=True)
def mask_off_by_one(place: Place) -> Iterator[Change]:
    """A comparison is true, or false, for the one value at its end."""
    if isinstance(node := place.node, cst.Comparison):
        for each in node.comparisons:
            kind = type(each.operator)
            if (other := LOOSER.get(kind) or TIGHTER.get(kind)) is not None:
                yield Change(each.operator, f" {other} ")


@operator("bound off by one", "mask")
def bound_off_by_one(place: Place) -> Iterator[Change]:
    """What an index is compared with is one less."""
    if isinstance(node := place.node, cst.Comparison) and len(node.comparisons) == 1:
        (only,) = node.comparisons
        if isinstance(only.operator, cst.LessThan) and not isinstance(only.comparator, cst.Integer | cst.Float):
            yield Change(only.comparator, f"({place.code(only.comparator)} - 1)")


@operator("condition of a mask dropped", "mask")
def condition_dropped(place: Place) -> Iterator[Change]:
    """Of two conditions one is left."""
    if isinstance(node := place.node, cst.BinaryOperation) and isinstance(node.operator, cst.BitAnd):
        if not any(isinstance(each, cst.Integer) for each in (node.left, node.right)):
            yield Change(node, place.code(node.left))
            yield Change(node, place.code(node.right))


@operator("other value changed", "mask")
def other_changed(place: Place) -> Iterator[Change]:
    """Masked lanes of a load hold another value."""
    if isinstance(node := place.node, cst.Call) and (other := argument(node, None, "other")) is not None:
        zero = place.code(other.value) in ("0", "0.0")
        yield Change(other.value, "1" if zero else "0")


@operator("other value dropped", "mask")
def other_dropped(place: Place) -> Iterator[Change]:
    """Masked lanes of a load hold undefined values."""
    if (
        isinstance(node := place.node, cst.Call)
        and callee_name(node) == "load"
        and (other := argument(node, None, "other")) is not None
    ):
        yield Change(node, call_without(place, node, other))


@operator("bounds check dropped", "mask")
def bounds_check_dropped(place: Place) -> Iterator[Change]:
    """A block pointer is not held to its tensor's bounds."""
    if isinstance(node := place.node, cst.Call) and (check := argument(node, None, "boundary_check")) is not None:
        yield Change(node, call_without(place, node, check))


@operator("predicate dropped", "predicate")
def predicate_dropped(place: Place) -> Iterator[Change]:
    """What is to happen under a condition always does."""
    if isinstance(node := place.node, cst.Call) and (pred := argument(node, None, "pred")) is not None:
        yield Change(node, call_without(place, node, pred))


@operator("predicate negated", "predicate")
def predicate_negated(place: Place) -> Iterator[Change]:
    """It happens where it is not to."""
    if isinstance(node := place.node, cst.Call) and (pred := argument(node, None, "pred")) is not None:
        yield Change(pred.value, f"(({place.code(pred.value)}) == 0)")


@operator("where branches swapped", "mask")
def where_swapped(place: Place) -> Iterator[Change]:
    """Of two values the other one is chosen."""
    if isinstance(node := place.node, cst.Call) and callee_name(node) == "where" and len(node.args) == 3:
        condition, one, other = (place.code(each.value) for each in node.args)
        yield Change(node, f"{place.code(node.func)}({condition}, {other}, {one})")


@operator("where dropped", "mask")
def where_dropped(place: Place) -> Iterator[Change]:
    """One value holds for all lanes."""
    if isinstance(node := place.node, cst.Call) and callee_name(node) == "where" and len(node.args) == 3:
        yield Change(node, f"({place.code(node.args[1].value)})")
        yield Change(node, f"({place.code(node.args[2].value)})")

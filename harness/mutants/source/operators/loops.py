"""How often a loop runs."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from bitverdict.harness.mutants.source.operators.record import Change, operator
from bitverdict.harness.mutants.source.places import Place, callee_name

RANGES = ("range", "static_range")


@operator("trip count off by one", "trip count", host=True)
def trip_count(place: Place) -> Iterator[Change]:
    """A loop runs once too often, or once too few."""
    if isinstance(node := place.node, cst.Call) and callee_name(node) in RANGES and node.args:
        given = [each for each in node.args if each.keyword is None]
        end = given[0] if len(given) == 1 else given[1]
        yield Change(end.value, f"{place.code(end.value)} - 1")
        yield Change(end.value, f"{place.code(end.value)} + 1")


@operator("loop starts late", "trip count", host=True)
def loop_starts_late(place: Place) -> Iterator[Change]:
    """A loop leaves its first step out."""
    if isinstance(node := place.node, cst.Call) and callee_name(node) in RANGES:
        given = [each for each in node.args if each.keyword is None]
        if len(given) == 1:
            yield Change(given[0].value, f"1, {place.code(given[0].value)}")
        elif given:
            yield Change(given[0].value, f"{place.code(given[0].value)} + {place.code(given[2].value) if len(given) > 2 else 1}")


@operator("rounded down", "trip count", host=True)
def rounded_down(place: Place) -> Iterator[Change]:
    """The last tile, which is not full, is left out."""
    if isinstance(node := place.node, cst.Call) and callee_name(node) == "cdiv" and len(node.args) == 2:
        one, other = (place.code(each.value) for each in node.args)
        yield Change(node, f"(({one}) // ({other}))")

"""The operators of source mutants, by name: what each changes, and where it applies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import libcst as cst

from bitverdict.harness.mutants.source.places import Place, called


@dataclass(frozen=True)
class Change:
    """`node` becomes the text `by`."""

    node: cst.CSTNode
    by: str


Changes = Callable[[Place], Iterator[Change]]


@dataclass(frozen=True)
class Operator:
    """`changes` gives what it makes of a place; nothing where it does not apply."""

    name: str
    family: str
    changes: Changes


OPERATORS: dict[str, Operator] = {}


def operator(name: str, family: str) -> Callable[[Changes], Changes]:
    """Enter a function into `OPERATORS`."""

    def enter(changes: Changes) -> Changes:
        OPERATORS[name] = Operator(name, family, changes)
        return changes

    return enter


@operator("mask dropped", "mask")
def mask_dropped(place: Place) -> Iterator[Change]:
    """A load or store takes all lanes."""
    if not place.device or not isinstance(place.node, cst.Call):
        return
    kept = [each for each in place.node.args if each.keyword is None or each.keyword.value not in ("mask", "other")]
    if len(kept) < len(place.node.args) and called(place.node) != "where":
        yield Change(place.node, f"{place.code(place.node.func)}({', '.join(place.code(each) for each in kept)})")

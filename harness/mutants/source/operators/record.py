"""What an operator is, and what operators are written with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import libcst as cst

from bitverdict.harness.mutants.source.places import Place


@dataclass(frozen=True)
class Change:
    """`node` becomes `new_text`."""

    node: cst.CSTNode
    new_text: str


Changes = Callable[[Place], Iterator[Change]]


@dataclass(frozen=True)
class Operator:
    """`changes` gives what it makes of a place; nothing where it does not apply. `says`: what is wrong then, in one sentence."""

    name: str
    family: str
    says: str
    changes: Changes


OPERATORS: dict[str, Operator] = {}


def operator(name: str, family: str, *, device: bool = True, host: bool = False) -> Callable[[Changes], Changes]:
    """Enter a function into `OPERATORS`; it is asked of places on the device, on the host, or both."""

    def enter(changes: Changes) -> Changes:
        def checked_changes(place: Place) -> Iterator[Change]:
            if device if place.device else host:
                yield from changes(place)

        OPERATORS[name] = Operator(name, family, str(changes.__doc__).strip(), checked_changes)
        return changes

    return enter


def argument(call: cst.Call, place: int | None, *names: str) -> cst.Arg | None:
    """The argument of `call` at `place`, or by one of its `names`; None where it has none."""
    for each in call.args:
        if each.keyword is not None and each.keyword.value in names:
            return each
    given = [each for each in call.args if each.keyword is None and not each.star]
    return given[place] if place is not None and place < len(given) else None


def call_without(place: Place, call: cst.Call, *left_out: cst.Arg) -> str:
    """The text of `call` without some arguments."""
    kept = [place.code(each).rstrip().rstrip(",") for each in call.args if each not in left_out]
    return f"{place.code(call.func)}({', '.join(kept)})"


def is_statement(place: Place) -> bool:
    """Whether the node is an expression that stands alone on its line."""
    return isinstance(place.file.parents.get(place.node), cst.Expr)


def integer(node: cst.BaseExpression | None) -> int | None:
    """The value of an integer literal; None of anything else."""
    return int(node.value.replace("_", ""), 0) if isinstance(node, cst.Integer) else None

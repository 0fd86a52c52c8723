"""Which draw goes to which parameter of a reference.

A draw with a name goes to the parameter of that name, or into ``**named``. The other operands go to the parameters that are left,
in the order in which they are drawn. Sizes and choices without a name are not given: the reference sees shapes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bitverdict.harness.contracts.described.record import OPERANDS, Entry
from bitverdict.harness.model.usage import UsageError


@dataclass(frozen=True)
class Assigned:
    """Places of draws: by the names of parameters, and behind those. `positional`: the parameters' order, `lacking`: those that
    nothing is drawn for, `left`: operands that there is no parameter for."""

    by_name: dict[str, int]
    others: tuple[int, ...]
    positional: tuple[str, ...]
    lacking: tuple[str, ...]
    left: tuple[int, ...]


def assign(reference: Callable[..., Any], entries: Sequence[Entry]) -> Assigned:
    """Which draws `reference` is given. UsageError where it does not take `xp`."""
    kinds = inspect.Parameter
    listed = list(inspect.signature(reference).parameters.values())
    if not listed or listed[0].kind not in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD, kinds.VAR_POSITIONAL):
        raise UsageError("the reference takes no argument: its first is xp, the array namespace; write lambda xp, x: ...")
    rest = listed[0 if listed[0].kind is kinds.VAR_POSITIONAL else 1 :]
    positional = tuple(each.name for each in rest if each.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD))
    known = {*positional, *(each.name for each in rest if each.kind is kinds.KEYWORD_ONLY)}
    if any(each.kind is kinds.VAR_KEYWORD for each in rest):
        by_place = {each.name for each in listed if each.kind is kinds.POSITIONAL_ONLY} | {listed[0].name}
        known |= {entry.name for entry in entries if entry.name} - by_place
    by_name = {entry.name: place for place, entry in enumerate(entries) if entry.name in known and entry.kind != "output"}
    unnamed = [place for place, entry in enumerate(entries) if entry.kind in OPERANDS and place not in by_name.values()]
    free = [name for name in positional if name not in by_name]
    by_name |= dict(zip(free, unnamed))
    others = unnamed[len(free) :]
    lacking = tuple(
        each.name
        for each in rest
        if each.name not in by_name and each.default is kinds.empty and each.kind not in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)
    )
    takes_any = any(each.kind is kinds.VAR_POSITIONAL for each in rest)
    return Assigned(by_name, tuple(others) if takes_any else (), positional, lacking, () if takes_any else tuple(others))


def check_arguments(reference: Callable[..., Any], entries: Sequence[Entry]) -> None:
    """UsageError where the reference does not take what a body draws, or takes more."""
    found = assign(reference, entries)
    if not found.lacking and not found.left:
        return
    drawn = [entry.told() for entry in entries if entry.kind in OPERANDS]
    wrong = f"nothing is drawn for {', '.join(found.lacking)}" if found.lacking else f"there are {len(found.left)} operands more"
    raise UsageError(
        f"the reference takes (xp, {', '.join(found.positional)}) and the body draws {', '.join(drawn) or 'no operand'}: {wrong}; "
        "operands go to parameters in the order of their draws, which end at the first use of a tensor or of torch; a draw with a "
        "name, as in draw.size(1, 8, name='k'), goes to the parameter of that name"
    )

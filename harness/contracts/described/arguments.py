"""Which draw goes to which parameter of a reference.

A draw with a name goes to the parameter of that name, or into ``**named``. The other operands go to the parameters that are left,
in the order in which they are drawn. Sizes and choices without a name are not given: the reference sees shapes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bitverdict.harness.contracts.described.record import OPERANDS, Entry
from bitverdict.harness.model.usage import UsageError


@dataclass(frozen=True)
class ArgumentAssignment:
    """Places of draws: by the names of parameters, and behind those. `positional`: the parameters' order, `lacking`: those that
    nothing is drawn for, `left`: operands that there is no parameter for."""

    by_name: dict[str, int]
    variadic_places: tuple[int, ...]
    positional: tuple[str, ...]
    missing_parameters: tuple[str, ...]
    surplus_draws: tuple[int, ...]


def assign(reference: Callable[..., object], entries: Sequence[Entry]) -> ArgumentAssignment:
    """Which draws `reference` is given. UsageError where it does not take `xp`."""
    kinds = inspect.Parameter
    parameters = list(inspect.signature(reference).parameters.values())
    if not parameters or parameters[0].kind not in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD, kinds.VAR_POSITIONAL):
        raise UsageError("the reference takes no argument: its first is xp, the array namespace; write lambda xp, x: ...")
    rest = parameters[0 if parameters[0].kind is kinds.VAR_POSITIONAL else 1 :]
    positional = tuple(
        parameter.name for parameter in rest if parameter.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
    )
    known = {*positional, *(parameter.name for parameter in rest if parameter.kind is kinds.KEYWORD_ONLY)}
    if any(parameter.kind is kinds.VAR_KEYWORD for parameter in rest):
        by_place = {parameter.name for parameter in parameters if parameter.kind is kinds.POSITIONAL_ONLY} | {parameters[0].name}
        known |= {entry.name for entry in entries if entry.name} - by_place
    by_name = {entry.name: place for place, entry in enumerate(entries) if entry.name in known and entry.kind != "output"}
    unnamed = [place for place, entry in enumerate(entries) if entry.kind in OPERANDS and place not in by_name.values()]
    free = [name for name in positional if name not in by_name]
    by_name |= dict(zip(free, unnamed))
    surplus_places = unnamed[len(free) :]
    missing_parameters = tuple(
        parameter.name
        for parameter in rest
        if parameter.name not in by_name
        and parameter.default is kinds.empty
        and parameter.kind not in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)
    )
    takes_any = any(parameter.kind is kinds.VAR_POSITIONAL for parameter in rest)
    return ArgumentAssignment(
        by_name,
        tuple(surplus_places) if takes_any else (),
        positional,
        missing_parameters,
        () if takes_any else tuple(surplus_places),
    )


def check_arguments(reference: Callable[..., object], entries: Sequence[Entry]) -> None:
    """UsageError where the reference does not take what a body draws, or takes more."""
    assignment = assign(reference, entries)
    if not assignment.missing_parameters and not assignment.surplus_draws:
        return
    drawn = [entry.describe() for entry in entries if entry.kind in OPERANDS]
    mismatch = (
        f"nothing is drawn for {', '.join(assignment.missing_parameters)}"
        if assignment.missing_parameters
        else f"there are {len(assignment.surplus_draws)} operands more"
    )
    raise UsageError(
        f"the reference takes (xp, {', '.join(assignment.positional)}) and the body draws "
        f"{', '.join(drawn) or 'no operand'}: {mismatch}; "
        "operands go to parameters in the order of their draws, which end at the first use of a tensor or of torch; a draw with a "
        "name, as in draw.size(1, 8, name='k'), goes to the parameter of that name"
    )

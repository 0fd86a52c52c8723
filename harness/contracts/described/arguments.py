"""Which draw goes to which parameter of a reference.

A draw with a name goes to the parameter of that name, or into ``**named``. The other operands go to the parameters that are left,
in the order in which they are drawn. Sizes and choices without a name are not given: the reference sees shapes.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bitverdict.harness.contracts.described.record import OPERANDS, Entry
from bitverdict.harness.model.paths import is_foreign, is_ours
from bitverdict.harness.model.usage import UsageError

NAMES_OF_OPERANDS = "xyzabcdefghijklmnopqrstuvw"


@dataclass(frozen=True)
class ArgumentAssignment:
    """Places of draws: by the names of parameters, and behind those. `positional`: the parameters' order, `missing_parameters`:
    those that nothing is drawn for, `surplus_draws`: operands that there is no parameter for."""

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


_KEYWORDS = {"dim": "axis", "keepdim": "keepdims", "dims": "axes"}
"""Words of torch -> those of the array API standard."""


@contextmanager
def reference_errors() -> Iterator[None]:
    """What a reference raises while it is traced is a usage error, which says where and what to write."""
    from bitverdict.reference.tracing import Untraceable

    try:
        yield
    except (UsageError, MemoryError):
        raise
    except Untraceable as error:
        raise UsageError(f"the reference cannot be traced: {error}{_line_of(error)}") from None
    except Exception as error:
        raised = f"the reference raises {type(error).__name__}: {' '.join(str(error).split())[:200]}{_line_of(error)}"
        words = [f"write {right}=" for wrong, right in _KEYWORDS.items() if f"keyword argument '{wrong}'" in str(error)]
        remedy = words[0] if words else "it is called with xp and the operands that the body draws, in their order"
        raise UsageError(f"{raised}; {remedy}") from None


def _line_of(error: Exception) -> str:
    """Where in a file of a user `error` was raised, as ``" (FILE:LINE)"``."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not is_ours(Path(frame.filename)) and not is_foreign(Path(frame.filename))]
    return f" ({Path(theirs[-1].filename).name}:{theirs[-1].lineno})" if theirs else ""


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
        f"write lambda xp, {', '.join(NAMES_OF_OPERANDS[: len(drawn)]) or '...'}: ...; "
        "operands go to parameters in the order of their draws, which end at the first use of a tensor or of torch; a draw with a "
        "name, as in draw.size(1, 8, name='k'), goes to the parameter of that name"
    )

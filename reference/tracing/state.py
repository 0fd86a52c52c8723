"""One trace: on which target, in which accumulation type, what the reference declared, and which line is at work."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bitverdict.reference.tracing.accumulation import Accumulation, accumulation_type

if TYPE_CHECKING:
    from bitverdict.reference.tracing.arrays import TracedArray

_TRACING_FOLDER = str(Path(__file__).parent)
Place = tuple[str, str]
"""An operation and "file:line" of the reference that asked for it."""

Function = TypeVar("Function", bound=Callable[..., Any])
OPERATIONS: dict[str, Callable[..., TracedArray]] = {}
"""Every name of the namespace -> a function of the trace and of the operation's own arguments. The few that give a list or a
truth are called by references alone."""


@dataclass
class Trace:
    """What one evaluation of a reference shares."""

    arch: str = "sm_90"
    accumulation: Accumulation = field(default_factory=lambda: accumulation_type("fp32"))
    round_to_formats: set[str] = field(default_factory=set)
    places: dict[Place, None] | None = None  # where a rounding was: filled when it is a dictionary
    muted_place: Place | None = None  # the operation there does not round
    is_of_values: bool = False  # nobody asks what lies around the values: products leave out their bounds

    def rounds(self, operation: str) -> bool:
        """Whether the roundings of `operation` count, which only `contributions` ever denies."""
        if self.places is None and self.muted_place is None:
            return True
        place = operation, caller()
        if self.places is not None:
            self.places[place] = None
        return place != self.muted_place


def caller() -> str:
    """ "file:line" of the nearest frame outside this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_TRACING_FOLDER):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def operation(*names: str) -> Callable[[Function], Function]:
    """Puts a function of (trace, ...) into the namespace under `names`."""

    def put(function: Function) -> Function:
        for name in names:
            OPERATIONS[name] = function
        return function

    return put

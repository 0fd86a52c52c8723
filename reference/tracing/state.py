"""One trace: on which target, in which accumulation type, what the reference declared, and which line is at work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from bitverdict.reference.tracing.accumulation import Accumulation, accumulation_type

if TYPE_CHECKING:
    from bitverdict.reference.tracing.arrays import TracedArray

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
    rounding_operations: set[str] | None = None  # names of those that round: filled when it is a set
    is_of_values: bool = False  # nobody asks what lies around the values: products leave out their bounds

    def note(self, operation: str) -> None:
        """`operation` rounds here."""
        if self.rounding_operations is not None:
            self.rounding_operations.add(operation)


def operation(*names: str) -> Callable[[Function], Function]:
    """Puts a function of (trace, ...) into the namespace under `names`."""

    def put(function: Function) -> Function:
        for name in names:
            OPERATIONS[name] = function
        return function

    return put

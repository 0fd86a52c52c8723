"""A mutant for the emulator's checks of time: a kernel's source, or its compiled program, with one text replaced.

The records are in `order.py`, `barriers.py` and `memory.py`, the launches in `tests/support/emulated_launches.py`.
"""

from __future__ import annotations

from tests.faults.mutants import Mutant, ProgramEdit, SourceEdit

NOTHING = "pass"
RACE, MISUSE, UNKNOWN, DEADLOCK = "race", "barrier misuse", "uninitialised read", "deadlock"


def hazard(
    kind: str,
    kernel: str,
    replace: str,
    by: str,
    expected: str,
    *,
    name: str = "",
    at: str = "",
    other: str = "",
    also: tuple[str, ...] = (),
    in_program: bool = False,
) -> Mutant:
    """`replace` becomes `by`. `name` tells hazards of one kind in one kernel apart. With `in_program` it is a regular expression
    on the program that the compiler made: a fault of the compiler's."""
    edit = ProgramEdit(replace, by) if in_program else SourceEdit(replace, by)
    return Mutant(kernel=kernel, kind=kind, name=name, edits=(edit,), expected=(expected,), at=at, other=other, before=also)

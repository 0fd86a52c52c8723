"""Hazards for the emulator's checks of time: a kernel's source, or its compiled program, with one text replaced.

The records are in `order.py`, `barriers.py` and `memory.py`, the launches in `emulated_launches.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

NOTHING = "pass"
RACE, MISUSE, UNKNOWN, DEADLOCK = "race", "barrier misuse", "uninitialised read", "deadlock"


@dataclass(frozen=True)
class Hazard:
    """`replace`, which occurs exactly once in the kernel's source, becomes `by`; with `in_program` it is a regular expression on
    the program that the compiler made, a fault of the compiler's.

    It fails as `name`. `at` and `other` are texts on the two lines that the failure shows: of the operation that finds
    out, and of the one it collides with (for a barrier: where it began or ended); `other` is empty where there is only one. `also`
    is what another schedule may see first: a partition that does not wait may come before the other or after it."""

    kind: str
    kernel: str
    replace: str
    by: str
    name: str
    at: str = ""
    other: str = ""
    also: tuple[str, ...] = ()
    in_program: bool = False

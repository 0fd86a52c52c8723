"""Why mutants of shipped kernels survive their required cases, written after each was looked at. The page tells it beside them.

A reason is one of two sorts. *Nothing to see*: what the mutant computes is what the kernel computes, and no general rule of
`bitverdict.harness.mutants.equivalence` shows it. *Not judged*: a difference that no required case is made to show.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bitverdict.harness.mutants.record import GeneratedMutant


@dataclass(frozen=True)
class Reason:
    """`mutant`: a pattern that the id has. `text`: one that the line has, as it was or as it is; "" for any."""

    mutant: str
    text: str
    why: str

    def holds(self, mutant: GeneratedMutant) -> bool:
        told = f"{mutant.before}\n{mutant.after}"
        return re.search(self.mutant, mutant.id) is not None and re.search(self.text, told) is not None


REASONS: tuple[Reason, ...] = (
    Reason(
        r"/cast (dropped|to another type)/",
        r"int64",
        "not judged: the offset leaves 32 bits only beyond 2^31 elements of contiguous memory, 4 GiB and more",
    ),
)


def reason_of(mutant: GeneratedMutant) -> str:
    """Why `mutant` survives; empty where nobody has said."""
    return next((reason.why for reason in REASONS if reason.holds(mutant)), "")

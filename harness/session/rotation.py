"""A part of the required cases of a contract, another one with each turn: what a commit's tests judge where the whole takes long.

The first case of each type, regime, clause, format, kind of schedule and expected outcome belongs to every turn. The others take
turns by their own keys, so that `of` turns one after the other judge all of them. What a turn leaves out is counted
(`CaseSource.left_out`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from zlib import crc32

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.targets import Target

ALWAYS = ("clause", "dtype", "format", "regime")  # dimensions of `Contract.coverage` whose every class is in every turn
Facts = frozenset[tuple[str, object]]


@dataclass(frozen=True)
class Rotation:
    """Turn `turn` of `of`: any integer, taken modulo `of`."""

    turn: int
    of: int

    def kept(self, cases: Sequence[Case], facts: Callable[[Case], Facts]) -> list[Case]:
        """Of `cases`, in their order: each that is the first with one of its `facts`, and of the others those whose turn it is."""
        seen: set[tuple[str, object]] = set()
        kept = []
        for case in cases:
            new = facts(case) - seen
            if new or crc32(case.key.encode()) % self.of == self.turn % self.of:
                kept.append(case)
            seen |= new
        return kept


def facts_of(contract: Contract, target: Target) -> Callable[[Case], Facts]:
    """What a case on `target` is the first of: each dimension with its class."""

    def facts(case: Case) -> Facts:
        classes = contract.coverage(case, target)
        expected = contract.expected_outcome(case, target)
        return frozenset(
            {
                *((name, classes[name]) for name in ALWAYS if name in classes),
                ("regime", case.regime),
                ("schedule", case.schedule_kind),
                ("calls", case.calls),
                ("expected outcome", expected.outcome),
                ("expected from", expected.layer),
            }
        )

    return facts

"""A part of the required cases of a contract, another one with each turn: what a commit's tests judge where the whole takes long.

Cases that compile alike (one configuration, one set of types and formats) take their turn together, by a key of that: most of a
short case is its compilation, and of `of` turns each then compiles a part. `of` turns one after the other judge all cases. Each
turn also has a case of each type, regime, clause, format, kind of schedule and expected outcome: where its own cases lack one, a
case of another turn is judged in it too. What a turn leaves out is counted (`CaseSource.left_out`).
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
    """Turn `turn` of `turn_count`: any integer, taken modulo `turn_count`."""

    turn: int
    turn_count: int

    def takes(self, case: Case) -> bool:
        """Whether the turn of `case`, and of all that compile alike, is this one."""
        return crc32(compiled_as(case).encode()) % self.turn_count == self.turn % self.turn_count

    def keep_cases(self, cases: Sequence[Case], facts: Callable[[Case], Facts]) -> list[Case]:
        """Of `cases`, in their order: each whose turn it is, and as few others as have the `facts` that these lack."""
        case_facts = [facts(case) for case in cases]
        kinds = [compiled_as(case) for case in cases]
        kept_places = {place for place, case in enumerate(cases) if self.takes(case)}
        compiled = {kinds[place] for place in kept_places}
        lacking = frozenset().union(*case_facts) - frozenset().union(*(case_facts[place] for place in kept_places))
        while lacking:  # the first of those that bring most, and of them one that compiles nothing anew
            best = max(range(len(cases)), key=lambda place: (len(case_facts[place] & lacking), kinds[place] in compiled, -place))
            kept_places.add(best)
            compiled.add(kinds[best])
            lacking -= case_facts[best]
        return [cases[place] for place in sorted(kept_places)]


def compiled_as(case: Case) -> str:
    """What decides most of how the kernel of `case` is compiled: its configuration, and the names and switches of its problem.
    Sizes decide the rest (`case_source.SPECIALISED`)."""
    named = {name: value for name, value in vars(case.problem).items() if isinstance(value, str | bool)}
    return f"{case.config!r} {named!r}"


def facts_of(contract: Contract, target: Target) -> Callable[[Case], Facts]:
    """What a case on `target` is one of: each dimension with its class."""

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

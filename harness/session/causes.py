"""The cause of one bug out of those of all its cases: wide cases tell more than the reduced one, and together more than each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.verdict import CONSTANT_CAUSE, Verdict

AGREEMENT_SHARE = 0.75
"""Of the cases that name a cause; picked, not derived: it decides whether a cause is told, and no verdict or status."""


@dataclass
class Causes:
    """What the failing cases of one bug say of its cause."""

    cases: int = 0  # that name a cause
    kinds: Counter[str] = field(default_factory=Counter)  # of what holds in each of them
    case_of: dict[int, Case | None] = field(default_factory=dict)  # of a verdict that `widest` keeps, by its `id`
    widest: dict[str, Verdict] = field(default_factory=dict)  # of each kind the one where least else holds, with most elements

    def add(self, verdict: Verdict, case: Case | None = None) -> None:
        kind = verdict.details.get("cause_kind")
        if not kind:
            return
        self.cases += 1
        for each in dict.fromkeys((kind, *verdict.details.get("cause_kinds", ()))):
            self.kinds[each] += 1
            before = self.widest.get(each)
            if before is None or _tells(verdict) > _tells(before):
                self.widest[each], self.case_of[id(verdict)] = verdict, case

    @property
    def witness(self) -> Verdict | None:
        """The verdict whose cause is told: that which most cases name; None where they do not agree. A number, which is solved for
        in each case, has to be the same in all."""
        least = {kind: (1.0 if kind.startswith(CONSTANT_CAUSE) else AGREEMENT_SHARE) * self.cases for kind in self.kinds}
        kind = next((kind for kind, count in self.kinds.most_common() if count >= least[kind]), None)
        return None if kind is None else self.widest[kind]

    @property
    def details(self) -> dict:
        """Details of the cause of `witness`."""
        told = {} if self.witness is None else self.witness.details
        return {name: told[name] for name in ("cause", "cause_kind", "cause_kinds") if name in told}


def _tells(verdict: Verdict) -> tuple[int, int]:
    return -len(verdict.details.get("cause_kinds", ())), elements(verdict)


def elements(verdict: Verdict) -> int:
    """How many elements of the output that failed were decided."""
    return int(verdict.details.get("of", 0))

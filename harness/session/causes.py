"""The cause of one bug out of those of all its cases: wide cases tell more than the reduced one, and together more than each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from bitverdict.harness.model.verdict import Verdict

AGREED = 0.75  # of the cases that name a cause


@dataclass
class Causes:
    """What the failing cases of one bug say of its cause."""

    kinds: Counter[str] = field(default_factory=Counter)
    widest: dict[str, Verdict] = field(default_factory=dict)  # of each kind the one with most elements

    def add(self, verdict: Verdict) -> None:
        kind = verdict.details.get("cause_kind")
        if not kind:
            return
        self.kinds[kind] += 1
        before = self.widest.get(kind)
        if before is None or elements(verdict) > elements(before):
            self.widest[kind] = verdict

    @property
    def told(self) -> dict:
        """Details of the cause that most cases name; none where they do not agree."""
        if not self.kinds:
            return {}
        kind, count = self.kinds.most_common(1)[0]
        if count < AGREED * self.kinds.total():
            return {}
        return {name: self.widest[kind].details[name] for name in ("cause", "cause_kind")}


def elements(verdict: Verdict) -> int:
    """How many elements of the output that failed were decided."""
    return int(verdict.details.get("of", 0))

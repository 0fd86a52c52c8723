"""What came of many mutants, counted.

A score is the killed share of the live mutants: killed, survived and doubtful ones. Invalid and equivalent ones are generated and
are not live; neither is one whose judging ended in an error of the harness.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bitverdict.harness.mutants.record import LIVE, End, JudgedMutant


@dataclass(frozen=True)
class Counts:
    """How many mutants ended in which way."""

    ends: Mapping[End, int]

    @property
    def generated_count(self) -> int:
        return sum(self.ends.values())

    @property
    def live(self) -> int:
        return sum(self.ends.get(end, 0) for end in LIVE)

    @property
    def killed_count(self) -> int:
        return self.ends.get(End.KILL, 0)

    @property
    def score(self) -> float | None:
        """The killed share of the live ones; None where none is live."""
        return self.killed_count / self.live if self.live else None


def count_ends(judged: Iterable[JudgedMutant]) -> Counts:
    return Counts(Counter(each.result.end for each in judged))

"""What came of many mutants, counted: by kernel, by operator, by kind, and by the cases, clauses and regimes that killed.

A score is the killed share of the live mutants: killed, survived and doubtful ones. Invalid and equivalent ones are generated and
are not live; neither is one whose judging ended in an error of the harness.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
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


def counted_by(judged: Iterable[JudgedMutant], name: Callable[[JudgedMutant], str]) -> dict[str, Counts]:
    """The counts of each group that `name` puts its mutants in, by name in their order."""
    groups: dict[str, list[JudgedMutant]] = defaultdict(list)
    for each in judged:
        groups[name(each)].append(each)
    return {group: count_ends(groups[group]) for group in sorted(groups)}


def kills(judged: Iterable[JudgedMutant]) -> Counter[tuple[str, str]]:
    """(clause, regime) -> mutants killed so. Of a regime that names row numbers too, its values alone are told."""
    found: Counter[tuple[str, str]] = Counter()
    for each in judged:
        if each.result.end is End.KILL:
            found[each.result.clause, each.result.regime.partition("/")[0]] += 1
    return found


def kills_per_second(judged: Sequence[JudgedMutant], workers: int = 2) -> float | None:
    """Kills per second of so many workers, one a core: workers * kills / seconds of killed mutants. Of the second half of the
    kills, in their order: by then workers hold operands, expected results and compiled programs. None where none is killed."""
    seconds = [each.result.seconds for each in judged if each.result.end is End.KILL]
    later = seconds[len(seconds) // 2 :]
    return workers * len(later) / sum(later) if sum(later) else None

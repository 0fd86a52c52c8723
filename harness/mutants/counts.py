"""What came of many mutants, counted: by kernel, by operator, by kind, and by the cases, clauses and regimes that killed.

A score is the killed share of the live mutants: killed, survived and doubtful ones. Invalid and equivalent ones are generated and
are not live; neither is one whose judging ended in an error of the harness.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from bitverdict.harness.mutants.record import LIVE, End, JudgedMutant, MutantResult


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


@dataclass(frozen=True)
class CasesWorth:
    """What the required cases of a kernel are worth, by mutants that each of them judged.

    `kills`: case -> mutants that it fails. `alone`: case -> the mutants that it alone fails. `enough`: cases that together fail
    every mutant that any case fails, few of them: the one that fails most of the rest is taken first.
    """

    cases: tuple[str, ...]
    mutants: int
    kills: Mapping[str, int]
    sole_kills: Mapping[str, tuple[str, ...]]
    enough: tuple[str, ...]

    @property
    def idle(self) -> tuple[str, ...]:
        """Cases that fail none of these mutants."""
        return tuple(case for case in self.cases if not self.kills.get(case))


def cases_worth(cases: Sequence[str], results: Iterable[MutantResult]) -> CasesWorth:
    """The worth of `cases` (digests, in their order), by results of mutants that were judged by all of them."""
    judged = [(each.mutant, [each.killed_by, *each.also_killed_by] if each.killed_by else []) for each in results]
    failures = [(mutant, killers) for mutant, killers in judged if killers]
    sole_kills: dict[str, list[str]] = defaultdict(list)
    for mutant, killers in failures:
        if len(killers) == 1:
            sole_kills[killers[0]].append(mutant)
    left, enough = [set(killers) for _, killers in failures], []
    while left:
        most = Counter(case for killers in left for case in killers)
        best = min(most, key=lambda case: (-most[case], cases.index(case)))
        enough.append(best)
        left = [killers for killers in left if best not in killers]
    kills = Counter(case for _, killers in failures for case in killers)
    told = {case: tuple(killers) for case, killers in sole_kills.items()}
    return CasesWorth(tuple(cases), len(judged), kills, told, tuple(enough))

"""Runs without processes: a clock that a test moves, a journal in memory, and a pool that judges here, in the order of a seed."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.session.observer import Observer
from bitverdict.harness.session.profiles import Profile
from bitverdict.harness.session.session import Session
from bitverdict.harness.workers.journal import Journal
from bitverdict.harness.workers.stopping import Stopping
from tests.support.vector_add import ADDRESS, HOST, Problem


class FakeClock:
    """Seconds that go by when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class FakeJournal(Journal):
    """Its records are in `told`, with the times of `clock`. `died` is raised instead of the record number `dies_at`."""

    def __init__(self, clock: FakeClock, told: list[dict] | None = None, *, dies_at: int | None = None) -> None:
        super().__init__(Path("in memory"), first=len(told or ()))
        self.clock, self.dies_at = clock, dies_at
        self.told: list[dict] = told if told is not None else []

    def note(self, event: str, **what: object) -> None:
        if len(self.told) == self.dies_at:
            raise Died
        self.told.append({"event": event, "time": self.clock.now, **what})

    def close(self) -> None:
        pass


class Died(BaseException):
    """The run was killed: nothing catches it."""


class FakePool:
    """`judged` says what a case comes to (default: the judge, in this process), in `SECONDS` of `clock`.

    With `places` of more than 1 several cases are out at once, and which comes to its end first is drawn from `seed`. Only an end
    takes time.
    """

    SECONDS = 1.0

    def __init__(
        self,
        journal: Journal | None = None,
        judged: Callable[[Case, Target], Verdict] = judge,
        *,
        clock: FakeClock | None = None,
        places: int = 1,
        seed: int = 0,
    ) -> None:
        self.clock = clock if clock is not None else FakeClock()
        self.journal = journal if journal is not None else FakeJournal(self.clock)
        self.judged, self.places, self.random = judged, places, random.Random(seed)
        self.asked: list[Case] = []

    def judge(self, case: Case, target: Target, /) -> Verdict:
        return self._end(self._begin(case, target))[2]

    def judge_all(
        self, work: Iterable[tuple[Case, Target]], stopping: Stopping | None = None, /
    ) -> Iterator[tuple[Case, Target, Verdict]]:
        items, out = iter(work), list[tuple[int, Case, Target]]()
        while True:
            out += [self._begin(*item) for item in itertools.islice(items, self.places - len(out))]
            if not out:
                return
            answer = self._end(out.pop(self.random.randrange(len(out))))
            if stopping is not None:
                stopping.heard(answer[0].contract, answer[1].name, answer[2])
            yield answer

    def interruptible(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def _begin(self, case: Case, target: Target) -> tuple[int, Case, Target]:
        self.asked.append(case)
        return self.journal.begin(case, target.name), case, target

    def _end(self, begun: tuple[int, Case, Target]) -> tuple[Case, Target, Verdict]:
        number, case, target = begun
        verdict = self.judged(case, target)
        self.clock.now += self.SECONDS
        self.journal.end(number, verdict)
        return case, target, verdict


PLAIN = Profile("plain", draws=9, seconds=None, node_seconds=None, shrink_seconds=0)
OUTCOMES = {
    Decision.PASS: Outcome.PASS,
    Decision.FAIL: Outcome.WRONG_WORDS,
    Decision.INCONCLUSIVE: Outcome.NOT_MODELLED,
    Decision.NOT_RUN: Outcome.NOT_RUN,
    Decision.ERROR: Outcome.ERROR,
}


@dataclass(frozen=True)
class Listed(CaseSource):
    """Cases of n = 0, 1, 2 and so on: `few` that are required, and as many generated ones as are wanted."""

    few: int = 4

    def required(self, *, full_size: bool = False) -> list[Case]:
        return [Case(contract=ADDRESS, problem=Problem(n=n)) for n in range(self.few)]

    def drawn(self, count: int) -> list[Case]:
        return [Case(contract=ADDRESS, problem=Problem(n=100 + n)) for n in range(count)]


def sources(*few: int) -> list[CaseSource]:
    return [Listed(ADDRESS, replace(HOST, name=f"host {number}"), few=count) for number, count in enumerate(few)]


def verdict(decision: Decision, message: str = "", **more: object) -> Verdict:
    return Verdict(decision=decision, outcome=OUTCOMES[decision], message=message or str(decision), words=10, **more)  # type: ignore[arg-type]


def by_size(case: Case, where: Target) -> Verdict:
    """Some of each decision, and two bugs a target."""
    n = case.problem.n
    if n % 5 == 3:
        return verdict(Decision.FAIL, "odd" if n % 2 else "even")
    return verdict({2: Decision.INCONCLUSIVE, 7: Decision.ERROR, 8: Decision.NOT_RUN}.get(n % 10, Decision.PASS))


class Seen(Observer):
    """What a session told."""

    def __init__(self) -> None:
        self.counted_cases: list[tuple[str, str]] = []
        self.came = self.expected = self.inside = 0
        self.paths: list[Path] = []

    def __enter__(self) -> Seen:
        self.inside += 1
        return self

    def __exit__(self, *raised: object) -> None:
        self.inside -= 1

    def expect(self, more: int) -> None:
        assert self.inside == 1
        self.expected += more

    def on_verdict(self, name: str, target: str, verdict: Verdict) -> None:
        self.came += 1

    def on_count(self, case: Case, name: str, target: str, classes: dict, verdict: Verdict) -> None:
        self.counted_cases.append((target, case.key))

    def on_reproducer(self, path: Path, address: str, target: str) -> None:
        self.paths.append(path)


def came_to(session: Session, seen: Seen) -> dict:
    """Everything a run leaves but times."""
    told = {name: value for name, value in session.tally.to_json().items() if name not in ("wall", "seconds", "own_share")}
    bugs = [(bug.key, bug.case.key, bug.case_count) for bug in session.bugs.values()]
    return {"tally": told, "bugs": bugs, "order": seen.counted_cases}


def whole(profile: Profile, *few: int, places: int = 1, seed: int = 0, most: int | None = None) -> tuple[dict, list[dict]]:
    """What an undisturbed run comes to, and its journal."""
    clock, seen = FakeClock(), Seen()
    journal = FakeJournal(clock)
    journal.note("asked")
    pool = FakePool(journal, by_size, clock=clock, places=places, seed=seed)
    session = Session(pool, profile, max_cases=most, observers=[seen], clock=clock)
    session.run(sources(*few))
    assert seen.inside == 0 and len(seen.counted_cases) == seen.came == len(pool.asked)
    return came_to(session, seen), journal.told

"""Runs without processes: a clock that a test moves, a journal in memory, and a pool that judges here, in the order of a seed."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Verdict
from bitverdict.harness.workers.journal import Journal
from bitverdict.harness.workers.stopping import Stopping


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

"""When a run has dealt enough: by its clock, or as its journal says of the part that was cut.

The clock decides twice, each time how many of a row of things are enough, and both answers are in the journal:

    drawn    case sources that cases were generated from
    enough   generated cases that were dealt

A run that goes on takes an answer that is there, and decides the others by the clock, which counts what the earlier parts spent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from bitverdict.harness.session.resume import Past
    from bitverdict.harness.workers.journal import Journal

T = TypeVar("T")
Clock = Callable[[], float]
"""Seconds that go by, from any beginning."""

COUNT_FIELDS = {"drawn": "case_sources", "enough": "cases"}
"""Event of the journal -> what its record calls the number that was enough."""


class Deadline(Protocol):
    """Says how many are enough."""

    def enough(self, done: int) -> bool:
        """Whether `done` of them are enough: asked before each of them, with 0, 1, 2, and so on until it is so."""


@dataclass(frozen=True)
class LiveDeadline:
    """Enough once `seconds` have gone by since `start_time` (None: never), and no fewer than `least` says then."""

    seconds: float | None
    start_time: float
    clock: Clock = time.monotonic
    least: Callable[[], int] = int  # 0

    @classmethod
    def start_now(cls, seconds: float | None, clock: Clock = time.monotonic, spent: float = 0.0) -> LiveDeadline:
        """`seconds` from now, less those that were `spent` before."""
        return cls(seconds, clock() - spent, clock)

    def enough(self, done: int) -> bool:
        return self.seconds is not None and self.clock() - self.start_time > self.seconds and done >= self.least()


@dataclass
class NodeDeadline:
    """When a pytest node has drawn enough: once `seconds` have gone by since the first drawn case was ready to be judged (None:
    never), and no fewer than `least`. Where the processor spent more than `processor_limit` seconds on them, fewer are enough."""

    seconds: float | None
    least: int
    processor_limit: float
    clock: Clock = time.monotonic
    drawn: int = 0
    processor: float = 0.0
    start_time: float | None = None

    def enough(self) -> bool:
        """Asked before each drawn case; the first answer begins the time, so that setting Hypothesis up takes none of it."""
        if self.start_time is None:
            self.start_time = self.clock()
        owes = self.drawn < self.least and self.processor <= self.processor_limit
        return not owes and self.seconds is not None and self.clock() - self.start_time > self.seconds

    def count(self, processor: float) -> None:
        """One more was judged, in so many seconds of the processor."""
        self.drawn += 1
        self.processor += processor

    def shortfall(self) -> str:
        """Why fewer than `least` were drawn; empty where they were not."""
        if self.drawn >= self.least:
            return ""
        long = f"they took {self.processor:.1f} s of the processor, and {self.processor_limit:g} s are enough"
        return long if self.processor > self.processor_limit else "there are no more that differ"


@dataclass(frozen=True)
class ReplayedDeadline:
    """Enough after as many as it was the first time."""

    number: int

    def enough(self, done: int) -> bool:
        return done >= self.number


class Deadlines:
    """The deadlines of one run: `seconds` for all of it (None: no limit) by `clock`, or what `past` says was decided."""

    def __init__(self, seconds: float | None, past: Past, journal: Journal, clock: Clock = time.monotonic) -> None:
        self.live = LiveDeadline.start_now(seconds, clock, past.seconds)
        self.decided = {"drawn": past.drawn, "enough": past.enough}
        self.journal = journal

    def until_enough(self, event: str, things: Iterable[T], *, least: Callable[[], int] = int) -> Iterator[T]:
        """`things` until `event` is decided, which the journal then says.

        `least` says how many are due whatever the time, as those are that the earlier part is known to have dealt, where it was cut
        before it said how many were enough. Of a decision in the journal it is no part: cases that were begun later are those of
        shrinking.
        """
        number = self.decided[event]
        deadline: Deadline = replace(self.live, least=least) if number is None else ReplayedDeadline(number)
        count = 0
        for thing in things:
            if deadline.enough(count):
                break
            count += 1
            yield thing
        if number is None:
            self.journal.note(event, **{COUNT_FIELDS[event]: count})

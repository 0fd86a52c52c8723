"""``bitverdict watch``: at each save of a file, the last failing case first, then the required cases, then generated ones.

One process looks at the files. What is judged after a save is judged by a *round*, a process of its own that is forked before the
save (`bitverdict.harness.session.watch_round`): it has imported torch, Triton and the contract, and its workers wait. It imports
what was saved, and nobody else does. A new save ends the round before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from bitverdict.harness.session.watched_files import WatchedFiles

LOOK_EVERY = 0.05  # seconds
Event = Mapping[str, Any]
"""What a round tells: "event", and by it "files" (paths), "refused" (why nothing can be judged), "verdict", "judged" (the required
cases are), "report" (a bug, reduced), "drawn", "ended" (how, where it did not come to an end by itself)."""


class Round(Protocol):
    """A process that waits for a save, and judges after it."""

    def go(self, first: list[dict]) -> None:
        """Import what was saved and judge; the cases of the records `first` before all others."""

    def events(self, seconds: float) -> list[Event]:
        """What it told since the last call; waits at most `seconds` for something."""

    def end(self) -> None:
        """It is not asked any more; returns at once."""


class Screen(Protocol):
    """What a person sees."""

    def waiting(self, files: tuple[Path, ...]) -> None:
        """Nothing is judged, and nothing will be before the next save."""

    def saved(self, names: list[str]) -> None:
        """A round begins; without names it is the first."""

    def told(self, event: Event, seconds: float) -> None:
        """An event of the round, so many seconds after the save was seen."""


@dataclass
class Watch:
    """`start` forks a round, which then waits. `failing` are records of cases that failed last, the next to be judged first."""

    start: Callable[[], Round]
    files: WatchedFiles
    screen: Screen
    failing: list[dict] = field(default_factory=list)
    clock: Callable[[], float] = time.monotonic
    looked: float = 0.0  # when the save that is judged was seen
    running: Round | None = None
    ready: Round | None = None
    _first: dict | None = None  # the case that the last round judged first

    def begin(self) -> None:
        """Judge what is there."""
        self._judge([])

    def step(self) -> None:
        """Look at the files once, and pass on what the round told meanwhile."""
        if names := [path.name for path in self.files.saved()]:
            self._judge(names)
        if self.running is None:
            return
        for event in self.running.events(LOOK_EVERY):
            self._hear(event)

    def end(self) -> None:
        """End the rounds."""
        for each in (self.running, self.ready):
            if each is not None:
                each.end()
        self.running = self.ready = None

    def _judge(self, names: list[str]) -> None:
        self.looked = self.clock()
        if self.running is not None:
            self.running.end()
        self.running, self.ready = self.ready or self.start(), None
        self.screen.saved(names)
        self.running.go(self.failing or ([self._first] if self._first is not None else []))

    def _hear(self, event: Event) -> None:
        match event["event"]:
            case "files":
                self.files.watch(map(Path, event["files"]))
            case "verdict":
                self._take(event)
            case "report" if event["case"] is not None:  # smaller than the case that failed, so it answers sooner
                self.failing = [event["case"], *(each for each in self.failing if each != event["case"])][:MOST_FAILING]
        self.screen.told(event, self.clock() - self.looked)
        if event["event"] in ("verdict", "refused", "ended") and self.ready is None:
            self.ready = self.start()  # after the answer, which it would hold up
        if event["event"] in ("drawn", "ended", "refused"):
            self.screen.waiting(self.files.paths)

    def _take(self, event: Event) -> None:
        """Remember what failed, and forget what did and passes now."""
        case = event["case"]
        if event["number"] == 1:
            self._first = case
        self.failing = [each for each in self.failing if each != case]
        if event["decision"] == "fail":
            self.failing = [case, *self.failing][:MOST_FAILING]


MOST_FAILING = 5

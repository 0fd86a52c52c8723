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

    def show_idle(self, files: tuple[Path, ...]) -> None:
        """Nothing is judged, and nothing will be before the next save."""

    def show_save(self, names: list[str]) -> None:
        """A round begins; without names it is the first."""

    def show_event(self, event: Event, seconds: float) -> None:
        """An event of the round, so many seconds after the save was seen."""


@dataclass
class Watch:
    """`start` forks a round, which then waits. `failing_records` are of cases that failed last, the next to be judged first."""

    start: Callable[[], Round]
    files: WatchedFiles
    screen: Screen
    failing_records: list[dict] = field(default_factory=list)
    clock: Callable[[], float] = time.monotonic
    look_time: float = 0.0  # when the save that is judged was seen
    running_round: Round | None = None
    ready_round: Round | None = None
    _first_record: dict | None = None  # the case that the last round judged first

    def begin(self) -> None:
        """Judge what is there."""
        self._judge([])

    def step(self) -> None:
        """Look at the files once, and pass on what the round told meanwhile."""
        if names := [path.name for path in self.files.saved_paths()]:
            self._judge(names)
        if self.running_round is None:
            return
        for event in self.running_round.events(LOOK_EVERY):
            self._hear(event)

    def end(self) -> None:
        """End the rounds."""
        for each in (self.running_round, self.ready_round):
            if each is not None:
                each.end()
        self.running_round = self.ready_round = None

    def _judge(self, names: list[str]) -> None:
        self.look_time = self.clock()
        if self.running_round is not None:
            self.running_round.end()
        self.running_round, self.ready_round = self.ready_round or self.start(), None
        self.screen.show_save(names)
        self.running_round.go(self.failing_records or ([self._first_record] if self._first_record is not None else []))

    def _hear(self, event: Event) -> None:
        match event["event"]:
            case "files":
                self.files.watch(map(Path, event["files"]))
            case "verdict":
                self._take(event)
            case "report" if event["case"] is not None:  # smaller than the case that failed, so it answers sooner
                self.failing_records = [event["case"], *(each for each in self.failing_records if each != event["case"])][
                    :MOST_FAILING
                ]
        self.screen.show_event(event, self.clock() - self.look_time)
        if event["event"] in ("verdict", "refused", "ended") and self.ready_round is None:
            self.ready_round = self.start()  # after the answer, which it would hold up
        if event["event"] in ("drawn", "ended", "refused"):
            self.screen.show_idle(self.files.paths)

    def _take(self, event: Event) -> None:
        """Remember what failed, and forget what did and passes now."""
        case = event["case"]
        if event["number"] == 1:
            self._first_record = case
        self.failing_records = [each for each in self.failing_records if each != case]
        if event["decision"] == "fail":
            self.failing_records = [case, *self.failing_records][:MOST_FAILING]


MOST_FAILING = 5

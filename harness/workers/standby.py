"""Children that wait for work, for one target: whoever loses its child to a fault takes one of them at once.

One waits while all is calm; after the first fault `MOST` do, because in a row of faults each costs a context and contexts can be
made side by side. They are shared by the places of a bench: a context on a GPU is half a GiB and faults are rare. A new one is
started while a case is out, so that nobody waits for the fork; and the dead are left to the driver, which takes its time over
their contexts, and looked for later.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.workers.process import Child, Gone

CALM = 1
MOST = 3  # on an H200 a fault costs 0.16 s (median) with 3, 0.42 with 2, 0.39 with 1; the 95th percentile is 0.95, 0.82, 0.71
STARTS = 3  # children that may die before their first case, one after the other


class Spares:
    """The children of one target that wait, and those that are being cleared away. Safe for the threads of a bench.

    `count`: how many wait after a fault; None: `HARNESS_SPARES` or `MOST` on a GPU, none on an emulated target, where a start is
    the 25 ms of a fork.
    """

    def __init__(self, target: Target, directory: Path, count: int | None = None) -> None:
        self.target, self.directory = target, directory
        self.count = count if count is not None else 0 if target.emulated else asked_for()
        self.addresses: dict[str, None] = {}  # contracts that a child has imported and lived
        self.faults = 0
        self.ended = False
        self.waited = 0.0  # seconds that places waited for a child, of any kind
        self.starts: list[float] = []  # the seconds each child that was taken had needed to be ready
        self.last_words: list[str] = []  # what the last worker that died before its first case had printed
        self.failures: list[str] = []  # why children could not warm up
        self._waiting: list[Child] = []
        self._dead: list[Child] = []
        self._lock = threading.Lock()

    def take(self, tick: Callable[[], None] = lambda: None) -> Child:
        """A child that is ready: the first spare to be, or a new one. Gone when none comes to life."""
        for _ in range(STARTS):
            with self._lock:
                if self.ended:
                    raise Gone
                child = self._first() or Child(self.target, self.directory, list(self.addresses))
            try:
                waited = child.wait_ready(tick)
            except Gone:
                self.last_words = child.said()
                self.bury(child)
                continue
            except BaseException:  # a tick that ends the run
                self.bury(child)
                raise
            with self._lock:
                self.waited += waited
                self.starts.append(child.start_seconds)
                self.failures += [child.failed] if child.failed else []
            return child
        raise Gone

    def refill(self) -> None:
        """Start what is missing; called while a case is out."""
        with self._lock:
            self._dead = [child for child in self._dead if not child.join(0)]
            missing = min(self.count, CALM if not self.faults else self.count) - len(self._waiting)
            if self.ended or missing <= 0:
                return
            for _ in range(missing):
                self._waiting.append(Child(self.target, self.directory, list(self.addresses)))

    def bury(self, child: Child) -> None:
        """End a child; on a GPU its context is cleared away while others work."""
        child.end()
        if self.target.emulated and child.join(5):
            return
        with self._lock:
            self._dead.append(child)

    def drop(self) -> None:
        """End every child that waits: where the server that forked them was killed they die with it, in a moment if not yet."""
        with self._lock:
            for child in self._waiting:
                child.end()
            self._dead, self._waiting = self._dead + self._waiting, []

    def end(self) -> None:
        """End every child that waits, and see the dead out."""
        with self._lock:
            self.ended = True
            for child in self._waiting:
                child.end()
            left, self._waiting, self._dead = self._waiting + self._dead, [], []
        for child in left:
            child.join(5)

    def _first(self) -> Child | None:
        """The first that is ready; else the one that was started first."""
        chosen: Child | None = None
        for child in list(self._waiting):
            try:
                if child.is_ready():
                    chosen = child
                    break
            except Gone:  # killed while it waited: nobody's verdict
                self._waiting.remove(child)
                child.end()
                self._dead.append(child)
        chosen = chosen or (self._waiting[0] if self._waiting else None)
        if chosen is not None:
            self._waiting.remove(chosen)
        return chosen


def asked_for() -> int:
    """`HARNESS_SPARES`, `MOST` where it is not set; ValueError unless it is a number from 0 on."""
    text = os.environ.get("HARNESS_SPARES", str(MOST))
    if not text.isdigit():
        raise UsageError(f"HARNESS_SPARES={text!r}: must be a number, 0 or more; unset it for {MOST}")
    return int(text)

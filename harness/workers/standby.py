"""Workers that wait for work, for one target: whoever loses its worker to a fault takes one of them at once.

One waits while all is calm; after the first fault `MAX_STANDBYS` do, because in a row of faults each costs a context and contexts
can be made side by side. They are shared by the places of a worker pool: a context on a GPU is half a GiB and faults are rare. A
new one is started while a case is out, so that nobody waits for the fork; and the dead are left to the driver, which takes its time
over their contexts, and looked for later."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.workers.process import Worker, WorkerDied
from bitverdict.harness.workers.start import PLAIN_START, Start

CALM = 1
MAX_STANDBYS = (
    3  # on an H200 a fault costs 0.16 s (median) with 3, 0.42 with 2, 0.39 with 1; the 95th percentile is 0.95, 0.82, 0.71
)
STARTS = 3  # workers that may die before their first case, one after the other


class Standbys:
    """The workers of one target that wait, and those that are being cleared away. Safe for the threads of a worker pool.

    `count`: how many wait after a fault; None: `BITVERDICT_SPARES` or `MAX_STANDBYS` on a GPU, none on an emulated target, where a
    start is the 25 ms of a fork, and none of a start of its own (`bitverdict.harness.workers.start`). `make` starts a worker; None:
    one of `target`.
    """

    def __init__(
        self,
        target: Target,
        directory: Path,
        count: int | None = None,
        start: Start = PLAIN_START,
        make: Callable[[], Worker] | None = None,
        calm: int = CALM,
    ) -> None:
        self.target, self.directory, self.start = target, directory, start
        self.count = count if count is not None else 0 if target.emulated or start.name else requested_count()
        self.calm = calm  # how many wait before the first fault
        self.addresses: dict[str, None] = {}  # contracts that a worker has imported and lived
        self.faults = 0
        self.ended = False
        self.waited = 0.0  # seconds that places waited for a worker, of any kind
        self.starts: list[float] = []  # the seconds each worker that was taken had needed to be ready
        self.last_words: list[str] = []  # what the last worker that died before its first case had printed
        self.failures: list[str] = []  # why workers could not warm up
        self._make = make or self._new_worker
        self._waiting: list[Worker] = []
        self._dead: list[Worker] = []
        self._lock = threading.Lock()

    @property
    def waiting_workers(self) -> tuple[Worker, ...]:
        """The workers that wait, ready or not, the oldest first."""
        with self._lock:
            return tuple(self._waiting)

    def take(self, tick: Callable[[], None] = lambda: None) -> Worker:
        """A worker that is ready: the first standby worker to be, or a new one. Gone when none comes to life."""
        for _ in range(STARTS):
            with self._lock:
                if self.ended:
                    raise WorkerDied
                worker = self._first_worker() or self._make()
            try:
                wait_seconds = worker.wait_ready(tick)
            except WorkerDied:
                self.last_words = worker.log_tail()
                self.retire(worker)
                continue
            except BaseException:  # a tick that ends the run
                self.retire(worker)
                raise
            with self._lock:
                self.waited += wait_seconds
                self.starts.append(worker.start_seconds)
                self.failures += [worker.failed] if worker.failed else []
            return worker
        raise WorkerDied

    def refill(self) -> None:
        """Start what is missing; called while a case is out."""
        with self._lock:
            self._dead = [worker for worker in self._dead if not worker.join(0)]
            missing = min(self.count, self.calm if not self.faults else self.count) - len(self._waiting)
            if self.ended or missing <= 0:
                return
            for _ in range(missing):
                self._waiting.append(self._make())

    def retire(self, worker: Worker) -> None:
        """End a worker; on a GPU its context is cleared away while others work."""
        worker.end()
        if self.target.emulated and worker.join(5):
            return
        with self._lock:
            self._dead.append(worker)

    def drop(self) -> None:
        """End every worker that waits: where the server that forked them was killed they die with it, in a moment if not yet."""
        with self._lock:
            for worker in self._waiting:
                worker.end()
            self._dead, self._waiting = self._dead + self._waiting, []

    def end(self) -> None:
        """End every worker that waits, and see the dead out."""
        with self._lock:
            self.ended = True
            for worker in self._waiting:
                worker.end()
            left, self._waiting, self._dead = self._waiting + self._dead, [], []
        for worker in left:
            worker.join(5)

    def _new_worker(self) -> Worker:
        return Worker(self.target, self.directory, list(self.addresses), self.start)

    def _first_worker(self) -> Worker | None:
        """The first that is ready; else the one that was started first."""
        chosen_worker: Worker | None = None
        for worker in list(self._waiting):
            try:
                if worker.is_ready():
                    chosen_worker = worker
                    break
            except WorkerDied:  # killed while it waited: nobody's verdict
                self._waiting.remove(worker)
                worker.end()
                self._dead.append(worker)
        chosen_worker = chosen_worker or (self._waiting[0] if self._waiting else None)
        if chosen_worker is not None:
            self._waiting.remove(chosen_worker)
        return chosen_worker


def requested_count() -> int:
    """`BITVERDICT_SPARES`, `MAX_STANDBYS` where it is not set; ValueError unless it is a number from 0 on."""
    text = os.environ.get("BITVERDICT_SPARES", str(MAX_STANDBYS))
    if not text.isdigit():
        raise UsageError(f"BITVERDICT_SPARES={text!r}: must be a number, 0 or more; unset it for {MAX_STANDBYS}")
    return int(text)

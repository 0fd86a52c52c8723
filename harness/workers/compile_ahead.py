"""Kernels compiled before their cases come up, by processes that need no GPU, in the order in which the cases will be dealt.

Compiling is most of a cold run on a GPU, and a case holds a place on the GPU while it compiles. So a process for each core that no
worker takes goes through the cases ahead of them (`bitverdict.harness.judge.compiled_ahead`). A kernel is compiled once by all of
them together (`bitverdict.harness.judge.compile_once`): a case waits for the kernels of its own and for no others. A process that
dies or hangs over a case leaves that case to its worker, which names what happened.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bitverdict.harness.judge import compiled_ahead
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target, nearest_emulated
from bitverdict.harness.workers.process import Worker, WorkerDied
from bitverdict.harness.workers.start import Start
from bitverdict.harness.workers.task import Task

MOST_SECONDS = 120.0  # of one case, all its kernels
TURNS = 2  # how often a case is taken up whose kernel another process has in work
WITHOUT_A_GPU = Start(name="compile ahead", variables={"CUDA_VISIBLE_DEVICES": ""})
_FUNCTION = f"{compiled_ahead.__name__}:{compiled_ahead.compile_case.__name__}"


class CompileAhead:
    """At most `jobs` processes, started with the first case that needs one. Safe for the threads of a worker pool.

    `directory`: of their logs. `make` starts a process for an architecture; None: a worker that sees no GPU.
    """

    def __init__(self, jobs: int, directory: Path, make: Callable[[str], Worker] | None = None) -> None:
        self.jobs, self.directory = jobs, directory
        self.done = 0  # cases whose kernels were all compiled here, or found
        self.ended = False
        self._make = make or self._new_worker
        self._todo: queue.SimpleQueue = queue.SimpleQueue()
        self._asked: set[tuple] = set()
        self._left = 0
        self._lock = threading.Condition()
        self._working: list[Worker] = []
        self._threads: list[threading.Thread] = []

    def expect(self, work: Iterable[tuple[Case, Target]]) -> int:
        """Compile for these cases, in this order, while the caller goes on; how many of them need it."""
        count = 0
        for case, target in work:
            key = case.contract, repr(case.problem), repr(case.config), case.tuning, target.arch
            if key in self._asked or not compiled_ahead.can_be(case, target) or compiled_ahead.is_done(case, target.arch):
                continue
            self._asked.add(key)
            with self._lock:
                self._left += 1
            self._todo.put((case, target.arch, TURNS))
            count += 1
        with self._lock:
            for _ in range(min(self.jobs - len(self._threads), count) if not self.ended else 0):
                self._threads.append(threading.Thread(target=self._serve, daemon=True))
                self._threads[-1].start()
        return count

    def wait(self, seconds: float) -> bool:
        """Whether all that was asked for is done, waiting at most `seconds`."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._left or self.ended, seconds)

    def end(self) -> None:
        """End every process; what is in work is left to the cases."""
        with self._lock:
            self.ended = True
            working, self._working = self._working, []
            self._lock.notify_all()
        for worker in working:
            worker.end()

    def _serve(self) -> None:
        workers: dict[str, Worker] = {}
        while not self.ended:
            try:
                case, arch, turns = self._todo.get(timeout=0.25)
            except queue.Empty:
                with self._lock:
                    if self._left:  # another thread may put one back
                        continue
                    self._threads.remove(threading.current_thread())
                break
            if self._compile_case(workers, case, arch) == compiled_ahead.BUSY and turns > 1:
                self._todo.put((case, arch, turns - 1))
                continue
            with self._lock:
                self._left -= 1
                self._lock.notify_all()
        for worker in workers.values():
            self._retire(worker)

    def _compile_case(self, workers: dict[str, Worker], case: Case, arch: str) -> str:
        """What came of it: empty where all is compiled."""
        task = Task(function=_FUNCTION, contract=case.contract, given={"case": case.to_json(), "arch": arch})
        try:
            if arch not in workers:
                worker = self._make(arch)
                with self._lock:
                    self._working.append(worker)
                    ended = self.ended
                if ended:
                    raise WorkerDied
                workers[arch] = worker
                worker.wait_ready()
            workers[arch].send(task)
            verdict = workers[arch].answer(MOST_SECONDS)
            if verdict is None:
                raise WorkerDied
        except (WorkerDied, OSError):  # the compiler aborted, or was killed: the case's own worker says so
            if (lost := workers.pop(arch, None)) is not None:
                self._retire(lost)
            return "died"
        self.done += verdict.outcome == "pass"
        return verdict.message

    def _retire(self, worker: Worker) -> None:
        with self._lock:
            mine = worker in self._working
            if mine:
                self._working.remove(worker)
        if mine:  # or `end` has ended it
            worker.end()
            worker.join(5)

    def _new_worker(self, arch: str) -> Any:
        return Worker(nearest_emulated(arch), self.directory, [], WITHOUT_A_GPU)

"""The worker pool: as many places as there are jobs, each with one worker per target, and the journal before each of them.

A fault of a kernel, an abort of the compiler, a kill and a hang are verdicts, and the next case is unaffected
(`bitverdict.harness.workers.slot`). The case is in the journal, flushed, before a worker gets it."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import Any, TypeVar

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.feature_table import isolation
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import PROCESS, ZYGOTE, Verdict
from bitverdict.harness.workers.compile_ahead import CompileAhead
from bitverdict.harness.workers.journal import Journal, verdict_record
from bitverdict.harness.workers.slot import SLICE, RunCancelled, WorkerSlot
from bitverdict.harness.workers.standby import CALM, Standbys
from bitverdict.harness.workers.start import PLAIN_START, Start
from bitverdict.harness.workers.stopping import Stopping, cancelled_verdict
from bitverdict.harness.workers.task import Task

Work = TypeVar("Work", bound=Case | Task)
Item = TypeVar("Item")
Answer = TypeVar("Answer")
ONE_SIGNAL = 0.3  # seconds
CLOSED_WITHIN = 1.0  # seconds, where the run was cancelled
KEPT_WORKERS = 2
"""Workers that a place keeps on one real GPU, started in different ways: a plain one, and one of sealed cases. Each holds a CUDA
context, and of a sealed one its candidate's processes hold more; `gpu_lease.NEED` counts no others."""


class WorkerPool:
    """`jobs` places, each with one worker per target; a context manager that leaves no worker behind.

    Every case or task is written to `journal` before its launch, before it is judged again, and after its verdict. `standbys`:
    workers a target that wait after a fault; None leaves it to `bitverdict.harness.workers.standby`. `calm`: how many wait before
    there was one.
    """

    def __init__(
        self,
        *,
        jobs: int = 1,
        timeout: float = 120.0,
        journal: Journal | None = None,
        standbys: int | None = None,
        calm: int = CALM,
    ) -> None:
        self.jobs, self.timeout = jobs, timeout
        self.journal = journal if journal is not None else Journal()
        self.slots: dict[tuple[int, str], WorkerSlot] = {}
        self.standbys: dict[str, Standbys] = {}
        self.ahead: CompileAhead | None = None
        self._standby_count, self._calm_count = standbys, calm
        self._lock = threading.Lock()
        self.closed = self.interrupted = False

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *exception: object) -> None:
        if not self.interrupted:
            self.close()
            return
        # A worker that is being started would be waited for; it ends with this process as well.
        closing = threading.Thread(target=self.close, daemon=True)
        closing.start()
        closing.join(CLOSED_WITHIN)

    def close(self) -> None:
        with self._lock:
            self.closed = True
            slots, standbys, ahead = list(self.slots.values()), list(self.standbys.values()), self.ahead
            self.slots.clear()
        if ahead is not None:
            ahead.end()
        for slot in slots:
            slot.end()
        for waiting in standbys:
            waiting.end()
        self.journal.close()

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Ctrl-C raises KeyboardInterrupt where this thread waits for a verdict, and nowhere else; a second one, anywhere.

        Left to itself Python raises it wherever it is, and drops it in a callback of the garbage collector (Hypothesis has one).
        One signal may come twice, from the terminal and passed on: what comes within `ONE_SIGNAL` seconds is one. Where SIGINT is
        ignored, as under ``nohup ... &``, it stays ignored.
        """
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            yield
            return
        first_signal = 0.0

        def interrupt(number: int, frame: FrameType | None) -> None:
            nonlocal first_signal
            if self.interrupted and time.monotonic() - first_signal > ONE_SIGNAL:
                raise KeyboardInterrupt
            self.interrupted, first_signal = True, first_signal or time.monotonic()

        earlier = signal.signal(signal.SIGINT, interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, earlier)

    def judge(self, work: Case | Task, target: Target, *, place: int = 0, start: Start = PLAIN_START) -> Verdict:
        """The verdict on one case or task, in the worker that `place` has for `target`; `start`: how that worker is started.

        A sealed case over which the zygote of its processes ended is judged once more, by processes of another one.
        """
        self._tick()
        slot = self._slot(target, place, worker_start := _start_of(work, target, start))
        number = self.journal.begin(work, target.name)  # creates the directory too

        def note_rerun(first: Verdict) -> None:
            self.journal.note("again", number=number, verdict=verdict_record(first))

        verdict = slot.judge(work, self._tick, note_rerun)
        if verdict.details.get(PROCESS) == ZYGOTE:
            self.release(target, place=place, start=worker_start)
            note_rerun(verdict)
            verdict = self._slot(target, place, _start_of(work, target, start)).judge(work, self._tick, note_rerun)
        self.journal.end(number, verdict)
        return verdict

    def prepare(self, targets: Sequence[Target], addresses: Sequence[str] = ()) -> None:
        """Have a worker wait at each place for each target, with the contracts at `addresses` imported."""
        self.journal.make_folder()
        for target in targets:
            for place in range(self.jobs):
                slot = self._slot(target, place, PLAIN_START)
                slot.standbys.addresses |= dict.fromkeys(addresses)
                slot.prepare(self._tick)

    def compile_ahead(self, work: Iterable[tuple[Case, Target]]) -> int:
        """Have the kernels of cases for real GPUs compiled before they come up, by a process for each core that no place takes; how
        many cases need it."""
        real = [(case, target) for case, target in work if not target.emulated]
        idle = len(os.sched_getaffinity(0)) - self.jobs
        with self._lock:
            if self.closed or not real or idle < 1:
                return 0
            if self.ahead is None:
                self.ahead = CompileAhead(idle, self.journal.path.parent)
        return self.ahead.expect(real)

    def release(self, target: Target, *, place: int = 0, start: Start = PLAIN_START) -> list[str]:
        """End the worker that `place` has for `target`; all that each of those under a tool printed, in the order of their ends."""
        with self._lock:
            slot = self.slots.pop(_key(target, place, start), None)
        if slot is None:
            return []
        slot.end()
        return slot.printed

    def judge_all(
        self, work: Iterable[tuple[Work, Target]], stopping: Stopping | None = None
    ) -> Iterator[tuple[Work, Target, Verdict]]:
        """Verdicts as they come, over all places at once. `work` is drawn from only as places become free, in this thread.

        What `stopping` has a reason not to judge is cancelled with it, also where it was handed out already.
        """
        stop_state = stopping if stopping is not None else Stopping()

        def judged(item: tuple[Work, Target], place: int) -> tuple[Work, Target, Verdict]:
            case, target = item
            reason = stop_state.reason(case.contract, target.name)
            verdict = cancelled_verdict(reason) if reason else self.judge(case, target, place=place)
            stop_state.heard(case.contract, target.name, verdict)
            return case, target, verdict

        return self.spread(work, judged)

    def spread(self, work: Iterable[Item], do: Callable[[Item, int], Answer]) -> Iterator[Answer]:
        """``do(item, place)`` over all places at once, what it returns as it comes, what it raises raised here.

        `work` is drawn from only as places become free, in this thread, which Ctrl-C interrupts (`interruptible`).
        """
        todo: queue.SimpleQueue = queue.SimpleQueue()
        answers: queue.SimpleQueue = queue.SimpleQueue()

        def serve(place: int) -> None:
            while (item := todo.get()) is not None:
                try:
                    answers.put((do(item[0], place), None))
                except RunCancelled:
                    return
                except Exception as error:
                    answers.put((None, error))

        threads = [threading.Thread(target=serve, args=(place,), daemon=True) for place in range(self.jobs)]
        for thread in threads:
            thread.start()
        out = 0
        try:
            for item in work:
                todo.put((item,))
                out += 1
                while out >= 2 * self.jobs or not answers.empty():
                    yield self._next_answer(answers)
                    out -= 1
            while out:
                yield self._next_answer(answers)
                out -= 1
        finally:
            for _ in threads:
                todo.put(None)
            if not out:
                for thread in threads:
                    thread.join()

    def _slot(self, target: Target, place: int, start: Start) -> WorkerSlot:
        key = _key(target, place, start)
        with self._lock:
            if self.closed:
                raise RunCancelled
            if key not in self.slots:
                directory = self.journal.path.parent
                count = self._standby_count if start is PLAIN_START else None
                shared = self.standbys.setdefault(key[1], Standbys(target, directory, count, start, calm=self._calm_count))
                self.slots[key] = WorkerSlot(target, timeout=self.timeout, directory=directory, standbys=shared, start=start)
            slot = self.slots[key] = self.slots.pop(key)  # the last is the one used last
            of_place = [each for (at, _), each in self.slots.items() if at == place and each.target == target and each.process]
        if not target.emulated and slot.process is None:
            for idle in of_place[: max(0, len(of_place) + 1 - KEPT_WORKERS)]:
                idle.close()
        return slot

    def _tick(self) -> None:
        if self.interrupted and threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt

    def _next_answer(self, done: queue.SimpleQueue) -> Any:
        while True:
            self._tick()
            with contextlib.suppress(queue.Empty):
                answer, error = done.get(timeout=SLICE)
                if error is not None:
                    raise error
                return answer


def _start_of(work: Case | Task, target: Target, start: Start) -> Start:
    """How a worker that judges `work` is started: a sealed case has workers of its own."""
    if not isinstance(work, Case) or not work.sealed:
        return start
    isolated = isolation()
    if isolated is None:
        raise UsageError(f"{work.launcher}: this installation has no sealed runs")
    return isolated.start_of(work, start, gpu=not target.emulated)


def _key(target: Target, place: int, start: Start) -> tuple[int, str]:
    return place, f"{target.name} {start.name}" if start.name else target.name

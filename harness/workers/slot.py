"""The judge in a worker process: a fault of a kernel or an abort of the compiler is a verdict, and the next case is unaffected.

A *slot* is one place for one target: a long-lived worker (`bitverdict.harness.workers.process`) that judges whole cases and answers
with verdicts as JSON, and the standby workers (`bitverdict.harness.workers.standby`) that it shares with the other places.

**Whether a fault repeats.** A device fault, a death or an exit may be the doing of an earlier case of the same worker: a
context is poisoned for good, a heap is damaged before it is noticed. So a case whose worker had judged others before is judged
again, alone in a worker that has judged nothing. The retry decides; the first result is kept in the details. The first case of a
worker needs no retry, so that in a row of faults each costs one worker. A kill comes from outside and can hit any case, so a killed
case is always retried. So is a case whose exit status was lost because the forkserver was killed. A hang is not retried, since that
would cost the timeout again; its report says so. An emulated device lives for one launch: its faults are the launch's own.

**One by one.** A case goes down the pipe when the one before it has come back, with its journal line on disk before. A batch would
save the round trip and nothing else, and would leave open which of its cases was out when a worker died.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from bitverdict.harness.judge import hang_report
from bitverdict.harness.judge.classify import of_status, room_of
from bitverdict.harness.judge.compile_errors import named_by_compiler, says_nothing
from bitverdict.harness.judge.missing_features import held_to_features
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.paths import source_line
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import DEVICE_FAULTS, NAMELESS, Basis, Decision, Outcome, Verdict
from bitverdict.harness.workers.forkserver import PRELOADED_MODULES
from bitverdict.harness.workers.process import SLICE, UNKNOWN, Worker, WorkerDied, WorkerStopped
from bitverdict.harness.workers.standby import STARTS, Standbys
from bitverdict.harness.workers.start import PLAIN_START, Start
from bitverdict.harness.workers.task import Task, timeout_of

__all__ = ["PRELOADED_MODULES", "RECYCLED_AFTER", "SLICE", "RunCancelled", "WorkerSlot", "with_assertion"]

RECYCLED_AFTER = 1000  # cases of one worker: the compiler's and the emulator's caches grow with each specialisation


STOPPED_PROCESS = "stopped process"  # in the details of a case whose worker was stopped from outside


class RunCancelled(Exception):
    """The run was ended while a case was out. No verdict."""


class WorkerSlot:
    """One place for one target. Not thread-safe; `close` ends its worker, `end` for good and from any thread."""

    def __init__(
        self, target: Target, *, timeout: float, directory: Path, standbys: Standbys | None = None, start: Start = PLAIN_START
    ) -> None:
        self.target, self.timeout, self.start = target, timeout, start
        self.standbys = standbys if standbys is not None else Standbys(target, directory, start=start)
        self.printed: list[str] = []  # by each worker under a tool that has ended
        self.worker: Worker | None = None
        self.ended = False
        self._lock = threading.Lock()

    @property
    def process(self) -> Any:
        """The process that holds the place; None before the first case and after a fault."""
        return None if self.worker is None else self.worker.process

    def judge(
        self, work: Case | Task, tick: Callable[[], None] = lambda: None, on_rerun: Callable[[Verdict], None] = lambda first: None
    ) -> Verdict:
        """The verdict on a case or a task; a death or a hang of the worker is one, and the next call has another worker.

        `tick` is called while the verdict is waited for, and may raise. `on_rerun` is given the first verdict before a case is
        judged once more. Cancelled when `end` is called meanwhile: what a cancelled case came to is not a verdict."""
        try:
            first_verdict, before = self._judge_once(work, tick)
            if not may_be_anothers(first_verdict, before, self.target):
                return first_verdict
            on_rerun(first_verdict)
            if first_verdict.details.get("status") == UNKNOWN:
                self.standbys.drop()
            alone = self._judge_once(work, tick)[0]
            if _from_outside(alone) and not _from_outside(first_verdict):  # the retry itself was hit: it said nothing of the case
                on_rerun(alone)
                alone = self._judge_once(work, tick)[0]
            return after_retry(first_verdict, before, alone)
        except Exception:
            if self.ended:
                raise RunCancelled from None
            raise

    def prepare(self, tick: Callable[[], None] = lambda: None) -> None:
        """Have a worker that waits for the first case."""
        if self.worker is None:
            with contextlib.suppress(WorkerDied):  # the first case says so
                self._take(tick)

    def end(self) -> None:
        """Close for good, from any thread."""
        with self._lock:  # a worker that is being taken is there, and ends too
            self.ended = True
        self.close()

    def close(self) -> None:
        """End the worker and its session; the next case has another."""
        with self._lock:  # two threads that end one worker would close its pipe twice
            worker, self.worker = self.worker, None
        if worker is not None:
            self.standbys.retire(worker)
            self.printed += [worker.printed] if self.start.around else []

    def _judge_once(self, work: Case | Task, tick: Callable[[], None]) -> tuple[Verdict, int]:
        """The verdict of one worker, and how many cases that worker had judged before."""
        try:
            worker = self._handed_over(work, tick)
        except WorkerDied:
            if self.ended:
                raise RunCancelled from None
            return _no_worker(self.standbys.last_words), 0
        before = worker.served - 1
        self.standbys.refill()  # while the worker is busy
        start_time, timeout = time.perf_counter(), timeout_of(work, self.timeout)
        try:
            verdict = worker.answer(timeout, tick)
        except WorkerDied:
            verdict = self._death_verdict(worker, time.perf_counter() - start_time)
        except WorkerStopped:
            verdict = _stopped_verdict(worker.pid, timeout, time.perf_counter() - start_time)
            self._lose_worker()
        except BaseException:  # a tick that ends the run: what this worker answers later is no answer to the next case
            self.close()
            raise
        else:
            if verdict is None:
                seconds = time.perf_counter() - start_time
                verdict = _hung(timeout, seconds, hang_report.where(worker.pid, worker.log_tail), worker.log_tail(), before)
                self._lose_worker()
            elif not self.target.emulated and verdict.outcome in DEVICE_FAULTS:
                said = worker.log_tail()
                verdict = with_assertion(verdict, said)
                verdict = replace(verdict, details=verdict.details | {"stderr": said}) if said else verdict
                self._lose_worker()
            elif "status" in verdict.details:  # of the executor, or of the candidate's process: the worker ends with it
                self._lose_worker()
            else:
                if says_nothing(verdict):
                    named = named_by_compiler(verdict, worker.log_tail())
                    verdict = held_to_features(named, self.target) if NAMELESS in verdict.details else named
                self.standbys.addresses[work.contract] = None
        return (_with_start(verdict, worker.start_seconds) if before == 0 else verdict), before

    def _handed_over(self, work: Case | Task, tick: Callable[[], None]) -> Worker:
        """The worker that has the case. Gone when none lives: one that died while nothing was out had no case, and no verdict."""
        if self.worker is not None and self.worker.served >= (self.start.cases or RECYCLED_AFTER):
            self.close()
        for _ in range(STARTS):
            worker = self.worker or self._take(tick)
            try:
                worker.send(work)
                return worker
            except WorkerDied:
                self.close()
        raise WorkerDied

    def _take(self, tick: Callable[[], None]) -> Worker:
        worker = self.standbys.take(tick)
        with self._lock:
            if self.ended:
                self.standbys.retire(worker)
                raise RunCancelled
            self.worker = worker
        return worker

    def _lose_worker(self) -> None:
        self.standbys.faults += 1
        self.close()

    def _death_verdict(self, worker: Worker, seconds: float) -> Verdict:
        if self.ended:
            raise RunCancelled
        status, log_lines = worker.status(), worker.log_tail()
        self._lose_worker()
        outcome, message = of_status(status)
        return Verdict(
            decision=Decision.FAIL,
            outcome=outcome,
            message=message,
            location=_line_of(log_lines),
            basis=Basis.OBSERVED_FAULT,
            details={"status": status, "stderr": log_lines},
            seconds={"total": seconds},
        )


def may_be_anothers(verdict: Verdict, before: int, target: Target) -> bool:
    """Whether what came may be another's doing: of the `before` cases of its process, or of a kill from outside."""
    if _from_outside(verdict):
        return True
    died = "status" in verdict.details
    faulted = not target.emulated and verdict.outcome in DEVICE_FAULTS and verdict.outcome is not Outcome.TIMEOUT
    return bool(before) and (died or faulted)


def _from_outside(verdict: Verdict) -> bool:
    """Whether it may be a kill that was meant for nobody, or for the forkserver; or a stop."""
    return verdict.outcome is Outcome.KILLED or verdict.details.get("status") == UNKNOWN or STOPPED_PROCESS in verdict.details


def after_retry(first_verdict: Verdict, before: int, clean_verdict: Verdict) -> Verdict:
    """The verdict of a case judged `alone` in a clean process, after `first` in one that had judged `before` others."""
    had = f"in a process that had judged {before} other cases" if before else "in a process that had judged no other case"
    if clean_verdict.signature == first_verdict.signature:
        note = {"fault repeats": f"came first {had}, and again alone in a clean one"}
    else:
        said = f"{first_verdict.outcome}: {first_verdict.message}" + (
            f" ({first_verdict.location})" if first_verdict.location else ""
        )
        note = {"fault does not repeat": f"{said}; this came {had}; judged again alone in a clean one, it did not come again"}
    return replace(clean_verdict, details=dict(clean_verdict.details, **note))


def _hung(timeout: float, seconds: float, where: dict[str, str], said: list[str], before: int) -> Verdict:
    details: dict[str, Any] = {name: text for name, text in where.items() if name not in ("location", "function")}
    details["stderr"] = [line for line in said if not hang_report.is_report(line)]
    if before:
        details["judged once"] = f"its process had judged {before} other cases; a retry would cost the timeout again"
    return Verdict(
        decision=Decision.FAIL,
        outcome=Outcome.TIMEOUT,
        message=f"no verdict within {timeout:g} s" + (f"; it was in {where['function']}" if where else ""),
        location=where.get("location", ""),
        basis=Basis.OBSERVED_FAULT,
        details=details,
        seconds={"total": seconds},
    )


def _stopped_verdict(process: int, timeout: float, seconds: float) -> Verdict:
    message = (
        f"the machine failed: process {process} was stopped (SIGSTOP or a debugger) for {timeout:g} s, as long as a case may take"
    )
    return Verdict(
        decision=Decision.ERROR,
        outcome=Outcome.ERROR,
        message=f"{message}; leave workers running, or give --timeout more",
        basis=Basis.NO_BASIS,
        details={"layer": "machine", STOPPED_PROCESS: process},
        seconds={"total": seconds},
    )


def _no_worker(log_lines: list[str]) -> Verdict:
    return Verdict(
        decision=Decision.ERROR,
        outcome=Outcome.ERROR,
        message=f"the machine failed: {STARTS} processes died, one after the other, before they had a case",
        basis=Basis.NO_BASIS,
        details={"layer": "machine", "stderr": log_lines},
    )


def _with_start(verdict: Verdict, seconds: float) -> Verdict:
    """The first verdict of a worker also tells what the worker's start took: a bucket of its own."""
    spent = dict(verdict.seconds, start=round(seconds, 6))
    return replace(verdict, seconds=spent | {"total": round(spent.get("total", 0.0) + seconds, 6)})


def with_assertion(verdict: Verdict, said: list[str]) -> Verdict:
    """The verdict of a device assert with what the device printed: its message and line. Others as they are."""
    found = [re.match(r"(.+?):(\d+): .*[Aa]ssertion `(.*)` failed", line) for line in said]
    first = next((match for match in found if match), None)
    if verdict.outcome is not Outcome.DEVICE_ASSERT or first is None:
        return verdict
    return replace(verdict, message=first[3], location=source_line(first[1], first[2]))


def _line_of(said: list[str]) -> str:
    """``file:line`` of the innermost frame on the kernel's side in faulthandler's report."""
    for line in said:
        found = re.match(r'\s*File "(.+)", line (\d+) in', line)
        if found and room_of(found[1]) == "":
            return source_line(found[1], found[2])
    return ""

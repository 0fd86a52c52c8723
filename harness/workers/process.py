"""A worker process that judges: forked from a server that never touches CUDA, and warmed before its first case.

Workers come from a forkserver that has torch and Triton imported (a start takes about 25 ms, a fresh import 1.7 s). A worker has a
session of its own, so that Ctrl-C does not look like a kill, and dies with its parent (PR_SET_PDEATHSIG). Before its first case it
makes its CUDA context and loads what every case uses; it says when it is ready and how long that took. So a worker that waits for
work, a *standby worker*, takes over at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import itertools
import json
import multiprocessing
import multiprocessing.connection
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bitverdict.harness.judge import hang_report
from bitverdict.harness.judge.classify import failure
from bitverdict.harness.judge.instrumentation import read_again
from bitverdict.harness.judge.machine_faults import writing
from bitverdict.harness.model import trusted_imports
from bitverdict.harness.model.addresses import load
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.feature_table import isolation
from bitverdict.harness.model.supervision import end_forks
from bitverdict.harness.model.targets import Target, visible_device
from bitverdict.harness.model.verdict import DEVICE_FAULTS, Verdict
from bitverdict.harness.workers.forkserver import _forkserver, _start_lock, die_with_the_asker, leave_shared_server
from bitverdict.harness.workers.start import PLAIN_START, Program, Start
from bitverdict.harness.workers.task import Task, perform

PASSED_ON = ("TRITON_", "CUDA_", "BITVERDICT_", "HIP_", "ROCR_")
SLICE = 0.25  # seconds between two looks at whether the run was interrupted
LOG_TAIL_BYTES = 1 << 16  # bytes of the end of a worker's log that are looked at
LEFT_WITHIN = 60.0  # seconds in which a program under a tool ends by itself once it is asked to
STARTED_WITHIN = 120.0  # seconds; a compiler's cache may be cold, a machine busy
UNKNOWN = 255
"""multiprocessing's exit status of a worker whose forkserver was killed, and with it the worker; also what `exit(-1)` leaves."""
_PR_SET_PDEATHSIG = 1
_numbers = itertools.count()


class WorkerDied(Exception):
    """The worker ended without an answer."""


class WorkerStopped(Exception):
    """The worker was stopped from outside for as long as a case may take."""


def is_stopped(pid: int) -> bool:
    """Whether the process is stopped by a signal or a tracer (proc_pid_stat(5), states T and t)."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    return False


def queued_seconds(pid: int) -> float:
    """How long the process has waited for a processor that others had (proc_pid_schedstat(5))."""
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    return 0.0


class Worker:
    """One process for one target. `addresses` are contracts to have imported when it is ready.

    `printed` is all that a program under a tool (`Start.around`) printed, once it has ended.
    """

    def __init__(self, target: Target, directory: Path, addresses: Sequence[str] = (), start: Start = PLAIN_START) -> None:
        self.start, self.printed, self.out = start, "", False
        self.log = directory / f"worker-{os.getpid()}-{next(_numbers)}.log"  # what the worker prints; outlives a killed parent
        with writing("log of a worker", self.log):
            self.log.touch()
        self.served = 0
        self.start_seconds = 0.0  # the worker's own, known when it is ready
        self.failed = ""  # why it could not warm up
        self.ready = False
        variables = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
        if not target.emulated:
            variables.update(CUDA_VISIBLE_DEVICES=visible_device(target.index), BITVERDICT_ONE_GPU="1")
        variables.update(start.variables)
        arguments = (target, str(self.log), variables, list(addresses), start)
        self.process: Any
        self.connection: Any
        if start.around:
            self.process = Program(start.around, arguments, self.log)
            self.connection = self.process.connection
        else:
            self.process, self.connection = _start_worker(arguments)
        self.pid: int = self.process.pid  # of a program under a tool the tool's, until it is ready

    def is_ready(self) -> bool:
        """Whether the worker waits for a case; never blocks. Gone when it died instead."""
        if not self.ready and self.connection.poll(0):
            self._welcome()
        return self.ready

    def wait_ready(self, tick: Callable[[], None] = lambda: None) -> float:
        """Wait for the worker to be warm; the seconds waited. Gone when it died, or takes longer than any start does."""
        start = time.perf_counter()
        while not self.is_ready():
            if time.perf_counter() - start > STARTED_WITHIN:
                raise WorkerDied
            tick()
            self.connection.poll(SLICE)
        return time.perf_counter() - start

    def send(self, work: Case | Task) -> None:
        """Hand a case or a task over. Gone when the worker died before it could have had it."""
        if not self.start.around:  # a tool says at the end what it saw in all cases
            with writing("log of a worker", self.log):
                self.log.write_bytes(b"")
        try:
            self.connection.send(work.to_json())
        except OSError:
            raise WorkerDied from None
        self.served += 1
        self.out = True

    def answer(self, timeout: float, tick: Callable[[], None] = lambda: None) -> Verdict | None:
        """The verdict on the case that is out, None after `timeout` seconds. WorkerDied when the worker died, WorkerStopped when
        somebody else stopped it (SIGSTOP, a debugger) for as long: that time is not the case's, nor is that in which it waits for a
        processor."""
        spent = stopped_seconds = 0.0
        slice_start, queue_wait = time.perf_counter(), queued_seconds(self.pid)
        try:
            has_answer = self.connection.poll(min(SLICE, timeout))
            while not has_answer:
                before, slice_start, queued_before = slice_start, time.perf_counter(), queue_wait
                queue_wait = queued_seconds(self.pid)
                if is_stopped(self.pid):
                    stopped_seconds += slice_start - before
                else:
                    spent += max(slice_start - before - (queue_wait - queued_before), 0.0)
                if stopped_seconds >= timeout:
                    raise WorkerStopped
                if spent >= timeout:
                    return None
                tick()
                has_answer = self.connection.poll(SLICE)
            verdict = Verdict.from_json(self.connection.recv())
            self.out = False
            return verdict
        except (EOFError, OSError):
            raise WorkerDied from None

    def log_tail(self) -> list[str]:
        """The last lines that it printed over the case that is out."""
        with contextlib.suppress(OSError), self.log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
            return [line[:500] for line in log.read().decode(errors="replace").splitlines()[-40:]]
        return []

    def status(self) -> int | None:
        """The exit status of a worker that is gone, -N for signal N; `UNKNOWN` where nobody is left who was told it."""
        self.join(10)
        return self.process.exitcode

    def end(self) -> None:
        """Kill the worker and its session, without waiting for what the driver has to clear away.

        A program under a tool that waits for work is asked to end first, and the tool with it: at most `LEFT_WITHIN` seconds.
        """
        if self.start.around:
            if self.ready and not self.out:
                with contextlib.suppress(OSError):
                    self.connection.send(None)
                    self.process.join(LEFT_WITHIN)
            with contextlib.suppress(OSError):
                self.printed = self.log.read_text(errors="replace")
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(OSError):
                kill(self.process.pid, signal.SIGKILL)
        self.connection.close()
        self.log.unlink(missing_ok=True)

    def join(self, seconds: float) -> bool:
        """Whether the worker is gone, waiting at most `seconds`.

        The status can be read once from the forkserver's pipe, and multiprocessing reads it whenever a process is started: of two
        threads that read, the second would take the end of the pipe for the status.
        """
        if self.start.around:
            return self.process.join(seconds)
        multiprocessing.connection.wait([self.process.sentinel], seconds)
        with _start_lock:
            return self.process.exitcode is not None

    def _welcome(self) -> None:
        try:
            told = self.connection.recv()
        except (EOFError, OSError):
            raise WorkerDied from None
        self.start_seconds, self.failed, self.ready, self.pid = told["started"], told["failed"], True, told["pid"]


def _start_worker(arguments: tuple) -> tuple[Any, Any]:
    """A worker of the forkserver and our end of its pipe; of another one where that was killed while it was asked for this worker.

    Each try has a pipe of its own: a server killed late has forked a worker already, which would greet and answer beside the next.
    """
    for attempts in (2, 1, 0):
        ours, theirs = multiprocessing.Pipe()
        with _start_lock, _forkserver() as context:
            process = context.Process(target=_run_fork, args=(theirs, *arguments), daemon=True)
            try:
                process.start()
                return process, ours
            except (EOFError, ConnectionError, FileNotFoundError):
                leave_shared_server()
                ours.close()
                if not attempts:
                    raise
            finally:
                theirs.close()
        time.sleep(0.1)
    raise AssertionError("unreachable")


def _run_fork(connection: Any, *arguments: Any) -> None:
    """The worker as a fork of the server: in a session of its own."""
    os.setsid()
    die_with_the_asker()
    serve(connection, *arguments)


def serve(connection: Any, target: Target, log: str, variables: dict[str, str], addresses: list[str], start: Start) -> None:
    """The worker: warm up, then judge what comes down the pipe until it ends, or until None comes."""
    start_time, me = time.perf_counter(), os.getpid()
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    except FileNotFoundError:  # the run ended meanwhile, and removed it
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.dup2(descriptor, 1), os.dup2(descriptor, 2)
    faulthandler.enable(file=2)
    hang_report.install()
    for name in [name for name in os.environ if name.startswith(PASSED_ON)]:
        del os.environ[name]
    os.environ.update(variables)
    from bitverdict.harness.workers.warmup import settle_device, warm

    isolation_rules = isolation()
    trusted_imports.begin(always=isolation_rules is not None and isolation_rules.is_isolated(variables))
    read_again()
    start_failure, dead = "", False
    try:
        if start.prepare:
            load(start.prepare)(target)
        warm(target, addresses)
    except Exception as error:  # a device that cannot be had shows in the verdicts, by its name
        start_failure = f"{type(error).__name__}: {str(error)[:300]}"
    if isolation_rules is not None:  # whatever the device said: isolated cases need a process of their own to say it again
        start_failure = isolation_rules.install(target, Path(log)) or start_failure
    try:
        connection.send({"started": time.perf_counter() - start_time, "failed": start_failure, "pid": me})
    except OSError:  # nobody waits for this worker any more
        return
    while True:
        try:
            record = connection.recv()
        except EOFError:
            return
        if record is None and dead:
            os._exit(0)  # the context is dead: an ordinary end would only report that again
        if record is None:
            return
        try:
            verdict = settle_device(perform(record, target), target)
        except Exception as error:  # the contract's fault or ours: it says nothing about a kernel
            verdict = failure(error)
        dead = not target.emulated and verdict.outcome in DEVICE_FAULTS
        end_forks(me)  # one that the launcher made would answer too, and be taken for the answer to the next case
        connection.send(json.loads(json.dumps(verdict.to_json(), default=_plain_value)))


def _plain_value(value: object) -> Any:
    """NumPy scalars and arrays as JSON values; anything else by its text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)

"""A run over many tasks: each in a fork of this process on the emulated GPU, its launches replayed by a process with a real one.

Results are lines of JSON, written as they come: one a launch, and one a task when it has ended. A run that is started again with
the same file leaves out the tasks that have ended, and begins the others anew.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from bitverdict.harness.emulator import EmulatedFault, LaunchOptions, emulated
from bitverdict.harness.model.paths import IMPORTED_FROM
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.report.launch_replay.launch_recorder import LaunchRecorder, Row

REPLAY_MODULE = "bitverdict.harness.report.launch_replay.launch_replayer"
STARTS = 180.0  # seconds in which the replaying process has its GPU
FIRST_CONFIGURATION = "first"
RAN, FAULT, STATE_RAISED, LIMIT, STATE_ENDED = "ran", "fault", "raised", "time limit", "process ended"


@dataclass(frozen=True)
class Task:
    """Something that launches kernels, by name, and what runs it."""

    name: str
    run: Callable[[], Any]


@dataclass
class Run:
    """How a run goes: the emulated `arch`, the `machine` that replays, forks at once, seconds of a task and of the whole run (0: no
    limit). `configurations` of autotuners: "first", or a number; those after the first only where a task met an autotuner."""

    arch: str
    machine: str
    jobs: int = 1
    seconds: float = 300.0
    total_seconds: float = 0.0
    configurations: Sequence[str] = (FIRST_CONFIGURATION,)
    results: Path | None = None
    options: LaunchOptions = field(default_factory=lambda: LaunchOptions(takes_cpu_tensors=False, whole_storages=True))
    progress: Callable[[Row, int, int], None] = lambda row, done, of: None


@dataclass
class _Fork:
    task: Task
    configuration: str
    process: int
    pipe: Connection
    log: Path
    start: float
    end_row: Row | None = None


def tuning_of(configuration: str) -> str:
    """What `emulated` calls it. UsageError for what is no configuration."""
    if configuration != FIRST_CONFIGURATION and not configuration.isdecimal():
        raise UsageError(f"configuration {configuration!r}: must be {FIRST_CONFIGURATION!r} or a number")
    return "" if configuration == FIRST_CONFIGURATION else f"config {configuration}"


def carry_out(tasks: Iterable[Task], run: Run) -> list[Row]:
    """Run all; the rows of the results, those of earlier runs with the same file among them.

    This process must not have used a GPU; from here on it sees none. What it has imported its forks need not import again."""
    before = settled_rows(read(run.results)) if run.results is not None and run.results.exists() else []
    if run.results is not None:
        run.results.parent.mkdir(parents=True, exist_ok=True)
        run.results.write_text("".join(json.dumps(row) + "\n" for row in before))
    with tempfile.TemporaryDirectory(prefix="replay-") as folder, _replay_process(run.machine, Path(folder)) as address:
        return before + list(_rows(list(tasks), before, run, address, Path(folder)))


def _rows(tasks: list[Task], before: list[Row], run: Run, address: str, folder: Path) -> Iterator[Row]:
    rows_by_task = {(row["task"], row["configuration"]): row for row in before if row["event"] == "task"}
    waiting_tasks = [(task, each) for each in run.configurations for task in tasks if (task.name, each) not in rows_by_task]
    forks: list[_Fork] = []
    stop = time.monotonic() + run.total_seconds if run.total_seconds else float("inf")
    total, done_count = len(waiting_tasks), 0
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(run.results.open("a")) if run.results is not None else None
        stack.callback(_end_all, forks)
        while waiting_tasks or forks:
            while waiting_tasks and len(forks) < run.jobs and time.monotonic() < stop:
                task, configuration = waiting_tasks.pop(0)
                if configuration != run.configurations[0] and not _is_tuned(rows_by_task, task.name, run.configurations[0], forks):
                    total -= 1
                    continue
                forks.append(_fork(task, configuration, run, address, folder))
            if not forks:
                break
            now = time.monotonic()
            due = min([fork.start + run.seconds for fork in forks] + [stop])
            ready = wait([fork.pipe for fork in forks], max(due - now, 0.0) + 0.01)
            for fork in list(forks):
                if fork.pipe in ready:
                    try:
                        row = fork.pipe.recv()
                    except (EOFError, OSError):
                        row = fork.end_row or _task(fork, STATE_ENDED, _last_line(fork.log))
                elif time.monotonic() > min(fork.start + run.seconds, stop):
                    row = _task(fork, LIMIT, "")
                else:
                    continue
                if row["event"] == "task":
                    _end(fork)
                    forks.remove(fork)
                    rows_by_task[fork.task.name, fork.configuration] = row
                    done_count += 1
                if out is not None:
                    out.write(json.dumps(row) + "\n")
                    out.flush()
                run.progress(row, done_count, total)
                yield row


def _is_tuned(ended: dict[tuple[str, str], Row], name: str, first: str, forks: list[_Fork]) -> bool:
    """Whether the task of this `name` met an autotuner in its first configuration, or has not come so far."""
    row = ended.get((name, first))
    return any(fork.task.name == name for fork in forks) if row is None else bool(row.get("tuned"))


def _task(fork: _Fork, state: str, message: str, **fields: object) -> Row:
    return {
        "event": "task",
        "task": fork.task.name,
        "configuration": fork.configuration,
        "state": state,
        "said": message[:400],
        "seconds": round(time.monotonic() - fork.start, 2),
        **fields,
    }


def _fork(task: Task, configuration: str, run: Run, address: str, folder: Path) -> _Fork:
    receiver, sender = multiprocessing.Pipe(duplex=False)
    log = folder / f"{abs(hash((task.name, configuration)))}.log"
    sys.stdout.flush()
    sys.stderr.flush()
    begun = time.monotonic()
    process = os.fork()
    fork = _Fork(task, configuration, process, receiver, log, begun)
    if process == 0:
        _in_the_fork(fork, sender, run, address)
    sender.close()
    return fork


def _in_the_fork(fork: _Fork, sender: Connection, run: Run, address: str) -> None:
    """Never returns: an exception of the fork must not run on in the code of its parent."""
    log_fd = 2
    try:
        os.setsid()
        log_fd = os.open(fork.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        os.dup2(log_fd, 1)
        os.dup2(log_fd, 2)
        faulthandler.enable(log_fd)
        sender.send(_record_task(fork, sender, run, address))
        sender.close()
    except BaseException:
        os.write(log_fd, traceback.format_exc().encode())
    finally:
        os._exit(0)


def _record_task(fork: _Fork, sender: Connection, run: Run, address: str) -> Row:
    """The task runs on the emulated GPU, each launch is replayed and told; the row of the task."""
    from dataclasses import replace

    real = not run.machine.startswith("emulated:")
    recorder = LaunchRecorder(fork.task.name, fork.configuration, address, sender.send, compiles=real)
    state, message = RAN, ""
    options = replace(run.options, probes=(*run.options.probes, recorder))
    with emulated(run.arch, tuning=tuning_of(fork.configuration), options=options) as device:
        try:
            message = str(fork.task.run() or "")
        except BaseException as error:
            state = FAULT if isinstance(error, EmulatedFault) else STATE_RAISED
            message = f"{type(error).__name__}: {' '.join(str(error).split())}"
            traceback.print_exc()
    tuned = sorted({each.kernel for each in device.tuned if each.remaining_configs > 1})
    return _task(fork, state, message, launches=recorder.launches, tuned=tuned)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n") if log.exists() else []
    return next((line for line in reversed(lines) if line.strip()), "")


def _end_all(forks: list[_Fork]) -> None:
    for fork in forks:
        _end(fork)


def _end(fork: _Fork) -> None:
    """End the fork, what it started, and wait for it."""
    for end in (os.killpg, os.kill):  # it may have no group of its own yet
        with contextlib.suppress(ProcessLookupError, PermissionError):
            end(fork.process, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(fork.process, 0)
    fork.pipe.close()
    fork.log.unlink(missing_ok=True)


@contextlib.contextmanager
def _replay_process(machine: str, folder: Path) -> Iterator[str]:
    """The socket of a process that replays on `machine`, which alone sees a GPU. UsageError where it does not start."""
    address, log = str(folder / "socket"), folder / "replaying.log"
    path = os.pathsep.join([str(IMPORTED_FROM), *filter(None, [os.environ.get("PYTHONPATH")])])
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    with log.open("w") as said:
        command = [sys.executable, "-P", "-m", REPLAY_MODULE, address, machine]
        process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": path}, stdout=said, stderr=said)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    try:
        until = time.monotonic() + STARTS
        while not os.path.exists(address):
            if process.poll() is not None or time.monotonic() > until:
                raise UsageError(f"machine {machine!r}: does not replay: {_last_line(log) or 'it did not start in time'}")
            time.sleep(0.05)
        yield address
    finally:
        process.kill()
        process.wait()
        sys.stderr.write(log.read_text(errors="replace")[-4000:])
        if visible is None:
            os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = visible


def read(results: Path) -> list[Row]:
    """The rows of a results file; a last line that was cut off is left out."""
    rows = []
    for line in results.read_text().split("\n"):
        with contextlib.suppress(ValueError):
            rows.append(json.loads(line))
    return rows


def settled_rows(rows: list[Row]) -> list[Row]:
    """The rows of tasks that have ended, and were not ended by the limit of the whole run."""
    ended = {(row["task"], row["configuration"]) for row in rows if row["event"] == "task"}
    return [row for row in rows if (row["task"], row["configuration"]) in ended]


__all__ = ["FIRST_CONFIGURATION", "Run", "Task", "carry_out", "read", "settled_rows", "tuning_of"]

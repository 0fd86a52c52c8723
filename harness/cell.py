"""The judge in a child process: a fault of a kernel or an abort of the compiler is a verdict, and the next case is unaffected.

A *cell* is one long-lived child for one target; it judges whole cases and answers with verdicts as JSON. Cells come from a
forkserver that has torch and Triton imported and never touches CUDA (a start takes about 25 ms, a fresh import 1.7 s). A cell has a
session of its own, so that Ctrl-C does not look like a kill, and dies with its parent (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import itertools
import json
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

from harness.contract import Case, resolve
from harness.targets import Target, visible_device
from harness.verdict import Outcome, RestsOn, Ruling, Verdict

CHECKOUT = Path(__file__).resolve().parent.parent
PRELOADED = ["torch", "triton", "triton.language", "triton.experimental.gluon", "harness.judge", "harness.emulator"]
PASSED_ON = ("TRITON_", "CUDA_", "HARNESS_", "HIP_", "ROCR_")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
DEVICE_FAULTS = {
    Outcome.ILLEGAL_INSTRUCTION,
    Outcome.ILLEGAL_ADDRESS,
    Outcome.MISALIGNED_ADDRESS,
    Outcome.DEVICE_ASSERT,
    Outcome.LAUNCH_FAILURE,
    Outcome.TIMEOUT,
}
"""After one of these a CUDA context is dead: its cell is replaced, or every later case would be its victim."""

_DEATHS = {
    signal.SIGSEGV: Outcome.SEGMENTATION_FAULT,
    signal.SIGBUS: Outcome.SEGMENTATION_FAULT,
    signal.SIGABRT: Outcome.COMPILER_ABORT,
    signal.SIGKILL: Outcome.KILLED,
    signal.SIGTERM: Outcome.KILLED,
}
_PR_SET_PDEATHSIG = 1
RECYCLED_AFTER = 1000  # cases of one child: the compiler's and the emulator's caches grow with each specialisation
SLICE = 0.25  # seconds between two looks at whether the run was interrupted
_starting = threading.Lock()
_numbers = itertools.count()


class Cancelled(Exception):
    """The run was ended while a case was out. No verdict."""


class Cell:
    """One child for one target. Not thread-safe; `close` ends the child and its session."""

    def __init__(self, target: Target, *, timeout: float, directory: Path) -> None:
        self.target, self.timeout = target, timeout
        self.log = directory / f"cell-{os.getpid()}-{next(_numbers)}.log"  # what the child prints; outlives a killed parent
        self.process: Any = None
        self.connection: Any = None
        self.ended = False
        self.served = 0

    def judge(self, case: Case, tick: Callable[[], None] = lambda: None) -> Verdict:
        """The verdict on `case`; a death or a hang of the child is one, and the next call starts a fresh child.

        `tick` is called while the verdict is waited for, and may raise. Cancelled when `end` is called meanwhile: what a cancelled
        case came to is not a verdict.
        """
        try:
            return self._judge(case, tick)
        except Exception:
            if self.ended:
                raise Cancelled from None
            raise

    def _judge(self, case: Case, tick: Callable[[], None]) -> Verdict:
        if self.served >= RECYCLED_AFTER:
            self.close()
        if self.process is None:
            self._start()
        self.served += 1
        self.log.write_bytes(b"")
        begun = time.perf_counter()
        try:
            self.connection.send(case.to_json())
            answered = self.connection.poll(min(SLICE, self.timeout))
            while not answered and time.perf_counter() - begun < self.timeout:
                tick()
                answered = self.connection.poll(SLICE)
            verdict = Verdict.from_json(self.connection.recv()) if answered else None
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return self._died(time.perf_counter() - begun)
        if verdict is None:
            said = self._said()
            self.close()
            return Verdict(
                ruling=Ruling.CONVICTED,
                outcome=Outcome.TIMEOUT,
                message=f"no verdict within {self.timeout:g} s",
                rests_on=RestsOn.OBSERVED_FAULT,
                details={"stderr": said},
                seconds={"total": time.perf_counter() - begun},
            )
        if not self.target.emulated and verdict.outcome in DEVICE_FAULTS:
            verdict = asserted(verdict, self._said())
            self.close()
        return verdict

    def end(self) -> None:
        """Close for good, from any thread."""
        with _starting:  # a child that is being started is there, and ends too
            self.ended = True
        self.close()

    def close(self) -> None:
        """End the child and its session; the next case would start another."""
        process, connection = self.process, self.connection
        self.process = self.connection = None
        self.served = 0
        if process is not None:
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(OSError):
                    kill(process.pid, signal.SIGKILL)
            process.join(5)
            connection.close()
        self.log.unlink(missing_ok=True)

    def _start(self) -> None:
        ours, theirs = multiprocessing.Pipe()
        variables = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
        if not self.target.emulated:
            variables.update(CUDA_VISIBLE_DEVICES=visible_device(self.target.index), HARNESS_ONE_GPU="1")
        self.log.touch()
        with _starting, _forkserver() as context:
            if self.ended:
                raise Cancelled
            process = context.Process(target=_serve, args=(theirs, self.target, str(self.log), variables), daemon=True)
            process.start()
            self.process, self.connection = process, ours
        theirs.close()

    def _said(self) -> list[str]:
        with contextlib.suppress(OSError):
            return self.log.read_text(errors="replace").splitlines()[-40:]
        return []

    def _died(self, seconds: float) -> Verdict:
        if self.ended:
            raise Cancelled
        self.process.join(10)
        status, said = self.process.exitcode, self._said()
        self.close()
        if status is not None and status < 0:
            name = signal.Signals(-status).name
            outcome, message = _DEATHS.get(signal.Signals(-status), Outcome.KILLED), f"the process died of {name}"
        else:
            outcome, message = Outcome.LAUNCHER_ERROR, "the process left by exit"
        return Verdict(
            ruling=Ruling.CONVICTED,
            outcome=outcome,
            message=message,
            location=_line_of(said),
            rests_on=RestsOn.OBSERVED_FAULT,
            details={"status": status, "stderr": said},
            seconds={"total": seconds},
        )


@contextlib.contextmanager
def _forkserver() -> Iterator[Any]:
    """The forkserver's context, started with what cells need imported and without this process's own main module.

    multiprocessing would import `__main__` again in every child (pytest's takes 0.3 s); no cell needs it.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    main, path = sys.modules["__main__"], os.environ.get("PYTHONPATH")
    kept = {name: os.environ.get(name) for name in ONE_THREAD}
    sys.modules["__main__"] = types.ModuleType("__main__")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(CHECKOUT), *([path] if path else [])])
    os.environ.update(ONE_THREAD)
    try:
        forkserver.ensure_running()
        yield context
    finally:
        sys.modules["__main__"] = main
        for name, value in {**kept, "PYTHONPATH": path}.items():
            os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)


def _serve(connection: Any, target: Target, log: str, variables: dict[str, str]) -> None:
    """The child: judge what comes down the pipe until it ends."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    alive: int | None = getattr(forkserver._forkserver, "_forkserver_alive_fd", None)
    if alive is not None:  # a copy in each child would keep the forkserver, our parent, alive after the run was killed
        os.close(alive)
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(descriptor, 1), os.dup2(descriptor, 2)
    faulthandler.enable(file=2)
    for name in [name for name in os.environ if name.startswith(PASSED_ON)]:
        del os.environ[name]
    os.environ.update(variables)
    from harness.judge import judge

    while True:
        try:
            record = connection.recv()
        except EOFError:
            return
        try:
            contract = resolve(record["contract"])
            verdict = judge(contract.case_from_json(record), target, contract)
        except Exception as error:  # the contract's own fault: it decides nothing about a kernel
            verdict = Verdict(
                ruling=Ruling.UNDECIDED,
                outcome=Outcome.UNDECIDED,
                message=f"the contract raised {type(error).__name__}: {str(error)[:300]}",
                details={"traceback": traceback.format_exception(error)},
            )
        connection.send(json.loads(json.dumps(verdict.to_json(), default=_plain)))


def _plain(value: Any) -> Any:
    """NumPy scalars and arrays as JSON values; anything else by its text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def asserted(verdict: Verdict, said: list[str]) -> Verdict:
    """The verdict of a device assert with what the device printed: its message and line. Others as they are."""
    found = [re.match(r"(.+?):(\d+): .*[Aa]ssertion `(.*)` failed", line) for line in said]
    first = next((match for match in found if match), None)
    if verdict.outcome is not Outcome.DEVICE_ASSERT or first is None:
        return verdict
    path = Path(first[1])
    place = path.relative_to(CHECKOUT) if path.is_relative_to(CHECKOUT) else path.name
    return replace(verdict, message=first[3], location=f"{place}:{first[2]}")


def _line_of(said: list[str]) -> str:
    """``file:line`` of the innermost frame of ours in faulthandler's report."""
    for line in said:
        found = re.match(r'\s*File "(.+)", line (\d+) in', line)
        if (
            found
            and "site-packages" not in found[1]
            and not found[1].startswith(str(CHECKOUT / "harness"))
            and "/lib/python" not in found[1]
        ):
            path = Path(found[1])
            return f"{path.relative_to(CHECKOUT) if path.is_relative_to(CHECKOUT) else path.name}:{found[2]}"
    return ""

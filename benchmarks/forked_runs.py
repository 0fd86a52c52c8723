"""A call in a forked process of its own, with a time limit: what it sent, how long it took, and what it printed. The limit may be
one of processor seconds, so that the machine's load decides nothing."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WAITING = 20
"""Wall seconds that a call with a limit of processor seconds gets for each of them: it may sleep, or wait for another."""


@dataclass(frozen=True)
class Ended:
    """How a forked call ended: what it `sent` (None for nothing), its seconds, what it printed, whether the time limit ended it.
    `processor`: the processor's seconds, with those of the processes that it started and waited for."""

    sent: Any
    seconds: float
    text: str
    over: bool = False
    processor: float = 0.0


def forked(call: Callable[[], Any], seconds: float, log: Path, *, of_processor: bool = False) -> Ended:
    """`call()` in a fork of this process, for `seconds` at most. What it returns is pickled; `log` is used, and removed.
    With `of_processor` the seconds are the processor's, and the wall's `WAITING` times as many.

    The fork has what this process imported, so many calls pay for one import. Whatever it changes is gone with it.
    """
    receiver, sender = multiprocessing.Pipe(duplex=False)
    sys.stdout.flush()
    sys.stderr.flush()
    begun = time.monotonic()
    process = os.fork()
    if process == 0:
        _in_the_fork(call, sender, log)
    sender.close()
    answered = receiver.poll(0 if of_processor else seconds)
    while of_processor and not answered:
        if processor_seconds(process) > seconds or time.monotonic() - begun > WAITING * seconds:
            break
        answered = receiver.poll(0.1)
    sent, over = None, not answered
    if not over:
        try:
            sent = receiver.recv()
        except EOFError:
            pass
    taken = time.monotonic() - begun
    processor = _stop(process)
    receiver.close()
    text = log.read_text(errors="replace") if log.exists() else ""
    log.unlink(missing_ok=True)
    return Ended(sent, taken, text, over, processor)


def processor_seconds(process: int) -> float:
    """What the kernel has counted for `process` and for the children that it waited for; 0.0 once somebody has waited for it."""
    try:
        counted = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:15]
    except (FileNotFoundError, ProcessLookupError):  # the second where it ends between opening the file and reading it
        return 0.0
    return sum(map(int, counted)) / os.sysconf("SC_CLK_TCK")


def _in_the_fork(call: Callable[[], Any], sender: Any, log: Path) -> None:
    """Never returns: an exception of the fork must not run on in the code of its parent."""
    try:
        os.setsid()
        to = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        os.dup2(to, 1)
        os.dup2(to, 2)
        faulthandler.enable(to)
        sender.send(call())
        sender.close()
    except BaseException:
        os.write(to, traceback.format_exc().encode())
    finally:
        os._exit(0)


def _stop(process: int) -> float:
    """End `process`, what it started, and wait for it; the processor's seconds that it took."""
    for end, number in ((os.killpg, process), (os.kill, process)):  # it may have no group of its own yet
        try:
            end(number, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
    usage = os.wait4(process, 0)[2]
    return usage.ru_utime + usage.ru_stime


__all__ = ["Ended", "forked"]

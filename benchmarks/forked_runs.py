"""A call in a forked process of its own, with a time limit: what it sent, how long it took, and what it printed."""

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


@dataclass(frozen=True)
class Ended:
    """How a forked call ended: what it `sent` (None for nothing), its seconds, what it printed, whether the time limit ended it."""

    sent: Any
    seconds: float
    text: str
    over: bool = False


def forked(call: Callable[[], Any], seconds: float, log: Path) -> Ended:
    """`call()` in a fork of this process, for `seconds` at most. What it returns is pickled; `log` is used, and removed.

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
    sent, over = None, not receiver.poll(seconds)
    if not over:
        try:
            sent = receiver.recv()
        except EOFError:
            pass
    taken = time.monotonic() - begun
    _stop(process)
    receiver.close()
    text = log.read_text(errors="replace") if log.exists() else ""
    log.unlink(missing_ok=True)
    return Ended(sent, taken, text, over)


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


def _stop(process: int) -> None:
    """End `process`, what it started, and wait for it."""
    for end, number in ((os.killpg, process), (os.kill, process)):  # it may have no group of its own yet
        try:
            end(number, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
    os.waitpid(process, 0)


__all__ = ["Ended", "forked"]

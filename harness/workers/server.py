"""Imported by the forkserver alone, last: what it does besides forking workers.

While nobody asks for a worker it imports what only some cases need (`FIRST_WHEN_IDLE`, `WHEN_IDLE`). A fork of the run, which asks
in a moment, waits for the first worker before. At its end it removes its socket: where the run was killed nobody else does.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
from contextlib import suppress
from functools import partial
from importlib import import_module
from multiprocessing import forkserver

from bitverdict.harness.workers.forkserver import FIRST_WHEN_IDLE, IDLE_AFTER, WHEN_IDLE, collect_again, is_fork_of_the_run


def _when_idle(*of_the_signal: object) -> None:
    """In the server's only thread, between two forks: a worker that is asked for meanwhile waits for it."""
    gc.disable()
    for name in (*FIRST_WHEN_IDLE, WHEN_IDLE):
        with suppress(ImportError):  # a torch that has no WHEN_IDLE does not import it either
            import_module(name)
    collect_again()


def _leave_no_socket() -> None:
    address = getattr(forkserver._forkserver, "_forkserver_address", None)
    if isinstance(address, str):
        with suppress(OSError):
            os.unlink(address)
        with suppress(OSError):
            os.rmdir(os.path.dirname(address))


atexit.register(_leave_no_socket)
signal.signal(signal.SIGALRM, _when_idle)
if is_fork_of_the_run:
    os.register_at_fork(after_in_parent=partial(signal.setitimer, signal.ITIMER_REAL, IDLE_AFTER))
else:
    signal.setitimer(signal.ITIMER_REAL, IDLE_AFTER)  # which no fork inherits
atexit.register(signal.setitimer, signal.ITIMER_REAL, 0)  # or its signal kills a process that ends before: nobody handles it then

"""The server that workers are forked from: what it has imported, and how it is started."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
import types
from collections.abc import Iterator
from multiprocessing import forkserver, resource_tracker
from typing import Any

from bitverdict.harness.model.paths import IMPORTED_FROM
from bitverdict.harness.workers.one_thread import one_thread

PRELOADED = [
    "torch",
    "torch.distributed.tensor",  # torch imports it, 0.45 s, at a process's first operation on a tensor of the emulated GPU
    "triton",
    "triton.language",
    "triton.experimental.gluon",
    "triton.backends.nvidia.driver",
    "bitverdict.harness.judge.judge",
    "bitverdict.harness.emulator",
    "bitverdict.harness.workers.warmup",
    "bitverdict.harness.workers.preload",
]
COLLECTED_AFTER = (10_000, 10, 10)
"""A worker's `gc.set_threshold`. Python's own first figure is 700 or 2000 objects that were made and not freed."""


_starting = threading.Lock()


@contextlib.contextmanager
def _forkserver() -> Iterator[Any]:
    """The forkserver's context, started with what workers need imported and without this process's own main module.

    multiprocessing would import `__main__` again in every worker (pytest's takes 0.3 s); no worker needs it.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    main, path = sys.modules["__main__"], os.environ.get("PYTHONPATH")
    sys.modules["__main__"] = types.ModuleType("__main__")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(IMPORTED_FROM), *([path] if path else [])])
    try:
        with one_thread():
            resource_tracker.ensure_running()  # by itself: it lets SIGINT through again
            with _without_interrupts():
                forkserver.ensure_running()
            yield context
    finally:
        sys.modules["__main__"] = main
        os.environ.pop("PYTHONPATH", None) if path is None else os.environ.__setitem__("PYTHONPATH", path)


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """A process that is started in here never sees the terminal's Ctrl-C, not even while it imports."""
    earlier = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, earlier)

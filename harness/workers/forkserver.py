"""The server that workers are forked from: what it has imported, and how it is started."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import importlib
import multiprocessing
import multiprocessing.connection
import os
import select
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from multiprocessing import forkserver, resource_tracker, util
from pathlib import Path
from typing import Any

from bitverdict.harness.model import trusted_imports
from bitverdict.harness.model.supervision import leave
from bitverdict.harness.model.trusted_imports import SAFE_PATH, environment_of_a_child
from bitverdict.harness.workers.one_thread import one_thread

PRELOADED_MODULES = [
    "bitverdict.harness.workers.garbage_pause",
    "torch",
    "triton",
    "triton.language",
    "triton.experimental.gluon",
    "triton.backends.nvidia.driver",
    "bitverdict.harness.judge.judge",
    "bitverdict.harness.workers.features",
    "bitverdict.harness.emulator",
    "bitverdict.harness.workers.warmup",
    "bitverdict.harness.workers.preload",
]
WHEN_IDLE = "torch.distributed.tensor"
"""torch imports it, 0.45 s, at a process's first operation on a tensor of the emulated GPU. Most first cases can do without, so the
server imports it `IDLE_AFTER` the others."""
FIRST_WHEN_IDLE = ("hypothesis", "bitverdict.harness.emulator.frontend.lowerings")
"""What the server imports before it: almost every contract imports the first, and a launch on an emulated GPU the second."""
IDLE_AFTER = 0.5  # seconds
COLLECTED_AFTER = (10_000, 10, 10)
"""A worker's `gc.set_threshold`. Python's own first figure is 700 or 2000 objects that were made and not freed."""


is_fork_of_the_run = False
_PR_SET_NAME = 15
_start_lock = threading.Lock()
_held_by_this_process: list[int] = []  # the end of a pipe that the workers of a shared server watch
_imported_before: set[str] = set()  # modules of a process before it imports what its server needs


@contextlib.contextmanager
def _forkserver(way: Callable[[], AbstractContextManager] = contextlib.nullcontext) -> Iterator[Any]:
    """The forkserver's context, started with what workers need imported and without this process's own main module.

    multiprocessing would import `__main__` again in every worker (pytest's takes 0.3 s); no worker needs it.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*PRELOADED_MODULES, "bitverdict.harness.workers.server"])
    main, before = sys.modules["__main__"], {name: os.environ.get(name) for name in ("PYTHONPATH", SAFE_PATH)}
    sys.modules["__main__"] = types.ModuleType("__main__")
    os.environ.update(environment_of_a_child())  # multiprocessing starts Python by `-c`, which looks in the current folder first
    try:
        with one_thread():
            resource_tracker.ensure_running()  # by itself: it lets SIGINT through again
            with _without_interrupts(), way():
                forkserver._forkserver.ensure_running()
            yield context
    finally:
        sys.modules["__main__"] = main
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """A process that is started in here never sees the terminal's Ctrl-C, not even while it imports."""
    earlier = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, earlier)


def start_early() -> None:
    """Have the server import while this process does: they need one second and a half each, which two cores spend side by side."""
    with _start_lock, _forkserver():
        pass


def start_forked() -> None:
    """The server as a fork of this process, which needs what the server imports too: two processes that import it take twice the
    time of a busy machine. To be called before a user's file is imported."""
    with _start_lock, trusted_imports.installed_alone():
        _imported_before.update(sys.modules)
        for name in (*PRELOADED_MODULES[:-1], *FIRST_WHEN_IDLE):
            importlib.import_module(name)
        with _forkserver(_by_fork):
            pass


@contextlib.contextmanager
def _by_fork() -> Iterator[None]:
    spawn, util.spawnv_passfds = util.spawnv_passfds, _fork_instead  # type: ignore[assignment]
    try:
        yield
    finally:
        util.spawnv_passfds = spawn


def _fork_instead(path: bytes, words: Sequence[str], descriptors: Sequence[int]) -> int:
    """For `multiprocessing.util.spawnv_passfds`: a fork of this process that executes the line behind `-c`, with `descriptors` and
    no others."""
    sys.stdout.flush(), sys.stderr.flush()
    if child := os.fork():
        return child
    global is_fork_of_the_run
    is_fork_of_the_run, status = True, 1
    try:
        kept = [2, *sorted(descriptors), os.sysconf("SC_OPEN_MAX")]
        for last, following in pairwise(kept):
            os.closerange(last + 1, following)
        for lock in (_start_lock, forkserver._forkserver._lock):  # type: ignore[attr-defined]  # held where it was forked
            lock.release()
        resource_tracker._resource_tracker._fd = resource_tracker._resource_tracker._pid = None  # type: ignore[attr-defined]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        trusted_imports.forget_safe_path()
        _forget_pytest()
        ctypes.CDLL(None).prctl(_PR_SET_NAME, b"bv-workers")
        exec(words[-1], {})
    except SystemExit:  # the run has ended
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    return leave(status)


def _forget_pytest() -> None:
    """In a fork of pytest: how it captures and rewrites, and the modules of the user's that it has imported."""
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__  # type: ignore[assignment]
    sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__module__ != "_pytest.assertion.rewrite"]
    for name in _imported_before & sys.modules.keys():
        if (file := getattr(sys.modules[name], "__file__", None)) and trusted_imports.is_a_users(Path(file)):
            del sys.modules[name]


def ask_the_parents_server() -> None:
    """In a fork of the process that started the server: it is no child of this one, which cannot see whether it runs."""
    forkserver._forkserver.ensure_running = lambda: None  # type: ignore[method-assign]


def server_to_share() -> dict[str, str]:
    """Where this process's server is found by others of the same run (`share_server`); started where there is none."""
    start_early()
    server: Any = forkserver._forkserver
    return {"address": server._forkserver_address, "authkey": (getattr(server, "_forkserver_authkey", None) or b"").hex()}


def share_server(found: Mapping[str, str]) -> None:
    """Have workers forked by another process's server. They watch a pipe of this one, and are killed where it ends."""
    server: Any = forkserver._forkserver
    watched, _held_by_this_process[:] = (ends := os.pipe())[0], ends[1:]
    server._forkserver_address, server._forkserver_alive_fd = found["address"], watched
    server._forkserver_authkey = bytes.fromhex(found["authkey"]) or None  # asked for from Python 3.14 on
    ask_the_parents_server()


def leave_shared_server() -> None:
    """Where that server is gone: the next worker is one of a server of this process's own."""
    if _held_by_this_process:
        server: Any = forkserver._forkserver
        for descriptor in (server._forkserver_alive_fd, _held_by_this_process.pop()):
            os.close(descriptor)
        server._forkserver_address = server._forkserver_alive_fd = server._forkserver_authkey = None
        del server.ensure_running


def die_with_the_asker() -> None:
    """In a worker, whose parent is the server: hold nothing that would keep that alive after the run was killed. A worker of a
    shared server is also killed where the process that asked for it ends."""
    alive: int | None = getattr(forkserver._forkserver, "_forkserver_alive_fd", None)
    if alive is None:
        return
    if fcntl.fcntl(alive, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        with contextlib.suppress(OSError):  # a kernel that signals no end of a pipe: the worker ends when it has nobody to answer
            own = os.open(f"/proc/self/fd/{alive}", os.O_RDONLY)  # each opening has its owner, and others watch the same pipe
            fcntl.fcntl(own, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(own, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(own, fcntl.F_SETFL, os.O_ASYNC)
            if select.select([own], [], [], 0)[0]:
                leave(1)
    os.close(alive)


def has_server() -> bool:
    return getattr(forkserver._forkserver, "_forkserver_pid", None) is not None


def end_early() -> None:
    """Kill a server that no run asks for a worker any more."""
    server: int | None = getattr(forkserver._forkserver, "_forkserver_pid", None)
    if server is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(server, signal.SIGKILL)


def collect_again() -> None:
    """Once all is imported where garbage was not looked for: what is there is kept for good, and passed over from here on."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()

"""The process that a person starts imports nothing of theirs: the command runs in another, and the first one says how it ended.

A file of the user's may end the process that imports it (`os._exit`, a segmentation fault), fork it, or leave by `sys.exit`. So the
first process forks before anything is imported, waits, and passes on the exit status that the other left in memory that both share.
An end without one is an error with a sentence: what it was at (`stage`), and how it ended.

**Signals.** A terminal sends Ctrl-C to both. One that was sent to the first process alone is passed on. Where SIGINT is ignored, as
under ``nohup ... &``, it stays ignored. Until a command has something to cancel (`cancels_from_here`) SIGINT ends it at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import NoReturn

USAGE, INCONCLUSIVE = 2, 3
_WAITED_FOR = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
_PR_SET_PDEATHSIG = 1
_OF_A_TERMINAL = 0x80  # si_code SI_KERNEL: every process of the foreground has it too
_LENGTH = 4096  # bytes of the record that both processes share
_record: int | None = None  # its file; None in a process that is not supervised
_owner = 0  # the process that may write it


def supervise(command: Callable[[], int]) -> int:
    """Run `command` in a forked process; its exit status, or `USAGE` or `INCONCLUSIVE` with a sentence where it left none."""
    global _record, _owner
    record = os.memfd_create("how the run ended")
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it is ignored, the end of a process has no status
    signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
    first = os.getpid()
    child_pid = os.fork()
    if not child_pid:
        _record, _owner = record, os.getpid()
        dies_with(first)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WAITED_FOR)
        try:
            status = command()
        except SystemExit as left:  # argparse's end, after --help and after words that it does not know
            status = left.code if isinstance(left.code, int) else 0 if left.code is None else 1
        status = _flush_output(status)
        _note(status=status)
        leave(status)
    ended = _waited_for(child_pid)
    noted = os.pread(record, _LENGTH, 0).rstrip(b"\0")
    return _exit_status(json.loads(noted) if noted else {}, ended)


def _flush_output(status: int) -> int:
    """`status`, once standard output has taken what was printed; `INCONCLUSIVE` where it did not, and what was to be read is
    lost."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # of a reader that has seen enough
        _discard_output()
    except OSError as error:
        _discard_output()
        print(f"error: standard output cannot be written ({error.strerror}); free space there", file=sys.stderr)
        return status or INCONCLUSIVE
    return status


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def leave(status: int) -> NoReturn:
    """End this process with everything that ends in Python done, and without the interpreter's own teardown.

    There Triton's bindings print a page of "leaked" functions once Gluon was imported, below the report somebody wants to read.
    """
    import atexit
    import logging

    ends_by_itself()
    logging.shutdown()
    atexit._run_exitfuncs()  # multiprocessing's too: no directory of a forkserver is left behind
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


@contextlib.contextmanager
def stage(activity: str, remedy: str) -> Iterator[None]:
    """While the process is at what `doing` says: an end of the process is told with it, and is a usage error with `remedy`.

    A fork of this process that comes back from there ends: the process that was asked goes on alone.
    """
    asked = os.getpid()
    _note(doing=activity, remedy=remedy)
    try:
        yield
    finally:
        end_forks(asked)
        _note()


def end_forks(asked: int) -> None:
    """End this process if it is not `asked` but a fork of it, without a word: only the process that was asked may answer."""
    if os.getpid() != asked:
        os._exit(0)


def cancels_from_here() -> None:
    """From here on Ctrl-C is a KeyboardInterrupt: there is a run to cancel. Nothing changes where SIGINT is ignored or handled."""
    if _record is not None and signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def ends_by_itself() -> None:
    """From here on Ctrl-C changes nothing: what is left to do is short, and a second one would only add a traceback."""
    if _record is not None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _note(**what: str | int) -> None:
    """Leave `what` for the first process, in place of what was left before."""
    if _record is not None and os.getpid() == _owner:
        shortened = {name: value[:300] if isinstance(value, str) else value for name, value in what.items()}
        os.pwrite(_record, json.dumps(shortened, ensure_ascii=False).encode().ljust(_LENGTH, b"\0"), 0)


def dies_with(first: int) -> None:
    """Die with the process `first`, which forked this one: a kill of it is meant for the run."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != first:  # it died before that
        os._exit(INCONCLUSIVE)


def _waited_for(child_pid: int) -> int:
    """The wait status of the process `child_pid`; signals that this one gets alone are passed on to it."""
    while True:
        signal_info = signal.sigwaitinfo(_WAITED_FOR)
        if signal_info.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(child_pid, os.WNOHANG)
            if ended:
                return status
        elif signal_info.si_signo != signal.SIGINT or signal_info.si_code != _OF_A_TERMINAL:
            os.kill(child_pid, signal_info.si_signo)


def _exit_status(record: Mapping[str, str | int], ended: int) -> int:
    """The exit status that the record and the wait status come to; says so where the process did not come to its end."""
    if "status" in record:
        return int(record["status"])
    code = os.waitstatus_to_exitcode(ended)
    if code == -signal.SIGINT:
        print("cancelled before anything was judged", file=sys.stderr)
        return INCONCLUSIVE
    if code in (-signal.SIGTERM, -signal.SIGHUP):
        return 128 - code
    how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"left with exit status {code}"
    if "doing" in record:
        print(f"error: {record['doing']}: the process {how}; {record['remedy']}", file=sys.stderr)
        return USAGE
    print(f"error: the process of the run {how} before its end; `run --resume` goes on with what it judged", file=sys.stderr)
    return INCONCLUSIVE

"""Native code that reads text of a tile program, in a process that may die: MLIR's parser and verifier, LLVM, ptxas, nvdisasm.

Text that nobody trusts may crash such code, or keep it busy for ever. Where programs are not trusted (sealed runs), the functions
that run it are marked `apart` and run in one process beside the executor, by JSON over a pipe. It has none of the executor's other
files, bounded memory, a time for each answer, and one folder to write to. What dies is started again. Where programs are trusted
(the compiler of this process made them), the same functions run here.
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import resource
import select
import signal
import struct
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn, ParamSpec, TypeVar, cast

from bitverdict.harness.emulator.faults import EmulatedFault

P = ParamSpec("P")
T = TypeVar("T")
SECONDS = 60.0  # for one answer: the largest kernels of the corpora take 4
MOST_MEMORY = 8 << 30  # bytes of address space above what the process begins with
MOST_FILE = 256 << 20  # bytes of one file that it writes
MOST_ANSWER = 256 << 20  # bytes
_HEAD = struct.Struct("<Q")


class NotAssembled(Exception):
    """The compiler does not take this tile program any further: it was edited, or the stages are not those known here."""


_EXCEPTIONS_BY_NAME: dict[str, type[Exception]] = {
    each.__name__: each for each in (NotAssembled, ValueError, KeyError, RuntimeError, OSError)
}


class CompilerProcess:
    """The process, started by a fork of this one. `confine` is called in it before it reads anything; `scratch` is its folder."""

    def __init__(self, confine: Callable[[], None] | None, scratch: str, seconds: float = SECONDS) -> None:
        self.confine, self.scratch, self.seconds = confine, scratch, seconds
        self.process, self.requests, self.answers = 0, -1, -1
        self.start()

    def start(self) -> None:
        """Fork it; what was there before is gone."""
        self.stop()
        ask, answer_pipe = os.pipe(), os.pipe()
        self.process = os.fork()
        if self.process == 0:
            _close(ask[1], answer_pipe[0])
            _serve(ask[0], answer_pipe[1], self.confine, self.scratch)
        _close(ask[0], answer_pipe[1])
        self.requests, self.answers = ask[1], answer_pipe[0]

    def stop(self) -> str:
        """End it; how it had ended already, where it had."""
        if not self.process:
            return ""
        _close(self.requests, self.answers)
        ended_process, status = os.waitpid(self.process, os.WNOHANG)
        if not ended_process:
            time.sleep(0.01)  # the pipe ends before the process does
            ended_process, status = os.waitpid(self.process, os.WNOHANG)
        if not ended_process:
            os.kill(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)
        self.process, self.requests, self.answers = 0, -1, -1
        if not ended_process:
            return ""
        code = os.waitstatus_to_exitcode(status)
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"status {code}"

    def ask(self, module: str, name: str, args: tuple, kwargs: dict) -> Any:
        """What the function `name` of `module` gives in that process. EmulatedFault "compiler abort" or "timeout" where it dies or
        does not answer; else what the function raises, where that is in `_EXCEPTIONS_BY_NAME` or an EmulatedFault."""
        told = json.dumps([module, name, _flat(args), _flat(kwargs)]).encode()
        until = time.monotonic() + self.seconds
        try:
            _put(self.requests, told)
            answer = _take(self.answers, until)
        except (OSError, EOFError) as error:
            how = self.stop()
            with suppress(OSError):  # of an executor that may fork no more: another takes its place
                self.start()
            if isinstance(error, TimeoutError):
                raise EmulatedFault("timeout", f"the compiler did not end on this tile program in {self.seconds:g} s") from error
            raise EmulatedFault("compiler abort", f"the compiler ended on this tile program: {how or error}") from error
        said = json.loads(answer)
        if "found" in said:
            return _unflatten(said["found"])
        if said["raised"] == "EmulatedFault":
            raise EmulatedFault(*said["said"])
        raise _EXCEPTIONS_BY_NAME.get(said["raised"], RuntimeError)(said["said"])


def _close(*files: int) -> None:
    for each in files:
        os.close(each)


def _serve(requests: int, answers: int, confine: Callable[[], None] | None, scratch: str) -> NoReturn:
    """Answer until the other end is closed."""
    status = 1
    with suppress(BaseException):
        kept = {requests, answers}
        nowhere = os.open(os.devnull, os.O_RDWR)
        for each in range(3):
            os.dup2(nowhere, each)
        for each in map(int, os.listdir("/proc/self/fd")):
            if each > 2 and each not in kept:
                with suppress(OSError):
                    os.close(each)
        gc.freeze()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        tempfile.tempdir = os.environ["TRITON_CACHE_DIR"] = scratch
        with open("/proc/self/statm") as file:
            mapped = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        for limit, value in (
            (resource.RLIMIT_AS, mapped + MOST_MEMORY),
            (resource.RLIMIT_FSIZE, MOST_FILE),
            (resource.RLIMIT_CORE, 0),
        ):
            _, hard = resource.getrlimit(limit)
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(limit, (value, value))
        if confine is not None:
            confine()
        while True:
            _put(answers, _answer(_take(requests, None)))
        status = 0
    os._exit(status)


def _answer(asked: bytes) -> bytes:
    module, name, args, kwargs = json.loads(asked)
    function = getattr(importlib.import_module(module), name)
    try:
        said: dict[str, Any] = {"found": _flat(_unwrap(function)(*_unflatten(args), **_unflatten(kwargs)))}
    except EmulatedFault as error:
        said = {"raised": "EmulatedFault", "said": [error.outcome, error.message, error.location]}
    except Exception as error:
        said = {"raised": type(error).__name__, "said": str(error)[:4000]}
    return json.dumps(said).encode()


def _unwrap(function: Callable) -> Callable:
    """What `apart`, and a cache around it, were given."""
    while not hasattr(function, "apart"):
        function = function.__wrapped__  # type: ignore[attr-defined]
    return cast(Callable, function.__wrapped__)  # type: ignore[attr-defined]


def _put(file: int, told: bytes) -> None:
    left = memoryview(_HEAD.pack(len(told)) + told)
    while left:
        left = left[os.write(file, left) :]


def _take(file: int, until: float | None) -> bytes:
    (size,) = _HEAD.unpack(_read(file, _HEAD.size, until))
    if size > MOST_ANSWER:
        raise EOFError(f"an answer of {size} bytes")
    return _read(file, size, until)


def _read(file: int, count: int, until: float | None) -> bytes:
    """`count` bytes. TimeoutError where they do not come by the time `until`, EOFError where they never will."""
    parts: list[bytes] = []
    while count:
        if until is not None and not select.select([file], [], [], max(until - time.monotonic(), 0))[0]:
            raise TimeoutError
        found = os.read(file, min(count, 1 << 20))
        if not found:
            raise EOFError("it closed its end")
        parts.append(found)
        count -= len(found)
    return b"".join(parts)


def _flat(value: object) -> Any:
    """`value` as JSON holds it: tuples and mappings told from lists."""
    if isinstance(value, tuple):
        return {"tuple": [_flat(each) for each in value]}
    if isinstance(value, list):
        return [_flat(each) for each in value]
    if isinstance(value, dict):
        return {"items": [[key, _flat(each)] for key, each in value.items()]}
    if value is None or isinstance(value, str | int | float):
        return value
    raise TypeError(f"{type(value).__name__}: what runs apart takes and gives plain values")


def _unflatten(value: object) -> Any:
    """What `_flat` made of a value."""
    if isinstance(value, list):
        return [_unflatten(each) for each in value]
    if isinstance(value, dict):
        if "tuple" in value:
            return tuple(_unflatten(each) for each in value["tuple"])
        return {key: _unflatten(each) for key, each in value["items"]}
    return value


_current: list[CompilerProcess] = []


def use(process: CompilerProcess | None) -> None:
    """From here on functions that are marked `apart` run in `process`; None: here."""
    _current[:] = [] if process is None else [process]


def is_used() -> bool:
    """Whether they run in a process of their own: this one takes tile programs that nobody trusts."""
    return bool(_current)


def in_compiler_process(function: Callable[P, T]) -> Callable[P, T]:
    """Mark `function`, of a module: it runs native code on text of a tile program. It takes and gives plain values."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if not _current:
            return function(*args, **kwargs)
        return cast(T, _current[0].ask(function.__module__, function.__name__, args, kwargs))

    call.apart = True  # type: ignore[attr-defined]
    return call


__all__ = ["CompilerProcess", "NotAssembled", "in_compiler_process", "is_used", "use"]

"""Tile programs that nobody trusts: what an executor of sealed runs turns on before it takes the first one (`begin`).

From there on each program is verified twice: its structure and its limits here (`frontend.verified`), its operations and types by
the compiler's own verifier, in a process that may die (`compiler_process`). Nothing is read from disk that another run wrote, and
nothing is written there. Whatever else reading, translating or executing such a program raises is a refusal: it counts as the
launcher's, because a program that the compiler made leads to none, as far as is known.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from triton import knobs
from triton.runtime.cache import CacheManager

from bitverdict.harness.emulator import disk_store
from bitverdict.harness.emulator.compiler_process import CompilerProcess, in_compiler_process, use
from bitverdict.harness.emulator.faults import BadArgument, EmulatedFault
from bitverdict.harness.emulator.frontend.program_verifier import refusal
from bitverdict.harness.emulator.frontend.stop_compiler import read_back

_DRIVER_SAYS = "Triton Error [CUDA]"  # what a launcher may catch: a real driver raises it, too
_processes: list[CompilerProcess] = []


class NoCache(CacheManager):
    """In the place of Triton's cache on disk: it holds nothing."""

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None: ...

    def get_file(self, filename: str) -> str | None:
        return None

    def put(self, data: object, filename: str, binary: bool = True) -> str:
        return ""

    def get_group(self, filename: str) -> dict[str, str] | None:
        return None

    def put_group(self, filename: str, group: dict[str, str]) -> str:
        return ""


def begin(confine: Callable[[], None] | None = None, scratch: str | None = None, seconds: float | None = None) -> None:
    """This process takes tile programs that nobody trusts, to its end. Call it before the process confines itself: it forks the
    compiler process, in which `confine` is called, and whose only writable folder is to be `scratch` (one of its own where None).
    `seconds` is the time for one of its answers."""
    if _processes:
        return
    os.environ[disk_store.VARIABLE] = disk_store.OFF_VALUE
    knobs.cache.manager_class = NoCache
    folder = scratch or tempfile.mkdtemp(prefix="bitverdict-compiler-")
    _processes.append(CompilerProcess(confine, folder, *(() if seconds is None else (seconds,))))
    use(_processes[0])


@contextmanager
def distrust_programs(seconds: float | None = None) -> Iterator[None]:
    """`begin` until the end of the block, for a test."""
    cache_setting, manager = os.environ.get(disk_store.VARIABLE), knobs.cache.manager_class
    begin(seconds=seconds)
    try:
        yield
    finally:
        process = _processes.pop()
        use(None)
        process.stop()
        shutil.rmtree(process.scratch, ignore_errors=True)
        knobs.cache.manager_class = manager
        os.environ.pop(disk_store.VARIABLE)
        if cache_setting is not None:
            os.environ[disk_store.VARIABLE] = cache_setting


def is_on() -> bool:
    """Whether this process takes programs that nobody trusts."""
    return bool(_processes)


def processes() -> list[int]:
    """The number of the process that runs native compilers."""
    return [each.process for each in _processes]


def is_over() -> bool:
    """Whether the process that runs native compilers has ended, and cannot be started again: this one may fork no more."""
    return any(not each.process for each in _processes)


def decode_program(program: bytes) -> str:
    """The text of `program`. EmulatedFault "refused" where programs are not trusted, and it is not ASCII."""
    try:
        return program.decode("ascii")
    except UnicodeDecodeError as error:
        if not _processes:
            return program.decode()
        raise refusal("it is not ASCII") from error


def check_accepted(text: str) -> None:
    """Where programs are not trusted: EmulatedFault "refused" for a text that the compiler's verifier does not take."""
    if not _processes:
        return
    try:
        _read_back(text)
    except RuntimeError as error:
        raise refusal(f"the compiler's verifier does not take it: {str(error)[:300]}") from error


@in_compiler_process
def _read_back(text: str) -> None:
    read_back(text)


def fault_of(error: Exception) -> EmulatedFault | None:
    """The fault that a launch ends with which raised `error`, where programs are not trusted; None where `error` is to go on as it
    is: programs are trusted, or it is meant for the launcher."""
    if not _processes or isinstance(error, BadArgument) or _DRIVER_SAYS in str(error):
        return None
    if isinstance(error, MemoryError):
        return EmulatedFault("out of memory", "the program needs more memory than its executor may have")
    return refusal(f"its execution raised {type(error).__name__}: {str(error)[:300]}")


__all__ = ["begin", "check_accepted", "decode_program", "distrust_programs", "fault_of", "is_on", "is_over", "processes"]

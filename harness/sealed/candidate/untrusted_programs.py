"""Tile programs that nobody trusts: what an executor of sealed runs turns on before it takes the first one (`begin`).

From there on the emulator hands native code to a process that may die (`emulator.compiler_process`), and so verifies each program
twice: its structure and limits, and its operations and types by the compiler's own verifier. Nothing is read from disk that another
run wrote, and nothing is written there.
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
from bitverdict.harness.emulator.compiler_process import CompilerProcess, use

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


def processes() -> list[int]:
    """The number of the process that runs native compilers."""
    return [each.process for each in _processes]


def is_over() -> bool:
    """Whether the process that runs native compilers has ended, and cannot be started again: this one may fork no more."""
    return any(not each.process for each in _processes)


__all__ = ["begin", "distrust_programs", "is_over", "processes"]

"""Each distinct kernel is compiled by one process of a machine, while the others that need it wait for the entry of Triton's cache.

Triton names an entry by a digest of all that the machine code depends on. Whoever does not find an entry locks its name, looks once
more, and compiles. The lock ends with the entry, with the next entry that the process asks for, or with the process. What a
compiler refuses leaves no entry: each that asks is refused by its own compilation.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from triton import knobs
from triton.runtime.cache import FileCacheManager

PATIENCE = 60.0  # seconds that one waits for another's compilation; then it compiles the kernel itself
POLL = 0.02  # seconds
NAME = "compiling"  # the file in an entry's directory that is locked


class CompiledElsewhere(Exception):
    """Another process compiles the kernel now, and this one was told not to wait (`without_waiting`)."""


class CompiledOnce(FileCacheManager):  # type: ignore[misc]  # mypy does not follow Triton
    """Triton's cache on disk, with a lock for each entry that is being made."""

    def get_group(self, filename: str) -> dict[str, str] | None:
        files: dict[str, str] | None = super().get_group(filename)
        if files is not None:
            return files
        _release()
        _take(Path(self.cache_dir))
        files = super().get_group(filename)  # of a process that ended its compilation meanwhile
        return files

    def put_group(self, filename: str, group: dict[str, str]) -> str:
        path: str = super().put_group(filename, group)
        _release()
        return path


def compile_once() -> None:
    """Have this process share its compilations from here on; a cache manager that the user chose stays."""
    if knobs.cache.manager_class is FileCacheManager:
        knobs.cache.manager_class = CompiledOnce


@contextmanager
def without_waiting() -> Iterator[None]:
    """While entered, a kernel that another process compiles raises `CompiledElsewhere` in the place of waiting for it."""
    global _waits
    _waits = False
    try:
        yield
    finally:
        _waits = True
        _release()


wait_seconds = 0.0  # seconds that this process has waited for the compilations of others
_waits = True
_lock_descriptors: list[int] = []  # the descriptor of the lock that this process holds, if any: it compiles one kernel at a time


def _take(directory: Path) -> None:
    """Hold the lock of the entry in `directory`; after `PATIENCE`, or where locks cannot be had, go on without."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(directory / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:  # a cache that cannot be written is told of by its first entry
        return
    global wait_seconds
    end = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _lock_descriptors.append(descriptor)
            return
        except BlockingIOError:
            if not _waits:
                os.close(descriptor)
                raise CompiledElsewhere(directory.name) from None
        except OSError:
            break
        if (begun := time.monotonic()) > end:
            break
        time.sleep(POLL)
        wait_seconds += time.monotonic() - begun
    os.close(descriptor)


def _release() -> None:
    while _lock_descriptors:
        os.close(_lock_descriptors.pop())

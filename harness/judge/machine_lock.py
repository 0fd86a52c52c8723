"""Locks by name, of which one process of this machine holds each; the kernel frees those of a dead one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bitverdict.harness.model.usage import UsageError

POLL = 0.1  # seconds
WORKER_MEMORY = 3 << 30
"""Bytes of GPU memory that a worker may come to hold: the CUDA contexts of its process and of a standby worker (0.6 GB each on an
H200), and the largest case: 8192 x 8192 in fp32, three matrices of 256 MiB, guard bands, and as much again for an autotuner's
flushing of the cache and for the allocator's rest."""


@dataclass(frozen=True)
class Place:
    """Slot `slot` of the GPU that is number `index` of those visible here and `device` to the whole machine."""

    index: int
    device: str
    slot: int

    def __str__(self) -> str:
        return f"{re.sub(r'[^A-Za-z0-9-]', '_', self.device)}.{self.slot}"


@contextlib.contextmanager
def exclusive(name: str, *, wait: float, directory: Path | None = None) -> Iterator[bool]:
    """Whether this process alone holds `name` on this machine while entered; False after `wait` seconds of another's."""
    end, place = time.monotonic() + wait, Place(-1, name, 0)
    while (descriptor := _acquire_lock(place, _directory(directory))) is None and time.monotonic() < end:
        time.sleep(POLL)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _directory(given: Path | None) -> Path:
    place = given or Path(tempfile.gettempdir()) / f"bitverdict-leases-{os.getuid()}"
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    if given is None and (place.is_symlink() or place.stat().st_uid != os.getuid()):
        raise UsageError(
            f"{place}: must be a folder of this user's, which locks lie in; remove it, or set TMPDIR to another folder"
        )
    return place


def _acquire_lock(place: Place, directory: Path) -> int | None:
    """The descriptor that holds the lock on `place`; None when another has it."""
    descriptor = os.open(directory / f"{place}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return descriptor
    os.close(descriptor)
    return None

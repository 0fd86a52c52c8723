"""Who may use which GPU: a lock on (device, slot), freed by the kernel when its holder dies.

It serves the workers of one pytest run, and two runs on one machine, alike. A worker's number would not do: a killed worker is
replaced under a new one, and `number % GPUs` drifts. `HARNESS_GPU_SLOTS` says how many processes may share one GPU (default 4).
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

POLL = 0.1  # seconds


@dataclass(frozen=True)
class Lease:
    """GPU `index` of those visible, and the descriptor that holds its lock."""

    index: int
    slot: int
    descriptor: int

    def release(self) -> None:
        os.close(self.descriptor)


def slots() -> int:
    """Processes that may share one GPU; ValueError unless HARNESS_GPU_SLOTS is a positive integer."""
    text = os.environ.get("HARNESS_GPU_SLOTS", "4")
    if not text.isdigit() or int(text) < 1:
        raise ValueError(f"HARNESS_GPU_SLOTS={text!r}: must be a positive integer; unset it for 4")
    return int(text)


def lease(devices: Sequence[str], *, wait: float = 600.0, directory: Path | None = None) -> Lease:
    """A lease on one of `devices` (entries of CUDA_VISIBLE_DEVICES), the emptiest first; TimeoutError after `wait` seconds."""
    place = directory or Path(tempfile.gettempdir()) / f"bitverdict-leases-{os.getuid()}"
    place.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + wait
    while True:
        for slot in range(slots()):
            for index, device in enumerate(devices):
                descriptor = os.open(place / f"{device}-{slot}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(descriptor)
                    continue
                return Lease(index, slot, descriptor)
        if time.monotonic() > end:
            raise TimeoutError(f"no slot free on {', '.join(devices)} within {wait:g} s; end other runs or raise HARNESS_GPU_SLOTS")
        time.sleep(POLL)

"""Candidates that take what they can: time, memory, processes, disk, output. What was judged before them must not be lost."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from tempfile import gettempdir

import torch

from tests.faults.cheats.matmuls import wrong_matmul

MOST_BYTES, CHUNK = 10 << 30, 64 << 20
MOST_DISK = 1 << 30  # in each place: a machine without limits survives it
MOST_MEMORY = 6 << 30  # likewise
MOST_FORKS = 300


def endless_loop(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = wrong_matmul(a, b)  # (m, n)
    while c.numel():
        time.sleep(0.01)
    return c


def stopped(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """SIGSTOP: a process that neither answers nor ends."""
    os.kill(os.getpid(), signal.SIGSTOP)
    return wrong_matmul(a, b)


def signals_ignored(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """An endless loop that only SIGKILL ends."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGHUP, signal.SIGUSR1, signal.SIGXCPU):
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    return endless_loop(a, b)


def memory(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    held = []
    for _ in range(MOST_MEMORY // CHUNK):
        held.append(bytearray(b"\1") * CHUNK)
    raise MemoryError(f"{len(held)} pieces were had")


def forks(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = wrong_matmul(a, b)  # (m, n)
    for _ in range(MOST_FORKS):
        try:
            if os.fork() == 0:
                time.sleep(20)
                os._exit(0)
        except OSError:
            break
    return c


def disk(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Writes to each directory that it may, until a write fails or 1 GB is there."""
    c, chunk = wrong_matmul(a, b), b"\1" * CHUNK
    for place in {Path.cwd(), Path(gettempdir()), Path("/dev/shm"), Path.home()}:
        with contextlib.suppress(OSError), open(place / f"cheat-{os.getpid()}", "wb", buffering=0) as file:
            for _ in range(MOST_DISK // CHUNK):
                if file.write(chunk) < CHUNK:
                    break
    return c


def output(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """10 GB of output, on both descriptors."""
    c, line = wrong_matmul(a, b), b"pass\n" * (CHUNK // 5)
    for _ in range(MOST_BYTES // CHUNK // 2):
        for number in (1, 2):
            with contextlib.suppress(OSError):
                os.write(number, line)
    return c


def large_exception(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """An exception whose text is 256 MB."""
    wrong_matmul(a, b)
    raise ValueError("pass " * (CHUNK // 5 * 4))


def deep_exception(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """An exception whose text cannot be asked, and whose causes have no end."""

    class Loud(ValueError):
        def __str__(self) -> str:
            raise KeyboardInterrupt

    error = Loud()
    error.__cause__ = error
    raise error


def segmentation_fault(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    wrong_matmul(a, b)
    return ctypes.string_at(0)  # type: ignore[return-value]


def recursion(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    sys.setrecursionlimit(1 << 30)
    return recursion(a, b)


def launches_without_end(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The trusted side is kept busy: one launch after another, each of a large grid."""
    while True:
        wrong_matmul(a, b)


def device_memory(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Memory of the GPU, which lies in the trusted process, piece by piece, each written."""
    held = [torch.zeros(CHUNK, dtype=torch.uint8, device=a.device) for _ in range(MOST_MEMORY // CHUNK)]
    return wrong_matmul(a, b) if held else a

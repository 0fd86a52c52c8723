"""The zygotes of a run's sealed cases: one of the candidate's processes for each set of folders that it may read, one of executors.

They are started before the first sealed worker, import torch and Triton beside each other, and end with this process.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bitverdict.harness.model.found_again import root_of
from bitverdict.harness.model.paths import CONTRACTS
from bitverdict.harness.workers.forkserver import PRELOADED, WHEN_IDLE
from bitverdict.harness.workers.jail.confine import unreadable
from bitverdict.harness.workers.jail.executors import Executors
from bitverdict.harness.workers.jail.jail import Jail
from bitverdict.harness.workers.jail.policy import CANDIDATE_ON_A_GPU
from bitverdict.harness.workers.start import PLAIN, Start

TOOLS = "bitverdict.harness.workers.sealed.tool_versions"
JAIL, EXECUTORS, GPU_JAIL = "HARNESS_SEALED_JAIL", "HARNESS_SEALED_EXECUTORS", "HARNESS_SEALED_GPU_JAIL"
"""Variables of a worker that judges sealed cases: where it has the candidate's processes from, executors, and on a GPU those
processes of the candidate that have it."""

CANDIDATE_IMPORTS = (
    *PRELOADED[1:5],
    "bitverdict.harness.judge.sealed.candidate",
    WHEN_IDLE,
    TOOLS,
    "bitverdict.harness.workers.preload",
)
FIRST_LAUNCH = (
    "bitverdict.harness.emulator.frontend.lowerings",
    "bitverdict.harness.emulator.frontend.real_operations",
    "bitverdict.harness.emulator.provenance_tensors",
)
"""What an executor would import in its first case: it takes no translated program from disk."""
EXECUTOR_IMPORTS = (
    "bitverdict.harness.workers.sealed.executing",
    "bitverdict.harness.emulator.remote.executor",
    *FIRST_LAUNCH,
    WHEN_IDLE,
    TOOLS,
)


def folders_of(address: str, search_path: Sequence[str]) -> tuple[str, ...]:
    """What a process of the candidate at `address` may read besides Python and installed packages."""
    place = Path(address.rpartition(":")[0]).resolve()
    return tuple(dict.fromkeys([str(root_of(place)), *search_path]))


def start_of(address: str, search_path: Sequence[str] = (), start: Start = PLAIN, *, gpu: bool = False) -> Start:
    """How a worker is started that judges the sealed candidate at `address`: as `start`, with its zygotes. `gpu`: on a real one."""
    folders = folders_of(address, search_path)
    digest = hashlib.sha256("\0".join(folders).encode()).hexdigest()[:8]
    zygotes = {JAIL: _said(_jail(folders).address), EXECUTORS: _said(_executors(folders).address)}
    if gpu:
        zygotes[GPU_JAIL] = _said(_gpu_jail(folders).address)
    return replace(start, name=f"{start.name} sealed {digest}".strip(), variables={**start.variables, **zygotes})


def _said(address: str) -> str:
    """An abstract address as the value of a variable, which holds no zero byte; `heard` gives it back."""
    return address.replace("\0", "@")


def heard(value: str) -> str:
    return value.replace("@", "\0")


@functools.cache
def _jail(folders: tuple[str, ...]) -> Jail:
    """Kept for the life of this process; a fork of it has it too, as long as this one lives."""
    unreadable()  # this process holds the secret of the draws
    jail = Jail(folders, preload=CANDIDATE_IMPORTS)
    atexit.register(_end, os.getpid(), jail)
    return jail


@functools.cache
def _gpu_jail(folders: tuple[str, ...]) -> Jail:
    jail = Jail(folders, policy=CANDIDATE_ON_A_GPU, preload=(*CANDIDATE_IMPORTS, "bitverdict.harness.judge.sealed.on_a_gpu"))
    atexit.register(_end, os.getpid(), jail)
    return jail


@functools.cache
def _executors(folders: tuple[str, ...]) -> Executors:
    """Of executors, which may read the contracts' code too."""
    executors = Executors(preload=EXECUTOR_IMPORTS, folders=(str(CONTRACTS), *folders))
    atexit.register(_end, os.getpid(), executors)
    return executors


def _end(process: int, zygote: Jail | Executors) -> None:
    if os.getpid() == process:
        zygote.end()

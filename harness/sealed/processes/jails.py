"""The zygotes of a run's sealed cases: one of the candidate's processes for each set of folders that it may read, one of executors.

They are started before the first sealed worker, import torch and Triton beside each other, and end with this process.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from bitverdict.harness.model.decorated_object import root_of
from bitverdict.harness.model.paths import CONTRACTS
from bitverdict.harness.sealed.isolation import EXECUTORS, GPU_JAIL, JAIL
from bitverdict.harness.sealed.jail.confine import unreadable
from bitverdict.harness.sealed.jail.executors import Executors
from bitverdict.harness.sealed.jail.jail import Jail
from bitverdict.harness.sealed.jail.policy import CANDIDATE_ON_A_GPU, EXECUTOR_OF_A_GPU
from bitverdict.harness.sealed.processes.gpu_protections import gpu_protections
from bitverdict.harness.workers.forkserver import PRELOADED_MODULES, WHEN_IDLE
from bitverdict.harness.workers.start import PLAIN_START, Start

TOOLS = "bitverdict.harness.sealed.processes.tool_versions"
CANDIDATE_IMPORTS = (
    *PRELOADED_MODULES[1:5],
    "bitverdict.harness.sealed.candidate.candidate",
    WHEN_IDLE,
    TOOLS,
    "bitverdict.harness.workers.preload",
)
FIRST_LAUNCH = (
    "bitverdict.harness.emulator.frontend.lowerings",
    "bitverdict.harness.emulator.frontend.real_operations",
    "bitverdict.harness.emulator.provenance_tensors",
    "bitverdict.harness.ptx_machine.check",
    "bitverdict.harness.ptx_machine.below_the_tile_program",
)
"""What an executor would import in its first case: it takes no translated program from disk."""
EXECUTOR_IMPORTS = (
    "bitverdict.harness.sealed.processes.executor_process",
    "bitverdict.harness.sealed.remote.executor",
    *FIRST_LAUNCH,
    WHEN_IDLE,
    TOOLS,
)


_zygotes: dict[tuple[str, tuple[str, ...]], Jail | Executors] = {}
"""By their kind and folders."""
_creation_lock = threading.Lock()


def folders_of(address: str, search_path: Sequence[str]) -> tuple[str, ...]:
    """What a process of the candidate at `address` may read besides Python and installed packages."""
    place = Path(address.rpartition(":")[0]).resolve()
    return tuple(dict.fromkeys([str(root_of(place)), *search_path]))


def start_of(address: str, search_path: Sequence[str] = (), start: Start = PLAIN_START, *, gpu: bool = False) -> Start:
    """How a worker is started that judges the sealed candidate at `address`: as `start`, with its zygotes. `gpu`: on a real one.

    A zygote that died is replaced by a new one. Its workers have another name then: the old ones have nobody to ask."""
    folders = tuple(sorted(folders_of(address, search_path)))  # one zygote, whichever comes first
    with _creation_lock:
        zygotes = {
            JAIL: _zygote_address(_jail, folders),
            EXECUTORS: _zygote_address(_gpu_executors if gpu else _executors, folders),
        }
        if gpu:
            zygotes[GPU_JAIL] = _zygote_address(_gpu_jail, folders)
    zygotes = {name: _encode_address(zygote) for name, zygote in zygotes.items()}
    digest = hashlib.sha256("\0".join(zygotes.values()).encode()).hexdigest()[:8]
    return replace(start, name=f"{start.name} sealed {digest}".strip(), variables={**start.variables, **zygotes})


def _zygote_address(make: Callable[[tuple[str, ...]], Jail | Executors], folders: tuple[str, ...]) -> str:
    """The address of the zygote that `make` makes. It is kept for the life of this process; a fork has it as long as that lives."""
    zygote = _zygotes.get((make.__name__, folders))
    if zygote is None or not zygote.alive():
        if zygote is not None:
            zygote.end()
        zygote = _zygotes[make.__name__, folders] = make(folders)
        atexit.register(_end, os.getpid(), zygote)
    return zygote.address


def last_words(start: Start) -> str:
    """What the zygotes of `start` that ended have printed last: why they could not begin. Empty where all live."""
    named = {start.variables[name] for name in (JAIL, EXECUTORS, GPU_JAIL) if name in start.variables}
    ended = [
        each for each in _zygotes.values() if _encode_address(each.address) in named and isinstance(each, Jail) and not each.alive()
    ]
    return "; ".join(f"its jail ended: {each.last_lines()[-800:]}" for each in ended)


def _encode_address(address: str) -> str:
    """An abstract address as the value of a variable, which holds no zero byte; `heard` gives it back."""
    return address.replace("\0", "@")


def heard(value: str) -> str:
    return value.replace("@", "\0")


def _jail(folders: tuple[str, ...]) -> Jail:
    unreadable()  # this process holds the secret of the draws
    return Jail(folders, preload=CANDIDATE_IMPORTS)


def _gpu_jail(folders: tuple[str, ...]) -> Jail:
    preload = (*CANDIDATE_IMPORTS, "bitverdict.harness.sealed.candidate.on_a_gpu")
    return Jail(folders, policy=CANDIDATE_ON_A_GPU, preload=preload, machine_protections=gpu_protections())


def _executors(folders: tuple[str, ...]) -> Executors:
    """Of executors, which may read the contracts' code too."""
    return Executors(preload=EXECUTOR_IMPORTS, folders=(str(CONTRACTS), *folders))


def _gpu_executors(folders: tuple[str, ...]) -> Executors:
    return Executors(policy=EXECUTOR_OF_A_GPU, preload=EXECUTOR_IMPORTS, folders=(str(CONTRACTS), *folders))


def _end(process: int, zygote: Jail | Executors) -> None:
    if os.getpid() == process:
        zygote.end()

"""Where a target's tensors live, how launches come to run there, and what `torch.cuda` says while a user's file is imported.

A test's own kind of target registers with both functions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import singledispatch
from typing import TYPE_CHECKING, Any

from bitverdict.harness.judge.instrumentation import own_instrumentation
from bitverdict.harness.model import addresses
from bitverdict.harness.model.architectures import EMULATED_ARCHITECTURES
from bitverdict.harness.model.targets import GPU_NODES, Target

if TYPE_CHECKING:
    import torch

    from bitverdict.harness.emulator import AllocatedStorage
    from bitverdict.harness.emulator.device_probe import DeviceProbe


@singledispatch
def device_of(target: Target) -> torch.device:
    """Where tensors live. A worker that serves one GPU sees only that one, so its index there is 0."""
    import torch

    if target.emulated:
        return torch.device("cpu")
    return torch.device("cuda", 0 if os.environ.get("BITVERDICT_ONE_GPU") else target.index)


@singledispatch
def multiprocessors_of(target: Target) -> int:
    """How many a real GPU has; 0 of any other target."""
    import torch

    if target.emulated or not torch.cuda.is_available():
        return 0
    return int(torch.cuda.get_device_properties(device_of(target)).multi_processor_count)


@singledispatch
@contextmanager
def target_device(
    target: Target,
    schedule: str = "eager",
    tuning: str = "",
    *,
    allow_duplicate_rows: bool = False,
    takes_cpu_tensors: bool = True,
    real_values: frozenset[str] | None = None,
    rounded_arguments: bool = False,
    provenance: bool = False,
    list_allocations: Callable[[], Iterable[AllocatedStorage]] | None = None,
    probes: tuple[DeviceProbe, ...] = (),
) -> Iterator[Any]:
    """Make this the machine that launches run on; yields the emulated device, or None on hardware (synchronised at exit).

    `schedule` and `tuning` are a case's; hardware ignores the schedule, and times where `tuning` says nothing. The rest are
    `LaunchOptions` of the emulated device.
    """
    if target.emulated:
        from bitverdict.harness.emulator import LaunchOptions, emulated

        options = LaunchOptions(
            allow_duplicate_rows=allow_duplicate_rows,
            takes_cpu_tensors=takes_cpu_tensors,
            follows_pointers=False,
            real_values=real_values,
            rounded_arguments=rounded_arguments,
            provenance=provenance,
            list_allocations=list_allocations,
            probes=probes,
        )
        options = replace(options, **_besides)
        with emulated(target.arch, schedule, tuning, options) as device:
            yield device
        return
    import torch

    with torch.cuda.device(device_of(target)):
        yield None
        torch.cuda.synchronize()


_besides: dict[str, Any] = {}


@contextmanager
def launched_with(**options: object) -> Iterator[None]:
    """While entered, launches of this process on emulated targets have these `LaunchOptions` besides what the judge asks for."""
    before = dict(_besides)
    _besides.update(options)
    try:
        yield
    finally:
        _besides.clear()
        _besides.update(before)


@contextmanager
def import_context(address: str) -> Iterator[None]:
    """While the user's file at `address` is imported, `torch.cuda` answers as when the file is launched.

    It answers for the emulated GPU that is entered, else for a real GPU; where there is none for an emulated sm_90. What the file
    sets of Triton's instrumentation holds for its own launches alone.
    """
    with own_instrumentation(address), _answer_without_gpu():
        yield


@contextmanager
def _answer_without_gpu() -> Iterator[None]:
    if any(map(os.path.exists, GPU_NODES)):
        yield
        return
    from bitverdict.harness.emulator import emulated, is_entered

    if is_entered():
        yield
        return
    with emulated("sm_90"):
        yield


addresses.while_importing = import_context


def take_compiler_digest() -> None:
    """Have Triton's digest of its own files in this process: from disk, where they are as they were."""
    from bitverdict.harness.emulator.compiler_digest import digest, install

    install()
    digest()


def emulated_like(target: Target) -> Target | None:
    """The emulated GPU of the architecture of `target`, a real one; None where there is none."""
    return Target(f"emulated:{target.arch}", target.arch) if not target.emulated and target.arch in EMULATED_ARCHITECTURES else None

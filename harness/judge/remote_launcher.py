"""A launcher that another process calls, and one way to launch for both kinds."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from bitverdict.harness.judge.classify import LaunchResult
from bitverdict.harness.judge.clock import Clock
from bitverdict.harness.judge.devices import target_device
from bitverdict.harness.judge.launch import DEFAULT_ALLOCATIONS, Allocations
from bitverdict.harness.judge.launch import launch as launch_here
from bitverdict.harness.judge.pending_launch import PendingLaunch
from bitverdict.harness.model.addresses import load, load_afresh
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import Contract, Launcher
from bitverdict.harness.model.feature_table import REMOTE_LAUNCHERS, resolve_feature
from bitverdict.harness.model.protocols import for_the_launcher
from bitverdict.harness.model.targets import Target


def launcher_of_case(case: Case, target: Target, *, fresh_import: bool = False) -> Launcher | RemoteLauncher | None:
    """`launcher_of`, or what has another process launch: then this one never imports its file."""
    for flag, address in REMOTE_LAUNCHERS.items():
        if getattr(case, flag):
            remote: RemoteLauncher = resolve_feature(address)(fresh_import)
            return remote
    return launcher_of(case, target, fresh_import=fresh_import)


def launcher_of(case: Case, target: Target, *, fresh_import: bool = False) -> Launcher | None:
    """The user's launcher, imported where its file finds `target` when it asks for its GPU. None: the kernel's own. `fresh_import`:
    one that remembers no earlier call.

    It is called through `for_the_launcher`: where it does not take what it is given, the TypeError counts against it.
    """
    if not case.launcher:
        return None
    with target_device(target) if target.emulated else nullcontext():
        launcher = load_afresh(case.launcher) if fresh_import else load(case.launcher)
    return functools.update_wrapper(functools.partial(for_the_launcher, launcher), launcher)


@dataclass(frozen=True)
class LaunchRequest:
    """One launch of a case on operands, in this process or in another. `clock` takes its times."""

    case: Case
    target: Target
    contract: Contract
    operands: dict[str, Operand]
    clock: Clock
    rounded_arguments: bool = False
    """Whether floats that the launcher passes are known to half a unit of their format alone."""
    allocations: Allocations = DEFAULT_ALLOCATIONS


class RemoteLauncher(ABC):
    """Stands for the launcher of a case in the process that judges it. `REMOTE_LAUNCHERS` of `feature_table` names the classes."""

    @abstractmethod
    def prepare(self, case: Case, contract: Contract) -> None:
        """Let the other process begin with what needs no operands."""

    @abstractmethod
    def begin(self, request: LaunchRequest) -> PendingLaunch:
        """Launch the case of `request` there, and return before the launch ends."""

    @abstractmethod
    def stand_in(self, folders: Sequence[str], address: str) -> Any:
        """What answers in this process for the function at `address`, whose file is not imported here: which sizes it takes."""


def launch(launcher: Launcher | RemoteLauncher | None, request: LaunchRequest) -> LaunchResult:
    """What `request` comes to by `launcher`: in this process, or in that of a remote launcher, whose end it waits for."""
    if isinstance(launcher, RemoteLauncher):
        return launcher.begin(request).launch_result()
    entering = partial(target_device, rounded_arguments=True) if request.rounded_arguments else target_device
    return launch_here(
        request.case, request.target, request.contract, launcher, request.operands, request.clock, entering, request.allocations
    )

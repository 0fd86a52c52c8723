"""A launcher that another process calls, and one way to launch for both kinds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from bitverdict.harness.judge.classify import LaunchResult
from bitverdict.harness.judge.clock import Clock
from bitverdict.harness.judge.devices import target_device
from bitverdict.harness.judge.launch import DEFAULT_ALLOCATIONS, Allocations
from bitverdict.harness.judge.launch import launch as launch_here
from bitverdict.harness.judge.pending_launch import PendingLaunch
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.targets import Target


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


def launch(launcher: Callable | RemoteLauncher | None, request: LaunchRequest) -> LaunchResult:
    """What `request` comes to by `launcher`: in this process, or in that of a remote launcher, whose end it waits for."""
    if isinstance(launcher, RemoteLauncher):
        return launcher.begin(request).launch_result()
    entering = partial(target_device, rounded_arguments=True) if request.rounded_arguments else target_device
    return launch_here(
        request.case, request.target, request.contract, launcher, request.operands, request.clock, entering, request.allocations
    )

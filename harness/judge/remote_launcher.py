"""A launcher that another process calls, and one way to launch for both kinds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from bitverdict.harness.judge.classify import LaunchResult
from bitverdict.harness.judge.clock import Clock
from bitverdict.harness.judge.devices import entered
from bitverdict.harness.judge.launch import DEFAULT_ALLOCATIONS, Allocations
from bitverdict.harness.judge.launch import launch as launch_here
from bitverdict.harness.judge.pending_launch import PendingLaunch
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.targets import Target


class RemoteLauncher(ABC):
    """Stands for the launcher of a case in the process that judges it. `REMOTE_LAUNCHERS` of `feature_table` names the classes."""

    @abstractmethod
    def prepare(self, case: Case, contract: Contract) -> None:
        """Let the other process begin with what needs no operands."""

    @abstractmethod
    def begin(
        self,
        case: Case,
        target: Target,
        contract: Contract,
        operands: Mapping[str, Operand],
        clock: Clock,
        rounded_arguments: bool = False,
        allocations: Allocations = DEFAULT_ALLOCATIONS,
    ) -> PendingLaunch:
        """Launch `case` there, and return before the launch ends."""

    def launch(
        self,
        case: Case,
        target: Target,
        contract: Contract,
        operands: Mapping[str, Operand],
        clock: Clock,
        rounded_arguments: bool = False,
        allocations: Allocations = DEFAULT_ALLOCATIONS,
    ) -> LaunchResult:
        """As `begin`, and wait for the end."""
        return self.begin(case, target, contract, operands, clock, rounded_arguments, allocations).launch_result()

    @abstractmethod
    def stand_in(self, folders: Sequence[str], address: str) -> Any:
        """What answers in this process for the function at `address`, whose file is not imported here: which sizes it takes."""


def launch(
    case: Case,
    target: Target,
    contract: Contract,
    launcher: Callable | RemoteLauncher | None,
    operands: dict[str, Operand],
    clock: Clock,
    *,
    rounded_arguments: bool = False,
    allocations: Allocations = DEFAULT_ALLOCATIONS,
) -> LaunchResult:
    """`bitverdict.harness.judge.launch.launch` in this process, or in that of a remote launcher."""
    if isinstance(launcher, RemoteLauncher):
        return launcher.launch(case, target, contract, operands, clock, rounded_arguments, allocations)
    entering = partial(entered, rounded_arguments=True) if rounded_arguments else entered
    return launch_here(case, target, contract, launcher, operands, clock, entering, allocations)

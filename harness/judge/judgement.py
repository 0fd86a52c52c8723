"""One case while it is judged: what is known before the launch, what the launch came to, and what checks add."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from bitverdict.harness.judge.classify import LaunchResult
from bitverdict.harness.judge.clock import Clock
from bitverdict.harness.judge.compare import Comparison
from bitverdict.harness.judge.devices import multiprocessors_of
from bitverdict.harness.judge.launch import DEFAULT_ALLOCATIONS, Allocations
from bitverdict.harness.judge.remote_launcher import LaunchRequest, RemoteLauncher, launch, launcher_of_case
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import Contract, ExpectedOutcome, ExpectedOutput, Launcher
from bitverdict.harness.model.protocols import Check
from bitverdict.harness.model.targets import Target


@dataclass
class Judgement:
    """`launcher`: the user's, one in another process, or None for the kernel's own. `explains_cause`: whether somebody reads why a
    case failed, and how far a pass reaches."""

    case: Case
    target: Target
    contract: Contract
    launcher: Launcher | RemoteLauncher | None
    expected_outcome: ExpectedOutcome
    clock: Clock
    explains_cause: bool = True
    operands: dict[str, Operand] = field(default_factory=dict)
    launch_result: LaunchResult = field(default_factory=LaunchResult)
    expected: list[ExpectedOutput] = field(default_factory=list)
    contradiction: str = ""
    """Why the expectation contradicts itself; then nothing is compared."""
    twin: Any = None
    """The launch on an emulated GPU beside that on a real one (`EmulatedTwin`), where there was one."""
    notes: dict[str, Any] = field(default_factory=dict)
    """What one check keeps from one step to the next, by its name."""

    @property
    def has_work(self) -> bool:
        """Whether each operand has an element, so that a kernel has something to do."""
        return all(operand.codes.size for operand in self.operands.values())

    def launch_on(self, emulated_target: Target, clock: Clock, allocations: Allocations = DEFAULT_ALLOCATIONS) -> LaunchResult:
        """What the case comes to on `emulated_target`: it has as many multiprocessors as a real one."""
        with clock.measure("emulated"):
            count = multiprocessors_of(self.target)
            alike = self.case if self.target.emulated else replace(self.case, schedule=f"eager on {count}" if count else "eager")
            launcher = launcher_of_case(self.case, emulated_target, fresh_import=True)
            request = LaunchRequest(alike, emulated_target, self.contract, self.operands, Clock(), allocations=allocations)
            return launch(launcher, request)


CaseCheck = Check[Judgement, Comparison]
"""What a check of `feature_table` subclasses."""

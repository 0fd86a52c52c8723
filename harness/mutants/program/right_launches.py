"""What the right kernel launches in a case: its tile programs, how long they run, and whether the case passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bitverdict.harness.emulator.frontend.edited_programs import EditedPrograms
from bitverdict.harness.judge.devices import launched_with
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Decision, Verdict


@dataclass(frozen=True)
class RightLaunch:
    """Of one case: the programs that were launched, by their texts, each with the lines of operations that no launch came to, and
    with the integer arguments that were negative; operations of all launches. `passes`: a result is expected, and it came. Only
    then can a mutant fail the case. `words`: of each output a digest."""

    programs: Mapping[str, set[int]]
    negative: Mapping[str, set[str]]
    operations: int
    passes: bool
    words: Mapping[str, str]


class RightLaunches:
    """Of one kernel on one target, each case launched once in this process."""

    def __init__(self, contract: Contract, target: Target) -> None:
        self.contract, self.target = contract, target
        self._known: dict[str, RightLaunch] = {}
        self._met: dict[int, tuple[Case, RightLaunch]] = {}  # by id: the key of a case takes longer to make than a look

    def launch_of(self, case: Case) -> RightLaunch:
        met, right_launch = self._met.get(id(case), (None, None))
        if right_launch is None or met is not case:
            if case.key not in self._known:
                self._known[case.key] = self._launch_right(case)
            right_launch = self._known[case.key]
            self._met[id(case)] = case, right_launch
        return right_launch

    def _launch_right(self, case: Case) -> RightLaunch:
        watching = EditedPrograms(lambda text: None)
        with launched_with(edited_programs=watching):
            verdict = judge(case, self.target, self.contract, explained=False)
        result = self.contract.expected_outcome(case, self.target).result
        passes = verdict.decision is Decision.PASS and result
        return RightLaunch(watching.missed, watching.negative, watching.operations, passes, words_of(verdict))


def words_of(verdict: Verdict) -> Mapping[str, str]:
    """Of each output of a launch that came to a result a digest of its words."""
    return verdict.recorded.get("digests", {})

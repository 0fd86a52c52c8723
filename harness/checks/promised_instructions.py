"""Whether emulated launches hold the instructions that the options of a case promise (`Contract.promised_instructions`).

An option that chooses how a kernel waits, or what fills its memory, changes no word. It is read in the tile program instead. Nor
does work that is done for nothing: a block that is masked whole, a tile that two programs compute. It is counted as executed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from bitverdict.harness.judge.judgement import CaseCheck, Judgement
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract, PromisedInstruction
from bitverdict.harness.model.protocols import LaunchObserver
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Basis, Decision, Outcome, Verdict

if TYPE_CHECKING:
    from bitverdict.harness.emulator.device import Launch

BARRIERS, CONSTANT, EXECUTED_PREFIX, PROGRAMS = "barriers of ", "constant ", "executed ", "programs"
ONCE_REMEDY = "take each tile once, and no block that adds nothing"
HAND_ON = "let the launcher hand the option on to the kernel as it was given"
_SEGMENTS = r'"{}"\([^)]*\) <\{{[^}}]*operandSegmentSizes = array<i32: ([^>]*)>'
_AMD = 'ttg.target = "hip:'
_BARRIER_SEGMENT = 6  # of ttng.tc_gen5_mma: a, b, d, token, accumulate, predicate, barriers, their predicates


class InstructionObserver(LaunchObserver):
    """Reads the tile programs of a shipped kernel's launch."""

    def broken_promise(self, case: Case, contract: Contract, target: Target, launches: Sequence[Launch]) -> str:
        if case.launcher or not contract.expected_outcome(case, target).result:
            return ""
        return broken_promise(contract.promised_instructions(case), launches)


class PromisedInstructions(CaseCheck):
    """Right words by other instructions than an option promises fail."""

    def after_comparison(self, judgement: Judgement, verdict: Verdict) -> Verdict:
        said = judgement.launch_result.broken_promise
        if not said or verdict.outcome is not Outcome.PASS:
            return verdict
        return Verdict(decision=Decision.FAIL, outcome=Outcome.OTHER_INSTRUCTIONS, message=said, basis=Basis.OBSERVED_FAULT)


def broken_promise(promised: Iterable[PromisedInstruction], launches: Iterable[Launch]) -> str:
    """The first of `promised` that a tile program of emulated `launches` breaks: its value, the rule, a remedy. Empty: none."""
    launched = list(launches)
    for each in promised:
        for launch in launched:
            if each.kernel in ("", launch.name) and (said := _broken(each, launch)):
                return f"{launch.name}: {said}"
    return ""


def _broken(promise: PromisedInstruction, launch: Any) -> str:
    operation, count = promise.operation, promise.count
    actual_count: int | None
    if operation == PROGRAMS:
        actual_count, phrase, remedy = (
            prod(launch.grid),
            "{} programs were launched",
            "launch as many programs as have something to do",
        )
    elif operation.startswith(EXECUTED_PREFIX):
        name = operation.removeprefix(EXECUTED_PREFIX)
        actual_count, phrase, remedy = launch.operations[name], f"it executed {{}} {name}", ONCE_REMEDY
        if promise.peeled_count and _AMD in launch.program and count_of(name, launch.program) > promise.source_count:
            count += promise.peeled_count
    elif operation.startswith(CONSTANT):
        name = operation.removeprefix(CONSTANT)
        actual_count, phrase, remedy = launch.constants.get(name), f"{name} = {{}}", HAND_ON
    else:
        actual_count, phrase, remedy = count_of(operation, launch.program), f"its tile program has {{}} {operation}", HAND_ON
    return "" if actual_count == count else f"{phrase.format(actual_count)}; {promise.option} promises {count}; {remedy}"


def count_of(operation: str, program: str) -> int:
    """How many of `operation` the text of a tile program has, in MLIR's generic form."""
    name = operation.removeprefix(BARRIERS)
    if name == operation:
        return program.count(f'"{name}"(')
    return sum(int(sizes.split(",")[_BARRIER_SEGMENT]) for sizes in re.findall(_SEGMENTS.format(re.escape(name)), program))

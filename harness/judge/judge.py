"""Judges one case on one target in this process: launches it, compares the outputs with what is expected, and names the difference.

`judge` never raises for what a kernel does: a refusal, a fault of the device or of the emulated one, and a bug in a launcher are
outcomes with a name. A death of the process itself is named by `bitverdict.harness.workers.slot`. What it does raise is a fault of
the contract. Optional questions are asked by the checks of `bitverdict.harness.model.feature_table`, in the order of that table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bitverdict.harness.emulator.releases import UNPROVEN, installed_release
from bitverdict.harness.judge.classify import LaunchResult, outcome_of
from bitverdict.harness.judge.clock import Clock
from bitverdict.harness.judge.compare import Comparison, compare, contradiction, with_enclosed
from bitverdict.harness.judge.decide import against_fault, against_words, contradictory_expectation
from bitverdict.harness.judge.devices import emulated_like
from bitverdict.harness.judge.guarded_buffers import TORCH_DTYPES
from bitverdict.harness.judge.instrumentation import own_instrumentation
from bitverdict.harness.judge.judgement import Judgement
from bitverdict.harness.judge.missing_features import COMPILER, held_to_features, not_run
from bitverdict.harness.judge.pending_launch import compute_meanwhile
from bitverdict.harness.judge.remote_launcher import LaunchRequest, RemoteLauncher, launch, launcher_of_case
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract, ExpectedOutput, UndecidedCase
from bitverdict.harness.model.feature_table import checks
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import EXCLUDED_KEY, Basis, Decision, Outcome, Verdict

FEW_DIGITS = "those of the reference to within half a unit of the floats that the launcher passes, in the format of the parameter"


def judge(case: Case, target: Target, contract: Contract | None = None, *, explained: bool = True) -> Verdict:
    """Judge `case` on `target` in this process. ``explained=False`` spares the search for the cause of a failure. ValueError for
    the address of a contract or launcher that is not there; what a broken contract raises is not caught."""
    clock = Clock()
    contract = contract if contract is not None else resolve(case.contract)
    missing_features = ", ".join(sorted(str(feature) for feature in contract.lacking(target)))
    if missing_features and not case.launcher:
        return replace(not_run(f"{target.name} lacks {missing_features}"), seconds=clock.seconds())
    with own_instrumentation(case.launcher or case.contract):
        verdict = _judge_all_calls(case, target, contract, clock, explained)
    if case.launcher or contract.any_launcher:
        layer = verdict.details.get("layer") if verdict.outcome is Outcome.REFUSED else None
        if (
            missing_features and verdict.failed and layer in (*COMPILER, "launcher")
        ):  # it may need what the shipped kernel does, or may not
            verdict = not_run(f"{target.name} lacks {missing_features}: {verdict.message}", refused_by=layer)
        verdict = held_to_features(verdict, target)
    if verdict.failed and (asked := contract.asked_by_default(case)):
        verdict = _name_layout_fault(verdict, asked)
    return replace(_name_unproven(verdict), seconds=clock.seconds())


def _name_unproven(verdict: Verdict) -> Verdict:
    """`verdict`; its basis says so if bitverdict has not been proven on the installed release of Triton."""
    if installed_release().proven:
        return verdict
    kind, colon, why = verdict.basis.partition(":")
    return replace(verdict, basis=f"{kind}, {UNPROVEN}{colon}{why}")


def _name_layout_fault(verdict: Verdict, asked: str) -> Verdict:
    """Of a failure on operands whose layout the launcher never claimed to take: "not run" where the launcher itself refuses them;
    where it takes them and computes wrong words, a failure that says how to exclude such operands."""
    if verdict.details.get("layer") == "launcher":
        return replace(not_run(f"the launcher excludes {asked}: {verdict.message}"), details={EXCLUDED_KEY: asked})
    remedy = f'{asked}: tested unless the test says which layouts the kernel takes, such as strides="contiguous"'
    return replace(verdict, details=verdict.details | {"tested by default": f"{remedy} (docs/your_kernel.md)"})


def _inconclusive_verdict(why: str) -> Verdict:
    return Verdict(decision=Decision.INCONCLUSIVE, outcome=Outcome.INCONCLUSIVE, basis=Basis.NO_BASIS, message=why)


def _judge_all_calls(case: Case, target: Target, contract: Contract, clock: Clock, explained: bool) -> Verdict:
    """The verdict on the one call of the case, or on all of them."""
    expected_outcome = contract.expected_outcome(case, target)
    judgement = Judgement(case, target, contract, launcher_of_case(case, target), expected_outcome, clock, explained)
    try:
        for check in checks():
            if (verdict := check.judge_all_calls(judgement, judge_once)) is not None:
                return verdict
        verdict = judge_once(judgement)
        for check in checks():
            verdict = check.after_case(judgement, verdict)
        return verdict
    except MemoryError as error:  # of the reference: a launch's own is an outcome already
        return against_fault(expected_outcome, outcome_of(error))


def judge_once(judgement: Judgement) -> Verdict:
    """The verdict on the case of `judgement`, by one launch."""
    contract, case, clock = judgement.contract, judgement.case, judgement.clock
    if isinstance(judgement.launcher, RemoteLauncher):
        judgement.launcher.prepare(case, contract)
    with clock.measure("reference"):
        judgement.operands = {operand.name: operand for operand in contract.operands(case)}
    judgement.launch_result, expects = _launch_case(judgement)
    launch_result, outcome = judgement.launch_result, judgement.expected_outcome
    if launch_result.outcome is not None or not outcome.result:
        verdict = against_fault(outcome, launch_result)
    else:
        with clock.measure("reference"):
            try:
                judgement.expected = expects()
            except UndecidedCase as why:
                return replace(_inconclusive_verdict(str(why)), advice=launch_result.advice, recorded=launch_result.launch_record)
            judgement.contradiction = next((said for each in judgement.expected if (said := contradiction(each))), "")
        verdict = _compare_outputs(judgement)
    for check in checks():
        verdict = check.after_launch(judgement, verdict)
    return replace(verdict, advice=launch_result.advice, recorded=launch_result.launch_record)


def _compare_outputs(judgement: Judgement) -> Verdict:
    """The verdict on the outputs of a launch that returned, after the checks changed it."""
    if judgement.contradiction:
        verdict = contradictory_expectation(judgement.contradiction)
    else:
        for check in checks():
            check.before_comparison(judgement)
        verdict = _compared_with_digits(judgement)
    for check in checks():
        verdict = check.after_comparison(judgement, verdict)
    return verdict


def _compared_with_digits(judgement: Judgement) -> Verdict:
    """The verdict by words and real values. Where only the mathematics is wrong, floats that the launcher passes are taken as known
    to half a unit of their format, and it counts whether that explains it."""
    verdict = _decide(judgement, judgement.launch_result)
    if verdict.outcome is not Outcome.WRONG_MATHEMATICS:
        return verdict
    rounded = _with_rounded_arguments(judgement)
    if rounded is None:
        return verdict
    looser = _decide(judgement, replace(judgement.launch_result, real_values=rounded.real_values, hangs=rounded.hangs))
    return verdict if looser.failed else replace(looser, details=looser.details | {"real values": FEW_DIGITS})


def _decide(judgement: Judgement, seen: LaunchResult) -> Verdict:
    return against_words(judgement.expected, [_compare_output(judgement, each, seen) for each in judgement.expected], seen.hangs)


def _launch_case(judgement: Judgement) -> tuple[LaunchResult, Callable[[], list[ExpectedOutput]]]:
    """The result of the launch, and a function that gives what is expected; computed here while a remote launcher runs."""
    case, target, contract, operands = judgement.case, judgement.target, judgement.contract, judgement.operands
    request = LaunchRequest(case, target, contract, operands, judgement.clock)
    if isinstance(judgement.launcher, RemoteLauncher) and judgement.expected_outcome.result:
        pending = judgement.launcher.begin(request)
        return compute_meanwhile(pending, request.clock, lambda recorded: contract.expected(case, target, operands, recorded))
    seen = launch(judgement.launcher, request)
    return seen, lambda: contract.expected(case, target, operands, seen.launch_record)


def _with_rounded_arguments(judgement: Judgement) -> LaunchResult | None:
    """What an emulated launch of the case comes to, where floats that the launcher passes are known to half a unit of their format;
    None where there is no such launch."""
    case, target = judgement.case, judgement.target
    there = target if target.emulated else emulated_like(target)
    if there is None:
        return None
    with judgement.clock.measure("launch"):
        launcher = launcher_of_case(case, there, fresh_import=bool(case.launcher))
        seen = launch(launcher, LaunchRequest(case, there, judgement.contract, judgement.operands, Clock(), rounded_arguments=True))
    return seen if seen.outcome is None else None


def _compare_output(judgement: Judgement, expected: ExpectedOutput, launch_result: LaunchResult) -> Comparison:
    if expected.name not in launch_result.outputs:
        return Comparison(Outcome.WRONG_SHAPE, 0, message=f"{expected.name}: the launcher returned no such output")
    poison = launch_result.details.get(f"poison of {expected.name}")
    due = TORCH_DTYPES.get(expected.format)
    dtypes = (launch_result.dtypes[expected.name], str(due)) if due is not None else None
    if expected.name in launch_result.enclosures:
        expected = with_enclosed(expected, *launch_result.enclosures[expected.name])
    real = launch_result.real_values.get(expected.name)
    comparison = compare(expected, launch_result.outputs[expected.name], poison=poison, dtypes=dtypes, real=real)
    for check in checks():
        comparison = check.compare(judgement, expected, comparison)
    return comparison

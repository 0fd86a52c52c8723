"""The cause of a failure, as a check: of wrong outputs by hypotheses, of any fault by what the emulated GPU noted beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from bitverdict.harness.checks.explain.cause import WRONG_OUTCOMES, cause_of
from bitverdict.harness.checks.explain.error_budget import error_budget
from bitverdict.harness.checks.explain.unwritten_reads import Relaunch, explain_by_unwritten_input
from bitverdict.harness.emulator.advice import Advice
from bitverdict.harness.emulator.frontend.local_errors import MOST_LINES
from bitverdict.harness.judge.clock import Clock
from bitverdict.harness.judge.judgement import CaseCheck, Judgement
from bitverdict.harness.model.verdict import Outcome, Verdict

MOST_ELEMENTS = 1 << 30  # of a launch that is repeated for an explanation, about 3 s of a quiet core: the limit of a case is far


class ExplanationCheck(CaseCheck):
    """A failure gets its cause where one explains it. What an explanation raises changes no verdict."""

    def after_comparison(self, judgement: Judgement, verdict: Verdict) -> Verdict:
        if not verdict.failed or not judgement.explains_cause:
            return verdict
        relaunch = _relaunch(judgement)
        with judgement.clock.measure("explanation"):
            return _with_error_budget(judgement, _with_cause(judgement, verdict, relaunch))

    def after_launch(self, judgement: Judgement, verdict: Verdict) -> Verdict:
        if not verdict.failed:
            return verdict
        said = probable_cause(verdict.outcome, verdict.location, verdict.details, judgement.launch_result.advice)
        return replace(verdict, details={"probable cause": said} | verdict.details) if said else verdict


def _with_cause(judgement: Judgement, verdict: Verdict, relaunch: Relaunch | None) -> Verdict:
    expected, launch_result = judgement.expected, judgement.launch_result
    wrong_output = next((output for output in expected if output.name == verdict.details.get("output")), None)
    if wrong_output is None:
        return verdict
    try:
        cause = (
            explain_by_unwritten_input(wrong_output, launch_result, relaunch)
            if relaunch is not None and verdict.outcome in WRONG_OUTCOMES
            else None
        )
        if cause is None:
            poison, others = (
                launch_result.details.get(f"poison of {wrong_output.name}"),
                [output for output in expected if output is not wrong_output],
            )
            mathematics = judgement.contract.mathematics_of(judgement.case, judgement.operands, wrong_output.name)
            cause = cause_of(mathematics, wrong_output, launch_result, verdict.outcome, poison, others)
        details = {} if cause is None else {"cause": cause.sentence, "cause_kind": cause.kind, "cause_kinds": list(cause.kinds)}
    except Exception as error:
        details = {"explanation failed": f"{type(error).__name__}: {error}"[:400]}
    return replace(verdict, details=verdict.details | details)


def _with_error_budget(judgement: Judgement, verdict: Verdict) -> Verdict:
    """Of lost precision what is allowed, and what each line of the kernel adds to the error, where a certificate is asked for."""
    output = next((each for each in judgement.expected if each.name == verdict.details.get("output")), None)
    launch_result = judgement.launch_result
    if verdict.outcome is not Outcome.LOST_PRECISION or output is None or not judgement.target.emulated:
        return verdict
    if judgement.case.sealed or not judgement.case.certificate or launch_result.elements * MOST_LINES > MOST_ELEMENTS:
        return verdict
    one_call = replace(judgement, case=replace(judgement.case, calls=1))
    try:
        found: dict = error_budget(output, launch_result, lambda: one_call.launch_on(judgement.target, Clock()))
    except Exception as error:
        found = {"explanation failed": f"{type(error).__name__}: {error}"[:400]}
    return replace(verdict, details=verdict.details | found)


def _relaunch(judgement: Judgement) -> Relaunch | None:
    """How a failing case is launched once more on the emulated GPU, which read words that the launcher allocated and did not fill;
    None if it read none, or if that launch computed more than `MOST_ELEMENTS`. A busy machine changes no cause."""
    twin = judgement.twin
    first = judgement.launch_result if judgement.target.emulated else twin.launch_result if twin is not None else None
    if first is None or not first.reads_allocated or judgement.case.calls != 1 or first.elements > MOST_ELEMENTS:
        return None
    there = judgement.target if twin is None else twin.target
    return Relaunch(first, lambda allocations: judgement.launch_on(there, Clock(), allocations))


MOVEMENT_OUTCOMES = {
    Outcome.RACE, Outcome.STRAY_READ, Outcome.STRAY_WRITE, Outcome.WRONG_WORDS, Outcome.OUTSIDE_BOUND, Outcome.WRONG_MATHEMATICS,
    Outcome.INPUT_CHANGED,
}  # fmt: skip
"""What comes of an operand that lies elsewhere than its descriptor says."""
ANYWHERE = {Advice.STRIDE_CUT: MOVEMENT_OUTCOMES}
"""Advice that concerns a whole operand, and the outcomes that it explains wherever they show."""
AT_ONE_LINE = {
    Advice.EQUAL_WORDS: {Outcome.RACE},
    Advice.DUPLICATE_ROWS: {Outcome.RACE, Outcome.WRONG_WORDS},
    Advice.LANES_DIFFER: {Outcome.RACE, Outcome.WRONG_WORDS, Outcome.OUTSIDE_BOUND, Outcome.WRONG_MATHEMATICS},
    Advice.PARITY: {Outcome.RACE, Outcome.DEADLOCK, Outcome.BARRIER_MISUSE, Outcome.UNINITIALISED_READ},
}
"""Advice that explains an outcome where both are of one line."""


def probable_cause(outcome: Outcome, location: str, details: Mapping, advice: Iterable[str]) -> str:
    """The advice, as its sentence stands, that explains `outcome`; empty where none does."""
    lines = {line for line in (location, details.get("other location", "")) if line}
    for sentence in advice:
        for kind, outcomes in ANYWHERE.items():
            if outcome in outcomes and sentence.endswith(kind.value):
                return sentence
        for kind, outcomes in AT_ONE_LINE.items():
            if outcome in outcomes and sentence.endswith(kind.value) and any(sentence.startswith(f"{line}:") for line in lines):
                return sentence
    return ""

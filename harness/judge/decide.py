"""Decides a case: a fault or a refusal against the outcome that the contract expects, and the outputs of a launch against the
expected ones. It launches nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bitverdict.harness.judge.classify import LaunchResult
from bitverdict.harness.judge.compare import Comparison
from bitverdict.harness.judge.real_values import why_unknown
from bitverdict.harness.model.contract import ExpectedOutcome, ExpectedOutput
from bitverdict.harness.model.verdict import Basis, Decision, Outcome, Verdict

UNABLE = {  # says something about us or the machine, nothing about the kernel
    Outcome.NOT_MODELLED: Decision.INCONCLUSIVE,
    Outcome.OUT_OF_MEMORY: Decision.INCONCLUSIVE,
    Outcome.COMPILER_FAULT: Decision.INCONCLUSIVE,
    Outcome.ERROR: Decision.ERROR,
    Outcome.NOT_RUN: Decision.NOT_RUN,
}
REFUSALS = {Outcome.REFUSED, Outcome.OUT_OF_RESOURCES}


def against_fault(expected_outcome: ExpectedOutcome, launch_result: LaunchResult) -> Verdict:
    """The verdict on a launch that ended in a fault or a refusal, or returned where the contract expects one of these."""
    if launch_result.outcome is None:
        return Verdict(
            decision=Decision.FAIL,
            outcome=Outcome.NOT_REFUSED,
            basis=Basis.OBSERVED_FAULT,
            message=f"ran, but expects: {expected_outcome.outcome}"
            + (f" by the {expected_outcome.layer}" if expected_outcome.layer else ""),
            details={"expected_outcome": expected_outcome.reason},
        )
    details = dict(launch_result.details, layer=launch_result.layer)
    if (
        expected_outcome.any_refusal
        and launch_result.layer in ("launcher", "driver")
        and launch_result.outcome in (Outcome.REFUSED, Outcome.LAUNCHER_ERROR)
    ):
        return Verdict(
            decision=Decision.PASS,
            outcome=launch_result.outcome,
            message=launch_result.message,
            location=launch_result.location,
            basis=Basis.EXPECTED_REFUSAL,
            details=details,
        )
    if not expected_outcome.result and str(launch_result.outcome) == expected_outcome.outcome:
        same_layer = (
            not expected_outcome.layer
            or not launch_result.layer
            or expected_outcome.layer == launch_result.layer
            or launch_result.layer == "emulator"
        )
        said = (
            not expected_outcome.message
            or expected_outcome.message in launch_result.message
            or expected_outcome.message in str(launch_result.details.get("text", ""))
        )
        if same_layer and said:
            basis = Basis.EXPECTED_REFUSAL if launch_result.outcome in REFUSALS else Basis.EXPECTED_FAULT
            return Verdict(
                decision=Decision.PASS,
                outcome=launch_result.outcome,
                message=launch_result.message,
                location=launch_result.location,
                basis=basis,
                details=details,
            )
        details["expected_outcome"] = (
            f"{expected_outcome.outcome} by the {expected_outcome.layer or 'one or another layer'}, saying "
            f"{expected_outcome.message!r}"
        )
    elif not expected_outcome.result:
        details["expected_outcome"] = f"{expected_outcome.outcome}: {expected_outcome.reason}"
    decision = UNABLE.get(launch_result.outcome, Decision.FAIL)
    unable = Basis.COMPILER_FAULT if launch_result.outcome is Outcome.COMPILER_FAULT else Basis.NO_BASIS
    return Verdict(
        decision=decision,
        outcome=launch_result.outcome,
        message=launch_result.message,
        location=launch_result.location,
        details=details,
        basis=unable if launch_result.outcome in UNABLE else Basis.OBSERVED_FAULT,
    )


def contradictory_expectation(said: str) -> Verdict:
    """The verdict on expected words that a derived bound contradicts, as `said`: the contract's plan or the bound is wrong,
    whatever came."""
    head, _, rest = said.partition("\n")
    return Verdict(
        decision=Decision.ERROR,
        outcome=Outcome.ERROR,
        message=f"plan and bound contradict each other: {head} (expected words against the bound that the operands give)\n{rest}",
    )


UNKNOWN = "mathematics not known"  # in details: of how many elements, and why


def against_words(expected: list[ExpectedOutput], comparisons: list[Comparison], hangs: Sequence[tuple[str, str]] = ()) -> Verdict:
    """The worst of the outputs: wrong mathematics, then the first that fails. What it rests on is the weakest of what the expected
    outputs rest on, behind the real values where they decided some. `hangs`: why others are not known."""
    failed = [c for c in comparisons if c.outcome not in (Outcome.PASS, Outcome.INCONCLUSIVE)]
    worst_comparison = next((c for c in failed if c.outcome is Outcome.WRONG_MATHEMATICS), failed[0] if failed else None)
    shares = [c.bound_used for c in comparisons if c.bound_used is not None]
    counted = sum(c.words for c in comparisons)
    verdict_fields: dict[str, Any] = {
        "words": counted,
        "bound_used": max(shares) if shares else None,
        "basis": _rests_on(expected, comparisons),
    }
    left_out = sum(c.inconclusive for c in comparisons)
    details: dict[str, Any] = {"inconclusive_words": left_out} if left_out else {}
    unknown, because = sum(c.unknown for c in comparisons), why_unknown(hangs)
    if unknown:
        known = sum(c.by_real_values for c in comparisons)
        details[UNKNOWN] = f"{unknown} of {unknown + known} elements: {because or 'open in the reference'}"
    if worst_comparison is not None:
        return Verdict(
            decision=Decision.FAIL,
            outcome=worst_comparison.outcome,
            message=worst_comparison.message,
            details=details | worst_comparison.details,
            **verdict_fields,
        )
    if all(c.outcome is Outcome.INCONCLUSIVE for c in comparisons):
        return Verdict(
            decision=Decision.INCONCLUSIVE,
            outcome=Outcome.INCONCLUSIVE,
            message="no word of this case can be decided" + (f", and its unrounded values depend on: {because}" if because else ""),
            details=details,
            **verdict_fields,
        )
    return Verdict(decision=Decision.PASS, outcome=Outcome.PASS, details=details, **verdict_fields)


def _rests_on(expected: list[ExpectedOutput], comparisons: list[Comparison]) -> str:
    """What decided: real values, what the words rest on, or both."""
    basis = next((_agreement_basis(e) for e in expected if e.basis), str(Basis.NO_BASIS))
    if not any(c.by_real_values for c in comparisons):
        return basis
    declared = sorted(set().union(*(e.declared for e in expected)))
    rule = f"with {', '.join(declared)} as declared" if declared else "no conversion is mathematics"
    if not any(c.by_words for c in comparisons):
        return f"{Basis.REAL_VALUES}; {rule}"
    kind, _, why = basis.partition(":")
    return f"real values, {kind}:{why}; real values inside float64's running bound, {rule}"


def _agreement_basis(expected: ExpectedOutput) -> str:
    """What an output's verdict rests on; of words that a bound agrees with, this too."""
    opinion = expected.opinion
    if opinion is None:
        return str(expected.basis)
    kind, _, why = expected.basis.partition(":")
    return f"{kind}, in bound:{why}; {opinion.words.size} of {opinion.word_count} words inside the derived bound too"

"""Which clause of a contract a failing verdict breaks: the rows of the matrix of kills.

A contract asks more of a launch than its words. Each outcome that fails breaks one of these clauses, so a count of kills by clause
says which of them the judging rests on.
"""

from __future__ import annotations

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import ExpectedOutcome
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Outcome, Verdict
from bitverdict.harness.mutants.record import End, GeneratedMutant, MutantResult, digest_of

LONGEST = 300  # characters of a text of a result
REFUSAL = "what is illegal is refused"
OTHER_OUTCOME = "another outcome"
CLAUSES = {
    "the words": (Outcome.WRONG_WORDS,),
    "the bound": (Outcome.OUTSIDE_BOUND, Outcome.LOST_PRECISION),
    "the mathematics": (Outcome.WRONG_MATHEMATICS,),
    "shape and dtype": (Outcome.WRONG_SHAPE,),
    "accesses lie inside": (
        Outcome.STRAY_WRITE,
        Outcome.STRAY_READ,
        Outcome.ILLEGAL_ADDRESS,
        Outcome.MISALIGNED_ADDRESS,
        Outcome.FALSE_HINT,
    ),
    "operands stay": (Outcome.INPUT_CHANGED,),
    "accesses are ordered": (Outcome.RACE, Outcome.UNINITIALISED_READ, Outcome.BARRIER_MISUSE),
    "the launch ends": (Outcome.DEADLOCK, Outcome.TIMEOUT),
    "the process lives": (Outcome.KILLED, Outcome.SEGMENTATION_FAULT, Outcome.COMPILER_ABORT),
    "what is legal is launched": (
        Outcome.REFUSED,
        Outcome.OUT_OF_RESOURCES,
        Outcome.LAUNCHER_ERROR,
        Outcome.ILLEGAL_INSTRUCTION,
        Outcome.DEVICE_ASSERT,
        Outcome.LAUNCH_FAILURE,
    ),
    "calls are independent": (
        Outcome.STATE_KEPT,
        Outcome.UNCHANGED,
        Outcome.MEMORY_RETURNED,
        Outcome.WORDS_CHANGED,
        Outcome.COMPUTED_ON_HOST,
        Outcome.NOT_INVARIANT,
    ),
    "options choose instructions": (Outcome.OTHER_INSTRUCTIONS,),
    "a GPU does what the emulated one does": (Outcome.BEHAVES_DIFFERENTLY,),
    REFUSAL: (Outcome.NOT_REFUSED,),
}
"""Clause -> the outcomes that break it."""
_BROKEN_BY = {outcome: clause for clause, outcomes in CLAUSES.items() for outcome in outcomes}


def clause_of(verdict: Verdict, expected: ExpectedOutcome | None = None) -> str:
    """The clause that a failing `verdict` breaks. Where a refusal is `expected`, any other outcome breaks that clause."""
    if expected is not None and not expected.result:
        return REFUSAL
    return _BROKEN_BY.get(verdict.outcome, OTHER_OUTCOME)


def add_kill(
    result: MutantResult | None,
    mutant: GeneratedMutant,
    case: Case,
    target: Target,
    verdict: Verdict,
    expected: ExpectedOutcome | None = None,
) -> MutantResult:
    """`result`, the kill by an earlier case, with `case` among those that fail; without one the kill by `case`."""
    if result is not None:
        return result.with_killer(case)
    return MutantResult(
        mutant=mutant.id, end=End.KILL, killed_by=digest_of(case), target=target.name, clause=clause_of(verdict, expected),
        regime=case.regime, outcome=str(verdict.outcome), message=verdict.message[:LONGEST],
    )  # fmt: skip

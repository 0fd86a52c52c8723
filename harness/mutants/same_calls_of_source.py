"""Whether a source mutant gives the words of the right kernel in a small domain of calls (`small_calls`).

It is asked of expressions of launchers, where the mutant's had another value than the right one in some call, and of operators that
change how device code cuts sizes. The mutant must pass each call that reaches its edit, with the right kernel's very words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.verdict import Decision, Verdict
from bitverdict.harness.mutants.edited_modules import contract_of, edited_module, judge_context, launch_context
from bitverdict.harness.mutants.launched_contract import LaunchedContract
from bitverdict.harness.mutants.program.right_launches import words_of
from bitverdict.harness.mutants.record import GeneratedMutant
from bitverdict.harness.mutants.right_source import RightCase
from bitverdict.harness.mutants.small_calls import NO_CASE, InTime, TooLong, bases, domain, proof_text
from bitverdict.harness.mutants.source import both_values

if TYPE_CHECKING:
    from bitverdict.harness.mutants.source_judging import SourceMutants

OF_SIZES = ("other value changed", "trip count off by one", "minimum for maximum")
"""Operators whose edits of device code change how sizes are cut."""
Judge = Callable[[Case, RightCase], Verdict | None]


def same_calls(source_mutants: SourceMutants, mutant: GeneratedMutant, cases: Sequence[Case], verdict_on: Judge) -> str:
    """Why `mutant`, which passed `cases` with the right words, computes what the kernel computes; empty where that is not shown.
    `verdict_on`: judges it in a case, None where it launches the right tile programs."""
    both = both_values.with_both_values(mutant)
    if both is None and not (mutant.edit["device"] and mutant.operator in OF_SIZES):
        return ""
    try:
        return _prove_same(source_mutants, mutant, both, cases, verdict_on)
    except TooLong:
        return ""


def _prove_same(
    source_mutants: SourceMutants,
    mutant: GeneratedMutant,
    both_values: GeneratedMutant | None,
    cases: Sequence[Case],
    verdict_on: Judge,
) -> str:
    in_time = InTime()
    touched_cases = [
        case
        for case in cases
        if (right_case := source_mutants.cases.right_case(case)).passes and right_case.reaches(mutant, source_mutants.cases.entered)
    ]
    regimes = list(dict.fromkeys(case.regime for case in cases))
    calls_by_key = {
        case.key: case
        for base in bases(touched_cases, lambda case: source_mutants.cases.right_case(case).operations)
        for case in in_time(domain(source_mutants.right, base, regimes, whole=False))
        if _comes_to(source_mutants, mutant, case)
    }
    reason = proof_text(len(calls_by_key), len(touched_cases))
    if not reason or (
        both_values is not None and not _differs(source_mutants, both_values, in_time([*touched_cases, *calls_by_key.values()]))
    ):
        return ""
    for case in in_time(calls_by_key.values()):
        right_case = source_mutants.cases.right_case(case)
        verdict = verdict_on(case, right_case)
        if verdict is not None and (verdict.decision is not Decision.PASS or words_of(verdict) != right_case.words):
            return ""
    return reason


def _comes_to(of: SourceMutants, mutant: GeneratedMutant, case: Case) -> bool:
    try:
        right = of.cases.right_case(case)
    except NO_CASE:
        return False
    return right.passes and right.reaches(mutant, of.cases.entered)


def _differs(source_mutants: SourceMutants, both: GeneratedMutant, cases: Iterable[Case]) -> bool:
    """Whether the two values of the expression `both` differ in some of `cases`, a condition both ways."""
    try:
        modules = edited_module(source_mutants.kernel, both)
        other = contract_of(source_mutants.kernel, modules)
    except Exception:  # of the edited file, where it is imported
        return False
    contract = LaunchedContract(
        source_mutants.right, other, source_mutants.kept, lambda: launch_context(source_mutants.kernel, modules)
    )
    both_values.VALUE_NOTES.begin()
    for case in cases:
        with judge_context(source_mutants.kernel, modules):
            verdict = source_mutants.verdict(contract, case, source_mutants.cases.right_case(case))
        if verdict.decision is not Decision.PASS:
            return False
        if both_values.VALUE_NOTES.is_tested:
            return True
    return False

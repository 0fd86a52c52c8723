"""Whether a source mutant gives the words of the right kernel in a small domain of calls (`small_calls`).

It is asked of expressions of launchers, where the mutant's had another value than the right one in some call, and of operators that
change how device code cuts sizes. The mutant must pass each call that reaches its edit, with the right kernel's very words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.verdict import Decision, Verdict
from bitverdict.harness.mutants.edited import contract_of, edited_module, judging, launching
from bitverdict.harness.mutants.launched_contract import LaunchedContract
from bitverdict.harness.mutants.program.right_launches import words_of
from bitverdict.harness.mutants.record import GeneratedMutant
from bitverdict.harness.mutants.right_source import RightCase
from bitverdict.harness.mutants.small_calls import NO_CASE, InTime, TooLong, bases, domain, told
from bitverdict.harness.mutants.source import both_values

if TYPE_CHECKING:
    from bitverdict.harness.mutants.source_judging import SourceMutants

OF_SIZES = ("other value changed", "trip count off by one", "minimum for maximum")
"""Operators whose edits of device code change how sizes are cut."""
Judge = Callable[[Case, RightCase], Verdict | None]


def same_calls(of: SourceMutants, mutant: GeneratedMutant, cases: Sequence[Case], verdict_on: Judge) -> str:
    """Why `mutant`, which passed `cases` with the right words, computes what the kernel computes; empty where that is not shown.
    `verdict_on`: judges it in a case, None where it launches the right tile programs."""
    both = both_values.with_both(mutant)
    if both is None and not (mutant.edit["device"] and mutant.operator in OF_SIZES):
        return ""
    try:
        return _same(of, mutant, both, cases, verdict_on)
    except TooLong:
        return ""


def _same(
    of: SourceMutants, mutant: GeneratedMutant, both: GeneratedMutant | None, cases: Sequence[Case], verdict_on: Judge
) -> str:
    in_time = InTime()
    touched = [case for case in cases if (right := of.cases.of(case)).passes and right.reaches(mutant, of.cases.entered)]
    regimes = list(dict.fromkeys(case.regime for case in cases))
    found = {
        case.key: case
        for base in bases(touched, lambda case: of.cases.of(case).operations)
        for case in in_time(domain(of.right, base, regimes, whole=False))
        if _comes_to(of, mutant, case)
    }
    reason = told(len(found), len(touched))
    if not reason or (both is not None and not _differs(of, both, in_time([*touched, *found.values()]))):
        return ""
    for case in in_time(found.values()):
        right = of.cases.of(case)
        verdict = verdict_on(case, right)
        if verdict is not None and (verdict.decision is not Decision.PASS or words_of(verdict) != right.words):
            return ""
    return reason


def _comes_to(of: SourceMutants, mutant: GeneratedMutant, case: Case) -> bool:
    try:
        right = of.cases.of(case)
    except NO_CASE:
        return False
    return right.passes and right.reaches(mutant, of.cases.entered)


def _differs(of: SourceMutants, both: GeneratedMutant, cases: Iterable[Case]) -> bool:
    """Whether the two values of the expression `both` differ in some of `cases`, a condition both ways."""
    try:
        modules = edited_module(of.kernel, both)
        other = contract_of(of.kernel, modules)
    except Exception:  # of the edited file, where it is imported
        return False
    contract = LaunchedContract(of.right, other, of.kept, lambda: launching(of.kernel, modules))
    both_values.NOTED.begin()
    for case in cases:
        with judging(of.kernel, modules):
            verdict = of.verdict(contract, case, of.cases.of(case))
        if verdict.decision is not Decision.PASS:
            return False
        if both_values.NOTED.tested:
            return True
    return False


__all__ = ["OF_SIZES", "same_calls"]

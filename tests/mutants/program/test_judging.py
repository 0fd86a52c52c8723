"""Contract under test: a mutant of the tile program is launched in the place of the compiled one, and nothing of it stays."""

from __future__ import annotations

import pytest

from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.mutants.kernels import Kernel
from bitverdict.harness.mutants.mutant_judge import KernelUnderMutation
from bitverdict.harness.mutants.program.program_judge import LEAST, LONGER, kills
from bitverdict.harness.mutants.record import End, GeneratedMutant, digest_of


@pytest.fixture(scope="module")
def under_mutation() -> KernelUnderMutation:
    return KernelUnderMutation(Kernel("softmax"), target("emulated:sm_90"))


def test_mutants_of_the_program_are_killed_and_leave_no_trace(under_mutation: KernelUnderMutation) -> None:
    cases = under_mutation.right.required(under_mutation.target)[:4]
    made = list(under_mutation.programs.generate(cases))
    found = {mutant.id: under_mutation.judge(mutant, cases) for mutant in made}
    first = {mutant.operator: found[mutant.id] for mutant in reversed(made)}
    assert (first["mask dropped"].end, first["mask dropped"].outcome) == (End.KILL, "stray read")
    assert first["mask dropped"].killed_by == digest_of(cases[0]) and first["mask dropped"].clause == "accesses lie inside"
    assert (first["function dropped"].outcome, first["function dropped"].clause) == ("wrong words", "the words")
    ends = [result.end for result in found.values()]
    assert ends.count(End.KILL) >= 0.8 * len(ends) and End.ERROR not in ends and End.INVALID not in ends
    assert judge(cases[0], under_mutation.target).decision == "pass"
    equal = [each for each in made if found[each.id].end is End.EQUIVALENT]
    assert equal and under_mutation.judge(equal[0], cases, proofs=False).end is End.SURVIVAL


def test_a_mutant_that_no_case_runs_survives_and_says_so(under_mutation: KernelUnderMutation) -> None:
    cases = under_mutation.right.required(under_mutation.target)[:1]
    made = next(each for each in under_mutation.programs.generate(cases) if each.operator == "mask dropped")
    elsewhere = GeneratedMutant.from_json(made.to_json() | {"edit": dict(made.edit) | {"ordinal": 7}})
    found = under_mutation.judge(elsewhere, cases)
    assert (found.end, found.cases_run) == (End.SURVIVAL, 0) and "no case" in found.why


def test_a_mutant_has_a_limit_of_operations_by_the_right_launch(under_mutation: KernelUnderMutation) -> None:
    (case,) = under_mutation.right.required(under_mutation.target)[:1]
    assert 0 < under_mutation.programs.right.launch_of(case).operations * LONGER < 20_000_000 and LEAST < 20_000_000


def test_a_hazard_of_the_compilers_own_kills_a_mutant_of_its_program() -> None:
    named = Verdict(decision=Decision.INCONCLUSIVE, outcome=Outcome.COMPILER_FAULT)
    assert kills(named) and not kills(Verdict(decision=Decision.INCONCLUSIVE, outcome=Outcome.NOT_MODELLED))


def test_a_mutant_that_the_first_case_fails_costs_no_launch_of_the_others(
    under_mutation: KernelUnderMutation, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs, cases = under_mutation.programs, under_mutation.right.required(under_mutation.target)
    mutant = next(each for each in programs.generate(cases[:1]) if each.operator == "mask dropped")
    launched, of = [], programs.right.launch_of
    monkeypatch.setattr(programs.right, "launch_of", lambda case: (launched.append(case.key), of(case))[1])
    assert programs.judged(mutant, cases).cases_run == 1
    assert {*launched} == {cases[0].key}

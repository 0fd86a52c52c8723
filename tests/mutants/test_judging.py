"""Contract under test: a mutant is judged until its first failing case, in memory, by what the right kernel expects."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.targets import target
from bitverdict.harness.mutants.kernels import Kernel
from bitverdict.harness.mutants.mutant_judge import KernelUnderMutation
from bitverdict.harness.mutants.record import End, GeneratedMutant, Kind, digest_of
from bitverdict.kernels import softmax

SOURCE = open(softmax.__file__).read()


def mutant(of: str, by: str) -> GeneratedMutant:
    start = SOURCE.index(of)
    line = SOURCE[:start].count("\n") + 1
    device = "gluon" if line < SOURCE[: SOURCE.index("def softmax(")].count("\n") else ""
    where = {"device": device, "statement": [line, line], "function": [line, line]}
    edit = {"start": start, "end": start + len(of), "of": of, "by": by} | where
    told = {"operator": "by hand", "family": "", "file": "kernels/softmax.py", "line": 0, "before": of, "after": by}
    return GeneratedMutant(id=by, kernel="softmax", kind=Kind.SOURCE, edit=edit, **told)


@pytest.fixture(scope="module")
def under_mutation() -> KernelUnderMutation:
    return KernelUnderMutation(Kernel("softmax"), target("emulated:sm_90"))


@pytest.mark.share(4)
def test_a_mutant_is_killed_by_the_first_case_that_fails(under_mutation: KernelUnderMutation) -> None:
    before, cases = dict(sys.modules), under_mutation.right.required(under_mutation.target)[:3]
    found = under_mutation.judge(mutant("mask=inside, other", "mask=column <= columns, other"), cases)
    assert (found.end, found.outcome, found.cases_run) == (End.KILL, "stray read", 1)
    assert found.killed_by == digest_of(cases[0])
    kept = under_mutation.judge(mutant("[(rows,)]", "[(rows + 0,)]"), cases)
    assert (kept.end, kept.cases_run) == (End.SURVIVAL, 3)
    assert {name: module for name, module in sys.modules.items() if name in before} == before
    assert judge(cases[0], under_mutation.target).decision == "pass"


def test_a_mutant_is_judged_on_an_amd_target() -> None:
    where = KernelUnderMutation(Kernel("softmax"), target("emulated:gfx942"))
    found = where.judge(mutant("mask=inside, other", "mask=column <= columns, other"), where.right.required(where.target)[:3])
    assert (found.end, found.outcome) == (End.KILL, "stray read")


def test_what_does_not_compile_is_invalid(under_mutation: KernelUnderMutation) -> None:
    cases = under_mutation.right.required(under_mutation.target)[:1]
    found = under_mutation.judge(mutant("powers / total", "powers / nothing"), cases)
    assert (found.end, found.killed_by) == (End.INVALID, ""), found
    assert under_mutation.judge(mutant("@dataclass", "@dataklass"), cases).end is End.INVALID


def test_an_edit_of_another_text_is_refused(under_mutation: KernelUnderMutation) -> None:
    edited = mutant("powers / total", "powers")
    found = under_mutation.judge(replace(edited, edit=edited.edit | {"of": "powers * total"}), [])
    assert found.end is End.ERROR and "generate the mutants anew" in found.why

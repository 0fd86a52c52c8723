"""Contract under test: a source mutant is compiled and executed only where it can differ, and never for longer than it may take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.launcher_limits import FAR_PAD
from bitverdict.harness.model.targets import target
from bitverdict.harness.mutants import source_judging
from bitverdict.harness.mutants.front_end import FrontEnd, without_places
from bitverdict.harness.mutants.kernels import Kernel
from bitverdict.harness.mutants.mutant_judge import KernelUnderMutation
from bitverdict.harness.mutants.record import End, GeneratedMutant, digest_of
from bitverdict.harness.mutants.right_source import RightCase
from bitverdict.harness.mutants.source.generate import generate
from bitverdict.reference.tensor_core.lookup import instruction

MUTANTS = {each.id.partition("/")[2]: each for each in generate(Kernel("softmax"))}


@pytest.fixture(scope="module")
def under() -> Iterator[KernelUnderMutation]:
    yield KernelUnderMutation(Kernel("softmax"), target("emulated:sm_90"))


MUTANT = replace(MUTANTS["softmax/grid too small/0"], edit=MUTANTS["softmax/grid too small/0"].edit | {"device": "constexpr"})
"""One that every case reaches."""


def case_of(pad: int) -> Case:
    matmul: Any = resolve("matmul")
    return Case(
        contract="matmul",
        problem=matmul.module.Problem(m=8, n=8, k=8, a=matmul.module.View(pad=pad)),
        config=None,
        regime="normal",
        data_seed=1,
    )


def right_case(seconds: float) -> RightCase:
    nothing: Any = frozenset()
    return RightCase(True, "", ("one",), ("one",), nothing, 1, {}, nothing, nothing, seconds, seconds)


def edited(name: str, by: str) -> GeneratedMutant:
    """The mutant `name` with another text."""
    return replace(MUTANTS[name], edit={**MUTANTS[name].edit, "by": by})


def test_equal_tile_programs_in_all_cases_are_equivalent(under: KernelUnderMutation) -> None:
    cases = under.right.required(under.target)[:3]
    found = under.judge(MUTANTS["softmax_kernel/cast dropped/2"], cases)  # the store converts as well
    assert (found.end, found.why, found.cases_run) == (End.EQUIVALENT, source_judging.SAME_PROGRAMS.format(3), 3)
    assert under.judge(MUTANTS["softmax_kernel/sign dropped/0"], cases).end is End.KILL


def test_programs_that_differ_in_nothing_that_counts_are_equivalent(under: KernelUnderMutation) -> None:
    cases = under.right.required(under.target)[:2]
    mutant = edited("softmax_kernel/stride swapped/1", "(y_stride + 0 * x_stride)")
    assert under.judge(mutant, cases).end is End.EQUIVALENT
    swapped = MUTANTS["softmax_kernel/term dropped/0"]  # x + row * x_stride, commuted
    commuted = replace(swapped, edit={**swapped.edit, "by": "column + (x + row * x_stride)"})
    assert under.judge(commuted, cases).end is End.EQUIVALENT


def test_a_statement_that_no_case_reaches_is_a_survivor_with_that_reason(under: KernelUnderMutation) -> None:
    cases, mutant = under.right.required(under.target)[:1], MUTANTS["softmax/grid too small/0"]
    reached = under.judge(mutant, cases)
    never = replace(mutant, edit={**mutant.edit, "statement": [1, 1]})
    found = under.judge(never, cases)
    assert reached.end is End.KILL
    assert (found.end, found.why, found.cases_run) == (End.SURVIVAL, source_judging.UNREACHED_TEXT, 0)


def test_the_case_that_killed_the_largest_share_for_its_cost_comes_first() -> None:
    under = KernelUnderMutation(Kernel("matmul"), target("emulated:sm_90"))
    one, two, far = (case_of(pad) for pad in (0, 8, FAR_PAD))
    for case in (one, two, far):
        under.source.cases._known[case.key] = right_case(seconds=1.0)
    assert next(under.source.choose_cases(MUTANT, [one, two, far]))[0] is one
    under.kills |= Counter({digest_of(two): 1})
    assert next(under.source.choose_cases(MUTANT, [one, two, far]))[0] is two
    under.source.let_live[digest_of(two)] = 20
    assert [case for case, _ in under.source.choose_cases(MUTANT, [one, two, far])] == [one, far, two]
    under.source.cases._known[one.key] = right_case(seconds=9.0)
    assert [case for case, _ in under.source.choose_cases(MUTANT, [one, two, far])] == [far, two, one]


def test_a_far_case_comes_first_where_a_mutant_changes_a_cast() -> None:
    under = KernelUnderMutation(Kernel("matmul"), target("emulated:sm_90"))
    near, far = case_of(0), case_of(FAR_PAD)
    for case in (near, far):
        under.source.cases._known[case.key] = right_case(seconds=1.0)
    assert next(under.source.choose_cases(MUTANT, [near, far]))[0] is near
    assert next(under.source.choose_cases(replace(MUTANT, family="cast"), [near, far]))[0] is far
    under.source.let_live[digest_of(far)] = 20
    assert next(under.source.choose_cases(replace(MUTANT, family="cast"), [near, far]))[0] is near


def test_a_launcher_that_does_not_end_is_killed(under: KernelUnderMutation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_judging, "LEAST_SECONDS", 0.2)
    monkeypatch.setattr(source_judging, "LONGER", 1)
    mutant = MUTANTS["softmax/output of another type/0"]
    found = under.judge(
        replace(mutant, edit={**mutant.edit, "by": "[... for _ in iter(int, 1)]"}), under.right.required(under.target)[:1]
    )
    assert (found.end, found.outcome, found.clause) == (End.KILL, "timeout", "the launch ends")


def test_a_product_that_no_instruction_makes_is_invalid() -> None:
    with pytest.raises(ValueError) as raised:
        instruction("sm_80", "mma.sync", "bf16", "bf16", "fp16")
    assert source_judging.no_instruction(f"the reference raised ValueError: {raised.value}")
    assert not source_judging.no_instruction("the reference raised ValueError: shapes (3,) (4,)")


def test_programs_are_compared_without_their_places() -> None:
    lines = ["// fences before lowering: k.py:3", '"a"(%0) : () loc(#loc1)', '#loc1 = loc("k.py":3:1)']
    program = "\n".join([*lines, '"b"() loc("x y"(callsite("f"(#l) at "g"(#m))))'])
    assert without_places(program) == '"a"(%0) : ()\n"b"()'


def test_nothing_of_triton_stays_changed() -> None:
    from triton.compiler import code_generator, compiler

    before = compiler.ASTSource.make_ir, code_generator.CodeGenerator.visit, compiler.compile
    with pytest.raises(KeyError), FrontEnd().record_compiles():
        assert compiler.ASTSource.make_ir is not before[0]
        raise KeyError
    assert (compiler.ASTSource.make_ir, code_generator.CodeGenerator.visit, compiler.compile) == before

"""Contract under test: a small domain of calls shows a mutant to be equivalent where sizes decide, and none that differs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import target
from bitverdict.harness.mutants import small_calls
from bitverdict.harness.mutants.campaign import BACKSTOP
from bitverdict.harness.mutants.kernels import Kernel
from bitverdict.harness.mutants.mutant_judge import KernelUnderMutation
from bitverdict.harness.mutants.program.generate import site_of
from bitverdict.harness.mutants.program.of_sizes import of_sizes
from bitverdict.harness.mutants.program.right_launches import RightLaunches
from bitverdict.harness.mutants.program.same_calls import SmallCalls
from bitverdict.harness.mutants.record import End, GeneratedMutant
from bitverdict.harness.mutants.source import both_values
from bitverdict.harness.mutants.source.generate import generate

SOURCE = {each.id.partition("/")[2]: each for each in generate(Kernel("softmax"))}


@pytest.fixture(scope="module")
def under() -> KernelUnderMutation:
    return KernelUnderMutation(Kernel("softmax"), target("emulated:sm_90"))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A domain of fewer calls."""
    fewer = {"BLOCKS": (16,), "FIRST_SIZES": 4, "MOST_BASES": 1, "TURNS": 2, "LEAST_CALLS": 4, "MAX_JOINT_SIZES": 0}
    for name, value in fewer.items():
        monkeypatch.setattr(small_calls, name, value)


def test_the_domain_has_all_small_sizes_and_the_edges_of_blocks(under: KernelUnderMutation) -> None:
    base = under.right.required(under.target)[0]
    calls = list(small_calls.domain(under.right, base, ["normal", "wide"]))
    columns = {case.problem.columns for case in calls if case.problem.rows == base.problem.rows}
    assert columns >= {*range(small_calls.FIRST_SIZES), 15, 16, 17, 31, 32, 33, 127, 128, 129}
    assert {case.problem.rows for case in calls} >= {0, 2, 9, 63, 64, 65} and {case.problem.x_pad for case in calls} == {0}
    assert {case.regime for case in calls} == {"normal", "wide"} and len({case.schedule for case in calls}) > 4
    assert [case.key for case in calls] == [case.key for case in small_calls.domain(under.right, base, ["normal", "wide"])]


def test_an_edit_of_floats_is_not_one_of_sizes(under: KernelUnderMutation) -> None:
    cases = under.right.required(under.target)[:1]
    (text,) = under.programs.right.launch_of(cases[0]).programs
    made = list(under.programs.generate(cases))
    told = {each.operator: of_sizes(site, each.operator) for each in made if (site := site_of(each, text)) is not None}
    assert told["mask off by one"] and told["offset off by one"] and told["other value changed"]
    assert not any(told[name] for name in ("function dropped", "operands exchanged", "write dropped") if name in told)


def test_a_mutant_that_differs_in_one_call_is_not_equivalent(under: KernelUnderMutation, few: None) -> None:
    cases = under.right.required(under.target)[:2]
    made = [each for each in under.programs.generate(cases) if each.operator in ("mask off by one", "offset off by one")]
    for mutant in made:
        launched = under.programs.launch_mutant(mutant)
        assert not under.programs.small_calls.prove_same(mutant, launched, list(under.programs.touched_cases(mutant, cases)), cases)


def test_a_launch_of_no_programs_is_seen_to_be_equivalent(under: KernelUnderMutation, few: None) -> None:
    cases = under.right.required(under.target)[:2]
    found = under.judge(SOURCE["softmax/branch forced/0"], cases)
    assert found.end is End.EQUIVALENT and found.why.startswith(small_calls.SAME_CALLS)


def test_an_expression_that_never_had_another_value_survives(under: KernelUnderMutation, few: None) -> None:
    cases = under.right.required(under.target)[:2]
    forced = SOURCE["softmax/branch forced/0"]
    same: GeneratedMutant = replace(forced, edit={**forced.edit, "by": f"({forced.edit['of']})"})
    assert under.judge(same, cases).end is End.SURVIVAL


def test_an_expression_of_device_code_is_not_computed_twice() -> None:
    assert both_values.with_both_values(SOURCE["softmax_kernel/mask dropped/0"]) is None
    both_values.VALUE_NOTES.begin()
    assert both_values.evaluate_both(lambda: 5, lambda: True, True) == 5 and not both_values.VALUE_NOTES.differed
    assert both_values.evaluate_both(lambda: 5, lambda: 1 // 0, True) == 5 and both_values.VALUE_NOTES.differed
    assert not both_values.VALUE_NOTES.is_tested  # the condition always held
    assert both_values.evaluate_both(lambda: 0, lambda: True, True) == 0 and both_values.VALUE_NOTES.is_tested


def test_one_mutant_has_one_limit_for_all_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker ended at the campaign's limit counts as a kill; three lists of calls had three limits once. The limit is of the
    processor: what waits for a busy machine proves as much as on a quiet one."""
    now = [0.0]
    monkeypatch.setattr(small_calls.time, "process_time", lambda: now[0])
    monkeypatch.setattr(small_calls.time, "monotonic", lambda: pytest.fail("a proof looked at the wall's clock"))
    in_time, case = small_calls.InTime(), Case(contract="softmax", problem=None)
    now[0] = small_calls.MOST_SECONDS * 0.6
    assert list(in_time([case])) == [case]
    now[0] = small_calls.MOST_SECONDS * 1.2
    with pytest.raises(small_calls.TooLong):
        list(in_time([case]))
    assert list(small_calls.InTime()([case])) == [case]
    assert 7 * small_calls.MOST_SECONDS < BACKSTOP


def test_a_domain_that_took_too_long_is_not_waited_for_again(under: KernelUnderMutation, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = SmallCalls(under.right, RightLaunches(under.right, under.target))
    case = under.right.required(under.target)[0]
    monkeypatch.setattr(small_calls, "MOST_SECONDS", -1.0)
    with pytest.raises(small_calls.TooLong):
        calls._domain([case], ["normal"], small_calls.InTime())
    monkeypatch.undo()
    with pytest.raises(small_calls.TooLong):
        calls._domain([case], ["normal"], small_calls.InTime())

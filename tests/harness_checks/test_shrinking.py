"""Contract under test: a bug is made small with its name held, each case is judged once, and draws can be walked again."""

from __future__ import annotations

from harness.contract import Case
from harness.docket import Docket, derived_seed, in_turns, stems
from harness.judge import judge
from harness.shrinking import Convicted, Memory, conviction_class, shrink
from harness.verdict import Verdict
from tests.harness_checks.vector_add import ADDRESS, HOST, Problem, case

PLACE = "tests.harness_checks.vector_add"


def judged_here(case: Case) -> Verdict:
    return judge(case, HOST)


def test_a_drawn_case_shrinks_to_the_smallest_that_shows_the_bug() -> None:
    docket = Docket(f"{PLACE}:WRONG", HOST)
    failing = [c for c in docket.drawn(30) if judge(c, HOST).convicted]
    verdict = judge(failing[-1], HOST)
    memory = Memory(judged_here)
    small, found = shrink(docket, failing[-1], verdict, memory, draws=30, seconds=20)
    assert (small.problem.n, small.problem.stride, small.data_seed, small.schedule) == (5, 1, 0, "eager")
    assert found.signature == verdict.signature
    assert memory.asked == len(memory.known)


def test_a_case_of_the_cover_list_is_made_smaller_field_by_field() -> None:
    class Nothing(Docket):
        def prepared(self, case: Case) -> Case | None:
            return None

    start = Case(
        contract=ADDRESS,
        problem=Problem(n=177, stride=3, fault="wrong"),
        config="torch",
        data_seed=5,
        schedule="latest",
    )
    small, _ = shrink(Nothing(ADDRESS, HOST), start, judge(start, HOST), Memory(judged_here), draws=5, seconds=20)
    assert (small.problem.stride, small.data_seed, small.schedule) == (1, 0, "eager")
    assert small.problem.n == 5 and judge(small, HOST).convicted


def test_no_time_means_the_case_as_it_came() -> None:
    start = case(100, fault="wrong")
    memory = Memory(judged_here)
    small, _ = shrink(Docket(f"{PLACE}:WRONG", HOST), start, judge(start, HOST), memory, draws=50, seconds=0)
    assert small == start and memory.asked == 1


def test_one_class_a_signature() -> None:
    one, other = judge(case(9, fault="wrong"), HOST).signature, judge(case(9, fault="stray"), HOST).signature
    assert conviction_class(one) is conviction_class(one) is not conviction_class(other)
    assert issubclass(conviction_class(one), Convicted)


def test_draws_depend_on_seed_contract_and_target_alone() -> None:
    docket = Docket(ADDRESS, HOST, seed=3)
    assert docket.drawn(40) == docket.drawn(40) != Docket(ADDRESS, HOST, seed=4).drawn(40)
    assert derived_seed(3, "a", "b") != derived_seed(3, "ab", "") != derived_seed(4, "a", "b")


def test_drawn_cases_are_distinct_and_not_of_the_cover_list() -> None:
    docket = Docket(ADDRESS, HOST)
    keys = [case.key for case in docket.drawn(60)]
    assert len(keys) == len(set(keys)) and not set(keys) & {case.key for case in docket.required()}


def test_a_launcher_is_asked_only_what_owes_a_result() -> None:
    docket = Docket(ADDRESS, HOST, launcher=f"{PLACE}:add_off_by_one")
    assert docket.prepared(Case(contract=ADDRESS, problem=Problem(n=-1))) is None
    asked = docket.prepared(case(3))
    assert asked is not None and asked.launcher == docket.launcher and asked.config is None


def test_turns_take_one_of_each_list() -> None:
    assert list(in_turns([[1, 2, 3], [], [4]])) == [1, 4, 2, 3]


def test_stems_are_the_contracts_that_are_there() -> None:
    assert "matmul" in stems()

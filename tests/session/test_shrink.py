"""Contract under test: a bug is made small with its name held, each case is judged once, and draws can be walked again."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import hypothesis
import pytest
from hypothesis.database import InMemoryExampleDatabase

from bitverdict.harness.frontends.cli_run import defaults
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract, ExpectedOutcome
from bitverdict.harness.model.paths import kernels_with_a_contract
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.session import reproducers
from bitverdict.harness.session.case_source import CaseSource, derived_seed, in_turns, reproduction, walk
from bitverdict.harness.session.reducer import Reducer
from bitverdict.harness.session.shrink import KernelFailed, VerdictCache, failure_class, shrink
from tests.support.vector_add import ADDRESS, HOST, Problem, case

PLACE = "tests.support.vector_add"


def judged_here(case: Case) -> Verdict:
    return judge(case, HOST)


def test_a_drawn_case_shrinks_to_the_smallest_that_shows_the_bug() -> None:
    source = CaseSource(f"{PLACE}:WRONG", HOST)
    failing = [c for c in source.drawn(30) if judge(c, HOST).failed]
    verdict = judge(failing[-1], HOST)
    memory = VerdictCache(judged_here)
    small, found = shrink(source, failing[-1], verdict, memory, draws=30, seconds=20)
    assert (small.problem.n, small.problem.stride, small.data_seed, small.schedule) == (5, 1, 0, "eager")
    assert found.signature == verdict.signature
    assert memory.asked == len(memory.known)


def test_a_required_case_is_made_smaller_field_by_field() -> None:
    class Nothing(CaseSource):
        def prepare(self, case: Case) -> Case | None:
            return None

    start = Case(contract=ADDRESS, problem=Problem(n=177, stride=3, fault="wrong"), config="torch", data_seed=5, schedule="latest")
    small, _ = shrink(Nothing(ADDRESS, HOST), start, judge(start, HOST), VerdictCache(judged_here), draws=5, seconds=20)
    assert (small.problem.stride, small.data_seed, small.schedule) == (1, 0, "eager")
    assert small.problem.n == 5 and judge(small, HOST).failed


def test_no_time_means_the_case_as_it_came() -> None:
    start = case(100, fault="wrong")
    memory = VerdictCache(judged_here)
    small, _ = shrink(CaseSource(f"{PLACE}:WRONG", HOST), start, judge(start, HOST), memory, draws=50, seconds=0)
    assert small == start and memory.asked == 1


def test_one_class_a_signature() -> None:
    one, other = judge(case(9, fault="wrong"), HOST).signature, judge(case(9, fault="stray"), HOST).signature
    assert failure_class(one) is failure_class(one) is not failure_class(other)
    assert issubclass(failure_class(one), KernelFailed)


def test_draws_depend_on_seed_contract_and_target_alone() -> None:
    source = CaseSource(ADDRESS, HOST, seed=3)
    assert source.drawn(40) == source.drawn(40) != CaseSource(ADDRESS, HOST, seed=4).drawn(40)
    assert derived_seed(3, "a", "b") != derived_seed(3, "ab", "") != derived_seed(4, "a", "b")


def test_draws_do_not_depend_on_the_numbers_in_loaded_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module with every number from 100 to 999: Hypothesis would draw one in twenty integers from it."""
    source, before = CaseSource("tma_gather", target("emulated:sm_100")), len(sys.modules)
    drawn = source.drawn(60)
    (tmp_path / "numbered.py").write_text(f"NUMBERS = {list(range(100, 1000))}\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("numbered")
    assert len(sys.modules) > before, "Hypothesis looks for new modules by their number"
    assert source.drawn(60) == drawn
    monkeypatch.delitem(sys.modules, "numbered")


def test_gpus_of_one_architecture_draw_alike_whichever_a_worker_leased() -> None:
    first, second = (CaseSource(ADDRESS, Target(f"cuda:{index}", "sm_90", index)).drawn(40) for index in (0, 1))
    assert first == second != CaseSource(ADDRESS, Target("cuda:1", "sm_80", 1)).drawn(40)


def test_drawn_cases_are_distinct_and_not_of_the_required_cases() -> None:
    source = CaseSource(ADDRESS, HOST)
    keys = [case.key for case in source.drawn(60)]
    assert len(keys) == len(set(keys)) and not set(keys) & {case.key for case in source.required()}


def test_a_launcher_is_asked_only_what_expects_a_result() -> None:
    source = CaseSource(ADDRESS, HOST, launcher=f"{PLACE}:add_off_by_one")
    assert source.prepare(Case(contract=ADDRESS, problem=Problem(n=-1))) is None
    asked = source.prepare(case(3))
    assert asked is not None and asked.launcher == source.launcher and asked.config is None


def test_turns_take_one_of_each_list() -> None:
    assert list(in_turns([[1, 2, 3], [], [4]])) == [1, 4, 2, 3]


def test_stems_are_the_contracts_that_are_there() -> None:
    assert "matmul" in kernels_with_a_contract()


def test_what_raised_is_kept_visited_first_and_dropped_once_it_passes() -> None:
    kept = InMemoryExampleDatabase()
    source, wrong = CaseSource(ADDRESS, HOST), {c.key for c in CaseSource(ADDRESS, HOST).drawn(40)[20:]}

    def first(phases: tuple[str, ...], *, of: CaseSource = source, mended: bool = False) -> list[Case]:
        visited: list[Case] = []

        def visit(case: Case) -> None:
            visited.append(case)
            if case.key in wrong and not mended:
                raise KernelFailed

        with contextlib.suppress(KernelFailed):
            walk(of, 40, visit, phases=phases, database=kept)
        return visited

    found = first(("generate",))
    assert found[-1].key in wrong and len(found) > 5
    assert first(("reuse",)) and {case.key for case in first(("reuse",))} == {found[-1].key}
    assert first(("reuse",), of=CaseSource(f"{PLACE}:DOUBLED", HOST)) == [], "another contract's"
    assert {case.key for case in first(("reuse",), mended=True)} == {found[-1].key}
    assert first(("reuse",)) == [], "it passed: Hypothesis drops it"


def test_the_blob_of_a_drawn_case_gives_the_same_case_again() -> None:
    source = CaseSource(ADDRESS, HOST)
    drawn = source.drawn(30)[-1]
    how = reproduction(drawn, "host")
    again: list[Case] = []

    @hypothesis.reproduce_failure(how["version"], how["blob"].encode())
    @hypothesis.given(case=source.contract.cases(HOST))
    def look(case: Case) -> None:
        again.append(case)
        raise KernelFailed

    with pytest.raises(KernelFailed):
        look()
    assert again[0] == drawn
    assert "not drawn" in reproduction(case(7), "host")["absent"]


def test_two_bugs_of_one_kernel_shrink_each_to_its_own_reduced_case(tmp_path: Path) -> None:
    """A kernel of two crashes: whoever shrank without the signature would slip from the one to the other, which strikes earlier."""
    source = CaseSource(f"{PLACE}:WRONG", HOST)
    memory = VerdictCache(two_bugs)
    start = {
        name: Case(contract=source.address, problem=Problem(n=177, stride=3, fault="wrong"), data_seed=seed, schedule="latest")
        for name, seed in (("low", 1), ("high", 6))
    }
    ends = {}
    for name, begun in start.items():
        ends[name], found = shrink(source, begun, memory(begun), memory, draws=20, seconds=20)
        assert found.signature == memory(begun).signature
        assert reproducers.write(reproducers.reproducer_of(ends[name], "host", found), tmp_path)
    assert (ends["low"].problem.n, ends["low"].data_seed) == (9, 0)
    assert (ends["high"].problem.n, ends["high"].data_seed) == (33, 4)
    assert len(list(tmp_path.iterdir())) == 2, "two bugs are two files"


def two_bugs(case: Case) -> Verdict:
    """From 9 elements on an illegal instruction in line 10; for data seeds from 4 and 33 elements on, in line 20 before it."""
    line = 20 if case.data_seed >= 4 and case.problem.n >= 33 else 10 if case.problem.n >= 9 else 0
    if not line:
        return Verdict(decision=Decision.PASS, outcome=Outcome.PASS)
    return Verdict(
        decision=Decision.FAIL,
        outcome=Outcome.ILLEGAL_INSTRUCTION,
        message=f"column {case.problem.n}",
        location=f"kernel.py:{line}",
    )


@dataclass(frozen=True)
class Size:
    rows: int
    columns: int = 3
    row_pad: int = 0
    kind: str = "plain"


class Sized(Contract):
    """Rows of `columns` elements must end on whole 8 with their gap; kind "odd" needs an odd number of rows."""

    def required(self, target: Target) -> list[Case]:
        return [Case(contract="x", problem=Size(1, 1, 7)), Case(contract="x", problem=Size(2, 8, 0, "even"))]

    def expected_outcome(self, case: Case, target: Target) -> ExpectedOutcome:
        p = case.problem
        return ExpectedOutcome(result=(p.columns + p.row_pad) % 8 == 0 and (p.kind != "odd" or p.rows % 2 == 1))


@pytest.mark.parametrize("start", [Size(70, 64), Size(69, 61, 3, "odd"), Size(333, 125, 11, "even"), Size(25, 17, 7, "odd")])
@pytest.mark.parametrize(
    ("shows", "least"),
    [
        (lambda p: p.rows > 5 and p.columns > 12, Size(6, 13, 3)),
        (lambda p: p.columns % 16 in (1, 8, 13, 0), Size(1, 1, 7)),
        (lambda p: p.rows * p.columns >= 40, Size(1, 40, 0)),
        (lambda p: p.rows + p.columns > 20, Size(1, 20, 4)),
    ],
)
def test_every_beginning_has_one_end_and_gaps_follow(start: Size, shows: Callable, least: Size) -> None:
    case = Case(contract="x", problem=start, schedule="drawn:77", regime="wide", data_seed=9)
    ended = Reducer(Sized(), HOST, lambda candidate: shows(candidate.problem)).least(case)
    assert (ended.schedule, ended.regime, ended.data_seed) == ("eager", "normal", 0)
    assert ended.problem == least


def rows_left(start: int, shows: Callable[[int], bool]) -> tuple[int, int]:
    """The rows of the reduced case from `start`, and how many cases with that many columns it cost."""
    asked: list[Case] = []

    def same(candidate: Case) -> bool:
        asked.append(candidate)
        return candidate.problem.columns == 1 and shows(candidate.problem.rows)

    descent = Reducer(Sized(), HOST, same)
    least = descent._lower_field(Case(contract="x", problem=Size(start, 1, 7)), ("problem", "rows"))
    return least.problem.rows, len(asked)


@pytest.mark.parametrize("least", [18, 100, 777, 4095, 4097, 9000, 9999])
def test_a_size_falls_to_its_threshold_in_twice_as_many_launches_as_bits(least: int) -> None:
    rows, asked = rows_left(9999, lambda rows: rows >= least)
    assert rows == least and asked <= 2 * 14 + 2


@pytest.mark.parametrize("gone", [*(step * times for step in (1, 4, 16, 64) for times in (1, 2, 3)), 1000 - 9, 1000 - 16])
def test_a_smaller_size_with_no_slope_towards_it_is_found(gone: int) -> None:
    """The bug shows at 1000 rows and at one smaller number alone, which powers of two and bisection pass by."""
    case = Case(contract="x", problem=Size(1000, 1, 7))
    descent = Reducer(Sized(), HOST, lambda candidate: candidate.problem in (case.problem, Size(1000 - gone, 1, 7)))
    assert descent.least(case).problem.rows == 1000 - gone


def test_a_case_source_draws_what_a_run_without_a_seed_draws() -> None:
    plain = defaults()["seed"]
    assert CaseSource(ADDRESS, HOST) == CaseSource(ADDRESS, HOST, plain)
    assert CaseSource(ADDRESS, HOST).drawn(20) == CaseSource(ADDRESS, HOST, plain).drawn(20)


def test_a_users_launcher_is_shrunk_only_to_what_it_promises() -> None:
    class Whole(CaseSource):
        """Asks a launcher whole blocks of 16 only."""

        def prepare(self, case: Case) -> Case | None:
            return replace(case, problem=replace(case.problem, n=max(16, case.problem.n // 16 * 16)))

    source = Whole(ADDRESS, HOST, launcher=f"{PLACE}:add_off_by_one")
    start = case(160, launcher=source.launcher)
    small, _ = shrink(source, start, judge(start, HOST), VerdictCache(judged_here), draws=5, seconds=20)
    assert small.problem.n == 16

"""Contract under test: of a thousand row numbers the reducer keeps the one that shows the bug, as simple as it can be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract, ExpectedOutcome, IndexList
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.model.verdict import Decision, Outcome
from bitverdict.harness.session import reproducers
from bitverdict.harness.session.case_line import describe, in_runs
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.session.reducer import Reducer
from bitverdict.harness.session.shrink import VerdictCache, shrink
from tests.faults.corpus import COLLECTIONS
from tests.faults.mutants import Mutant, write_mutant
from tests.support.vector_add import HOST

BLACKWELL = target("emulated:sm_100")


@dataclass(frozen=True)
class Rows:
    table: int = 1
    count: int = 1


class Picked(Contract):
    """Row numbers of a table; with `block`, programs of so many rows must not name one row."""

    def __init__(self, block: int = 0) -> None:
        self.block = block

    def required(self, target: Target) -> list[Case]:
        return [Case(contract="x", problem=Rows(), regime="normal/edges"), Case(contract="x", problem=Rows(), regime="wide/edges")]

    def index_lists(self, case: Case) -> tuple[IndexList, ...]:
        return (IndexList("rows", "count", "table", self.block),)

    def indices(self, case: Case) -> tuple[tuple[str, tuple[int, ...]], ...]:
        return case.indices or (("rows", tuple(range(case.problem.count))),)

    def expected_outcome(self, case: Case, target: Target) -> ExpectedOutcome:
        numbers = dict(case.indices).get("rows", ())
        met: dict[int, int] = {}
        raced = self.block and any(met.setdefault(row, at // self.block) != at // self.block for at, row in enumerate(numbers))
        negative = self.block and min(numbers, default=0) < 0
        return ExpectedOutcome(result=not raced and not negative, outcome="illegal instruction" if negative else "race")


def reduced(case: Case, shows: Callable[[Case], bool], block: int = 0) -> tuple[Case, int]:
    """The reduced case, and how many candidates were asked for it."""
    asked: set[str] = set()

    def remembered(candidate: Case) -> bool:
        asked.add(candidate.key)
        return shows(candidate)

    return Reducer(Picked(block), HOST, remembered).least(case), len(asked)


def numbers(case: Case) -> tuple[int, ...]:
    return dict(case.indices)["rows"]


def thousand(table: int, bad: int, place: int) -> Case:
    """A thousand rows of the table's first half, and one other number among them."""
    listed = np.random.default_rng(place).integers(0, table // 2, 1000)
    listed[place] = bad
    problem = Rows(table, 1000)
    return Case(contract="x", problem=problem, regime="wide", data_seed=9, indices=(("rows", tuple(listed.tolist())),))


@pytest.mark.parametrize("place", [0, 1, 499, 998, 999])
@pytest.mark.parametrize(
    ("bad", "is_bad", "least", "table"),
    [
        (699, lambda row, table: row == table - 1 and table > 1, 1, 2),
        (700, lambda row, table: row == table, 1, 1),
        (2**31 - 1, lambda row, table: row > 12345, 12346, 1),
        (-(2**31), lambda row, table: row < 0, -1, 1),
        (-700, lambda row, table: row == -table, -1, 1),
        (600, lambda row, table: row == 600 and table == 700, 600, 700),
    ],
)
def test_one_bad_number_of_a_thousand_is_what_is_left(bad: int, is_bad: Callable, least: int, table: int, place: int) -> None:
    case, asked = reduced(thousand(700, bad, place), lambda c: any(is_bad(row, c.problem.table) for row in numbers(c)))
    assert numbers(case) == (least,) and case.problem == Rows(table, 1)
    assert (case.regime, case.data_seed) == ("normal", 0)
    assert asked < 250


@pytest.mark.parametrize("first", [0, 400])
def test_two_numbers_that_must_meet_are_both_left(first: int) -> None:
    listed = [0] * 1000
    listed[first], listed[970] = 31, 47
    start = Case(contract="x", problem=Rows(60, 1000), indices=(("rows", tuple(listed)),))
    case, _ = reduced(start, lambda c: {31, 47} <= set(numbers(c)))
    assert numbers(case) == (31, 47)


def test_a_bug_of_many_rows_keeps_plain_ones_and_costs_few_launches() -> None:
    case, asked = reduced(thousand(700, 699, 500), lambda c: c.problem.count >= 130)
    assert numbers(case) == (0,) * 130 and asked < 150


def test_a_required_case_is_written_out_so_that_it_becomes_smaller() -> None:
    start = Case(contract="x", problem=Rows(100, 90), regime="wide/edges", data_seed=3)
    shown = reduced(start, lambda c: 77 in dict(Picked().indices(c))["rows"])[0]
    assert numbers(shown) == (77,) and shown.regime == "normal"


def test_a_bug_that_goes_with_the_list_is_made_smaller_with_its_seed() -> None:
    """A reproducer of before: what fails there may fail by its seed alone."""
    start = Case(contract="x", problem=Rows(100, 90), regime="wide/edges", data_seed=3)
    shown = reduced(start, lambda c: not c.indices)[0]
    assert (shown.indices, shown.regime, shown.data_seed, shown.problem) == ((), "normal", 0, Rows(1, 1))


def test_rows_of_a_scatter_stay_apart_on_the_way_down() -> None:
    listed = tuple(range(1000))
    start = Case(contract="x", problem=Rows(1000, 1000), indices=(("rows", listed),))
    seen: list[Case] = []

    def shows(case: Case) -> bool:
        seen.append(case)
        return len(numbers(case)) > 8 and 700 in numbers(case)

    case, _ = reduced(start, shows, block=8)
    assert len(numbers(case)) == 9 and sorted(set(numbers(case)))[-1] == 700
    assert all(Picked(8).expected_outcome(each, HOST).result for each in seen)


def test_an_expected_fault_that_fails_to_come_becomes_smaller() -> None:
    """A negative row of a scatter expects a fault: every candidate does."""
    listed = [*range(1000)]
    listed[444] = -77
    start = Case(contract="x", problem=Rows(1000, 1000), indices=(("rows", tuple(listed)),))
    case, _ = reduced(start, lambda c: min(numbers(c)) < 0, block=8)
    assert numbers(case) == (-1,) and not Picked(8).expected_outcome(case, HOST).result


@pytest.mark.parametrize(
    ("listed", "told"),
    [
        ((), ""),
        ((5,), "[5]"),
        ((0, 0, 0, 41), "[0]*3+[41]"),
        ((1, 2, 7, 7), "[1,2]+[7]*2"),
        ((7, 7, 1, 2), "[7]*2+[1,2]"),
        (tuple(range(40)), "[0,1,2,3,4,5,6,7,8,9,10,11]+... (40 numbers)"),
    ],
)
def test_a_list_is_told_in_runs(listed: tuple[int, ...], told: str) -> None:
    assert in_runs(listed) == told


def mutant_of(kernel: str, name: str) -> Mutant:
    return next(each for each in COLLECTIONS["kernels"] if (each.kernel, each.name) == (kernel, name))


@pytest.mark.parametrize(
    ("kernel", "name", "table_rows", "bad", "left"),
    [
        ("tma_gather", "the row after the last taken from the last", 70, 70, (1,)),
        ("tma_scatter", "last row of several not written", 2000, 1999, (1,)),
    ],
)
@pytest.mark.share(4)
def test_a_mutant_that_mishandles_one_boundary_row_ends_at_one_row(
    kernel: str, name: str, table_rows: int, bad: int, left: tuple[int, ...], tmp_path: Path
) -> None:
    """A thousand rows, one of them at the table's end: one row is left of them, eight of which TMA moves, seven under a mask."""
    address = write_mutant(mutant_of(kernel, name), tmp_path)
    source = CaseSource(address, BLACKWELL)
    contract = source.contract
    listed = np.random.default_rng(1).permutation(min(table_rows - 1, 1000))
    listed = np.resize(listed, 1000)
    listed[612] = bad
    (begun, *_) = (case for case in contract.required(BLACKWELL) if case.problem.table_columns == 1024)
    problem = replace(begun.problem, table_rows=table_rows, table_columns=64, offsets=1000, column_offset=0)
    config = replace(begun.config, block_x=128, block_y=64)
    case = replace(begun, problem=problem, config=config, regime="wide", indices=(("row_offsets", tuple(listed.tolist())),))
    memory = VerdictCache(lambda asked: judge(asked, BLACKWELL))
    assert memory(case).outcome == Outcome.WRONG_WORDS
    right = replace(case, contract=kernel)
    assert judge(right, BLACKWELL).decision is Decision.PASS
    least, verdict = shrink(source, case, memory(case), memory, draws=5, seconds=60)
    assert dict(least.indices)["row_offsets"] == left and least.problem.offsets == 1
    assert least.problem.table_rows == (1 if kernel == "tma_gather" else 2)
    assert f"row_offsets=[{left[0]}]" in describe(least) and memory.asked < 120
    path = reproducers.write(reproducers.reproducer_of(least, "emulated:sm_100", verdict, first_case=case), tmp_path / "failures")
    assert reproducers.restore_case(reproducers.read(path))[0] == least

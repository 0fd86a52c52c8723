"""Contract under test: lists that a body draws keep their bounds, come back from records and lines, and shrink to the one number
that a kernel fails for."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest

from bitverdict.harness.contracts.described.contract import DescribedContract, Description
from bitverdict.harness.contracts.described.decisions import Simplest
from bitverdict.harness.contracts.described.draw import Draw
from bitverdict.harness.contracts.described.number_lists import MAX_WRITTEN_INDICES, Indices, Lengths, numbers_of
from bitverdict.harness.contracts.described.record import text_of
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import case_from_record
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.session.case_line import case_of, describe
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.session.profiles import Profile
from bitverdict.harness.session.reducer import Reducer
from bitverdict.harness.session.session import Session
from tests.support.fake_runs import FakePool

SM_90 = target("emulated:sm_90")


def ragged(draw: Draw) -> Any:
    lengths = draw.lengths(draw.size(1, 6), 2, 70, total=100, name="lengths")
    return draw.offsets(lengths, name="ends"), draw.numbers(lengths, dtype="int64", name="counts")


def described(body: Any, reference: Any) -> DescribedContract:
    return DescribedContract(Description(body=body, reference=reference), lambda: ("somewhere.py:NAME", ("/folder",)))


RAGGED = described(ragged, lambda xp, ends, counts, lengths: counts)


def hold(case: Case) -> None:
    count, lengths = (entry.value for entry in case.problem.draws[:2])
    assert len(lengths) == count and all(2 <= length <= 70 for length in lengths) and sum(lengths) <= 100
    ends, counts = RAGGED.operands(case)
    assert counts.codes.dtype == np.int64 and tuple(counts.codes) == lengths and ends.codes.dtype == np.int32
    assert ends.codes[0] == 0 and (np.diff(ends.codes) == counts.codes).all()
    given, named = RAGGED.arguments(case, {"ends": ends, "counts": counts})
    assert [*given, *named.values()][-1] == lengths


def test_lengths_keep_their_bounds_and_reach_kernel_and_reference() -> None:
    required = RAGGED.required(SM_90)
    for case in required:
        hold(case)
        assert case_from_record(RAGGED, json.loads(json.dumps(case.to_json()))) == case
        assert case_of(describe(case), RAGGED, required) == case
    met = {entry.value for case in required for entry in case.problem.draws if entry.kind == "lengths"}
    assert any(len(lengths) > 1 and max(lengths) > 2 * min(lengths) for lengths in met) and (2,) in met

    @hypothesis.settings(max_examples=60, database=None, derandomize=True)
    @hypothesis.given(case=RAGGED.cases(SM_90))
    def each(case: Case) -> None:
        hold(case)

    each()


def test_each_edge_fits_and_what_is_simpler_does_too() -> None:
    for options in (Lengths(4, 0, 33, 40), Lengths(1, 5, 5, 5), Lengths(3, 7, 1000, 21)):
        for lengths in options.edges():
            assert options.fits(lengths) and numbers_of(text_of(lengths)) == lengths
            assert all(map(options.fits, options.simpler(lengths)))
            assert options.fits(options.nearest(lengths[:-1])) and options.fits(options.nearest((9999, *lengths)))


@pytest.mark.parametrize(
    "draws",
    [
        lambda draw: draw.lengths(0, 1, 2),
        lambda draw: draw.lengths(3, 4, 2),
        lambda draw: draw.lengths(3, 4, 9, total=11),
        lambda draw: draw.numbers([0.5]),
        lambda draw: draw.numbers([1 << 40]),
        lambda draw: draw.offsets([1, 2], 3),
        lambda draw: draw.indices(3, 4, dtype="fp16"),
    ],
)
def test_lists_that_cannot_be_drawn_are_told_their_rule(draws: Any) -> None:
    with pytest.raises(UsageError, match=r"draw\.\w+\(.*(must be|count must|holds)"):
        described(draws, lambda xp, *operands: 0).required(SM_90)


@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize("wrong", [-1, 0, 7, 11, 12, 30])
def test_indices_shrink_to_the_one_that_is_wrong(wrong: int, distinct: bool) -> None:
    """Whatever else a list of 9 of them has, and wherever it has the one."""
    options = Indices(("anywhere",), 0, 9, 12, distinct, True)
    numbers: tuple[int, ...] = (
        (3, 11, -12, 12, wrong, 5, 13, -20, 1) if wrong not in (11, 12) else (wrong, 3, 6, -12, 5, 13, -20, 1, 2)
    )
    while simpler := [made for made in options.plainer(numbers) if wrong in made]:
        assert all(map(options.fits, simpler))
        numbers = simpler[0]
    assert sum(number != plain for number, plain in zip(numbers, options.plain_numbers, strict=True)) <= (1 if not distinct else 2)


def test_long_lists_are_not_written_out() -> None:
    for count in (MAX_WRITTEN_INDICES, MAX_WRITTEN_INDICES + 1):
        contract = described(lambda draw, count=count: draw.indices(count, 9), lambda xp, rows: rows)
        written = [made for made in contract.simpler(contract.required(SM_90)[0]) if isinstance(made.problem.draws[0].value, tuple)]
        assert bool(written) == (count == MAX_WRITTEN_INDICES)


def test_a_smaller_table_keeps_how_far_past_its_end_an_index_lies() -> None:
    """Wrong for the first row past the end; the table has 40 rows, and 3 at the least."""

    def body(draw: Draw) -> Any:
        m = draw.size(3, 40)
        return draw.indices(draw.size(1, 20), m, out_of_bounds=True)

    contract = described(body, lambda xp, rows: rows)

    def shows(case: Case) -> bool:
        return bool((contract.operands(case)[0].codes == case.problem.draws[0].value).any())

    drawn = contract.drawn(Simplest([40, 6, (5, 0, 3, 39, 40, -1)]))
    first = dataclasses.replace(contract.required(SM_90)[0], problem=drawn)
    assert shows(first)
    assert [entry.value for entry in Reducer(contract, SM_90, shows).least(first).problem.draws] == [3, 1, (3,)]


def reduced(test: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case | None:
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path))
    session = Session(FakePool(), Profile("plain", draws=20, seconds=None, node_seconds=None, shrink_seconds=100))
    bug = session.first_failure(CaseSource(f"tests.support.default_tests:{test}", SM_90))
    session.reduce()
    return None if bug is None else bug.case


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("wrong", "right", "least"),
    [
        ("test_rows_below_0_are_read", "test_rows_below_0_are_zero", [2, 1, "contiguous", 1, (-1,)]),
        ("test_the_first_32_of_each_part_are_summed", "test_parts_are_summed", [1, (33,), "contiguous", "contiguous"]),
    ],
)
def test_a_kernel_fails_for_one_number_and_its_right_twin_passes(
    wrong: str, right: str, least: list, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = reduced(wrong, tmp_path, monkeypatch)
    assert case is not None and [entry.value for entry in case.problem.draws] == least
    assert reduced(right, tmp_path, monkeypatch) is None

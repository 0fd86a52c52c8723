"""Contract under test: drawn cases are drawn each by itself, and a seed draws the same ones anew."""

from __future__ import annotations

from dataclasses import astuple
from itertools import pairwise

import pytest

from bitverdict.harness.contracts.described.contract import DescribedContract, Description
from bitverdict.harness.contracts.described.draw import Draw
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import target
from bitverdict.harness.session import case_source
from bitverdict.harness.session.case_source import CaseSource, walk

SM_90 = target("emulated:sm_90")
THREE_SIZES = "somewhere.py:THREE_SIZES"


def body(draw: Draw) -> object:
    return draw.tensor("fp16", (draw.size(1, 99), draw.size(1, 300), draw.size(1, 9)))


def drawn_cases(count: int, seed: int) -> list[Case]:
    cases: list[Case] = []
    walk(CaseSource(THREE_SIZES, SM_90, seed), count, cases.append)
    return cases


@pytest.fixture(autouse=True)
def described(monkeypatch: pytest.MonkeyPatch) -> None:
    contract = DescribedContract(Description(body=body, reference=lambda xp, x: x), lambda: (THREE_SIZES, ("/folder",)))
    monkeypatch.setattr(case_source, "resolve", lambda address: contract)


@pytest.mark.parametrize("seed", range(3))
def test_a_drawn_case_differs_from_the_last_in_most_numbers(seed: int) -> None:
    """Sizes, regime, data seed, schedule. Hypothesis by itself changes one of them in four to five cases of ten."""
    numbers = [
        (*(entry.value for entry in case.problem.draws), case.regime, case.data_seed, case.schedule)
        for case in drawn_cases(300, seed)
    ]
    changed = [sum(one != other for one, other in zip(*pair, strict=True)) for pair in pairwise(numbers)]
    assert len(numbers) == 300 and sum(count <= 1 for count in changed) <= 3
    assert len({row[:3] for row in numbers}) >= 290


def test_a_seed_draws_the_same_cases_anew() -> None:
    first, second = drawn_cases(40, 7), drawn_cases(40, 7)
    assert list(map(astuple, first)) == list(map(astuple, second)) != list(map(astuple, drawn_cases(40, 8)))

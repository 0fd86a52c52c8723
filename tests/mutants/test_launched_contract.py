"""Contract under test: launches are the mutant's, what is expected is the right kernel's, and each is asked for once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.targets import target
from bitverdict.harness.mutants.launched_contract import LaunchedContract, ResultCache


@dataclass(frozen=True)
class Problem:
    n: int = 1


CASE = Case(contract="k", problem=Problem())


class Told(Contract):
    """A contract that says what it is asked, and what it took of a launch in another process."""

    def __init__(self, name: str) -> None:
        self.name, self.asked, self.taken = name, list[str](), dict[str, Any]()

    def operands(self, case: Case) -> list[Operand]:
        self.asked.append("operands")
        return [Operand(name=self.name, format="int8", codes=np.zeros(8, np.int8))]

    def expected(self, *given: Any) -> list:
        self.asked.append("expected")
        return []

    def launch(self, *given: Any) -> Mapping[str, Any]:
        self.asked.append("launch")
        return {}

    def left(self) -> dict:
        return {"by": self.name}

    def take(self, left: Mapping) -> None:
        self.taken = dict(left)


def test_the_right_contract_is_asked_once_and_the_other_launches() -> None:
    right, other, kept = Told("right"), Told("other"), ResultCache()
    where = target("emulated:sm_90")
    for each in (LaunchedContract(right, other, kept), LaunchedContract(right, other, kept)):
        assert each.operands(CASE)[0].name == "right"
        each.launch(CASE, {}, None)
        for program in ("one", "another"):  # each mutant has its own
            each.expected(CASE, where, {}, {"launches": [{"program": program}], "digests": program})
    assert (right.asked, other.asked) == (["operands", "expected"], ["launch", "launch"])
    assert right.taken == {"by": "other"}


def test_a_contract_that_launches_itself_keeps_what_its_launch_left() -> None:
    right = Told("right")
    LaunchedContract(right, right, ResultCache()).launch(CASE, {}, None)
    assert right.taken == {}


def test_what_was_not_used_for_longest_goes_first() -> None:
    kept, made = ResultCache(most=20), list[int]()

    def of(number: int) -> Any:
        return kept.get_or_make(
            number, lambda: made.append(number) or [Operand(name="x", format="int8", codes=np.zeros(8, np.int8))]
        )

    for number in (1, 2, 1, 3, 1, 2):
        of(number)
    assert made == [1, 2, 3, 2]

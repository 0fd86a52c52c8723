"""Contract under test: what happens to a result once its launcher has returned is found, and named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from bitverdict.harness.checks.second_call import SecondCallContract
from bitverdict.harness.judge import returned_memory
from bitverdict.harness.judge.clock import Clock
from bitverdict.harness.judge.launch import launch
from bitverdict.harness.judge.returned_memory import forget, returned_before
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Outcome

CASE = Case(contract="none", problem=None)


class Sevens(Contract):
    """Returns sevens; `later` is done to them when the judge has read them."""

    def __init__(self, later: Callable[[torch.Tensor], Any]) -> None:
        self.later = later

    def launch(self, case: Case, tensors: Any, launcher: Any) -> dict[str, torch.Tensor]:
        self.made = torch.full((2, 3), 7, dtype=torch.int32, device="cuda")
        return {"out": self.made}

    def written(self, case: Case) -> frozenset[str]:
        self.later(self.made)
        return frozenset()


def seen(later: Callable[[torch.Tensor], Any] = lambda made: None, launcher: Callable | None = None) -> tuple[Outcome | None, str]:
    found = launch(CASE, target("emulated:sm_90"), Sevens(later), launcher, {}, Clock())
    return found.outcome, found.message


def test_words_that_change_after_the_return_fail_by_name() -> None:
    assert seen() == (None, "")
    assert seen(lambda made: made[1, 2].item()) == (None, "")
    said = "out: its words are others than those that were returned; return when all is done"
    assert seen(lambda made: made[1, 2].fill_(8)) == (Outcome.WORDS_CHANGED, said)


@pytest.mark.parametrize("asked", ["", "aten.copy_.default on storage 7"])
def test_what_a_sealed_launcher_asks_for_after_its_return_is_told(asked: str) -> None:
    def launcher() -> None: ...

    launcher.after_return = lambda: asked  # type: ignore[attr-defined]
    said = f"the launcher went on: {asked}; return when all is done"
    assert seen(launcher=launcher) == ((Outcome.WORDS_CHANGED, said) if asked else (None, ""))


def test_memory_counts_as_returned_where_a_byte_of_it_was() -> None:
    forget()
    pool, operand = torch.zeros(100), torch.zeros(10)
    assert returned_before({"a": pool[:50], "b": operand}, [operand]) == []
    assert returned_before({"a": pool[50:], "b": operand[2:]}, [operand]) == [], "another part, and the caller's own"
    assert returned_before({"a": torch.zeros(100), "b": pool[49:51], "empty": pool[:0]}, []) == ["b"]
    forget()
    assert returned_before({"a": pool}, []) == []


def test_the_newest_results_are_held_and_no_more_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    forget()
    monkeypatch.setattr(returned_memory, "MOST_BYTES", 100)
    first, second, third = (torch.zeros(10) for _ in range(3))  # 40 bytes each
    assert returned_before({"a": first}, []) == returned_before({"a": second}, []) == returned_before({"a": third}, []) == []
    assert returned_before({"a": third}, []) == ["a"]
    assert returned_before({"a": first}, []) == [], "given up for newer ones"
    forget()


def test_an_operand_that_the_judge_overwrites_is_an_operand_again() -> None:
    """The words of an output in place that no kernel stores are the caller's own, in each call."""
    contract, hopper = resolve("pointer_gather_scatter_matmul"), target("emulated:sm_90")
    case = replace(contract.required(hopper)[0], calls=3, sealed=True)
    again = SecondCallContract(contract)
    found = launch(case, hopper, again, None, {each.name: each for each in again.operands(case)}, Clock())
    told = found.launch_record["provenance"]["outputs"]
    assert list(told) == ["out", "out of the second call", "out of the third call"]
    assert all(each["kernel"] and each["kernel"] + each["operand"] == each["words"] for each in told.values()), told

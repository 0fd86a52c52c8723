"""Contract under test: each outcome has a page of its own, and a command prints it by its name."""

from __future__ import annotations

import pytest

from bitverdict.harness.frontends.main import main
from bitverdict.harness.model.outcome_pages import PAGES
from bitverdict.harness.model.verdict import Outcome


def test_each_outcome_has_a_page_and_no_two_say_the_same() -> None:
    assert list(PAGES) == list(Outcome), "in the order of Outcome"
    meanings = [page.meaning for page in PAGES.values()]
    assert len(set(meanings)) == len(meanings)


@pytest.mark.parametrize("outcome", Outcome)
def test_explain_prints_the_page_of_an_outcome(outcome: Outcome, capsys: pytest.CaptureFixture) -> None:
    assert main(["explain", *str(outcome).split()]) == 0
    text = capsys.readouterr().out
    page = PAGES[outcome]
    assert text.startswith(f"{outcome}\n") and all(part in text for part in (page.meaning, page.usual_cause, page.remedy))
    assert all(len(part) > 20 for part in (page.meaning, page.usual_cause)), "a sentence"


@pytest.mark.parametrize(
    ("words", "line"), [(["stray-read"], "stray read"), (["Lost_Precision"], "lost precision"), (["table"], "inconclusive: ")]
)
def test_a_name_is_taken_as_it_is_typed(words: list[str], line: str, capsys: pytest.CaptureFixture) -> None:
    assert main(["explain", *words]) == 0 and capsys.readouterr().out.startswith(line)


def test_all_outcomes_are_listed_and_an_unknown_one_is_told(capsys: pytest.CaptureFixture) -> None:
    assert main(["explain"]) == 0
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == list(Outcome)
    assert main(["explain", "rase"]) == 2
    assert "'rase': is no outcome (did you mean 'race'?); `bitverdict explain` lists them" in capsys.readouterr().err

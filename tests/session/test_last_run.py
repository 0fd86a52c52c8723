"""Contract under test: what failed in the last run is known from journals, whatever was judged alone or reduced since."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.session.last_run import LastRun, last_runs
from bitverdict.harness.workers.journal import Journal
from tests.support.vector_add import ADDRESS, HOST, case

WHOSE = (ADDRESS, "", HOST.name)
PASS = Verdict(decision=Decision.PASS, outcome=Outcome.PASS)
FAIL, RACE = (Verdict(decision=Decision.FAIL, outcome=outcome) for outcome in (Outcome.WRONG_WORDS, Outcome.RACE))


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path))
    return tmp_path


def ran(state: Path, name: str, *came: tuple[Case, Verdict] | str, asked: dict | None = None, whose: str = HOST.name) -> None:
    """A journal of a run of `asked` (None: of pytest), and what came of its cases; a text is an event."""
    journal = Journal(state / "journal" / f"{name}.jsonl")
    if asked is not None:
        journal.note("asked", arguments=asked)
    for each in came:
        if isinstance(each, str):
            journal.note(each)
        else:
            journal.end(journal.begin(each[0], whose), each[1])
    journal.close()


def failed() -> list[int]:
    return [record["problem"]["n"] for record in last()[WHOSE].failed_records()]


def last() -> dict[tuple[str, str, str], LastRun]:
    return last_runs([WHOSE])


def test_nothing_failed_where_nothing_ran() -> None:
    assert failed() == []


def test_the_newest_whole_run_counts_and_no_older_one(state: Path) -> None:
    ran(state, "1", (case(1), FAIL), (case(2), FAIL), asked={})
    ran(state, "2", (case(1), PASS), (case(3), FAIL), asked={})
    ran(state, "3", (case(9), FAIL), asked={}, whose="another target")
    assert failed() == [3]


@pytest.mark.parametrize("narrow", [{"k": "fp16"}, {"lf": True}, {"case": "n=1"}, {"x": True}, None])
def test_a_run_of_some_cases_alone_says_nothing_of_the_others(narrow: dict | None, state: Path) -> None:
    ran(state, "1", (case(1), FAIL), (case(2), FAIL), (case(3), PASS), asked={"k": None, "lf": False})
    ran(state, "2", (case(1), PASS), (case(3), FAIL), asked=narrow)
    assert sorted(failed()) == [2, 3]


def test_a_case_tried_while_reducing_counts_as_a_reproducer_alone(state: Path) -> None:
    ran(state, "1", (case(9), FAIL), "reducing", (case(5), FAIL), (case(4), PASS), (case(6), FAIL), asked={})
    assert failed() == [9]
    (state / "failures").mkdir()
    (state / "failures" / "a.json").write_text(json.dumps({"case": case(5).to_json()}))
    (state / "failures" / "torn.json").write_text('{"case')
    (state / "failures" / "mended.json").write_text(json.dumps({"case": case(4).to_json()}))
    assert failed() == [5, 9]


def test_each_case_has_the_outcome_of_its_newest_verdict(state: Path) -> None:
    ran(state, "1", (case(1), RACE), (case(2), FAIL), asked={})
    ran(state, "2", (case(2), RACE), asked={"lf": True})
    assert last()[WHOSE].outcomes == {case(1).key: "race", case(2).key: "race"}
    assert last_runs([WHOSE], before="2.jsonl")[WHOSE].outcomes == {case(1).key: "race", case(2).key: "wrong words"}

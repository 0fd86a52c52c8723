"""Contract under test: a run deals until its clock says that it is enough; one that goes on counts the time that was spent, and
repeats each decision that the journal holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitverdict.harness.session.deadline import Deadlines, LiveDeadline, ReplayedDeadline
from bitverdict.harness.session.resume import Past
from bitverdict.harness.workers.journal import Journal, records
from tests.support.fake_runs import FakeClock


def dealt(deadlines: Deadlines, event: str, clock: FakeClock, *, of: int = 9, least: int = 0) -> int:
    """How many things of `of` it lets through, each of which takes a second."""
    row = []
    for thing in deadlines.until_enough(event, range(of), least=lambda: least):
        row.append(thing)
        clock.now += 1.0
    return len(row)


@pytest.mark.parametrize(
    ("seconds", "spent", "came"), [(3.0, 0.0, 4), (3.0, 2.0, 2), (3.0, 7.0, 0), (None, 7.0, 9), (99.0, 0.0, 9)]
)
def test_a_live_deadline_counts_what_was_spent(tmp_path: Path, seconds: float | None, spent: float, came: int) -> None:
    clock, journal = FakeClock(), Journal(tmp_path / "j.jsonl")
    assert dealt(Deadlines(seconds, Past(seconds=spent), journal, clock), "enough", clock) == came
    assert [(record["event"], record["cases"]) for record in records(journal.path)] == [("enough", came)]


def test_both_decisions_are_of_one_clock(tmp_path: Path) -> None:
    clock, journal = FakeClock(), Journal(tmp_path / "j.jsonl")
    deadlines = Deadlines(5.0, Past(), journal, clock)
    assert (dealt(deadlines, "drawn", clock, of=4), dealt(deadlines, "enough", clock)) == (4, 2)
    told = [{name: value for name, value in record.items() if name != "time"} for record in records(journal.path)]
    assert told == [{"event": "drawn", "case_sources": 4}, {"event": "enough", "cases": 2}], "old journals have these records"


def test_a_decision_of_the_journal_is_repeated_whatever_the_clock(tmp_path: Path) -> None:
    for seconds in (0.0, None):
        clock, journal = FakeClock(), Journal(tmp_path / f"{seconds}.jsonl")
        deadlines = Deadlines(seconds, Past(seconds=50.0, drawn=2, enough=3), journal, clock)
        assert dealt(deadlines, "drawn", clock) == 2
        assert dealt(deadlines, "enough", clock, least=7) == 3, "what was begun later was begun to shrink"
        assert not journal.path.exists(), "it says so already"


def test_what_was_dealt_before_is_dealt_again_though_the_time_is_over(tmp_path: Path) -> None:
    clock = FakeClock()
    deadlines = Deadlines(3.0, Past(seconds=50.0, drawn=2), Journal(tmp_path / "j.jsonl"), clock)
    assert dealt(deadlines, "enough", clock, least=7) == 7


def test_a_row_that_is_cut_by_its_reader_decides_nothing(tmp_path: Path) -> None:
    """As a kill does: the run that goes on decides."""
    journal = Journal(tmp_path / "j.jsonl")
    row = Deadlines(None, Past(), journal, FakeClock()).until_enough("enough", range(9))
    next(row)
    row.close()  # type: ignore[attr-defined]
    assert not journal.path.exists()


def test_a_deadline_without_limit_is_never_reached_and_its_clock_goes() -> None:
    assert not LiveDeadline.start_now(None).enough(10**9)
    assert LiveDeadline.start_now(0.0, spent=1.0).enough(0) and not LiveDeadline.start_now(3600.0).enough(0)
    assert [ReplayedDeadline(2).enough(done) for done in range(4)] == [False, False, True, True]

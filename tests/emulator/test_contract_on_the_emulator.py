"""Contract under test: a race that only some schedules show is a case like any other: it shrinks to the most eager schedule that
shows it, and its reproducer replays it, schedule included."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.targets import target
from bitverdict.harness.session import reproducers
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.session.replay import replay
from bitverdict.harness.session.shrink import VerdictCache, shrink
from bitverdict.harness.workers.pool import WorkerPool
from tests.faults.mutants import Mutant, once, write_mutant

WAITS_FOR_NOTHING = Mutant(
    kernel="tma_gather",
    name="wrong phase",
    edits=once("mbarrier.wait(arrived, phase=0)", "mbarrier.wait(arrived, phase=1)"),
    expected=("race",),
)
DRAWN = "drawn:937"


def test_a_race_that_eager_landing_hides_shrinks_to_the_latest(tmp_path: Path) -> None:
    """It replays from its reproducer. Eagerly the phase has flipped when the wait comes, which then waits for ever: a deadlock,
    another bug. At the latest the wait passes at once, before the data: the race that a drawn schedule found."""
    where = target("emulated:sm_100")
    source = CaseSource(write_mutant(WAITS_FOR_NOTHING, tmp_path), where)
    case = min(
        (replace(case, schedule=DRAWN) for case in source.required() if source.contract.expected_outcome(case, where).result),
        key=lambda case: case.problem.table_rows * case.problem.table_columns,
    )
    verdict = judge(case, where)
    assert verdict.outcome == "race"
    memory = VerdictCache(lambda case: judge(case, where))
    small, found = shrink(source, case, verdict, memory, draws=1, seconds=10)
    assert small.schedule == "latest" and found.signature == verdict.signature
    assert judge(replace(small, schedule="eager"), where).outcome == "deadlock"
    stored = reproducers.write(reproducers.reproducer_of(small, where.name, found), tmp_path / "failures")
    again = replay(stored, WorkerPool())
    assert again.is_same_bug and again.case.schedule == "latest"
    assert "latest" in stored.read_text()

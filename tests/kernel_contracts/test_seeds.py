"""Contract under test: each stored failing case gets the ruling that is owed; one not promoted owes to be right."""

from __future__ import annotations

from pathlib import Path

from bitverdict.harness import report, seed_files
from bitverdict.harness.conviction import conviction
from bitverdict.harness.pytest_hooks import Court
from bitverdict.harness.replay import replay


def test_a_stored_case_gets_the_ruling_that_is_owed(seed_file: Path, court: Court, record_property) -> None:
    owed = seed_files.read(seed_file).owed or {"ruling": "right"}
    replayed = replay(seed_file, court.bench)
    line = f"bitverdict replay {seed_file}"
    got = {"ruling": str(replayed.verdict.ruling), "outcome": str(replayed.verdict.outcome)}
    if not owed.items() <= got.items():
        record_property("replay", line)
    shown = conviction(
        replayed.case.contract, seed_files.read(seed_file).target, replayed.case, replayed.verdict, replayed.notes, line
    )
    assert owed.items() <= got.items(), report.text_of(shown)

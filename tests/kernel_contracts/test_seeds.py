"""Contract under test: each stored failing case gets the ruling that is owed; one not promoted owes to be right."""

from __future__ import annotations

from pathlib import Path

from bitverdict.harness.frontends.pytest_plugin import Court
from bitverdict.harness.session import reproducers, tables
from bitverdict.harness.session.failure_report import conviction
from bitverdict.harness.session.replay import replay


def test_a_stored_case_gets_the_ruling_that_is_owed(seed_file: Path, court: Court, record_property) -> None:
    owed = reproducers.read(seed_file).owed or {"ruling": "right"}
    replayed = replay(seed_file, court.bench)
    line = f"bitverdict replay {seed_file}"
    got = {"ruling": str(replayed.verdict.ruling), "outcome": str(replayed.verdict.outcome)}
    if not owed.items() <= got.items():
        record_property("replay", line)
    shown = conviction(
        replayed.case.contract, reproducers.read(seed_file).target, replayed.case, replayed.verdict, replayed.notes, line
    )
    assert owed.items() <= got.items(), tables.text_of(shown)

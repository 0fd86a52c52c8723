"""Contract under test: each stored failing case gets the decision that is expected; one not promoted expects to be right."""

from __future__ import annotations

from pathlib import Path

from bitverdict.harness.frontends.pytest_nodes import NodeJudge
from bitverdict.harness.session import reproducers, tables
from bitverdict.harness.session.failure_report import failure_report
from bitverdict.harness.session.replay import replay


def test_a_stored_case_gets_the_decision_that_is_expected(reproducer: Path, node_judge: NodeJudge, record_property) -> None:
    expected_outcome = reproducers.read(reproducer).expected_outcome or {"decision": "pass"}
    replayed = replay(reproducer, node_judge.pool)
    line = f"bitverdict replay {reproducer}"
    got = {"decision": str(replayed.verdict.decision), "outcome": str(replayed.verdict.outcome)}
    if not expected_outcome.items() <= got.items():
        record_property("replay", line)
    shown = failure_report(
        replayed.case.contract, reproducers.read(reproducer).target, replayed.case, replayed.verdict, replayed.notes, line
    )
    assert expected_outcome.items() <= got.items(), tables.text_of(shown)

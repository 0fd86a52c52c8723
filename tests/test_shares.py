"""Contract under test: what a run leaves to other commits is told, and the commits together leave nothing out."""

from __future__ import annotations

import pytest

from bitverdict.harness.model.targets import target
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.session.rotation import ALWAYS, Rotation
from tests.support import shares


def test_what_this_run_leaves_to_other_commits_is_told(record_property) -> None:
    """Not a check of its own: the line below the results, of what the modules collected here left out."""
    if shares.left_out:
        names = sorted(shares.left_out)
        record_property("not_run", f"{len(names)} of the shares of other commits (HARNESS_SHARE): {', '.join(names)}")


def test_turns_together_judge_every_required_case() -> None:
    source = CaseSource("rms_norm", target("emulated:sm_90"))
    every = {case.key for case in source.required()}
    turns = [{case.key for case in CaseSource(source.address, source.target, rotation=Rotation(n, 3)).required()} for n in range(3)]
    assert set.union(*turns) == every and all(part < every for part in turns)


def test_every_turn_has_each_type_and_regime_and_tells_the_rest() -> None:
    whole = CaseSource("rms_norm", target("emulated:sm_90"))
    classes = {(name, each[name]) for name, each in _classes(whole) if name in ALWAYS}
    for number in range(3):
        part = CaseSource(whole.address, whole.target, rotation=Rotation(number, 3))
        assert {(name, each[name]) for name, each in _classes(part) if name in ALWAYS} == classes
        left = len(whole.required()) - len(part.required())
        assert part.left_out().startswith(f"{left} of {len(whole.required())} required cases")
    assert not whole.left_out()


def _classes(source: CaseSource) -> list[tuple[str, dict]]:
    told = [source.contract.coverage(case, source.target) for case in source.required()]
    return [(name, each) for each in told for name in each]


@pytest.mark.parametrize(("profile", "share", "turn"), [("ci", "7", Rotation(7, 3)), ("ci", "", None), ("exhaustive", "7", None)])
def test_required_cases_take_turns_for_a_commit_of_ci_alone(profile, share, turn, monkeypatch) -> None:
    monkeypatch.setenv("HARNESS_PROFILE", profile)
    monkeypatch.setenv("HARNESS_SHARE", share)
    assert shares.turn() == turn


def test_what_is_left_out_is_kept_by_name(monkeypatch) -> None:
    monkeypatch.setenv("HARNESS_PROFILE", "ci")
    monkeypatch.setattr(shares, "left_out", set())
    names = [f"share {number}" for number in range(12)]
    kept = [name for name in names if shares.in_this_run(name, 1, in_ci=4)]
    assert shares.left_out == set(names) - set(kept) and kept != names
    monkeypatch.setenv("HARNESS_PROFILE", "exhaustive")
    assert all(shares.in_this_run(name, 1, in_ci=4) for name in names)

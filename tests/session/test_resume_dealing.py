"""Contract under test: a run goes on under the knobs of its first part and no others, and from the last case that it began."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest

from bitverdict.harness.frontends.cli_run import defaults
from bitverdict.harness.session import resume
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.session.profiles import Profile
from bitverdict.harness.session.session import Session
from tests.support.fake_runs import FakePool
from tests.support.vector_add import ADDRESS, HOST


def test_a_run_goes_on_under_its_own_knobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path))
    monkeypatch.setenv("TRITON_F32_DEFAULT", "ieee")
    monkeypatch.delenv("DISABLE_PTXAS_OPT", raising=False)
    journal = resume.begin(argparse.Namespace(**defaults()))
    journal.close()
    monkeypatch.setenv("TRITON_F32_DEFAULT", "tf32")
    monkeypatch.setenv("DISABLE_PTXAS_OPT", "1")
    resume.take_up(argparse.Namespace(**defaults() | {"resume": str(journal.path)}), defaults())
    assert os.environ["TRITON_F32_DEFAULT"] == "ieee" and "DISABLE_PTXAS_OPT" not in os.environ


def test_a_case_is_dealt_again_whose_neighbour_was_not_begun() -> None:
    """One place of the pool began it, and another had not begun the case before it when the run died."""
    source = CaseSource(ADDRESS, HOST)
    drawn, name = source.drawn(9), source.target.name
    begun = {(name, case.key) for case in (*source.required(), drawn[0], drawn[2])}
    profile = Profile("over at once", draws=9, seconds=0, node_seconds=None, shrink_seconds=0)
    past = resume.Past(begun_cases=begun, seconds=1.0, drawn=1)
    dealt = [case.key for case, _ in Session(FakePool(), profile, past=past).choose([source])]
    assert dealt == [case.key for case in (*source.required(), *drawn[:3])]

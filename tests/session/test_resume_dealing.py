"""Contract under test: a run goes on under the knobs of its first part and no others, and from the last case that it began."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest

from bitverdict.harness.frontends.cli_run import _cases, _defaults
from bitverdict.harness.frontends.progress import Showing
from bitverdict.harness.model.targets import target
from bitverdict.harness.session import resume, tables, tally
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.session.profiles import Profile
from bitverdict.harness.workers.journal import Journal
from bitverdict.harness.workers.pool import WorkerPool


def test_a_run_goes_on_under_its_own_knobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_STATE", str(tmp_path))
    monkeypatch.setenv("TRITON_F32_DEFAULT", "ieee")
    monkeypatch.delenv("DISABLE_PTXAS_OPT", raising=False)
    journal = resume.begin(argparse.Namespace(**_defaults()))
    journal.close()
    monkeypatch.setenv("TRITON_F32_DEFAULT", "tf32")
    monkeypatch.setenv("DISABLE_PTXAS_OPT", "1")
    resume.take_up(argparse.Namespace(**_defaults() | {"resume": str(journal.path)}), _defaults())
    assert os.environ["TRITON_F32_DEFAULT"] == "ieee" and "DISABLE_PTXAS_OPT" not in os.environ


def test_a_case_that_one_place_began_is_dealt_again_though_another_place_had_not_begun_the_one_before(tmp_path: Path) -> None:
    source = CaseSource("tests.support.vector_add:CONTRACT", target("emulated:sm_90"))
    drawn, name = source.drawn(9), source.target.name
    begun = {(name, case.key) for case in (*source.required(), drawn[0], drawn[2])}
    past = resume.Past(begun=begun, drawn=1)
    profile = Profile("over at once", draws=9, seconds=0, node_seconds=None, shrink_seconds=0)
    arguments = argparse.Namespace(**_defaults())
    with WorkerPool(journal=Journal(tmp_path / "run.jsonl")) as pool, Showing(tables.console()) as showing:
        dealt = [case.key for case, _ in _cases([source], profile, arguments, pool, past, tally.Tally(), showing)]
    assert dealt == [case.key for case in (*source.required(), *drawn[:3])]

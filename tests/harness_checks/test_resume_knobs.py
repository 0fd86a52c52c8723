"""Contract under test: what is left of a run is judged under the knobs of its first part, and under no others."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest

from harness import resume
from harness.commands.run import _defaults


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

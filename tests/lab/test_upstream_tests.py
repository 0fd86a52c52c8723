"""Contract under test: of each function of a foreign test file some cases are drawn and run, each in a process of its own, and what
passes, is refused, fails, skips itself or never ends is told apart."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest

from tests.support.shares import of_a_campaign

CHECKOUT = Path(__file__).resolve().parents[2]
TESTS = (Path(__file__).parent / "test_upstream_tests.txt").read_text()
CONFTEST = """
    import pytest


    @pytest.fixture
    def device():
        return OLD_NAME


    OLD_NAME = "cuda"
"""


def run(folder: Path, *words: str) -> tuple[int, list[dict]]:
    """Exit status and the records that the command kept."""
    kept = folder / "results.jsonl"
    command = [
        sys.executable,
        "-m",
        "benchmarks.upstream_tests",
        str(folder / "test"),
        "unit/test_it.py",
        "--results",
        str(kept),
        *words,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=CHECKOUT)
    assert kept.exists(), done.stderr
    return done.returncode, [json.loads(line) for line in kept.read_text().splitlines()]


@pytest.mark.compiles
@of_a_campaign
@pytest.mark.share(4)
def test_a_sample_of_each_function_runs_and_a_second_run_goes_on(tmp_path: Path) -> None:
    (tmp_path / "test" / "unit").mkdir(parents=True)
    (tmp_path / "test" / "unit" / "test_it.py").write_text(textwrap.dedent(TESTS))
    (tmp_path / "test" / "conftest.py").write_text(textwrap.dedent(CONFTEST))
    status, first = run(tmp_path, "--sample", "2", "--replace", "OLD_NAME=NEW_NAME", "--test", "right")
    assert status == 0
    assert Counter((each["case"]["name"], each["state"]) for each in first) == {("test_right", "pass"): 2}
    assert all(each["launches"] == 1 for each in first)
    status, both = run(tmp_path, "--seconds", "5", "--sample", "2")
    assert status == 1 and both[:2] == first
    found = {each["case"]["name"]: (each["state"], each["outcome"]) for each in both}
    assert found == {
        "test_right": ("pass", ""),
        "test_wrong": ("fail", "assertion"),
        "test_refused": ("refused", ""),
        "test_skipped": ("not run", ""),
        "test_no_launch": ("not run", ""),
        "test_dies": ("fail", "process ended"),
        "test_never_ends": ("time limit", ""),
    }
    assert len(both) == 8, "the two that were kept are not run again"

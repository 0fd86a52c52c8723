"""Contract under test: --format json puts events of one schema alone on standard output; problem matchers find what is printed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from bitverdict.harness.frontends.emulated_session import EmulationTally
from bitverdict.harness.frontends.main import main
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.session.failure_report import failure_report
from bitverdict.harness.session.tables import text_of
from tests.support.vector_add import case

CHECKOUT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((CHECKOUT / "docs" / "events.schema.json").read_text())
MATCHERS = json.loads((CHECKOUT / "docs" / "ci" / "problem-matcher.json").read_text())["problemMatcher"]
KERNEL = """
import torch
import triton
import triton.language as tl
import bitverdict as bv


@triton.jit
def double_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at) * 2, mask=at < n)


def double(x):
    y = torch.empty_like(x)
    double_kernel[(1,)](x, y, len(x), BLOCK=triton.next_power_of_2(len(x)))
    return y


@bv.judged(reference=lambda xp, x: x * 2)
def test_double(draw):
    return double(draw.tensor("fp32", (draw.size(1, 70),)))
"""


def events(text: str) -> list[dict]:
    """The events of `text`, each of the schema."""
    records = [json.loads(line) for line in text.splitlines()]
    for record in records:
        jsonschema.validate(record, SCHEMA)
    return records


def found_places(text: str) -> set[tuple[str, str, str]]:
    """Message, file and line of what the matchers find in `text`, as GitHub's runner does: each line of a pattern on the next."""
    lines, found = text.splitlines(), set()
    for matcher in MATCHERS:
        patterns = matcher["pattern"]
        for first in range(len(lines) - len(patterns) + 1):
            matches = [re.search(pattern["regexp"], lines[first + i]) for i, pattern in enumerate(patterns)]
            if all(matches):
                fields = {
                    key: match[group]
                    for match, pattern in zip(matches, patterns, strict=True)
                    for key, group in pattern.items()
                    if key != "regexp"
                }
                found.add((fields["message"], fields["file"], fields["line"]))
    return found


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess]:
    """A folder whose one test fails, and what a run there printed."""
    folder = tmp_path_factory.mktemp("failing")
    (folder / "test_double.py").write_text(KERNEL)
    command = "run --format json --target sm_90 --max-cases 6 --jobs 1 --json run.jsonl"
    return folder, bitverdict(folder, *command.split())


def bitverdict(folder: Path, *words: str) -> subprocess.CompletedProcess:
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT), "BITVERDICT_STATE": str(folder / "state")}
    return subprocess.run([sys.executable, "-m", "bitverdict", *words], cwd=folder, env=environment, capture_output=True, text=True)


def test_a_run_tells_events_alone_on_standard_output(failing: tuple[Path, subprocess.CompletedProcess]) -> None:
    folder, done = failing
    told = events(done.stdout)
    assert done.returncode == 1 and {each["event"] for each in told} == {"run", "verdict", "reproducer", "summary"}
    assert told[-1]["status"] == 1 and done.stdout == (folder / "run.jsonl").read_text()
    failed = [each["verdict"] for each in told if each["event"] == "verdict" and each["verdict"]["decision"] == "fail"]
    assert {each["outcome"] for each in failed} == {"stray read"} and failed[0]["location"].endswith("test_double.py:11")


def test_matchers_find_the_places_of_a_run(failing: tuple[Path, subprocess.CompletedProcess]) -> None:
    _, done = failing
    ((message, file, line),) = found_places(done.stderr)
    assert message.startswith("stray read: x[") and (Path(file).name, line) == ("test_double.py", "11")


def test_replay_tells_its_verdict_and_status(
    failing: tuple[Path, subprocess.CompletedProcess], capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, done = failing
    monkeypatch.chdir(folder)
    (path,) = (each["path"] for each in events(done.stdout) if each["event"] == "reproducer")
    status = main(["replay", path, "--format", "json"])
    printed = capsys.readouterr()
    assert status == 1, printed.err
    verdict, summary = events(printed.out)
    assert verdict["verdict"]["outcome"] == "stray read" and summary["status"] == status == 1


def test_explain_tells_each_outcome(capsys: pytest.CaptureFixture) -> None:
    assert main(["explain", "race", "--format", "json"]) == 0
    (told,) = events(capsys.readouterr().out)
    assert told["outcome"] == "race" and told["remedy"]
    assert main(["explain", "--format", "json"]) == 0 and len(events(capsys.readouterr().out)) > 20


def test_faults_under_emulation_are_verdicts(tmp_path: Path) -> None:
    fault = {"where": "test_a.py::test_a", "target": "sm_90", "outcome": "race", "message": "two", "file": "k.py", "line": 3}
    tally = EmulationTally(launches=2, faults=[fault | {"kernel": "k", "details": {"program": "(0, 0, 0)"}}])
    tally.write(tmp_path / "report.jsonl", ["sm_90"], 2)
    verdict, summary = events((tmp_path / "report.jsonl").read_text())
    assert verdict["verdict"]["location"].endswith("k.py:3") and summary["status"] == 1


def test_matchers_find_the_places_of_pytest() -> None:
    """The line is one that pytest printed (tests/contracts/test_bug_reports.py holds its form)."""
    printed = "FAILED test_kern.py::test_softmax[sm_90] - stray read at kern.py:10: x[3] is read, beyond its 3 elements"
    assert found_places(printed) == {("x[3] is read, beyond its 3 elements", "kern.py", "10")}


def test_matchers_find_a_failure_of_several_sentences() -> None:
    details = {"cause": "the diagonal is missing", "clusters": ["every word differs"]}
    said = "out: 3 of 3 elements are wrong\nfirst at [0, 0]: got 1"
    verdict = Verdict(
        decision=Decision.FAIL, outcome=Outcome.WRONG_MATHEMATICS, message=said, location="mine.py:2", details=details
    )
    report = text_of(failure_report("mine.py:f", "emulated:sm_90", case(), verdict, [], "replay"))
    assert found_places(report) == {("wrong mathematics: the diagonal is missing", "mine.py", "2")}


def test_a_line_of_another_kind_is_no_event() -> None:
    with pytest.raises(jsonschema.ValidationError):
        events('{"event": "verdict", "contract": "c"}')

"""Contract under test: what `bitverdict ci` says of journals, each finding once, in forms that a CI service reads; and each
step of the workflow in docs/ci/ runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import jsonschema
import pytest
import yaml

from bitverdict.harness.frontends.main import main
from bitverdict.harness.model.certificate import TELLS_NOTHING
from bitverdict.harness.model.verdict import Basis, Decision, Outcome, Verdict
from bitverdict.harness.report.ci.findings import ClauseFinding, JournalFindings, JudgedCase, read
from bitverdict.harness.report.ci.forms import commands, summary
from bitverdict.harness.workers.journal import Journal
from tests.support.vector_add import case

CHECKOUT = Path(__file__).resolve().parents[2]
CI = CHECKOUT / "docs" / "ci"
MINUTES = 5  # that the workflow may take on two cores
TEXT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}
PLACE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "artifactLocation": {
            "type": "object",
            "additionalProperties": False,
            "required": ["uri"],
            "properties": {"uri": {"type": "string", "pattern": "^[^ \\\\:/][^ \\\\:]*$"}},
        },
        "region": {"type": "object", "additionalProperties": False, "properties": {"startLine": {"type": "integer", "minimum": 1}}},
    },
}
RESULT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["message"],
    "properties": {
        "ruleId": {"type": "string"},
        "ruleIndex": {"type": "integer", "minimum": -1},
        "level": {"enum": ["none", "note", "warning", "error"]},
        "message": TEXT,
        "partialFingerprints": {"type": "object", "additionalProperties": {"type": "string"}},
        "properties": {"type": "object"},
        "locations": {"type": "array", "items": {"type": "object", "properties": {"physicalLocation": PLACE}}},
    },
}
DRIVER = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "rules": {"type": "array"}}}
RUN = {
    "type": "object",
    "additionalProperties": False,
    "required": ["tool"],
    "properties": {
        "tool": {"type": "object", "required": ["driver"], "properties": {"driver": DRIVER}},
        "invocations": {"type": "array", "items": {"type": "object", "required": ["executionSuccessful"]}},
        "results": {"type": "array", "items": RESULT},
    },
}
SARIF = {
    "type": "object",
    "additionalProperties": False,
    "required": ["version", "runs"],
    "properties": {"$schema": {"type": "string"}, "version": {"enum": ["2.1.0"]}, "runs": {"type": "array", "items": RUN}},
}
"""The part of SARIF 2.1.0 that is written, by the sections 3.13, 3.14, 3.19, 3.27 and 3.28 to 3.30 of the OASIS standard."""


def journal(path: Path, *told: tuple[int, str, Verdict]) -> Path:
    made = Journal(path)
    for n, target, verdict in told:
        made.end(made.begin(case(n), target), verdict)
    made.close()
    return path


def wrong(location: str = "", outcome: Outcome = Outcome.STRAY_READ) -> Verdict:
    return Verdict(decision=Decision.FAIL, outcome=outcome, message="50% of a:b,\nmore", location=location, basis=Basis.EXACT)


PASSED = Verdict(decision=Decision.PASS, outcome=Outcome.PASS, words=7)
OPEN = Verdict(decision=Decision.INCONCLUSIVE, outcome=Outcome.NOT_MODELLED, message="tt.x")
QUIET = Verdict(decision=Decision.INCONCLUSIVE, outcome=Outcome.INCONCLUSIVE, details={TELLS_NOTHING: True})
BROKEN = Verdict(decision=Decision.ERROR, outcome=Outcome.ERROR, message="the emulator raised")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Journals of two xdist workers that saw one fault on a line, and another clause broken on the same line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "my_kernels.py").write_text("x = 1\n" * 9)
    (tmp_path / "journal").mkdir()
    at = "my_kernels.py:4"
    journal(tmp_path / "journal" / "1.jsonl", (5, "emulated:sm_80", wrong(at)), (6, "emulated:sm_80", PASSED))
    journal(
        tmp_path / "journal" / "2.jsonl",
        (5, "emulated:sm_90", wrong(at)),
        (7, "emulated:sm_90", wrong(at)),
        (8, "emulated:sm_90", wrong(at, Outcome.RACE)),
        (9, "emulated:sm_90", BROKEN),
    )
    return tmp_path


def test_a_clause_on_a_line_is_annotated_once_over_all_workers(place: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["ci", "journal"]) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("::")]
    assert [line.partition(" ")[0] for line in lines] == ["::error", "::error", "::warning"]
    assert lines[0].startswith(
        "::error file=sub/my_kernels.py,line=4,title=tests.support.vector_add%3ACONTRACT%3A accesses are ord"
    )
    assert "::stray read: 50%25 of a:b,%0Amore%0Aon emulated:sm_80 (1 case), emulated:sm_90 (2 cases)%0Acase: n=5" in lines[1]


def test_a_finding_begins_with_the_cause_and_says_its_case(tmp_path: Path) -> None:
    drawn = {"kind": "tensor", "called": "x", "dtype": "fp16", "shape": [1, 3], "value": "padded"}
    record = {"contract": "test_mine.py:test_f", "problem": {"draws": [{"kind": "size", "called": "m", "value": 1}, drawn]}}
    details = {"summary": "x[3] is read, beyond its 3 elements"}
    verdict = replace(wrong(), details=details)
    writing = Journal(tmp_path / "1.jsonl")
    writing.end(writing.begin(SimpleNamespace(to_json=lambda: record), "emulated:sm_90"), verdict)  # type: ignore[arg-type]
    writing.close()
    (finding,) = read([tmp_path / "1.jsonl"], tmp_path).findings
    assert finding.description.startswith("stray read: x[3] is read, beyond its 3 elements\n50% of a:b,")
    assert finding.description.endswith("case: m=1 x=fp16(1,3):padded")


def test_the_summary_is_added_where_github_says(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    (place / "summary.md").write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(place / "summary.md"))
    main(["ci", "journal"])
    text = (place / "summary.md").read_text()
    assert text.startswith("before\n## bitverdict") and "## bitverdict" not in capsys.readouterr().out
    assert "| tests.support.vector_add:CONTRACT | emulated:sm_90 | 0 | 3 | 0 | 1 | 0 | 0 |" in text
    assert text.count("### ") == 3 and "(`sub/my_kernels.py:4`)" in text


def test_a_summary_has_no_markup_of_a_finding_but_its_own(tmp_path: Path) -> None:
    """A name, a path and a message are the candidate's. What is told lies in an indented block, which shows markup as it is."""
    name, file, message = "<img src=x>|\n# k", "a`<b>.py", "</pre><script>\n<img src=y>"
    hostile = ClauseFinding(name=name, clause="c", outcome="o", message=message, file=file, line=3, case="")
    lines = summary(JournalFindings(judged=[JudgedCase(name, "emulated:sm_90", "", PASSED)], findings=[hostile])).splitlines()
    outside = [line for line in lines if not line.startswith("    ")]
    assert "| &lt;img src=x&gt;\\| # k | emulated:sm_90 | 1 | 0 | 0 | 0 | 0 | 7 |" in outside
    assert "### &lt;img src=x&gt;\\| # k: c (`a'<b>.py:3`)" in outside, "a span of code shows its markup as it is"
    assert not [line for line in outside if "<" in line.replace("`a'<b>.py:3`", "")]
    assert "    <img src=y>" in lines


def test_sarif_and_junit_hold_to_their_forms(place: Path) -> None:
    main(["ci", "journal", "--sarif", "a.sarif", "--junit", "a.xml"])
    log = json.loads((place / "a.sarif").read_text())
    jsonschema.validate(log, SARIF)
    results = log["runs"][0]["results"]
    rules = log["runs"][0]["tool"]["driver"]["rules"]
    assert len(results) == 3 and all(rules[each["ruleIndex"]]["id"] == each["ruleId"] for each in results)
    assert len({each["partialFingerprints"]["bitverdict/v1"] for each in results}) == 3
    suites = {suite.get("name"): suite for suite in ElementTree.parse(place / "a.xml").getroot()}
    of_90 = suites["tests.support.vector_add:CONTRACT-emulated:sm_90"]
    assert [of_90.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["4", "3", "1", "0"]


def test_a_log_that_is_no_sarif_is_noticed(place: Path) -> None:
    main(["ci", "journal", "--sarif", "a.sarif"])
    for old, new in (('"startLine": 4', '"startLine": 0'), ('"level": "error"', '"level": "bad"'), ('"uri": "sub', '"uri": "/sub')):
        text = (place / "a.sarif").read_text()
        assert old in text
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(json.loads(text.replace(old, new)), SARIF)


@pytest.mark.parametrize(
    ("verdicts", "status"),
    [([PASSED], 0), ([PASSED, BROKEN], 3), ([PASSED, wrong()], 1), ([], 5), ([PASSED] * 99 + [OPEN], 3), ([PASSED, QUIET], 0),
     ([QUIET], 3)],
    ids=["pass", "error", "fail", "-", "one is open", "one tells nothing", "none tells anything"],
)  # fmt: skip
def test_the_status_of_ci_is_that_of_its_journals(tmp_path: Path, verdicts: list[Verdict], status: int) -> None:
    path = tmp_path / "1.jsonl"
    path.touch()
    journal(path, *((n, "emulated:sm_80", verdict) for n, verdict in enumerate(verdicts, 1)))
    assert read([path], tmp_path).status() == status


def test_a_case_of_reducing_is_no_finding_and_a_cut_run_no_pass(tmp_path: Path) -> None:
    made = Journal(tmp_path / "1.jsonl")
    made.note("asked")
    made.end(made.begin(case(3), "emulated:sm_80"), PASSED)
    made.note("reducing")
    made.end(made.begin(case(2), "emulated:sm_80"), wrong())
    made.close()
    found = read([made.path], tmp_path)
    assert len(found.judged) == 1 and not list(commands(found.findings)) and found.status() == 3


def run_steps(path: str) -> list[tuple[str, dict]]:
    """The text and the environment of each `run:` step of an action, inputs at their defaults."""
    told = yaml.safe_load((CHECKOUT / path).read_text())
    inputs = {f"${{{{ inputs.{name} }}}}": str(each["default"]) for name, each in told.get("inputs", {}).items()}
    steps = [step for step in told["runs"]["steps"] if "run" in step]
    return [(step["run"], {name: inputs.get(value, value) for name, value in step.get("env", {}).items()}) for step in steps]


def test_a_marketplace_takes_the_action_and_the_workflow_uses_it() -> None:
    action = yaml.safe_load((CHECKOUT / "action.yml").read_text())
    assert {"name", "description", "branding", "runs"} <= set(action) and set(action["branding"]) == {"icon", "color"}
    (job,) = yaml.safe_load((CI / "workflow.yml").read_text())["jobs"].values()
    paths = {step["with"]["path"] for step in job["steps"] if "path" in step.get("with", {})}
    (used,) = (step for step in job["steps"] if step.get("uses", "").removeprefix("./") in paths)
    assert set(used["with"]) <= set(action["inputs"]) and not any("run" in step for step in job["steps"])


def test_each_run_step_of_the_action_judges_the_sample(tmp_path: Path) -> None:
    """The checkout stands in the place of what a step would install; two draws a test. A fault put into the kernel fails. All
    steps together have five minutes."""
    clone, names = tmp_path / "repository", tmp_path / "bin"
    shutil.copytree(CI / "repository", clone, ignore=shutil.ignore_patterns("__pycache__"))
    kernel = (clone / "kernels.py").read_text()
    (clone / "kernels.py").write_text(kernel.replace("mask = at < n\n", "mask = at < n - (n > 64)\n"))
    names.mkdir()
    python = f'#!/bin/sh\n[ "$1 $2" = "-m pip" ] && exit 0\nexec "{sys.executable}" "$@"\n'
    for name, text in (("python", python), ("bitverdict", f'#!/bin/sh\nexec "{sys.executable}" -m bitverdict "$@"\n')):
        (names / name).write_text(text)
        (names / name).chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "BITVERDICT", "GITHUB"))}
    environment = kept | {"PATH": f"{names}:{os.environ['PATH']}", "PYTHONPATH": str(CHECKOUT)}
    environment |= {"PYTEST_ADDOPTS": "-p bitverdict.harness.frontends.pytest_options --bv-draws 2"}
    environment |= {"BITVERDICT_STATE": str(clone / ".bitverdict"), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    environment |= {"GITHUB_ACTION_PATH": str(CHECKOUT)}
    ended, until = [], time.monotonic() + MINUTES * 60
    for text, more in run_steps("action.yml"):
        command = ["bash", "-eo", "pipefail", "-c", text]
        left = until - time.monotonic()
        ran = subprocess.run(command, cwd=clone, env=environment | more, capture_output=True, text=True, timeout=left, check=False)
        ended.append((ran.returncode, ran.stdout + ran.stderr))
    assert [status for status, _ in ended] == [0, 0, 1], ended
    for arch in ("sm_80", "sm_90", "sm_100"):
        assert f"emulated:{arch} (1 case)" in ended[-1][1]
    assert ended[-1][1].count("::error file=test_kernels.py,line=6,") == 1, "one finding for three targets"
    jsonschema.validate(json.loads((clone / "bitverdict.sarif").read_text()), SARIF)
    assert (clone / "bitverdict.xml").is_file() and "## bitverdict" in (tmp_path / "summary.md").read_text()

"""Contract under test: the page of what is public names what is public, and what strangers are led by leads somewhere."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import bitverdict
from bitverdict.harness.model.triton_release import OLDEST_RELEASE, PROVEN_RELEASES, described_releases
from bitverdict.harness.model.verdict import Decision, Verdict
from bitverdict.harness.session import tally
from bitverdict.harness.session.observer import Observer
from bitverdict.harness.session.result_files import Records

CHECKOUT = Path(__file__).resolve().parents[2]
PUBLIC = (CHECKOUT / "docs" / "public.md").read_text()
GITHUB = CHECKOUT / ".github"


def section(title: str) -> str:
    return re.split(r"^## ", PUBLIC.partition(f"## {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def first_cells(text: str) -> list[str]:
    """What stands in backquotes in the first column of the tables of `text`."""
    rows = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def test_the_page_names_each_public_name_and_no_other() -> None:
    assert sorted(first_cells(section("Names"))) == sorted(bitverdict.__all__)


def test_the_page_has_each_exit_status() -> None:
    rows = [line.split(" | ")[0].strip("| ") for line in section("Exit statuses").splitlines() if re.match(r"\| \d", line)]
    assert [int(row) for row in rows] == [tally.PASS, tally.FAIL, 2, tally.INCONCLUSIVE, tally.NOTHING_RAN]


def test_the_page_has_each_field_of_a_verdict_and_each_decision() -> None:
    verdicts, _, events = section("JSON").partition("**An event**")
    assert set(first_cells(verdicts)) == {field.name for field in dataclasses.fields(Verdict)}
    (decisions,) = [line for line in verdicts.splitlines() if line.startswith("| `decision`")]
    assert re.findall(r"`([^`]+)`", decisions)[1:] == [str(decision) for decision in Decision]
    assert first_cells(events)[1:] == ["run", "verdict", "reproducer", "outcome", "summary"]


def test_the_lines_of_a_run_have_the_fields_that_the_page_names(tmp_path: Path) -> None:
    from bitverdict.harness.model.addresses import resolve
    from bitverdict.harness.model.targets import target

    counted, records = tally.Tally(), Records(tmp_path / "run.jsonl", None)
    assert isinstance(records, Observer)
    where = target("emulated:sm_80")
    case = resolve("softmax").required(where)[0]
    records.begin({})
    records.on_count(case, "softmax", where.name, {}, Verdict(decision=Decision.FAIL, outcome=bitverdict.Outcome.RACE))
    records.on_reproducer(tmp_path / "case.json", "softmax", where.name)
    records.end(counted)
    lines = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    rows = [line for line in section("JSON").splitlines() if re.match(r"\| `(run|verdict|reproducer|summary)`", line)]
    for line, row in zip(lines, rows, strict=True):
        event, *fields = re.findall(r"`([^`]+)`", row)
        assert line["event"] == event and set(fields) <= set(line)
        assert event == "summary" or set(fields) == set(line) - {"event"}


PAGES = ("AGENTS.md", "CONTRIBUTING.md", "SECURITY.md", "README.md", "tests/README.md")


@pytest.mark.parametrize("name", [*PAGES, *(f"docs/{path.name}" for path in sorted((CHECKOUT / "docs").glob("*.md")))])
def test_each_link_of_a_page_leads_to_a_file_and_a_heading(name: str) -> None:
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", (CHECKOUT / name).read_text(), flags=re.DOTALL | re.MULTILINE)
    for link, heading in re.findall(r"\]\(([^)#:\s,]*)(?:#([^)]*))?\)", prose):
        page = (CHECKOUT / name).parent / link if link else CHECKOUT / name
        assert page.exists(), link
        assert not heading or heading in headings(page.read_text()), f"{link}#{heading}"


def headings(page: str) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in re.findall(r"^#+ (.*)$", page, re.MULTILINE)}


def test_an_anchor_is_a_heading_without_marks_in_small_letters() -> None:
    assert headings("# A: `b` c\n\nText\n\n### D-e\n") == {"a-b-c", "d-e"}


@pytest.mark.parametrize("name", ["AGENTS.md", "docs/public.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_each_module_and_each_folder_that_a_page_names_is_there(name: str) -> None:
    page = CHECKOUT / name
    for module in re.findall(r"python -m bitverdict\.([\w.]+)", page.read_text()):
        assert (CHECKOUT / f"{module.replace('.', '/')}.py").is_file(), module
    for path in re.findall(r"`((?:harness|tests|kernels|reference|docs)/[\w/]*)`", page.read_text()):
        assert (CHECKOUT / path).is_dir(), path


def test_the_page_for_agents_is_one_page() -> None:
    assert len((CHECKOUT / "AGENTS.md").read_text().splitlines()) <= 60


def test_the_pages_on_releases_name_those_with_a_record() -> None:
    assert f"Triton {OLDEST_RELEASE} to {PROVEN_RELEASES[-1]} (" in (CHECKOUT / "README.md").read_text()
    assert f"{PROVEN_RELEASES[-1]}.x; newer" in described_releases()
    rules = (CHECKOUT / "docs" / "a_new_triton_release.md").read_text().partition("## 3.")[2].partition("## 4.")[0]
    held_by = {*re.findall(r"`(tests/[\w/]+\.py)` \|$", rules, re.MULTILINE)} - {"tests/judge/test_judge.py"}
    run = re.search("^tests = (.*)$", (CHECKOUT / "tox.ini").read_text(), re.MULTILINE)
    assert run and len(held_by) > 5 and held_by <= {*run[1].split()}


def test_the_workflow_runs_both_gates_and_the_nightly_every_share() -> None:
    jobs = yaml.safe_load((GITHUB / "workflows" / "gates.yml").read_text())["jobs"]
    commands = {name: job["steps"][-1]["run"] for name, job in jobs.items()}
    one_release = 'pip install -q "tox>=4.25" && tox -e ${{ matrix.release }}'
    of_releases = {"releases": one_release, "nightly-releases": f"{one_release} -- --gate rest"}
    others = {"fast": ".ci/fast", "site": ".ci/docs", "whole": ".ci/run", "nightly": ".ci/run", "nightly-torch": one_release}
    assert commands == others | of_releases
    of_torch = re.findall(r'^    (torch\d+): .* "torch==[\d.]+" -r', (CHECKOUT / "tox.ini").read_text(), re.MULTILINE)
    assert of_torch and jobs["nightly-torch"]["strategy"]["matrix"]["release"] == of_torch
    pins = re.findall(r'^    (triton\d+): .* "triton==([\d.]+)"$', (CHECKOUT / "tox.ini").read_text(), re.MULTILINE)
    beginnings = [next(known for known in PROVEN_RELEASES if f"{pin}.".startswith(f"{known}.")) for _, pin in pins]
    assert beginnings == [*PROVEN_RELEASES[:-1]]  # an environment for each release with a record; requirements.txt gets the newest
    for name in of_releases:
        assert jobs[name]["strategy"]["matrix"]["release"] == [environment for environment, _ in pins]
    assert jobs["nightly"]["env"]["BITVERDICT_PROFILE"] == "exhaustive" and "schedule" in jobs["nightly"]["if"]
    assert jobs["nightly-torch"]["if"] == jobs["nightly-releases"]["if"] == jobs["nightly"]["if"]
    assert jobs["nightly-releases"]["env"] == jobs["nightly"]["env"]
    installed = jobs["fast"]["steps"][-2]["run"]
    assert re.findall(r'"torch==[\d.]+"', installed) == re.findall(r'"torch==[\d.]+"', (CHECKOUT / ".ci" / "run").read_text())


def test_a_tag_is_released_behind_the_whole_gate() -> None:
    workflow = yaml.safe_load((GITHUB / "workflows" / "release.yml").read_text())
    assert workflow[True]["push"] == {"tags": ["v*"]} and workflow["permissions"] == {"contents": "read"}  # YAML's "on" is True
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    commands = [step["run"] for step in build["steps"] if "run" in step]
    assert "GITHUB_REF_NAME" in commands[0] and commands[1] == ".ci/run"
    assert "python -m build" in commands[2] and "twine check --strict" in commands[2]
    assert publish["needs"] == "build" and publish["permissions"] == {"id-token": "write"} and publish["environment"]
    assert "secrets." not in str(workflow) and publish["steps"][0]["uses"].startswith("actions/download-artifact@")
    words = shlex.split(commands[0].partition("$(python ")[2].partition(')"')[0])
    tag = subprocess.run([sys.executable, "-S", *words], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", tag.stdout)  # before anything is installed


@pytest.mark.parametrize("path", sorted(GITHUB.glob("ISSUE_TEMPLATE/[!c]*.yml")), ids=lambda path: path.stem)
def test_an_issue_form_is_one(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    assert {"name", "description", "body"} <= set(form)
    asked = [part for part in form["body"] if part["type"] != "markdown"]
    assert len({part["id"] for part in asked}) == len(asked) and all(part["attributes"]["label"] for part in asked)
    assert any(part.get("validations", {}).get("required") for part in asked)


def test_the_whole_gate_begins_with_the_fast_one_and_runs_no_test_twice() -> None:
    fast, whole = ((CHECKOUT / ".ci" / name).read_text() for name in ("fast", "run"))
    order = [
        fast.index(command)
        for command in ("ruff check", "ruff format", "pytest -q -n auto -rs --gate fast", "mypy", "harness.lab.size")
    ]
    assert order == sorted(order) and fast.count("pytest") == whole.count("pytest") == 1
    assert whole.index("\n.ci/fast\n") < whole.index("python -m pytest -n auto -rs --gate rest")

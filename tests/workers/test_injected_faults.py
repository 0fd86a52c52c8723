"""Contract under test: every kind of mutant is told by its name, and the check of a session's books sees a lost or doubled
case, a wrong name and a missing reproducer."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.injected_faults import checked, session
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Decision
from bitverdict.harness.workers.journal import Journal, records
from bitverdict.harness.workers.pool import WorkerPool
from bitverdict.harness.workers.process import Worker
from tests.faults.crashes.injected import CONTRACT, EVERY, NAMES, fault_of, kinds
from tests.support.tutorial_facts import holds

CASES = 2 * EVERY


@pytest.mark.share(4)
@holds("one fault a process")
def test_every_kind_of_fault_has_its_name_and_the_case_after_it_is_right(tmp_path: Path) -> None:
    where, benign = target("emulated:sm_90"), CONTRACT.case(0)
    with WorkerPool(timeout=600, journal=Journal(tmp_path / "j.jsonl")) as pool:
        for fault in kinds(gpu=False)[:-1]:
            verdict = pool.judge(replace(benign, problem=replace(benign.problem, fault=fault)), where)
            assert str(verdict.outcome) == NAMES[fault], (fault, verdict.message)
        assert pool.judge(benign, where).decision is Decision.PASS


def test_a_kill_from_outside_at_a_retry_is_not_the_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A case of its own fault is looked at again, and there its clean worker is killed; here by what the worker is handed."""
    where, benign, handed = target("emulated:sm_90"), CONTRACT.case(0), list[str]()
    faulty = replace(benign, problem=replace(benign.problem, fault="segfault"))
    send = Worker.send

    def with_a_kill(worker: Worker, case: Case) -> None:
        handed.append(case.problem.fault)
        send(worker, replace(case, problem=replace(case.problem, fault="kill")) if len(handed) == 3 else case)

    monkeypatch.setattr(Worker, "send", with_a_kill)
    with WorkerPool(timeout=600, journal=Journal(tmp_path / "j.jsonl")) as pool:
        assert pool.judge(benign, where).decision is Decision.PASS
        verdict = pool.judge(faulty, where)
    assert str(verdict.outcome) == NAMES["segfault"] and handed == ["", *["segfault"] * 3]
    assert sum(record["event"] == "again" for record in records(tmp_path / "j.jsonl")) == 2


@pytest.mark.parametrize("gpu", [False, True])
def test_one_case_in_eleven_has_a_fault_and_all_kinds_come(gpu: bool) -> None:
    faults = [fault_of(number, gpu=gpu) for number in range(200 * EVERY)]
    assert len([fault for fault in faults if fault]) == 200 and {fault for fault in faults if fault} == set(kinds(gpu=gpu))
    assert faults.count("hang") == 4


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session of 20 innocent cases and two faults, which holds."""
    out = tmp_path_factory.mktemp("session")
    found = session(2, "emulated:sm_90", 60, 0, out)
    assert found["wrong"] == [] and found["named"] == {"pass": 20, "wrong words": 1, "stray write": 1}, found
    return out


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        ("lose a begin", "begun in the journals 0 times"),
        ("judge twice", "begun in the journals 2 times"),
        ("lose a verdict", "ended in the journals 0 times"),
        ("lose a reproducer", "no reproducer of"),
        ("fail an innocent", "expects 'pass' and is told as"),
        ("another name", "expects 'stray write' and is told as"),
    ],
)
def test_books_that_do_not_hold_are_told(held: Path, tmp_path: Path, spoil: str, says: str) -> None:
    out = tmp_path / "copy"
    shutil.copytree(held, out)
    (path,) = (out / "state" / "journal").glob("*.jsonl")
    lines = path.read_text().splitlines()
    last = next(line for line in reversed(lines) if '"event":"begin"' in line)
    junit = out / "junit.xml"
    if spoil == "lose a begin":
        lines = lines[: lines.index(last)]
    elif spoil == "judge twice":
        lines += lines[lines.index(last) :]
    elif spoil == "lose a verdict":
        lines = lines[: lines.index(last) + 1]
    elif spoil == "lose a reproducer":
        next((out / "state" / "failures").glob("*.json")).unlink()
    elif spoil == "fail an innocent":
        junit.write_text(junit.read_text().replace("[0]", "[99]").replace("[10]", "[0]").replace("[99]", "[10]"))
    else:
        junit.write_text(junit.read_text().replace("stray write:", "race:"))
    path.write_text("\n".join(lines) + "\n")
    wrong = checked(CASES, False, [path], junit, out / "state" / "failures")["wrong"]
    assert any(says in line for line in wrong), wrong

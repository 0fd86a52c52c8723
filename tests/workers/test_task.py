"""Contract under test: a worker does what a task's address names, and its end over a task is a verdict as over a case."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.workers.forkserver import COLLECTED_AFTER
from bitverdict.harness.workers.journal import Journal
from bitverdict.harness.workers.pool import WorkerPool
from bitverdict.harness.workers.task import Task, task_result_of
from tests.support.interrupts import unfinished_records
from tests.support.vector_add import HOST, case

DOUBLED = "tests.support.worker_tasks:doubled"


def task(number: int = 4, fault: str = "", function: str = DOUBLED, timeout: float | None = None) -> Task:
    return Task(function=function, contract="", given={"number": number, "fault": fault}, timeout=timeout)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerPool]:
    with WorkerPool(timeout=600, journal=Journal(tmp_path_factory.mktemp("journal") / "run.jsonl")) as pool:
        yield pool


def test_a_task_is_done_on_its_target_in_the_worker_of_the_cases(pool: WorkerPool) -> None:
    assert pool.judge(case(), HOST).decision is Decision.PASS
    worker = pool.slots[0, "host"].process.pid
    assert task_result_of(pool.judge(task(), HOST)) == {"target": "host", "twice": 8}
    assert pool.slots[0, "host"].process.pid == worker
    assert pool.judge(case(), HOST).decision is Decision.PASS


def test_a_worker_does_not_collect_what_its_server_imported(pool: WorkerPool) -> None:
    found = task_result_of(pool.judge(Task(function="tests.support.worker_tasks:frozen", contract=""), HOST))
    assert found["objects"] > 100_000  # torch and Triton
    assert tuple(found["thresholds"]) == COLLECTED_AFTER


@pytest.mark.parametrize(
    ("fault", "outcome"), [("segfault", Outcome.SEGMENTATION_FAULT), ("kill", Outcome.KILLED), ("abort", Outcome.COMPILER_ABORT)]
)
def test_a_death_over_a_task_is_told_twice_and_the_next_is_done(pool: WorkerPool, fault: str, outcome: Outcome) -> None:
    pool.judge(task(), HOST)
    died = pool.judge(task(fault=fault), HOST)
    assert (died.decision, died.outcome, task_result_of(died)) == (Decision.FAIL, outcome, None)
    assert "again alone" in died.details["fault repeats"]
    assert task_result_of(pool.judge(task(5), HOST))["twice"] == 10


def test_a_task_has_a_timeout_of_its_own(pool: WorkerPool) -> None:
    hung = pool.judge(task(fault="hang", timeout=0.5), HOST)
    assert (hung.outcome, hung.message) == (Outcome.TIMEOUT, "no verdict within 0.5 s; it was in misbehave")
    assert hung.location.startswith("tests/support/vector_add.py:")


@pytest.mark.parametrize("function", ["tests.support.worker_tasks:no_such", "no.such.module:name", "tests.support.worker_tasks:os"])
def test_a_task_that_cannot_be_done_is_an_error(pool: WorkerPool, function: str) -> None:
    verdict = pool.judge(task(function=function), HOST)
    assert (verdict.decision, task_result_of(verdict)) == (Decision.ERROR, None)


def test_a_task_is_in_the_journal_before_it_kills_and_no_case(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.jsonl")
    number = journal.begin(task(7), "host")
    (begun,) = unfinished_records(journal.path)
    assert begun["task"] == {"task": DOUBLED, "contract": "", "given": {"number": 7, "fault": ""}} and "case" not in begun
    journal.end(number, Verdict(decision=Decision.PASS, outcome=Outcome.PASS))
    assert not unfinished_records(journal.path) and json.loads(journal.path.read_text().splitlines()[-1])["event"] == "end"

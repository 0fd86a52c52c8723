"""Contract under test: many mutants of several kernels, judged over the places of a pool, resumed from a results file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.mutants import campaign
from bitverdict.harness.mutants.campaign import PlannedMutants, judge_all
from bitverdict.harness.mutants.kernels import Kernel
from bitverdict.harness.mutants.record import End, GeneratedMutant, Kind, MutantResult, read
from bitverdict.harness.workers.task import TASK_RESULT, Task

HERE = Target("emulated:sm_90", "sm_90")


def mutants(kernel: str, ends: str) -> list[GeneratedMutant]:
    """One a letter: k is killed, s survives, i is invalid, t does not end, e is an error of the harness."""
    return [
        GeneratedMutant(
            id=f"{kernel}/{number}", kernel=kernel, kind=Kind.SOURCE, operator="o", family="f", file="", line=1,
            before=end, after="",
        )
        for number, end in enumerate(ends)
    ]  # fmt: skip


class FakePool:
    """A pool of one place whose worker answers at once, by what is written in the mutant."""

    asked: list[tuple[str, list[str]]]
    released: list[str]

    def __init__(self, *, jobs: int, timeout: float) -> None:
        FakePool.asked, FakePool.released = [], []

    def __enter__(self) -> FakePool:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def interruptible(self) -> FakePool:
        return self

    def release(self, target: Target, *, place: int) -> None:
        FakePool.released.append(target.name)

    def spread(self, work: Iterable[Any], do: Callable) -> Iterator[Any]:
        for item in work:
            yield do(item, 0)

    def judge(self, task: Task, target: Target, *, place: int) -> Verdict:
        mutant = task.given["mutant"]
        self.asked.append((mutant["id"], [case for case, _ in task.given["kills"]]))
        if mutant["before"] == "t":
            return Verdict(decision=Decision.FAIL, outcome=Outcome.TIMEOUT, message="no answer")
        if mutant["before"] == "e":
            return Verdict(decision=Decision.ERROR, outcome=Outcome.ERROR, message="broken")
        end = {"k": End.KILL, "s": End.SURVIVAL, "i": End.INVALID}[mutant["before"]]
        found = MutantResult(mutant=mutant["id"], end=end, killed_by="a case" if end is End.KILL else "", cases_run=5)
        return Verdict(decision=Decision.PASS, outcome=Outcome.PASS, details={TASK_RESULT: found.to_json()})


@pytest.fixture(autouse=True)
def fake_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "WorkerPool", FakePool)


def judged(planned: list[PlannedMutants], out: Path, **how: Any) -> dict[str, End]:
    return {each.mutant.id: each.result.end for each in judge_all(planned, out, **how)}


def plan(kernel: str, ends: str, live: int | None = None, target: Target = HERE) -> PlannedMutants:
    return PlannedMutants(Kernel(kernel), target, mutants(kernel, ends), live)


def test_a_worker_that_dies_or_does_not_end_has_killed_its_mutant(tmp_path: Path) -> None:
    found = {each.mutant.id: each.result for each in judge_all([plan("a", "kte")], tmp_path / "results")}
    assert [each.end for each in found.values()] == [End.KILL, End.KILL, End.ERROR]
    assert (found["a/1"].outcome, found["a/1"].clause) == ("timeout", "the launch ends")


def test_a_results_file_is_gone_on_with_and_errors_are_judged_again(tmp_path: Path) -> None:
    out = tmp_path / "results"
    assert len(judged([plan("a", "kse")], out)) == 3
    assert judged([plan("a", "kseik")], out) == {"a/2": End.ERROR, "a/3": End.INVALID, "a/4": End.KILL}
    assert [first for _, first in FakePool.asked] == [["a case"]] * 3, "what killed before comes first"
    assert len(list(read(out))) == 5


def test_enough_live_mutants_of_a_kernel_end_it_and_others_do_not_count(tmp_path: Path) -> None:
    other = Target("emulated:sm_80", "sm_80")
    found = judged([plan("a", "iikkkk", live=2), plan("b", "kk", live=9, target=other)], tmp_path / "results")
    assert sorted(found) == ["a/0", "a/1", "a/2", "a/3", "b/0", "b/1"]
    assert FakePool.released == [HERE.name], "a place that leaves a target ends its worker"


def test_no_mutant_is_begun_after_the_seconds_are_over(tmp_path: Path) -> None:
    assert judged([plan("a", "kkkk")], tmp_path / "results", seconds=-1.0) == {}

"""Contract under test: a crosscheck counts the words in which a machine, the plan and the emulated machine differ, names the first
of them, and says how many words a model wrong in one constant would have changed.

The machine here is the emulated one, so agreement is expected; disagreement is mutated in the model.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bitverdict.harness.contracts.oracle.dot_lowering import mutated_model
from bitverdict.harness.frontends.main import main
from bitverdict.harness.lab import crosscheck
from bitverdict.harness.lab.commands import crosscheck as cli_crosscheck
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.workers.journal import Journal
from bitverdict.harness.workers.one_thread import VARIABLES
from bitverdict.harness.workers.pool import WorkerPool
from bitverdict.harness.workers.task import Task, task_result_of
from tests.support.vector_add import case as vector_add

MATMUL = resolve("matmul")


HOPPER = target("emulated:sm_90")


def compare(case: Case) -> dict:
    """The row of `case` on the emulated machine, compared in this process."""
    return task_result_of(crosscheck.compare_case(HOPPER, crosscheck.task_of(case).given))


def case(**fields: object) -> Case:
    problem = MATMUL.module.Problem(m=33, n=40, k=96, dtype="fp16", out="fp32")  # type: ignore[attr-defined]
    config = MATMUL.module.configurations("cuda")[-1]  # type: ignore[attr-defined]
    return Case(**({"contract": "matmul", "problem": problem, "config": config, "regime": "wide", "data_seed": 3} | fields))  # type: ignore[arg-type]


def test_a_right_kernel_differs_nowhere_and_each_moved_model_would_show() -> None:
    row = compare(case())
    assert (row["wrong"], row["words"], row["differ"]) == ("", 33 * 40, {"plan": 0, "emulation": 0})
    assert all(row["moved"][model] > row["words"] // 10 for model in crosscheck.MOVED_MODELS), row["moved"]


@pytest.mark.parametrize("model", crosscheck.MOVED_MODELS)
def test_a_plan_with_a_wrong_constant_is_told_by_its_first_words(model: str) -> None:
    with mutated_model(crosscheck.MOVED_MODELS[model]):
        row = compare(case())
    assert row["differ"]["plan"] > 0 and row["differ"]["emulation"] == 0
    assert row["first"][0].keys() == {"at", "got", "plan"} and row["first"][0]["got"] != row["first"][0]["plan"]
    assert "words differ" in row["wrong"]


def test_an_unexpected_outcome_is_wrong_and_an_expected_refusal_is_not() -> None:
    problem = MATMUL.module.Problem  # type: ignore[attr-defined]
    refused = compare(case(problem=problem(m=4, n=4, k=4, activation="gelu")))
    assert (refused["wrong"], refused["words"], refused["outcome"]) == ("", 0, "refused")


def test_what_a_comparison_raises_is_in_its_row_and_counts_as_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("deliberate")

    monkeypatch.setattr(crosscheck, "launch", broken)
    tally = crosscheck.Tally()
    tally.add(compare(case()))
    assert len(tally.wrong_rows) == 1 and "deliberate" in tally.wrong_rows[0]["wrong"]


def test_a_crosscheck_goes_on_to_its_words_on_one_thread_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads: not told so by themselves, NumPy has read the variables when a worker's first line runs."""
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path))
    monkeypatch.setenv(VARIABLES[0], "5")
    rows = list(crosscheck.crosscheck("matmul", HOPPER, cases=2, words=3000, seed=0, jobs=2, with_moved_models=False))
    assert sum(row["words"] for row in rows) >= 3000 and not any(row["wrong"] for row in rows)
    assert len({row["key"] for row in rows}) == len(rows) >= 2
    with WorkerPool(journal=Journal(tmp_path / "one.jsonl")) as pool:
        told = pool.judge(Task(function="tests.support.worker_tasks:threads", contract=""), HOPPER)
    assert task_result_of(told) == {"threads": 1, **dict.fromkeys(VARIABLES, "1")} and os.environ[VARIABLES[0]] == "5"


@pytest.mark.parametrize(("fault", "outcome"), [("segfault", "segmentation fault"), ("hang", "timeout"), ("wrong", "")])
def test_a_case_that_ends_its_worker_is_a_row_by_its_name(fault: str, outcome: str, tmp_path: Path) -> None:
    tasks = [crosscheck.task_of(vector_add(fault=each), moved=False) for each in ("", fault, "")]
    tasks[1] = replace(tasks[1], timeout=1.0 if fault == "hang" else None)
    with WorkerPool(journal=Journal(tmp_path / "j.jsonl")) as pool:
        rows = [crosscheck.row_of(task, HOPPER, pool.judge(task, HOPPER)) for task in tasks]
    assert [bool(row["wrong"]) for row in rows] == [False, True, False] and rows[0]["words"] == rows[2]["words"] > 0
    assert rows[1]["outcome"] == outcome and (outcome or "words differ") in rows[1]["wrong"]


def test_what_was_asked_without_moved_models_is_shown_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """The command's own words, on a GPU that is stood in for: what it compares comes from `crosscheck`."""
    row = task_result_of(crosscheck.compare_case(HOPPER, crosscheck.task_of(case(), moved=False).given))
    monkeypatch.setattr(crosscheck, "crosscheck", lambda *given, **rest: iter([row] if not rest["with_moved_models"] else []))
    monkeypatch.setattr(cli_crosscheck, "targets", lambda: [Target("cuda:0", "sm_90", 0)])
    asked = ["crosscheck", "matmul", "--without-moved-models", "--json", str(tmp_path / "rows.jsonl")]
    assert main(asked) == 0
    told = capsys.readouterr().out
    assert f"{row['words']:,}" in told and "would differ" not in told


def test_a_sharpened_case_asks_for_fp32_and_keeps_integers_as_they_were() -> None:
    floats = crosscheck.sharpen_case(case(), 5)
    assert (floats.problem.out, floats.regime, floats.problem.k) == ("fp32", "wide", 96 + 160)
    assert (floats.problem.m, floats.problem.n) == (33 + 128, 40)
    problem = MATMUL.module.Problem(m=8, n=8, k=8, dtype="int8", out="int8")  # type: ignore[attr-defined]
    assert crosscheck.sharpen_case(case(problem=problem), 0).problem.out == "int8"


def test_a_tally_adds_up_by_type_and_keeps_what_differs() -> None:
    tally = crosscheck.Tally()
    row = compare(case())
    tally.add(row)
    tally.add(row | {"wrong": "words differ", "differ": {"plan": 2, "emulation": 1}})
    assert (tally.cases["fp16"], tally.words["fp16"], tally.differ["fp16", "plan"]) == (2, 2 * 33 * 40, 2)
    assert len(tally.wrong_rows) == 1 and len(tally.keys) == 1


def test_a_sequential_sum_is_the_loop_a_float_program_would_run() -> None:
    from bitverdict.reference.tensor_core import instruction

    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((4, 24)).astype(np.float16) for _ in "ab")
    rule = instruction("sm_90", "wgmma", "fp16", "fp16", "fp32")
    got = crosscheck.MOVED_MODELS["sequential fp32"](rule, a.view(np.uint16), b.T.copy().view(np.uint16), None).view(np.float32)
    total = np.zeros((4, 4), np.float32)
    for step in range(24):  # every product of two fp16 is exact in fp32
        total = total + np.outer(a[:, step].astype(np.float32), b[:, step].astype(np.float32))
    assert np.array_equal(got, total)

"""Contract under test: a crosscheck counts the words in which a machine, the plan and the emulated machine differ, names the first
of them, and says how many words a model wrong in one constant would have changed.

The machine here is the emulated one, so agreement is expected; disagreement is mutated in the model.
"""

from __future__ import annotations

import multiprocessing.pool
import os
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bitverdict.harness.contracts.oracle.dot_lowering import mutated_model
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import target
from bitverdict.harness.studies import crosscheck
from bitverdict.harness.workers.one_thread import VARIABLES

MATMUL = resolve("matmul")


@pytest.fixture(scope="module", autouse=True)
def worker() -> None:
    crosscheck._begin("matmul", target("emulated:sm_90"), True)


def case(**fields: object) -> Case:
    problem = MATMUL.module.Problem(m=33, n=40, k=96, dtype="fp16", out="fp32")  # type: ignore[attr-defined]
    config = MATMUL.module.configurations("cuda")[-1]  # type: ignore[attr-defined]
    return Case(**({"contract": "matmul", "problem": problem, "config": config, "regime": "wide", "data_seed": 3} | fields))  # type: ignore[arg-type]


def test_a_right_kernel_differs_nowhere_and_every_moved_model_would_have_shown() -> None:
    row = crosscheck._compare(case().to_json())
    assert (row["wrong"], row["words"], row["differ"]) == ("", 33 * 40, {"plan": 0, "emulation": 0})
    assert all(row["moved"][model] > row["words"] // 10 for model in crosscheck.MOVED), row["moved"]


@pytest.mark.parametrize("model", crosscheck.MOVED)
def test_a_plan_with_a_wrong_constant_is_told_by_its_first_words(model: str) -> None:
    with mutated_model(crosscheck.MOVED[model]):
        row = crosscheck._compare(case().to_json())
    assert row["differ"]["plan"] > 0 and row["differ"]["emulation"] == 0
    assert row["first"][0].keys() == {"at", "got", "plan"} and row["first"][0]["got"] != row["first"][0]["plan"]
    assert "words differ" in row["wrong"]


def test_an_outcome_that_is_not_expected_is_wrong_and_an_expected_refusal_is_not() -> None:
    problem = MATMUL.module.Problem  # type: ignore[attr-defined]
    refused = crosscheck._compare(case(problem=problem(m=4, n=4, k=4, activation="gelu")).to_json())
    assert (refused["wrong"], refused["words"], refused["outcome"]) == ("", 0, "refused")


def test_what_a_comparison_raises_is_in_its_row_and_counts_as_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(crosscheck, "launch", broken)
    tally = crosscheck.Tally()
    tally.add(crosscheck._compare(case().to_json()))
    assert len(tally.wrong) == 1 and "planted" in tally.wrong[0]["wrong"]


def test_workers_are_started_with_one_thread_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not told so by themselves: NumPy has read the variables when their first line runs."""
    started: list[dict] = []

    class Pool(multiprocessing.pool.ThreadPool):
        def __init__(self, jobs: int, **rest: Any) -> None:
            started.append({name: os.environ.get(name) for name in VARIABLES})
            super().__init__(jobs, **rest)

    monkeypatch.setattr(crosscheck.multiprocessing, "get_context", lambda how: SimpleNamespace(Pool=Pool))
    monkeypatch.setattr(crosscheck, "_compare", lambda record: {"words": 7, "case": record})
    monkeypatch.setenv(VARIABLES[0], "5")
    monkeypatch.delenv(VARIABLES[1], raising=False)
    rows = list(crosscheck.crosscheck("matmul", target("emulated:sm_90"), cases=1, words=1, seed=0, jobs=1))
    assert rows and started == [dict.fromkeys(VARIABLES, "1")]
    assert os.environ[VARIABLES[0]] == "5" and VARIABLES[1] not in os.environ


def test_a_sharpened_case_asks_for_fp32_and_keeps_integers_as_they_were() -> None:
    floats = crosscheck.sharpened(case(), 5)
    assert (floats.problem.out, floats.regime, floats.problem.k) == ("fp32", "wide", 96 + 160)
    assert (floats.problem.m, floats.problem.n) == (33 + 128, 40)
    problem = MATMUL.module.Problem(m=8, n=8, k=8, dtype="int8", out="int8")  # type: ignore[attr-defined]
    assert crosscheck.sharpened(case(problem=problem), 0).problem.out == "int8"


def test_a_tally_adds_up_by_type_and_keeps_what_differs() -> None:
    tally = crosscheck.Tally()
    row = crosscheck._compare(case().to_json())
    tally.add(row)
    tally.add(row | {"wrong": "words differ", "differ": {"plan": 2, "emulation": 1}})
    assert (tally.cases["fp16"], tally.words["fp16"], tally.differ["fp16", "plan"]) == (2, 2 * 33 * 40, 2)
    assert len(tally.wrong) == 1 and len(tally.keys) == 1


def test_a_sequential_sum_is_the_loop_a_float_program_would_run() -> None:
    from bitverdict.reference.tensor_core import instruction

    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((4, 24)).astype(np.float16) for _ in "ab")
    rule = instruction("sm_90", "wgmma", "fp16", "fp16", "fp32")
    got = crosscheck._sequential(rule, a.view(np.uint16), b.T.copy().view(np.uint16), None).view(np.float32)
    total = np.zeros((4, 4), np.float32)
    for step in range(24):  # every product of two fp16 is exact in fp32
        total = total + np.outer(a[:, step].astype(np.float32), b[:, step].astype(np.float32))
    assert np.array_equal(got, total)

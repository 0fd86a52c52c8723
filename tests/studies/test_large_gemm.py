"""Contract under test: a large product is judged by chosen rows crossed with chosen columns that reach every tile; their expected
words are those the whole problem would have given; one wrong tile fails and named; what did not run is said and counts
nothing.

"Large" is small here: the sample is made smaller still, so that most words are not compared.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from bitverdict.harness.frontends import cli_large, pytest_large
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Decision
from bitverdict.harness.studies.large_gemm import cases as large_cases
from bitverdict.harness.studies.large_gemm import operands as large_operands
from bitverdict.harness.studies.large_gemm.cases import cases, judge_large, sample
from bitverdict.harness.workers.one_thread import VARIABLES
from bitverdict.kernels.matmul import CONFIGS, Problem
from bitverdict.kernels.scaled_operands import FORMATS
from tests.faults.mutants import Fault, write_mutant

HOPPER = target("emulated:sm_90")
SMALL = CONFIGS["cuda"][-1]  # 32x64x32
LAST_TILE_ROW = Fault(
    name="last tile row wrong",
    kernel="matmul",
    replace="c = accumulator.to(c_ptr.dtype.element_ty)",
    by="c = (accumulator + tl.where(tile_row == tile_rows - 1, 1.0, 0.0)).to(c_ptr.dtype.element_ty)",
    fails_as=("wrong words",),
)
ONE_TILE = replace(
    LAST_TILE_ROW,
    name="one tile never written",
    replace="(rows[:, None] < m) & (columns[None, :] < n))",
    by="(rows[:, None] < m) & (columns[None, :] < n) & ((tile_row != 2) | (tile_column != 1)))",
)


def small(**fields: object) -> Case:
    problem = Problem(m=160, n=200, k=64, out="fp32")
    return Case(**({"contract": "matmul", "problem": problem, "config": SMALL, "data_seed": 5} | fields))  # type: ignore[arg-type]


def test_a_sample_holds_both_ends_of_every_tile_and_others() -> None:
    rows, columns = sample((1000, 700), (128, 64), 160 * 160, np.random.default_rng(0))
    for chosen, size, tile in ((rows, 1000, 128), (columns, 700, 64)):
        ends = {e for start in range(0, size, tile) for e in (start, min(start + tile, size) - 1)}
        assert ends < set(chosen.tolist()) and len(chosen) == 160 == len(set(chosen.tolist()))
        assert (np.diff(chosen) > 0).all() and chosen[-1] == size - 1
    few, _ = sample((1000, 700), (16, 16), 100, np.random.default_rng(0))
    assert len(few) == 10 and {0, 999} <= set(few.tolist())
    whole = sample((30, 40), (16, 16), 1200, np.random.default_rng(0))
    assert [len(axis) for axis in whole] == [30, 40]


@pytest.mark.parametrize("place", range(len(cases([(40, 48, 256)], HOPPER))))
def test_the_words_of_chosen_places_are_the_whole_problems(place: int) -> None:
    case = cases([(40, 48, 256)], HOPPER)[place]
    case = replace(case, config=None if case.config is None else case.config)
    contract, where = resolve(case.contract), target("emulated:sm_100" if case.contract.startswith("blocked") else "emulated:sm_90")
    recorded = {"config": vars(SMALL)} if case.config is None else {}
    operands = large_operands.operands(case)
    whole = contract.expected(case, where, operands, recorded)[0].words
    rows, columns = np.array([0, 7, 39]), np.array([1, 30, 31, 47])
    smaller, chosen = large_operands.part(case, operands, rows, columns)
    again = contract.expected(smaller, where, chosen, recorded)[0].words
    assert whole is not None and len(np.unique(whole)) > whole.size // 4
    assert np.array_equal(again, whole[np.ix_(rows, columns)])


@pytest.mark.parametrize("size", [(1024, 1024, 1024), (4096, 2048, 128), (64, 48, 32)])
def test_a_size_is_asked_of_each_kernel_that_multiplies_by_type(size: tuple[int, int, int]) -> None:
    asked: dict[str, set[str]] = {}
    for case in cases([size], HOPPER):
        p = case.problem
        kind = f"{p.dtype} {p.precision}" if getattr(p, "dtype", "") == "fp32" else getattr(p, "format", "") or p.dtype
        asked.setdefault(case.contract, set()).add(kind)
        assert (p.m, p.n, p.k) == size
    assert asked == {
        "matmul": {"fp16", "bf16", "e4m3", "int8", "fp32 tf32", "fp32 ieee"},
        "hopper_matmul": {"fp16", "bf16", "e4m3", "e5m2"},
        "ampere_gemm": {"fp16", "bf16"},
        "block_scaled_matmul": set(FORMATS),
        "blocked_matmul": {"fp16"},
        "blocked_matmul_pipelined": {"fp16"},
    }


@pytest.mark.parametrize(("k", "asked"), [(127, True), (128, True), (129, False), (256, False)])
def test_fp32_by_multiply_adds_is_asked_of_up_to_2_to_the_30_products(k: int, asked: bool) -> None:
    """The reference takes one K after the other; what docs/benchmarks.md tells of is 4096x2048x128."""
    made = [case for case in cases([(4096, 2048, k)], HOPPER) if getattr(case.problem, "precision", "") == "ieee"]
    assert len(made) == asked


def test_drawn_codes_are_the_same_whatever_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_operands, "STRIPE", 1000)
    made = {form: large_operands.draw(form, (50, 64), 3, "a") for form in ("fp16", "bf16", "e4m3", "e5m2", "fp32", "int8", "pairs")}
    monkeypatch.setattr(large_operands.os, "sched_getaffinity", lambda pid: {0})
    for form, codes in made.items():
        assert np.array_equal(codes, large_operands.draw(form, (50, 64), 3, "a"))
        assert not np.array_equal(codes, large_operands.draw(form, (50, 64), 3, "b")), form
        assert len(np.unique(codes)) > 60


def test_a_right_kernel_passes_on_every_tile() -> None:
    (row,) = judge_large([small()], HOPPER, products=64 * 900, jobs=0)
    assert (row.decision, row.differ, row.words, row.of, row.tiles) == (Decision.PASS, 0, 900, 160 * 200, (20, 20)), row.message


@pytest.mark.parametrize(("fault", "tiles", "unwritten"), [(LAST_TILE_ROW, 4, False), (ONE_TILE, 1, True)])
def test_one_wrong_tile_fails_and_named(fault: Fault, tiles: int, unwritten: bool, tmp_path: Path) -> None:
    (row,) = judge_large([small(contract=write_mutant(fault, tmp_path))], HOPPER, products=64 * 900, jobs=0)
    assert (row.decision, row.outcome, row.wrong_tiles) == (Decision.FAIL, "wrong words", tiles), row.message
    assert row.never_written == (row.differ if unwritten else 0)
    at = "tile rows 2 to 2, tile columns 1 to 1" if unwritten else "tile rows 4 to 4, tile columns 0 to 3"
    assert at in row.message and row.first[0]["got"] != row.first[0]["expected"]


def test_a_kernel_that_the_target_lacks_features_for_is_not_run_and_counts_nothing() -> None:
    lacking = [case for case in cases([(64, 64, 64)], HOPPER) if case.contract == "blocked_matmul"]
    (row,) = judge_large(lacking, HOPPER, jobs=0)
    told = cli_large.summed([row], "emulated:sm_90", "", 1.0)
    assert (row.decision, row.words, told["words"], told["cases"]) == (Decision.NOT_RUN, 0, 0, 0)
    assert told["not_run"] and "lacks" in told["not_run"][0]


@pytest.mark.parametrize("place", [large_cases, pytest_large], ids=lambda place: place.__name__)
def test_processes_for_large_products_are_started_with_one_thread(place: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool starts a process when it is handed work."""
    started: list[dict] = []

    class Pool(ThreadPoolExecutor):
        def __init__(self, workers: int, **rest: object) -> None:
            super().__init__(workers)

        def submit(self, *work: object, **rest: object) -> Future:  # type: ignore[override]
            started.append({name: os.environ.get(name) for name in VARIABLES})
            return super().submit(*work, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(place, "ProcessPoolExecutor", Pool)
    monkeypatch.setenv(VARIABLES[0], "5")
    if place is large_cases:
        assert [row.decision for row in judge_large([small()], HOPPER, products=64 * 900, jobs=1)] == [Decision.PASS]
    else:
        assert pytest_large.LargePool().judge(small(), HOPPER, 64 * 900)["decision"] == "pass"
    assert started and all(seen == dict.fromkeys(VARIABLES, "1") for seen in started)
    assert os.environ[VARIABLES[0]] == "5"


def test_the_command_writes_its_rows_and_its_status_says_what_came(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    from bitverdict.harness.frontends.main import main

    out = tmp_path / "large.jsonl"
    asked = ["large", "ampere_gemm", "--target", "emulated:sm_90", "--sizes", "96x80x32", "--jobs", "0", "--json", str(out)]
    assert main(asked) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["decision"] for row in rows[:-1]] == ["pass", "pass"] and rows[-1]["words"] == 2 * 96 * 80
    assert "bit for bit" in capsys.readouterr().out
    assert main(["large", "blocked_matmul", "--target", "emulated:sm_90", "--sizes", "64", "--jobs", "0"]) == 5
    for bad in (["--sizes", "8x8"], ["--sizes", "0"], ["tmem_copy"]):
        assert main(["large", "--target", "emulated:sm_90", *bad]) == 2

"""Contract under test: a large product is judged by chosen rows crossed with chosen columns that reach every tile; their expected
words are those the whole problem would have given; one wrong tile fails and named; what did not run is said and counts
nothing.

"Large" is small here: the sample is made smaller still, so that most words are not compared.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import one_wrong_word
from bitverdict.harness.emulator import emulated
from bitverdict.harness.lab.commands import large_products as cli_large
from bitverdict.harness.lab.large_gemm import cases as large_cases
from bitverdict.harness.lab.large_gemm import held_words
from bitverdict.harness.lab.large_gemm import operands as large_operands
from bitverdict.harness.lab.large_gemm.cases import cases, judge_large, tutorial_cases
from bitverdict.harness.lab.large_gemm.row_numbers import run_of, sample
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import ExpectedOutput
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.model.verdict import Decision
from bitverdict.harness.workers.gpu_lease import NEED
from bitverdict.harness.workers.journal import Journal
from bitverdict.harness.workers.pool import WorkerPool
from bitverdict.kernels.matmul import CONFIGS, Problem
from bitverdict.kernels.scaled_operands import FORMATS
from bitverdict.reference.tensor_core.product_query import ProductQuery, answer_product
from tests.faults.mutants import Mutant, once, write_mutant
from tests.kernel_contracts.tutorial_rows import ROWS
from tests.support.interrupts import answering
from tests.workers.test_pool import runs

HOPPER = target("emulated:sm_90")
SMALL = CONFIGS["cuda"][-1]  # 32x64x32
LAST_TILE_ROW = Mutant(
    kernel="matmul",
    name="last tile row wrong",
    edits=once(
        "c = accumulator.to(c_ptr.dtype.element_ty)",
        "c = (accumulator + tl.where(tile_row == tile_rows - 1, 1.0, 0.0)).to(c_ptr.dtype.element_ty)",
    ),
    expected=("wrong words",),
)
ONE_TILE = replace(
    LAST_TILE_ROW,
    name="one tile never written",
    edits=once(
        "(rows[:, None] < m) & (columns[None, :] < n))",
        "(rows[:, None] < m) & (columns[None, :] < n) & ((tile_row != 2) | (tile_column != 1)))",
    ),
)
ONE_WORD = replace(
    LAST_TILE_ROW,
    name="one word wrong",
    edits=once(
        "c = accumulator.to(c_ptr.dtype.element_ty)",
        "c = (accumulator + tl.where((rows[:, None] == 77) & (columns[None, :] == 131), 1.0, 0.0)).to(c_ptr.dtype.element_ty)",
    ),
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
    contract = resolve(case.contract)
    where = HOPPER if contract.requires <= HOPPER.features else target("emulated:sm_100")
    recorded = {"config": vars(SMALL)} if case.config is None else {}
    operands = large_operands.operands(case)
    whole = contract.expected(case, where, operands, recorded)[0].words
    rows, columns = np.array([0, 7, 39]), np.array([1, 30, 31, 47])
    smaller, chosen = large_operands.part(case, operands, rows, columns)
    again = contract.expected(smaller, where, chosen, recorded)[0].words
    assert whole is not None and len(np.unique(whole)) > whole.size // 4
    assert np.array_equal(again, whole[np.ix_(large_operands.landing_rows(case, operands)[rows], columns)])


@pytest.mark.parametrize("size", [(1024, 1024, 1024), (4096, 2048, 128), (64, 48, 32)])
def test_a_size_is_asked_of_each_kernel_that_multiplies_by_type(size: tuple[int, int, int]) -> None:
    asked: dict[str, set[str]] = {}
    for case in cases([size], HOPPER):
        p = case.problem
        kind = f"{p.dtype} {p.precision}" if getattr(p, "dtype", "") == "fp32" else getattr(p, "format", "") or p.dtype
        asked.setdefault(case.contract, set()).add(kind)
        assert large_operands.size_of(p) == size
    assert asked == {
        "matmul": {"fp16", "bf16", "e4m3", "int8", "fp32 tf32", "fp32 ieee"},
        "hopper_matmul": {"fp16", "bf16", "e4m3", "e5m2"},
        "ampere_gemm": {"fp16", "bf16"},
        "block_scaled_matmul": set(FORMATS),
        "blocked_matmul": {"fp16"},
        "blocked_matmul_pipelined": {"fp16"},
        "fused_gather_scatter_matmul": {"bf16"},
        "pointer_gather_scatter_matmul": {"fp16", "bf16"},
        "split_k_matmul": {"fp16", "bf16"},
        "fp8_blockwise_matmul": {"e4m3"},
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
    assert (row.decision, row.differ, row.words, row.result_words, row.tiles) == (Decision.PASS, 0, 900, 160 * 200, (20, 20)), (
        row.message
    )


@pytest.mark.parametrize(("mutant", "tiles", "unwritten"), [(LAST_TILE_ROW, 4, False), (ONE_TILE, 1, True)])
def test_one_wrong_tile_fails_and_named(mutant: Mutant, tiles: int, unwritten: bool, tmp_path: Path) -> None:
    (row,) = judge_large([small(contract=write_mutant(mutant, tmp_path))], HOPPER, products=64 * 900, jobs=0)
    assert (row.decision, row.outcome, row.wrong_tiles) == (Decision.FAIL, "wrong words", tiles), row.message
    assert row.unwritten_words == (row.differ if unwritten else 0)
    at = "tile rows 2 to 2, tile columns 1 to 1" if unwritten else "tile rows 4 to 4, tile columns 0 to 3"
    assert at in row.message and row.examples[0]["got"] != row.examples[0]["expected"]


def test_every_word_is_held_where_a_gpu_computes_what_is_expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_cases, "gpu_for_every_word", lambda *_: "cuda")
    monkeypatch.setattr(large_cases, "BLOCK", 90)
    monkeypatch.setattr(held_words, "THREADS", 1)  # an emulated GPU serves the thread that entered it
    mutant = write_mutant(ONE_WORD, tmp_path)
    with emulated("sm_90"):
        right, wrong = judge_large([small(), small(contract=mutant)], HOPPER, products=64 * 9, jobs=0)
    assert (right.decision, right.differ, right.words) == (Decision.PASS, 0, right.result_words), right.message
    assert (wrong.decision, wrong.differ, wrong.words, wrong.examples[0]["at"]) == (Decision.FAIL, 1, wrong.result_words, (77, 131))
    assert "in integer arithmetic" in right.basis


def test_threads_hold_every_block_once_to_the_words_that_are_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    """And find the one word that another is expected for, each asking the model that the thread which begun them entered."""
    monkeypatch.setattr(held_words, "answer_on", lambda gpu: lambda asked: asked.a * gpu)
    asked = ProductQuery(rule=None, a=np.full((1, 1), 3, np.uint32), b=np.zeros((1, 1), np.uint32))
    words = np.full((50, 70), 6, np.uint32)
    words[41, 13] = 7
    came = held_words.WordComparison.for_places(words.dtype, (np.arange(50), np.arange(70)), (np.zeros(50), np.zeros(70)))

    def hold(place: tuple[slice, slice]) -> str:
        shape = came.actual[place].shape
        expected = ExpectedOutput(
            name="c", format="fp32", shape=shape, words=np.broadcast_to(answer_product(asked), shape), basis="b"
        )
        came.hold(place, words, expected)
        return str(place)

    blocks = came.blocks(16)
    assert held_words.over_blocks(hold, blocks, 2) == [str(place) for place in blocks] and len(blocks) == 20  # type: ignore[arg-type]
    assert came.decided_mask.all() and np.argwhere(came.differs).tolist() == [[41, 13]] and (came.expected == 6).all()


def test_places_without_a_gap_are_taken_as_a_slice() -> None:
    assert run_of(np.arange(4, 9)) == slice(4, 9) and run_of(np.array([3])) == slice(3, 4)
    for gaps in ([], [2, 3, 5]):
        assert run_of(np.array(gaps)) is not None and not isinstance(run_of(np.array(gaps)), slice)


def test_every_size_that_a_tutorial_times_is_judged_whole() -> None:
    """And every size at which it validates a kernel that has large cases."""
    had: dict[str, set[tuple[int, ...]]] = {}
    for case in tutorial_cases(HOPPER):
        had.setdefault(case.contract, set()).add(large_operands.size_of(case.problem))
    for row in ROWS:
        held = row["held"].get("throughput") or row["held"].get("large")
        if held is None:
            continue
        side = row.get("rows_and_columns")
        sizes = [tuple(row["size"])] if "size" in row else []
        sizes += (
            [(side, side, k) for k in row["lists"]["K"]] if side else [tuple(m) for m in row.get("lists", {}).get("M, N, K", ())]
        )
        assert sizes and set(sizes) <= had[held["kernel"]], row["id"]


def test_a_case_that_needs_more_memory_than_others_waits_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that has no room for it does not run it; nothing is drawn or launched."""
    asked: list[int] = []

    @contextmanager
    def admitted(needed: int, target: Target, **_: object) -> Iterator[str]:
        asked.append(needed)
        yield "no room"

    monkeypatch.setattr(large_cases, "admit_bytes", admitted)
    gpu = Target("cuda:0", "sm_90", index=0)
    ordinary, large = ([case] for case in tutorial_cases(gpu) if case.contract == "matmul" and case.problem.m in (8192, 9728))
    for cases_of, where in ((ordinary, gpu), (large, gpu), (large, HOPPER)):
        (row,) = judge_large(cases_of, where, jobs=0)
        assert (row.decision, row.message) == (Decision.NOT_RUN, "no room")
    assert asked[0] == asked[2] == 0 and asked[1] > NEED
    assert large_cases.timeout_of(large[0], 1) > large_cases.timeout_of(ordinary[0], 1)


def test_places_stand_for_each_row_of_a_scattered_result_once() -> None:
    """Those outside too: they stand for the rows that keep what they held."""
    (case,) = (each for each in cases([(200, 48, 32)], HOPPER) if each.contract == "fused_gather_scatter_matmul")
    given = large_operands.operands(case)
    rows, scatter = large_operands.landing_rows(case, given), given["scatter"].codes
    assert sorted(rows) == list(range(200)) and (scatter == 200).sum() == 2 == (given["gather"].codes == -1).sum()
    assert (rows[scatter < 200] == scatter[scatter < 200]).all()


@pytest.mark.parametrize(("edit", "wrong"), [(once("from __future__", "from __future__"), 0), *(
    (once("there = (numbers >= 0) &", "there = (numbers >= 0) & (numbers != 77) &"), 1),
    (once("there = (targets >= 0) &", "there = (targets != 77) & (targets >= 0) &"), 1),
)])  # fmt: skip
def test_a_row_lost_between_a_gather_and_a_scatter_fails_by_its_tile(edit, wrong: int, tmp_path: Path) -> None:
    mutant = Mutant(kernel="pointer_gather_scatter_matmul", name=f"row lost {wrong}", edits=edit, expected=("wrong words",))
    (case,) = (each for each in cases([(160, 48, 64)], HOPPER) if each.contract == mutant.kernel and each.problem.dtype == "bf16")
    case = replace(case, contract=write_mutant(mutant, tmp_path), config=replace(case.config, block_m=32, block_n=16, num_warps=4))
    (row,) = judge_large([case], HOPPER, products=64 * 160 * 48)
    assert row.words == 160 * 48 and row.tiles == (15, 15)
    assert (row.decision, row.wrong_tiles) == ((Decision.FAIL, 3) if wrong else (Decision.PASS, 0)), row.message


def test_a_kernel_whose_features_the_target_lacks_is_not_run() -> None:
    """It counts nothing."""
    lacking = [case for case in cases([(64, 64, 64)], HOPPER) if case.contract == "blocked_matmul"]
    (row,) = judge_large(lacking, HOPPER, jobs=0)
    told = cli_large.summarize([row], "emulated:sm_90", "", 1.0)
    assert (row.decision, row.words, told["words"], told["cases"]) == (Decision.NOT_RUN, 0, 0, 0)
    assert told["not_run"] and "lacks" in told["not_run"][0]


def test_in_workers_the_rows_are_the_same_and_in_the_order_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path))
    faulty = small(contract=write_mutant(LAST_TILE_ROW, tmp_path))
    asked = [
        small(),
        faulty,
        small(data_seed=6),
        next(case for case in cases([(64, 64, 64)], HOPPER) if "blocked" in case.contract),
    ]
    here, there = (list(judge_large(asked, HOPPER, products=64 * 900, jobs=jobs)) for jobs in (0, 2))
    assert [row.decision for row in there] == [Decision.PASS, Decision.FAIL, Decision.PASS, Decision.NOT_RUN]
    assert [replace(row, seconds={}) for row in there] == [replace(row, seconds={}) for row in here]


ENDS_BADLY = """
import os, signal, time
from bitverdict.harness.contracts import matmul


class EndsBadly(type(matmul.CONTRACT)):
    def launch(self, case, tensors, launcher):
        does = {3: "segfault", 4: "hang", 7: "kill once"}.get(case.data_seed, "")
        if does == "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        if does == "hang":
            time.sleep(600)
        if does == "kill once" and not os.path.exists(ONCE):
            open(ONCE, "x").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().launch(case, tensors, launcher)


CONTRACT = EndsBadly(matmul.CONTRACT.module, f"{__file__}:CONTRACT")
"""


def test_a_worker_that_ends_over_a_large_product_is_its_row_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash and a hang fail by name; a kill that came from outside fails nothing; the cases between them are judged."""
    file = tmp_path / "ends_badly.py"
    file.write_text(f"ONCE = {str(tmp_path / 'once')!r}\n{ENDS_BADLY}")
    asked = [small(contract=f"{file}:CONTRACT", data_seed=seed) for seed in (5, 3, 6, 4, 7, 8)]
    with WorkerPool(timeout=600, journal=Journal(tmp_path / "j.jsonl")) as pool:
        tasks = [replace(large_cases.task_of(case, 64 * 900), timeout=2.0 if case.data_seed == 4 else None) for case in asked]
        rows = [large_cases.row_of(case, pool.judge(task, HOPPER)) for case, task in zip(asked, tasks, strict=True)]
        left = [slot.process.pid for slot in pool.slots.values()]
    came = {row.case["data_seed"]: (row.decision, row.outcome) for row in rows}
    right = (Decision.PASS, "pass")
    fails = {3: (Decision.FAIL, "segmentation fault"), 4: (Decision.FAIL, "timeout")}
    assert came == {5: right, 6: right, 7: right, 8: right} | fails
    assert "ends_badly.py:" in rows[1].message and rows[1].words == rows[3].words == 0 < rows[0].words
    events = [json.loads(line) for line in (tmp_path / "j.jsonl").read_text().splitlines()]
    assert [each["event"] for each in events].count("again") == 2  # the crash, whose worker had served others, and the kill
    assert all(each["task"]["given"]["case"]["problem"]["m"] == 160 for each in events if each["event"] == "begin")
    assert not any(map(runs, left))


STOPPED = """
import sys
from bitverdict.harness.frontends.main import main
from tests.lab.test_large_gemm import small
from bitverdict.harness.lab.large_gemm import cases

cases.cases = lambda sizes, target: [small(contract=sys.argv[1], data_seed=4)]
sys.exit(main(["large", sys.argv[1], "--target", "emulated:sm_90", "--jobs", "1"]))
"""


def test_ctrl_c_ends_a_large_product_that_is_out_and_leaves_no_worker(tmp_path: Path) -> None:
    file = tmp_path / "ends_badly.py"
    file.write_text(f"ONCE = {str(tmp_path / 'once')!r}\n{ENDS_BADLY}")
    with answering():
        run = subprocess.Popen(
            [sys.executable, "-c", STOPPED, f"{file}:CONTRACT"],
            env=os.environ | {"BITVERDICT_STATE": str(tmp_path)},
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
    deadline = time.monotonic() + 300
    while not (begun := [*(tmp_path / "journal").glob("*.jsonl")]) or "begin" not in begun[0].read_text():
        assert time.monotonic() < deadline and run.poll() is None
        time.sleep(0.05)
    time.sleep(0.5)
    workers = [int(pid) for pid in Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()]
    run.send_signal(signal.SIGINT)
    assert run.stderr is not None and "cancelled" in run.stderr.read() and run.wait(300) == 3
    while any(map(runs, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(runs, workers))


def test_the_command_writes_its_rows_and_its_status_says_what_came(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    from bitverdict.harness.frontends.main import main

    out = tmp_path / "large.jsonl"
    asked = ["large", "split_k_matmul", "--target", "emulated:sm_90", "--sizes", "96x80x32", "--jobs", "0", "--json", str(out)]
    assert main(asked) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["decision"] for row in rows[:-1]] == ["pass", "pass"] and rows[-1]["words"] == 2 * 96 * 80
    assert "bit for bit" in capsys.readouterr().out
    assert main(["large", "blocked_matmul", "--target", "emulated:sm_90", "--sizes", "64", "--jobs", "0"]) == 5
    for bad in (["--sizes", "8x8"], ["--sizes", "0"], ["tmem_copy"]):
        assert main(["large", "--target", "emulated:sm_90", *bad]) == 2


def test_a_case_whose_words_cost_more_has_more_time() -> None:
    case = Case(contract="matmul", problem=Problem(m=4096, n=4096, k=4096), config=CONFIGS["cuda"][0])
    assert large_cases.timeout_of(case, large_cases.PRODUCTS) == large_cases.TIMEOUT
    whole = large_cases.timeout_of(case, 1 << 50)
    assert whole == large_cases.task_of(case, 4096**3).timeout
    assert whole > 4096**3 / 1e8, "an arithmetic model of a hundred million products a second"


def test_the_command_damages_one_word_and_says_whether_it_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    row, why = one_wrong_word.found(small(), HOPPER, np.random.default_rng(3))
    assert (row.decision, row.differ, row.words, why) == (Decision.FAIL, 1, row.result_words, "")
    row, why = one_wrong_word.found(small(), target("emulated:sm_80"), np.random.default_rng(4))
    assert (row.differ, why) == (1, "")
    judged = large_cases.large_row
    monkeypatch.setattr(one_wrong_word, "large_row", lambda *asked: replace(judged(*asked), decision=Decision.PASS))
    assert "damaged (" in one_wrong_word.found(small(), HOPPER, np.random.default_rng(3))[1]
    monkeypatch.setattr(one_wrong_word, "large_row", lambda *asked: replace(judged(*asked), words=1))
    assert "damaged (" in one_wrong_word.found(small(), HOPPER, np.random.default_rng(3))[1]

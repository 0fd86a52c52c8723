"""Contract under test: an entry of the corpus is right, wrong, refused or at its limit, on the emulated GPU and in Triton's
interpreter; results are kept and gone on with; the page counts what was executed and what is right of that."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

from benchmarks import corpus_fleet
from benchmarks.corpus import entries, keep, main, read
from benchmarks.corpus_entry import Compared, Entry, Given, Package, by_type, compared, on_cpu, with_gradients, wrong
from benchmarks.corpus_page import page, was_executed
from benchmarks.corpus_run import INTERPRETER, RIGHT, WRONG, Outcome, attempt, outcome_of
from benchmarks.forked_runs import forked, processor_seconds
from benchmarks.tutorial_cases import FAIL, LIMIT, NOT_RUN, REFUSED
from bitverdict.harness.emulator import LaunchOptions, emulated
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Decision, Verdict
from bitverdict.harness.model.verdict import Outcome as Ending
from bitverdict.harness.workers.pool import WorkerPool
from bitverdict.harness.workers.task import Task, task_result_of

OURS = Package("ours", "1")


@triton.jit
def doubled(value):
    return value + value


@triton.jit
def double(x, y, n, ASM: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = doubled(tl.load(x + at, mask=at < n, other=0.0))
    if ASM:
        value = tl.inline_asm_elementwise("no.such.opcode $0, $1;", "=r,r", [value], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(y + at, value, mask=at < n)


def launched(x: torch.Tensor, asm: bool = False) -> torch.Tensor:
    y = torch.empty_like(x)
    double[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), asm, 64)
    return y


def entry(name: str, factor: float = 2.0, call: Callable[[torch.Tensor], torch.Tensor] = launched) -> Entry:
    def run(given: Given) -> Iterator[Compared]:
        x = given.normal(100)
        yield from compared(call(x), factor * on_cpu(x))

    return Entry(OURS, name, run)


def test_entries_are_right_wrong_refused_not_run_or_at_their_limit(tmp_path: Path) -> None:
    with emulated("sm_90", options=LaunchOptions(takes_cpu_tensors=False)) as device:

        def state(of: Entry, on: str = "sm_90", seconds: float = 60.0) -> Outcome:
            return outcome_of(of, on, forked(lambda: attempt(of, device, on), seconds, tmp_path / "log.txt"))

        right = state(entry("right"))
        assert (right.state, right.kernels, right.launches) == (RIGHT, ("double",), 1) and right.launching > 0
        wrong_one = state(entry("wrong", factor=2.5))
        assert wrong_one.state == WRONG and "of 100 elements" in wrong_one.said
        refused = state(entry("refused", call=lambda x: launched(x, asm=True)))
        assert (refused.state, refused.kernels) == (REFUSED, ("double",)) and "no.such.opcode" in refused.said
        assert state(entry("no launch", call=lambda x: x + x)).state == NOT_RUN
        limited = state(entry("slow", call=lambda x: time.sleep(300) or x), seconds=0.2)
        assert limited.state == LIMIT and limited.seconds < 100
        beside = state(entry("right"), INTERPRETER)
        assert (beside.state, beside.kernels) == (RIGHT, ("double",)), beside
        assert state(entry("wrong", factor=2.5), INTERPRETER).state == WRONG


def test_a_process_that_dies_is_a_failure_and_ends_nothing_else(tmp_path: Path) -> None:
    import os

    ended = forked(lambda: os.abort(), 20.0, tmp_path / "log.txt")
    assert ended.sent is None and not ended.over
    assert outcome_of(entry("dies"), "sm_90", ended).outcome == "process ended"
    assert forked(lambda: 5, 20.0, tmp_path / "log.txt").sent == 5
    process = os.fork() or os._exit(0)
    assert processor_seconds(process) >= 0.0
    os.waitpid(process, 0)
    assert processor_seconds(process) == 0.0


def test_gradients_are_held_to_those_of_the_reference() -> None:
    class Squared(torch.autograd.Function):
        factor = 2.0

        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def, override]
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, given):  # type: ignore[no-untyped-def, override]
            return Squared.factor * ctx.saved_tensors[0] * given

    forward, backward = with_gradients(OURS, "square", lambda g: (g.normal(5, 7),), Squared.apply, lambda x: x * x)
    with emulated("sm_90"):
        said = [[wrong(each) for each in one.run(Given(one.name))] for one in (forward, backward)]
        Squared.factor = 2.1
        faulty = [wrong(each) for each in backward.run(Given(backward.name))]
    assert said == [[""], [""]]
    assert "gradient 0: 35 of 35 elements" in faulty[0]


@pytest.mark.parametrize(
    ("got", "expected", "ratio", "said"),
    [
        ([1.0, 2.0], [1.0, 2.0], None, ""),
        ([1.0, float("nan")], [1.0, float("nan")], None, ""),
        ([1.0, 2.0], [1.0, 2.1], None, "1 of 2 elements"),
        ([1.0, float("nan")], [1.0, 2.0], None, "1 of 2 elements"),
        ([1.0, 2.0, 3.0], [1.0, 2.0], None, "shape"),
        ([1.0, 2.0], [1.0, 2.001], 0.01, ""),
        ([1.0, 2.0], [1.0, 2.1], 0.01, "root mean square"),
        ([1.0, float("nan")], [1.0, 2.0], 0.01, "root mean square"),
    ],
)
def test_a_result_is_right_within_its_tolerance_alone(got: list, expected: list, ratio: float | None, said: str) -> None:
    result = torch.tensor(got)
    found = wrong(Compared("it", result, torch.tensor(expected, dtype=torch.float64), *by_type(result), ratio))
    assert said in found and bool(found) == bool(said)


def test_a_mean_of_errors_is_held_where_a_package_goes_by_it() -> None:
    result, exact = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.1], dtype=torch.float64)
    assert not wrong(Compared("it", result, exact, 0.0, 0.0, None, 0.06))
    assert "the mean of the absolute error is 0.05" in wrong(Compared("it", result, exact, 0.0, 0.0, None, 0.04))


def test_complex_results_are_held_by_their_parts() -> None:
    for imaginary, said in ((2.0, ""), (2.1, "1 of 2 elements")):
        (one,) = compared(torch.tensor([1 + 2j]), torch.tensor([1 + 1j * imaginary], dtype=torch.complex128))
        assert said in wrong(one) and bool(wrong(one)) == bool(said)


def test_integers_are_right_where_they_are_equal_alone() -> None:
    (one,) = compared(torch.tensor([1, 2, 3]), torch.tensor([1, 2, 4]))
    assert "1 of 3 elements" in wrong(one)
    with pytest.raises(ValueError, match="2 results and 1 references"):
        list(compared([torch.ones(1), torch.ones(1)], torch.ones(1)))


def test_outcomes_are_kept_and_the_last_of_an_entry_counts(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    file, done = tmp_path / "results.jsonl", {}
    first = Outcome("ours", "1", "right", "sm_90", REFUSED, said="no", kernels=("double",))
    keep(first, file, done)
    keep(replace(first, state=RIGHT), file, done)
    assert read(file) == done == {("ours", "right", "sm_90"): replace(first, state=RIGHT)}
    assert "refused" in capsys.readouterr().err


def test_a_line_that_was_cut_off_is_run_again(tmp_path: Path) -> None:
    file, done = tmp_path / "results.jsonl", {}
    keep(Outcome("ours", "1", "right", "sm_90", RIGHT), file, done)
    whole = file.read_text()
    file.write_text(whole + whole[:20])
    assert read(file) == done and file.read_text() == whole
    file.write_text(whole.rstrip())  # the right twin: a whole record without its newline
    assert read(file) == done and file.read_text() == whole


def test_a_cluster_that_is_not_there_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def none(on: str) -> None:
        raise UsageError("--on ray: RAY_ADDRESS='' names no running cluster")

    monkeypatch.setattr(corpus_fleet.fleet, "cluster", none)
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path), "--package", "torch", "--ray"])
    assert ended.value.code == 2 and "names no running cluster" in capsys.readouterr().err


def test_what_an_error_says_has_no_address_of_its_process() -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        raise ValueError(f"not {object()}")

    with emulated("sm_90") as device:
        said = attempt(entry("raises", call=call), device, "sm_90").said
    assert "not <object object>" in said


def test_batches_of_a_fleet_have_each_entry_once_in_its_order() -> None:
    names = [str(n) for n in range(2 * corpus_fleet.ENTRIES + 1)]
    made = list(corpus_fleet.batches({("ours", "sm_90"): names, ("ours", INTERPRETER): names[:1]}))
    assert [len(each.entries) for each in made] == [corpus_fleet.ENTRIES, corpus_fleet.ENTRIES, 1, 1]
    assert [name for each in made[:3] for name in each.entries] == names
    assert {each.on for each in made[:3]} == {"sm_90"} and made[3].on == INTERPRETER


def test_a_batch_of_a_fleet_comes_to_the_outcomes_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pool is this machine's: tests/workers/test_ray_pool.py holds that Ray's gives the same verdicts."""
    kept = tmp_path / "results.jsonl"
    monkeypatch.setattr(corpus_fleet.fleet, "cluster", lambda on: None)
    asked = [str(tmp_path), "--package", "torch", "--on", "sm_90", "--results", str(kept)]
    assert main([*asked, "--ray"]) == 0
    (found,) = read(kept).values()
    assert (found.package, found.entry, found.on, found.state) == ("torch", "scatter_mm", "sm_90", RIGHT)
    assert found.launches and found.commit and isinstance(found.kernels, tuple)


def test_a_batch_that_came_to_nothing_leaves_its_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def lost(pool: WorkerPool, work: Task, *_: object, **__: object) -> Verdict:
        return Verdict(decision=Decision.ERROR, outcome=Ending.ERROR, message="its node is gone")

    monkeypatch.setattr(corpus_fleet.fleet, "cluster", lambda on: None)
    monkeypatch.setattr(WorkerPool, "judge", lost)
    asked = [str(tmp_path), "--package", "torch", "--on", "sm_90", "--results", str(tmp_path / "results.jsonl")]
    assert main([*asked, "--ray"]) == 1
    assert "torch: 1 entries came to nothing: its node is gone" in capsys.readouterr().err
    assert not (tmp_path / "results.jsonl").exists()


def test_a_batch_without_an_outcome_is_an_error_of_the_harness(tmp_path: Path) -> None:
    given = {
        "folder": str(tmp_path),
        "target": "sm_90",
        "on": "nowhere",
        "seconds": 5.0,
        "package": "torch",
        "entries": ["no such"],
    }
    with pytest.raises(RuntimeError, match="no outcome"):
        task_result_of(corpus_fleet.judged(target("emulated:sm_90"), given))


def test_the_page_counts_the_executed_and_names_each_that_is_not_right() -> None:
    wanted = [entry(name) for name in ("right", "wrong", "refused", "broken")]
    blank = Outcome("ours", "1", "right", "sm_90", RIGHT, kernels=("double",), launching=0.001, commit="abc")
    outcomes = [
        blank,
        replace(blank, entry="wrong", state=WRONG, said="off by one"),
        replace(blank, entry="refused", state=REFUSED, said="no such thing"),
        replace(blank, entry="broken", state=FAIL, outcome="launcher error"),
        replace(blank, on=INTERPRETER, launching=0.004),
    ]
    text = page(wanted, {each.key: each for each in outcomes}, None, "sm_90")
    assert "| ours | 1 | abc | 4 | 1 | 2 (50 %) | 1 (50 %) |" in text
    assert "its launches take 4.0 times as long" in text
    for words in ("| ours | wrong | wrong | off by one |", "| ours | refused | refused | no such thing |", "fail: launcher error"):
        assert words in text
    assert was_executed(replace(blank, state=FAIL, outcome="race"))
    theirs = [replace(each, package="theirs", launching=0.002) for each in (outcomes[0], outcomes[-1])]
    other = replace(wanted[0], package=replace(wanted[0].package, name="theirs"))
    both = page([*wanted, other], {each.key: each for each in [*outcomes, *theirs]}, None, "sm_90")
    assert "By package: 4.0 of ours (1), 1.0 of theirs (1)." in both and "By package" not in text
    again = [replace(blank, launching=0.002, commit="1234567"), replace(blank, on=INTERPRETER, launching=0.01, commit="1234567")]
    timed = page(wanted, {each.key: each for each in outcomes}, None, "sm_90", times={each.key: each for each in again})
    assert "right and timed (1), its launches take 5.0 times as long" in timed and "at 1234567;" in timed


def test_the_corpus_has_a_hundred_operations_of_four_packages(capsys: pytest.CaptureFixture) -> None:
    assert main(["unused", "--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(entries()) == len({each.key for each in entries()})
    packages = {each.package.name for each in entries()}
    assert len(entries()) >= 100 and len(packages) >= 4
    assert all(each.package.version or each.package.name == "torch" for each in entries())


def test_the_shards_of_the_corpus_have_each_entry_once(capsys: pytest.CaptureFixture) -> None:
    shares = []
    for shard in ("1/3", "2/3", "3/3"):
        assert main(["unused", "--list", "--shard", shard]) == 0
        shares.append(capsys.readouterr().out.splitlines())
    assert main(["unused", "--list"]) == 0
    assert sorted(entry for share in shares for entry in share) == sorted(capsys.readouterr().out.splitlines())
    assert max(map(len, shares)) - min(map(len, shares)) <= 1

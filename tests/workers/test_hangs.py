"""Contract under test: what does not end is told with its line, and is not asked again and again."""

from __future__ import annotations

import itertools
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

from bitverdict.harness.emulator import EmulatedFault, LaunchOptions, emulated
from bitverdict.harness.emulator.frontend.translate import translate
from bitverdict.harness.frontends.main import main
from bitverdict.harness.frontends.pytest_nodes import Node, NodeJudge
from bitverdict.harness.judge import hang_report
from bitverdict.harness.judge.machine_faults import MachineFault
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Basis, Decision, Outcome, Verdict
from bitverdict.harness.session.shrink import KernelFailed
from bitverdict.harness.workers import process
from bitverdict.harness.workers.journal import Journal, records
from bitverdict.harness.workers.pool import WorkerPool
from bitverdict.harness.workers.stopping import Stopping, cancelled_verdict, kind_of
from tests.support.vector_add import ADDRESS, HOST, Case, Problem, add_by_torch, case

ADD = "tests.support.vector_add"
FILE = "tests/workers/test_hangs.py"


def line_of(text: str) -> int:
    """The number of the first line of this file that has `text`."""
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


@triton.jit
def endless_kernel(a_ptr, c_ptr, n, most, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)  # (BLOCK,)
    x = tl.load(a_ptr + offsets, mask=offsets < n)  # (BLOCK,)
    turns = 0
    while turns < most:  # a kernel's loop
        x = x * 2 + 1
        turns += 1
    tl.store(c_ptr + offsets, x, mask=offsets < n)


def in_a_kernel(a, b):
    c = torch.empty_like(a)
    endless_kernel[(1,)](a, c, a.numel(), 16 if a.numel() < 20 else 1 << 30, BLOCK=64)
    return c


def in_a_loop(a, b):
    x = 0
    while True:  # a loop of Python
        x += 1
        x *= 2
        x %= 7


def in_a_call(a, b):
    waits()


def waits():
    time.sleep(600)  # a call


def in_c(a, b):
    return sum(itertools.repeat(1))  # a loop that does not come back to Python


def in_time(a, b):
    time.sleep(0.2)
    return add_by_torch(a, b)


def stops_itself(a, b):
    """In each process that is asked; what stops it lies outside of the case as far as anyone can see."""
    os.kill(os.getpid(), signal.SIGSTOP)
    return add_by_torch(a, b)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[WorkerPool]:
    with WorkerPool(timeout=600, journal=Journal(tmp_path / "j.jsonl")) as pool:
        pool.judge(case(), HOST)  # a worker is there
        yield pool


@pytest.mark.parametrize(
    ("launcher", "line", "function"),
    [
        ("in_a_loop", "# a loop of Python", "in_a_loop"),
        ("in_a_call", "# a call", "waits"),
        ("in_c", "# a loop that does not come back", "in_c"),
    ],
)
@pytest.mark.share(4)
def test_a_launcher_that_hangs_is_told_with_its_line(pool: WorkerPool, launcher: str, line: str, function: str) -> None:
    pool.slots[0, "host"].timeout = 2.0
    verdict = pool.judge(case(launcher=f"{__name__}:{launcher}"), HOST)
    assert (verdict.outcome, verdict.message) == (Outcome.TIMEOUT, f"no verdict within 2 s; it was in {function}")
    assert verdict.location == f"{FILE}:{line_of(line)}"
    assert verdict.details["stack"].startswith(f"{FILE}:") and "judge.py" not in verdict.details["stack"]
    assert verdict.details["stderr"] == []


def test_a_launcher_that_ends_in_time_is_judged(pool: WorkerPool) -> None:
    pool.slots[0, "host"].timeout = 20.0
    assert pool.judge(case(launcher=f"{__name__}:in_time"), HOST).decision is Decision.PASS


@pytest.mark.parametrize("goes_on", [True, False])
@pytest.mark.share(4)
def test_a_worker_that_is_stopped_is_no_hang_of_the_kernel(pool: WorkerPool, goes_on: bool) -> None:
    """The time in which it was stopped is not the case's. One that is never let go on is lost, and its case judged again."""
    slot = pool.slots[0, "host"]
    slot.timeout, stopped = 1.0, slot.process.pid
    os.kill(stopped, signal.SIGSTOP)
    if goes_on:
        threading.Timer(0.9, os.kill, (stopped, signal.SIGCONT)).start()
    verdict = pool.judge(case(launcher=f"{__name__}:in_time"), HOST)
    assert verdict.decision is Decision.PASS, verdict
    assert (slot.process.pid == stopped) is goes_on
    assert ("was stopped" in verdict.details.get("fault does not repeat", "")) is not goes_on


@pytest.mark.parametrize("starved", [True, False])
def test_a_worker_that_waits_for_a_processor_is_no_hang(pool: WorkerPool, starved: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the time in which other work has the processor is not the case's."""
    monkeypatch.setattr(process, "queued_seconds", lambda pid: time.perf_counter() if starved else 0.0)
    pool.slots[0, "host"].timeout = 0.05
    verdict = pool.judge(case(launcher=f"{__name__}:in_time"), HOST)
    assert verdict.outcome is (Outcome.PASS if starved else Outcome.TIMEOUT), verdict


def test_a_case_whose_every_worker_is_stopped_is_the_machines_error(pool: WorkerPool) -> None:
    pool.slots[0, "host"].timeout = 1.0
    verdict = pool.judge(case(launcher=f"{__name__}:stops_itself"), HOST)
    assert (verdict.decision, verdict.outcome, kind_of(verdict)) == (Decision.ERROR, Outcome.ERROR, "machine")
    assert "was stopped (SIGSTOP or a debugger) for 1 s" in verdict.message


@pytest.mark.share(4)
def test_a_kernel_that_hangs_is_told_with_the_line_of_its_loop(tmp_path: Path) -> None:
    where, launcher = target("emulated:sm_90"), f"{__name__}:in_a_kernel"
    asked = Case(contract=ADDRESS, problem=Problem(n=40), launcher=launcher)
    with WorkerPool(timeout=600, journal=Journal(tmp_path / "j.jsonl")) as pool:
        ended = pool.judge(replace(asked, problem=Problem(n=12)), where)  # compiled, and not endless
        pool.slots[0, where.name].timeout = 3.0
        verdict = pool.judge(asked, where)
    assert ended.outcome is Outcome.WRONG_WORDS
    assert (verdict.outcome, verdict.message) == (Outcome.TIMEOUT, "no verdict within 3 s; it was in kernel endless_kernel")
    file, _, line = verdict.location.partition(":")
    assert file == FILE and 0 <= int(line) - line_of("# a kernel's loop") <= 2 and verdict.details["operation"]


def test_a_launch_of_too_many_operations_is_told_with_its_line() -> None:
    a = torch.ones(40)
    with (
        emulated("sm_90", options=LaunchOptions(step_limit=5000)),
        pytest.raises(EmulatedFault, match="more than 5000 operations") as raised,
    ):
        endless_kernel[(1,)](a, torch.empty(40), 40, 1 << 30, BLOCK=64)
    file, _, line = raised.value.location.rpartition(":")
    assert file.endswith("test_hangs.py") and 0 <= int(line) - line_of("# a kernel's loop") <= 2


def test_the_limit_of_operations_is_each_programs_own() -> None:
    """A large product has many programs: 4096 cubed in tiles of 64 by 64 is 61 million operations, 15,000 a program."""
    a, programs = torch.ones(40), 16
    with emulated("sm_90") as device:
        endless_kernel[(1,)](a, torch.empty(40), 40, 16, BLOCK=64)
        alone = sum(device.launches[-1].operations.values())
    with emulated("sm_90", options=LaunchOptions(step_limit=2 * alone)) as device:
        endless_kernel[(programs,)](a, torch.empty(40), 40, 16, BLOCK=64)
        assert sum(device.launches[-1].operations.values()) >= programs * alone


def test_a_line_that_only_counts_stands_for_the_operation_behind_it() -> None:
    a = torch.ones(40)
    with emulated("sm_90") as device:
        endless_kernel[(1,)](a, torch.empty(40), 40, 16, BLOCK=64)
        text = device.launches[-1].program
    ready = translate(text, arch="sm_90", fuses_sums=True)
    counting = [(number, int(found[1])) for number, line in enumerate(ready.source.splitlines(), 1)
                if (found := re.search(r"m\.tick\((\d+),", line))]  # fmt: skip
    assert len(counting) == len(ready.blocks) > 2
    assert all(ready.operation_at(number) is ready.blocks[block][0] for number, block in counting)


def test_what_a_log_says_of_a_hang_is_read_or_left_out() -> None:
    """No report at all, as of a process that was killed meanwhile; and a wait for the GPU, where no frame is the kernel's."""
    assert hang_report.parse_log([]) == hang_report.parse_log(["a line of the kernel's"]) == {}
    library = '  File "/usr/lib/python3/site-packages/torch/cuda/__init__.py", line 1040 in synchronize'
    ours = f'  File "{Path(hang_report.__file__).parent}/targets.py", line 73 in enter'
    found = hang_report.parse_log(["noise", "Stack (most recent call first):", library, ours, ours, ours, ours])
    waits = ["Stack (most recent call first):", library, ours]
    assert hang_report.parse_log(waits, "mine.py:7")["location"] == "mine.py:7"  # the line of the launch that does not end
    assert (found["location"], found["function"]) == ("", "synchronize") and "harness/judge/targets.py:73 in enter" in found[
        "stack"
    ]
    assert all(map(hang_report.is_report, [library, ours, "Stack (most recent call first):", "HANG {}"]))
    assert not hang_report.is_report("the kernel's own line")


def test_a_launch_on_hardware_is_noted_in_a_workers_log(capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    hang_report.note_launch()
    assert capfd.readouterr().err == ""
    monkeypatch.setattr(hang_report, "_is_installed", True)
    hang_report.note_launch()  # here
    assert capfd.readouterr().err == f"LAUNCHED AT {FILE}:{line_of('()  # here')}\n"


def judged(directory: Path) -> list[str]:
    """What the cases that were begun came to."""
    (journal,) = (directory / "state" / "journal").glob("*.jsonl")
    return [record["verdict"]["outcome"] for record in records(journal) if record["event"] == "end"]


@pytest.mark.share(4)
def test_a_run_stops_after_two_hangs_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path / "state"))
    words = ["--target", "emulated:sm_90", "--max-cases", "12", "--jobs", "1", "--shrink-seconds", "0"]
    assert main(["run", "--contract", f"{ADD}:HANGS", *words, "--timeout", "3", "--junit", str(tmp_path / "run.xml")]) == 1
    out = capsys.readouterr().out
    assert judged(tmp_path).count("timeout") == 2 and set(judged(tmp_path)) <= {"pass", "timeout"}
    assert " 2 fail, " in out and " cancelled; 1 of the required cases was not judged" in out
    assert "not judged after 2 that hang at tests/support/vector_add.py:" in out
    skipped = (tmp_path / "run.xml").read_text().count("<skipped ")
    assert skipped == int(out.rpartition(" cancelled")[0].rpartition(" ")[2]) > 0


def test_a_run_does_not_stop_after_two_wrong_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path / "state"))
    words = ["--target", "emulated:sm_90", "--max-cases", "12", "--jobs", "1", "--shrink-seconds", "0"]
    assert main(["run", "--contract", f"{ADD}:WRONG", *words]) == 1
    assert judged(tmp_path).count("wrong words") > 2 and "cancelled" not in capsys.readouterr().out


def test_a_node_of_pytest_waits_for_one_hang_alone(node_judge: NodeJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path / "state"))
    hung = Verdict(decision=Decision.FAIL, outcome=Outcome.TIMEOUT, message="no verdict within 3 s", basis=Basis.NO_BASIS)
    asked: list[Case] = []
    monkeypatch.setattr(node_judge.pool, "judge", lambda case, where: asked.append(case) or hung)
    with pytest.raises(KernelFailed, match="no verdict within 3 s"):
        node_judge.hold(Node(f"{ADD}:CONTRACT", "emulated:sm_90"), [])
    assert len(asked) == 1


HANG = Verdict(decision=Decision.FAIL, outcome=Outcome.TIMEOUT, message="no verdict within 3 s; it was in f", location="a.py:3")
REFUSED = Verdict(
    decision=Decision.FAIL, outcome=Outcome.REFUSED, message="no such name", location="a.py:9", details={"layer": "front end"}
)
EXPECTED_REFUSAL = replace(REFUSED, decision=Decision.PASS, basis=Basis.EXPECTED_REFUSAL)
PASS = Verdict(decision=Decision.PASS, outcome=Outcome.PASS, basis=Basis.WORDS)
FULL = Verdict(decision=Decision.ERROR, outcome=Outcome.ERROR, message="the machine failed: full", details={"layer": "machine"})


@pytest.mark.parametrize(
    ("came", "stops"),
    [
        ([HANG], False),
        ([HANG, HANG], True),
        ([HANG, PASS, replace(HANG, location="a.py:5")], True),  # a loop is at another line each time
        ([HANG, replace(HANG, message="no verdict within 3 s; it was in g")], False),
        ([REFUSED], False),
        ([REFUSED, REFUSED], True),
        ([REFUSED, EXPECTED_REFUSAL, REFUSED], True),  # what must be refused was not compiled either
        ([REFUSED, replace(REFUSED, location="a.py:7")], False),
        ([PASS, REFUSED, REFUSED, REFUSED], False),  # another specialisation may be compiled again
        ([replace(REFUSED, details={"layer": "launcher"})] * 3, False),
        ([replace(FULL, details={"layer": "emulator"})] * 3, False),
    ],
)
def test_two_equal_failures_that_would_come_again_stop_a_contract(came: list[Verdict], stops: bool) -> None:
    stopping = Stopping()
    for verdict in came:
        stopping.heard("mine", "emulated:sm_90", verdict)
    assert bool(stopping.reason("mine", "emulated:sm_90")) is stops
    assert not stopping.reason("mine", "emulated:sm_80") and not stopping.reason("other", "emulated:sm_90")


def test_two_faults_of_the_machine_stop_the_run() -> None:
    stopping = Stopping()
    stopping.heard("mine", "emulated:sm_90", FULL)
    assert stopping.reason("other", "emulated:sm_80") == ""
    stopping.heard("other", "emulated:sm_80", FULL)
    with pytest.raises(MachineFault, match="the machine failed: full"):
        stopping.reason("third", "emulated:sm_100")


def test_a_cancelled_case_says_why_and_is_none_of_these() -> None:
    verdict = cancelled_verdict("after 2 that hang")
    assert (verdict.decision, verdict.message, kind_of(verdict)) == (Decision.CANCELLED, "not judged after 2 that hang", "")


def test_what_was_handed_out_already_is_cancelled_too(tmp_path: Path) -> None:
    judge: Callable = lambda case, where, place: HANG
    with WorkerPool(jobs=1, journal=Journal(tmp_path / "j.jsonl")) as pool:
        pool.judge = judge  # type: ignore[method-assign]
        came = [verdict.decision for _, _, verdict in pool.judge_all([(case(n), HOST) for n in range(6)])]
    assert came == [Decision.FAIL] * 2 + [Decision.CANCELLED] * 4

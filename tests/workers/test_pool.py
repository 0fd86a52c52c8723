"""Contract under test: nothing a kernel does to its process reaches the run, the next case, or the record of the case."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bitverdict.harness.model.verdict import Outcome, Ruling, Verdict
from bitverdict.harness.workers.journal import Journal, unfinished
from bitverdict.harness.workers.pool import Bench
from bitverdict.harness.workers.process import Child, Gone
from bitverdict.harness.workers.slot import asserted
from tests.support.interrupts import answering
from tests.support.vector_add import HOST, case

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(timeout=60, journal=Journal(tmp_path_factory.mktemp("journal") / "run.jsonl")) as bench:
        yield bench


@pytest.mark.parametrize(
    ("fault", "outcome"), [("segfault", Outcome.SEGMENTATION_FAULT), ("abort", Outcome.COMPILER_ABORT), ("kill", Outcome.KILLED)]
)
def test_a_death_is_a_verdict_and_the_next_case_is_unaffected(bench: Bench, fault: str, outcome: Outcome) -> None:
    died = bench.judge(case(fault=fault), HOST)
    assert (died.ruling, died.outcome) == (Ruling.CONVICTED, outcome)
    assert any(f"about to {fault}" in line for line in died.details["stderr"])
    if fault != "kill":
        assert died.location.startswith("tests/support/vector_add.py:")
    assert bench.judge(case(), HOST).ruling is Ruling.RIGHT


def test_a_hang_is_a_verdict_and_leaves_no_process(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bench.judge(case(), HOST).ruling is Ruling.RIGHT
    cell = bench.cells[0, "host"]
    child = cell.process.pid
    monkeypatch.setattr(cell, "timeout", 0.3)
    assert bench.judge(case(fault="hang"), HOST).outcome is Outcome.TIMEOUT
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_a_child_is_kept_from_case_to_case(bench: Bench) -> None:
    bench.judge(case(), HOST)
    first = bench.cells[0, "host"].process.pid
    bench.judge(case(fault="wrong"), HOST)
    assert bench.cells[0, "host"].process.pid == first


def test_the_verdict_is_that_of_the_judge_in_process(bench: Bench) -> None:
    verdict = bench.judge(case(fault="wrong"), HOST)
    assert verdict.outcome is Outcome.WRONG_WORDS and verdict.details["wrong"] == 1


def test_a_contract_that_raises_is_an_error_with_its_traceback(bench: Bench) -> None:
    broken = case(n=3, launcher="tests.support.vector_add:no_such")
    verdict = bench.judge(broken, HOST)
    assert verdict.ruling is Ruling.ERROR and "has no no_such" in verdict.message
    assert verdict.location.startswith("harness/model/addresses.py:") and "UsageError" in verdict.details["traceback"][-1]


def test_a_worker_that_never_comes_to_life_is_no_fault_of_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(child: Child, tick: object = None) -> float:
        raise Gone

    monkeypatch.setattr(Child, "wait_ready", dies)
    with Bench(journal=Journal(tmp_path / "j.jsonl")) as bench:
        verdict = bench.judge(case(), HOST)
    assert (verdict.ruling, verdict.details["layer"]) == (Ruling.ERROR, "machine")
    assert verdict.message == "the machine failed: 3 processes died, one after the other, before they had a case"


def test_the_case_is_in_the_journal_before_it_kills(bench: Bench) -> None:
    assert bench.judge(case(), HOST).ruling is Ruling.RIGHT
    bench.judge(case(n=77, fault="segfault"), HOST)
    *_, begun, again, ended = map(json.loads, bench.journal.path.read_text().splitlines())
    assert begun["event"] == "begin" and begun["case"]["problem"]["n"] == 77
    assert again["event"] == "again" and again["verdict"]["outcome"] == "segmentation fault"  # its child had judged others
    assert ended["event"] == "end" and ended["verdict"]["outcome"] == "segmentation fault"
    assert begun["number"] == again["number"] == ended["number"]


def test_many_places_judge_all_cases_and_each_once(tmp_path: Path) -> None:
    work = [(case(n, fault="segfault" if n == 7 else ""), HOST) for n in range(12)]
    with Bench(jobs=2, journal=Journal(tmp_path / "j.jsonl")) as bench:
        answers = {c.problem.n: v.outcome for c, _, v in bench.judge_all(iter(work))}
    assert sorted(answers) == list(range(12))
    assert answers.pop(7) is Outcome.SEGMENTATION_FAULT and set(answers.values()) == {Outcome.RIGHT}


def runs(process: int) -> bool:
    """Whether a process still executes; one that waits to be reaped (a container's init may never) does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


HANG = """
import sys
from pathlib import Path
from bitverdict.harness.workers.pool import Bench
from bitverdict.harness.workers.journal import Journal
from tests.support.vector_add import HOST, case
with Bench(journal=Journal(Path(sys.argv[1]))) as bench:
    bench.judge(case(3), HOST)
    print(bench.cells[0, "host"].process.pid, flush=True)
    bench.judge(case(fault="hang"), HOST)
"""


LEFT = """
import sys
from pathlib import Path
from bitverdict.harness.workers import process as child
from bitverdict.harness.model.targets import Target

from bitverdict.harness.workers.forkserver import PRELOADED

PRELOADED.clear()
left = child.Child(Target("emulated:sm_90", "sm_90"), Path(sys.argv[1]))
print(left.process.pid, flush=True)
"""


def test_a_parent_that_ends_by_itself_does_not_wait_for_a_child_left(tmp_path: Path) -> None:
    """A notebook, or a test of a user's that fails before it closes what it opened."""
    done = subprocess.run([sys.executable, "-c", LEFT, str(tmp_path)], capture_output=True, text=True, cwd=CHECKOUT, timeout=60)
    assert done.returncode == 0 and not runs(int(done.stdout)), done.stderr


@pytest.mark.parametrize("ended_by", [signal.SIGKILL, signal.SIGINT])
def test_a_parent_that_ends_leaves_no_orphan_and_the_case_it_was_at(tmp_path: Path, ended_by: signal.Signals) -> None:
    journal = tmp_path / "j.jsonl"
    with answering():
        parent = subprocess.Popen(
            [sys.executable, "-c", HANG, str(journal)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=CHECKOUT
        )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    deadline = time.monotonic() + 20
    while journal.read_text().count("begin") < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    parent.send_signal(ended_by)
    parent.wait(20)
    while runs(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not runs(child)
    assert [record["case"]["problem"]["fault"] for record in unfinished(journal)] == ["hang"]


def test_the_forkserver_never_touches_cuda_and_takes_tritons_digest_for_its_children() -> None:
    check = (
        "from bitverdict.harness.workers.slot import PRELOADED; import importlib, torch; "
        "[importlib.import_module(m) for m in PRELOADED]; from triton.runtime.cache import triton_key; "
        "print(torch.cuda.is_initialized(), triton_key.cache_info().currsize)"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True, cwd=CHECKOUT)
    assert done.stdout.strip() == "False 1"


def test_a_child_imports_no_more_of_torch_for_its_first_case() -> None:
    check = (
        "from bitverdict.harness.workers.slot import PRELOADED; import importlib, sys; [importlib.import_module(m) for m in "
        "PRELOADED]; "
        "from bitverdict.harness.model.addresses import resolve; from bitverdict.harness.judge.judge import judge; from "
        "bitverdict.harness.model.targets import target; "
        "contract, where = resolve('matmul'), target('emulated:sm_90'); case = contract.required(where)[0]; "
        "before = set(sys.modules); "
        "print(judge(case, where).ruling, [n for n in set(sys.modules) - before if n.split('.')[0] in ('torch', 'sympy')])"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True, cwd=CHECKOUT)
    assert done.stdout.strip() == "right []"


def test_a_child_is_replaced_after_its_number_of_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bitverdict.harness.workers.slot.RECYCLED_AFTER", 2)
    served = []
    with Bench(journal=Journal(tmp_path / "j.jsonl")) as bench:
        for n in range(4):
            assert bench.judge(case(n), HOST).ruling is Ruling.RIGHT
            served.append(bench.cells[0, "host"].process.pid)
    assert served[0] == served[1] != served[2] == served[3]


def test_a_device_assert_is_told_with_what_the_device_printed_and_its_line() -> None:
    fault = Verdict(ruling=Ruling.CONVICTED, outcome=Outcome.DEVICE_ASSERT, message="device assert", location="kernels/matmul.py:9")
    line = f"{CHECKOUT}/kernels/tma_gather.py:128"
    printed = ["noise", f"{line}: kernel: block: [0,0,0], thread: [5,0,0] Assertion `x is aligned` failed."]
    told = asserted(fault, printed)
    assert (told.message, told.location) == ("x is aligned", "kernels/tma_gather.py:128")
    assert asserted(fault, ["noise"]) == fault
    other = Verdict(ruling=Ruling.CONVICTED, outcome=Outcome.ILLEGAL_ADDRESS)
    assert asserted(other, printed) == other

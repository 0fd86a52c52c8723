"""Contract under test: nothing a kernel does to its process reaches the run, the next case, or the record of the case."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.workers.journal import Journal
from bitverdict.harness.workers.pool import WorkerPool
from bitverdict.harness.workers.process import Worker, WorkerDied, serve
from bitverdict.harness.workers.slot import with_assertion
from bitverdict.harness.workers.start import PLAIN_START
from tests.support.interrupts import answering, unfinished_records
from tests.support.vector_add import HOST, case

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerPool]:
    with WorkerPool(timeout=600, journal=Journal(tmp_path_factory.mktemp("journal") / "run.jsonl")) as pool:
        yield pool


@pytest.mark.parametrize(
    ("fault", "outcome"), [("segfault", Outcome.SEGMENTATION_FAULT), ("abort", Outcome.COMPILER_ABORT), ("kill", Outcome.KILLED)]
)
def test_a_death_is_a_verdict_and_the_next_case_is_unaffected(pool: WorkerPool, fault: str, outcome: Outcome) -> None:
    died = pool.judge(case(fault=fault), HOST)
    assert (died.decision, died.outcome) == (Decision.FAIL, outcome)
    assert any(f"about to {fault}" in line for line in died.details["stderr"])
    if fault != "kill":
        assert died.location.startswith("tests/support/vector_add.py:")
    assert pool.judge(case(), HOST).decision is Decision.PASS


def test_a_hang_is_a_verdict_and_leaves_no_process(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pool.judge(case(), HOST).decision is Decision.PASS
    slot = pool.slots[0, "host"]
    worker = slot.process.pid
    monkeypatch.setattr(slot, "timeout", 0.3)
    assert pool.judge(case(fault="hang"), HOST).outcome is Outcome.TIMEOUT
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


def test_a_worker_is_kept_from_case_to_case(pool: WorkerPool) -> None:
    pool.judge(case(), HOST)
    first = pool.slots[0, "host"].process.pid
    pool.judge(case(fault="wrong"), HOST)
    assert pool.slots[0, "host"].process.pid == first


def test_the_verdict_is_that_of_the_judge_in_process(pool: WorkerPool) -> None:
    verdict = pool.judge(case(fault="wrong"), HOST)
    assert verdict.outcome is Outcome.WRONG_WORDS and verdict.details["wrong"] == 1


def test_a_contract_that_raises_is_an_error_with_its_traceback(pool: WorkerPool) -> None:
    broken = case(n=3, launcher="tests.support.vector_add:no_such")
    verdict = pool.judge(broken, HOST)
    assert verdict.decision is Decision.ERROR and "has no no_such" in verdict.message
    assert verdict.location.startswith("harness/model/addresses.py:") and "UsageError" in verdict.details["traceback"][-1]


def test_a_worker_that_never_comes_to_life_is_no_fault_of_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(worker: Worker, tick: object = None) -> float:
        raise WorkerDied

    monkeypatch.setattr(Worker, "wait_ready", dies)
    with WorkerPool(journal=Journal(tmp_path / "j.jsonl")) as pool:
        verdict = pool.judge(case(), HOST)
    assert (verdict.decision, verdict.details["layer"]) == (Decision.ERROR, "machine")
    assert verdict.message == "the machine failed: 3 processes died, one after the other, before they had a case"


def test_the_case_is_in_the_journal_before_it_kills(pool: WorkerPool) -> None:
    assert pool.judge(case(), HOST).decision is Decision.PASS
    pool.judge(case(n=77, fault="segfault"), HOST)
    *_, begun, again, ended = map(json.loads, pool.journal.path.read_text().splitlines())
    assert begun["event"] == "begin" and begun["case"]["problem"]["n"] == 77
    assert again["event"] == "again" and again["verdict"]["outcome"] == "segmentation fault"  # its worker had judged others
    assert ended["event"] == "end" and ended["verdict"]["outcome"] == "segmentation fault"
    assert begun["number"] == again["number"] == ended["number"]


def test_many_places_judge_all_cases_and_each_once(tmp_path: Path) -> None:
    work = [(case(n, fault="segfault" if n == 7 else ""), HOST) for n in range(12)]
    with WorkerPool(jobs=2, journal=Journal(tmp_path / "j.jsonl")) as pool:
        answers = {c.problem.n: v.outcome for c, _, v in pool.judge_all(iter(work))}
    assert sorted(answers) == list(range(12))
    assert answers.pop(7) is Outcome.SEGMENTATION_FAULT and set(answers.values()) == {Outcome.PASS}


def runs(process: int) -> bool:
    """Whether a process still executes; one that waits to be reaped (a container's init may never) does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


HANG = """
import sys
from pathlib import Path
from bitverdict.harness.workers.pool import WorkerPool
from bitverdict.harness.workers.journal import Journal
from tests.support.vector_add import HOST, case
with WorkerPool(journal=Journal(Path(sys.argv[1]))) as pool:
    pool.judge(case(3), HOST)
    print(pool.slots[0, "host"].process.pid, flush=True)
    pool.judge(case(fault="hang"), HOST)
"""


LEFT = """
import sys
from pathlib import Path
from bitverdict.harness.workers import process as worker
from bitverdict.harness.model.targets import Target

from bitverdict.harness.workers.forkserver import PRELOADED_MODULES

PRELOADED_MODULES.clear()
left = worker.Worker(Target("emulated:sm_90", "sm_90"), Path(sys.argv[1]))
print(left.process.pid, flush=True)
"""


def test_a_parent_that_ends_by_itself_does_not_wait_for_a_worker_left(tmp_path: Path) -> None:
    """A notebook, or a test of a user's that fails before it closes what it opened."""
    done = subprocess.run([sys.executable, "-c", LEFT, str(tmp_path)], capture_output=True, text=True, cwd=CHECKOUT, timeout=600)
    assert done.returncode == 0 and not runs(int(done.stdout)), done.stderr


@pytest.mark.parametrize("ended_by", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.share(4)
def test_a_parent_that_ends_leaves_no_orphan_and_the_case_it_was_at(tmp_path: Path, ended_by: signal.Signals) -> None:
    journal = tmp_path / "j.jsonl"
    with answering():
        parent = subprocess.Popen(
            [sys.executable, "-c", HANG, str(journal)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=CHECKOUT
        )
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    deadline = time.monotonic() + 300
    while journal.read_text().count("begin") < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    parent.send_signal(ended_by)
    parent.wait(300)
    while runs(worker) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not runs(worker)
    assert [record["case"]["problem"]["fault"] for record in unfinished_records(journal)] == ["hang"]


@pytest.mark.share(4)
def test_the_forkserver_never_touches_cuda() -> None:
    """It takes Triton's digest for its workers."""
    check = (
        "from bitverdict.harness.workers.forkserver import FIRST_WHEN_IDLE, PRELOADED_MODULES; import importlib, torch; "
        "[importlib.import_module(m) for m in (*PRELOADED_MODULES, *FIRST_WHEN_IDLE)]; "
        "from bitverdict.harness.emulator.compiler_digest import digest; from triton.runtime.cache import triton_key; "
        "print(torch.cuda.is_initialized(), digest.cache_info().currsize, triton_key.__module__)"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True, cwd=CHECKOUT)
    assert done.stdout.strip() == "False 1 bitverdict.harness.emulator.compiler_digest"


FIRST_CASES = """
import importlib, sys
from dataclasses import replace
from bitverdict.harness.workers.forkserver import FIRST_WHEN_IDLE, PRELOADED_MODULES
for name in PRELOADED_MODULES:
    importlib.import_module(name)
before = set(sys.modules)
for name in FIRST_WHEN_IDLE:
    importlib.import_module(name)
idle = set(sys.modules)
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.targets import target
contract, where = resolve("matmul"), target("emulated:sm_90")
case = contract.required(where)[0]
print(judge(case, where).decision, judge(replace(case, calls=2), where).decision)
print([name for name in set(sys.modules) - before if name.split(".")[0] in ("torch", "sympy")])
print([name for name in set(sys.modules) - idle if name.split(".")[-1] in ("hypothesis", "lowerings")])
"""


@pytest.mark.share(4)
def test_a_worker_imports_no_more_of_torch_for_its_first_case() -> None:
    """Nor for a second call, which keeps a copy of the first one's result.

    Nor hypothesis or the lowerings, once its server was idle.
    """
    done = subprocess.run([sys.executable, "-c", FIRST_CASES], capture_output=True, text=True, check=True, cwd=CHECKOUT)
    assert done.stdout == "pass pass\n[]\n[]\n"


def test_a_worker_of_a_run_that_has_ended_ends_without_a_word(tmp_path: Path) -> None:
    """The run removed its log before the worker was there."""
    ours, theirs = multiprocessing.Pipe()
    serve(theirs, HOST, str(tmp_path / "gone.log"), {}, [], PLAIN_START)
    assert not ours.poll(0)


SERVER = """
import os, sys, time
from multiprocessing import forkserver
from bitverdict.harness.workers import forkserver as ours
ours.PRELOADED_MODULES[:] = []
ours.start_early()
address = forkserver._forkserver._forkserver_address
print(address, flush=True)
for _ in range(300):
    if "torch/" in open(f"/proc/{forkserver._forkserver._forkserver_pid}/maps").read():
        break
    time.sleep(0.02)
print("imported", flush=True)
os._exit(0)  # as a signal would end it: nothing of Python's is done
"""


def test_a_server_imports_while_idle_and_leaves_no_socket() -> None:
    done = subprocess.run([sys.executable, "-c", SERVER], capture_output=True, text=True, cwd=CHECKOUT, timeout=600)
    address, imported = done.stdout.split()
    assert imported == "imported" and not Path(address).parent.exists(), done.stderr


ASKER = """
import json, sys, time
from pathlib import Path
from bitverdict.harness.workers import forkserver as ours
from bitverdict.harness.workers.journal import Journal
from bitverdict.harness.workers.pool import WorkerPool
from tests.support.vector_add import HOST, case
ours.PRELOADED_MODULES[:] = []
ours.share_server(json.loads(sys.argv[1]))
with WorkerPool(journal=Journal(Path(sys.argv[2], "j.jsonl"))) as pool:
    pool.prepare([HOST])
    for line in (1, 2):
        print(pool.judge(case(0), HOST).decision, pool.slots[0, "host"].process.pid, flush=True)
        input()
"""


@pytest.mark.share(2)
def test_a_worker_of_a_shared_server_ends_with_who_asked_or_is_replaced(tmp_path: Path) -> None:
    """Its parent is the server, which goes on where the process that asked is killed: the worker ends even
    where it reads no more of its pipe. Where the server is killed, that process has one of its own."""

    def ask() -> tuple[subprocess.Popen, int]:
        words = [sys.executable, "-c", ASKER, json.dumps(shared), str(tmp_path)]
        asker = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT)
        assert asker.stdout is not None
        decision, worker = asker.stdout.readline().split()
        assert decision == "pass"
        return asker, int(worker)

    def wait_for_end(process: int) -> None:
        end = time.monotonic() + 60
        while (
            Path(f"/proc/{process}/stat").exists()
            and Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        ):
            assert time.monotonic() < end, "lives on"
            time.sleep(0.05)

    server = subprocess.Popen(
        [sys.executable, "-c", SHARING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT
    )
    assert server.stdout is not None
    shared = json.loads(server.stdout.readline())
    killed, worker = ask()
    assert int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1]) == shared["pid"]
    os.kill(worker, signal.SIGSTOP)
    killed.kill()
    wait_for_end(worker)
    asker, worker = ask()
    os.kill(shared["pid"], signal.SIGKILL)
    wait_for_end(worker)
    out, _ = asker.communicate("\n\n", timeout=120)
    assert out.split()[0] == "pass" and int(out.split()[1]) != worker
    for process in (killed, server):
        process.communicate(timeout=60)


SHARING = """
import json
from multiprocessing import forkserver
from bitverdict.harness.workers import forkserver as ours
ours.PRELOADED_MODULES[:] = ["bitverdict.harness.workers.garbage_pause"]
print(json.dumps(ours.server_to_share() | {"pid": forkserver._forkserver._forkserver_pid}), flush=True)
input()
"""


FORKED_SERVER = """
import os, sys
from multiprocessing import forkserver
from bitverdict.harness.workers import forkserver as ours
ours.FIRST_WHEN_IDLE = ()
ours.PRELOADED_MODULES[:] = ["bitverdict.harness.workers.garbage_pause", "shared_probe", "server_probe"]
sys.path.insert(0, "of_a_user")
held = os.open(os.devnull, os.O_RDONLY)
ours.start_forked()
print(sys.path[0], flush=True)
print(forkserver._forkserver._forkserver_address, flush=True)
os._exit(0)
"""
SHARED_PROBE = "import sys; print('of_a_user' in sys.path, flush=True)"
SERVER_PROBE = """
import os, signal, sys
from bitverdict.harness.workers.forkserver import _start_lock
safe = "PYTHONSAFEPATH" in os.environ
links = [f"/proc/self/fd/{number}" for number in range(3, 64)]
kept = [os.readlink(link).split(":")[0] for link in links if os.path.exists(link)]
masked = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
with open("of_the_server", "w") as file:
    print("shared_probe" in sys.modules, "of_a_user" in sys.path, safe, _start_lock.locked(), masked, kept, file=file)
"""


def test_a_server_forked_from_the_run_has_its_imports_alone(tmp_path: Path) -> None:
    for name, text in (("shared_probe", SHARED_PROBE), ("server_probe", SERVER_PROBE)):
        (tmp_path / "installed").mkdir(exist_ok=True), (tmp_path / f"installed/{name}.py").write_text(text)
    environment = os.environ | {"PYTHONPATH": f"{CHECKOUT}:{tmp_path}/installed"}
    words = [sys.executable, "-c", FORKED_SERVER]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=600)  # the server ends too
    shared, users, address = done.stdout.split()  # one line of the first probe: it was imported once
    assert (shared, users) == ("False", "of_a_user") and not Path(address).parent.exists(), done.stderr
    assert (tmp_path / "of_the_server").read_text() == "True False False False True ['socket', 'pipe']\n"


def test_a_worker_is_replaced_after_its_number_of_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bitverdict.harness.workers.slot.RECYCLED_AFTER", 2)
    served = []
    with WorkerPool(journal=Journal(tmp_path / "j.jsonl")) as pool:
        for n in range(4):
            assert pool.judge(case(n), HOST).decision is Decision.PASS
            served.append(pool.slots[0, "host"].process.pid)
    assert served[0] == served[1] != served[2] == served[3]


def test_a_device_assert_is_told_with_what_the_device_printed_and_its_line() -> None:
    fault = Verdict(decision=Decision.FAIL, outcome=Outcome.DEVICE_ASSERT, message="device assert", location="kernels/matmul.py:9")
    line = f"{CHECKOUT}/kernels/tma_gather.py:128"
    printed = ["noise", f"{line}: kernel: block: [0,0,0], thread: [5,0,0] Assertion `x is aligned` failed."]
    told = with_assertion(fault, printed)
    assert (told.message, told.location) == ("x is aligned", "kernels/tma_gather.py:128")
    assert with_assertion(fault, ["noise"]) == fault
    other = Verdict(decision=Decision.FAIL, outcome=Outcome.ILLEGAL_ADDRESS)
    assert with_assertion(other, printed) == other

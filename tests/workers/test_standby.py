"""Contract under test: after a fault a warm worker takes over, only the primary fault fails, and no worker is left behind."""

from __future__ import annotations

import json
import multiprocessing.connection
import multiprocessing.context
import multiprocessing.forkserver
import multiprocessing.process
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from bitverdict.harness.emulator import emulated
from bitverdict.harness.judge.devices import target_device
from bitverdict.harness.model.verdict import BESIDE_BUCKETS, Decision, Outcome
from bitverdict.harness.workers import forkserver, warmup
from bitverdict.harness.workers import process as workers
from bitverdict.harness.workers import slot as slots
from bitverdict.harness.workers.journal import Journal
from bitverdict.harness.workers.pool import WorkerPool
from bitverdict.harness.workers.standby import Standbys, requested_count
from bitverdict.harness.workers.start import PLAIN_START, Start
from bitverdict.harness.workers.warmup import warm
from tests.support.fragile_gpu import ADDRESS, FRAGILE, FragileGpu, case
from tests.support.vector_add import HOST
from tests.support.vector_add import case as vector_add
from tests.workers.test_pool import runs


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[WorkerPool]:
    with WorkerPool(timeout=600, journal=Journal(tmp_path / "run.jsonl"), standbys=2) as pool:
        yield pool


def waiting(pool: WorkerPool) -> list:
    return list(pool.standbys["cuda:0"].waiting_workers)


def events(pool: WorkerPool) -> list[str]:
    return [json.loads(line)["event"] for line in pool.journal.path.read_text().splitlines()]


def test_a_place_keeps_two_workers_on_a_gpu_however_many_ways_they_start(pool: WorkerPool) -> None:
    """Sealed candidates of each folder have workers of their own, and each worker holds a context."""
    for name in ("", "a", "b", "", "c"):
        assert pool.judge(case(n=1), FRAGILE, start=Start(name=name) if name else PLAIN_START).decision is Decision.PASS
        alive = [key for (_, key), slot in pool.slots.items() if slot.process is not None]
    assert alive == ["cuda:0", "cuda:0 c"]


def test_a_standby_worker_takes_over_after_a_fault_and_another_is_started(pool: WorkerPool) -> None:
    assert pool.judge(case(n=1), FRAGILE).decision is Decision.PASS
    (standby,) = waiting(pool)
    standby.wait_ready()
    pool.slots[0, "cuda:0"].close()
    faulted = pool.judge(case("fault"), FRAGILE)
    assert (faulted.decision, faulted.outcome) == (Decision.FAIL, Outcome.ILLEGAL_INSTRUCTION)
    assert events(pool) == ["begin", "end", "begin", "end"]  # the standby worker had judged nothing: no retry
    assert standby.process.exitcode is None or not runs(standby.process.pid)
    next_one = waiting(pool)[0]
    assert pool.judge(case(n=2), FRAGILE).decision is Decision.PASS
    assert pool.slots[0, "cuda:0"].process.pid == next_one.process.pid
    assert len(waiting(pool)) == 2  # after a fault all wait


def test_a_pool_can_do_without_a_standby_worker_until_the_first_fault(tmp_path: Path) -> None:
    """As those of pytest-xdist do: one for each of its workers is as many contexts again. The folder of their logs is made."""
    with WorkerPool(journal=Journal(tmp_path / "runs/run.jsonl"), standbys=2, calm=0) as pool:
        pool.prepare([FRAGILE])
        prepared = pool.slots[0, "cuda:0"].process.pid
        assert pool.judge(case(n=1), FRAGILE).decision is Decision.PASS
        assert pool.slots[0, "cuda:0"].process.pid == prepared and not waiting(pool)
        pool.judge(case("fault"), FRAGILE)
        pool.judge(case(n=2), FRAGILE)
        assert len(waiting(pool)) == 2


def test_a_worker_sleeps_while_its_gpu_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA by itself looks again and again: of large products' 496 s of the processor on an H200 80 were that."""
    calls: list[tuple] = []
    functions = {name: lambda *given, name=name: calls.append((name, *given[1:])) for name in ("cuInit", "cuDeviceGet", SETS_FLAGS)}
    monkeypatch.setattr(warmup.ctypes, "CDLL", lambda name: SimpleNamespace(**functions))
    warmup.sleep_while_the_gpu_works(0)
    assert calls == [("cuInit",), ("cuDeviceGet", 0), (SETS_FLAGS, 4)]
    monkeypatch.setattr(warmup.ctypes, "CDLL", Mock(side_effect=OSError))
    warmup.sleep_while_the_gpu_works(0)


SETS_FLAGS = "cuDevicePrimaryCtxSetFlags_v2"


def test_faults_in_a_row_cost_one_worker_each(pool: WorkerPool) -> None:
    pool.judge(case(n=1), FRAGILE)
    for n in range(4):
        assert pool.judge(case("fault", n), FRAGILE).outcome is Outcome.ILLEGAL_INSTRUCTION
    assert events(pool).count("again") == 1  # the first alone had a predecessor
    assert len(pool.standbys["cuda:0"].starts) == 5  # of the first two cases, of the retry, of three more


def test_a_primary_fault_comes_again_alone_and_a_collateral_fault_does_not(pool: WorkerPool) -> None:
    pool.judge(case(n=1), FRAGILE)
    primary = pool.judge(case("fault"), FRAGILE)
    assert primary.outcome is Outcome.ILLEGAL_INSTRUCTION and "again alone" in primary.details["fault repeats"]
    pool.judge(case(n=1), FRAGILE)
    collateral = pool.judge(case("fault unless first"), FRAGILE)
    assert collateral.decision is Decision.PASS and "illegal address" in collateral.details["fault does not repeat"]
    assert "had judged 1 other" in collateral.details["fault does not repeat"]


def test_a_process_damaged_by_one_case_does_not_fail_the_next(pool: WorkerPool) -> None:
    pool.judge(case(n=1), FRAGILE)
    assert pool.judge(case("damage"), FRAGILE).decision is Decision.PASS
    collateral = pool.judge(case(n=2), FRAGILE)
    assert collateral.decision is Decision.PASS and "segmentation fault" in collateral.details["fault does not repeat"]


def test_without_the_retry_a_collateral_fault_fails(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "may_be_anothers", lambda verdict, before, target: False)
    pool.judge(case(n=1), FRAGILE)
    pool.judge(case("damage"), FRAGILE)
    assert pool.judge(case(n=2), FRAGILE).outcome is Outcome.SEGMENTATION_FAULT


def test_a_kill_from_outside_fails_no_kernel_even_in_a_new_worker(pool: WorkerPool, tmp_path: Path) -> None:
    killed_once = pool.judge(case("kill", once=str(tmp_path / "done")), FRAGILE)
    assert killed_once.decision is Decision.PASS and "killed" in killed_once.details["fault does not repeat"]
    assert pool.judge(case("kill"), FRAGILE).outcome is Outcome.KILLED


@pytest.mark.share(4)
def test_a_kill_of_the_forkserver_fails_no_kernel(pool: WorkerPool, tmp_path: Path) -> None:
    verdict = pool.judge(case("kill the server", once=str(tmp_path / "done")), FRAGILE)
    assert verdict.decision is Decision.PASS and "fault does not repeat" in verdict.details
    assert events(pool) == ["begin", "again", "end"]


def test_workers_of_a_killed_forkserver_get_no_case(pool: WorkerPool, tmp_path: Path) -> None:
    pool.judge(case(n=1), FRAGILE)
    (standby,) = waiting(pool)
    standby.wait_ready()
    assert pool.judge(case("leave", once=str(tmp_path / "done")), FRAGILE).decision is Decision.PASS
    assert standby.join(300) and standby.served == 0


def test_a_worker_s_status_is_its_own_though_another_thread_starts_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, read = threading.Event(), multiprocessing.forkserver.read_signed

    def slowly(descriptor: int) -> int:
        status = read(descriptor)
        reading.set()
        time.sleep(0.2)
        return status

    def as_a_start_does() -> None:
        with forkserver._start_lock:
            multiprocessing.process._cleanup()

    worker = workers.Worker(FRAGILE, tmp_path)
    worker.wait_ready()
    monkeypatch.setattr(multiprocessing.forkserver, "read_signed", slowly)
    os.kill(worker.process.pid, signal.SIGSEGV)
    multiprocessing.connection.wait([worker.process.sentinel])
    other = threading.Thread(target=as_a_start_does)
    other.start()
    assert reading.wait(300)
    assert worker.status() == -signal.SIGSEGV
    other.join()
    worker.end()


def test_a_worker_of_a_server_that_failed_does_not_speak_for_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server failed after it had forked the worker."""
    kind, failures = multiprocessing.context.ForkServerProcess, [EOFError()]

    def start(process: multiprocessing.context.ForkServerProcess) -> None:
        multiprocessing.process.BaseProcess.start(process)
        if failures:
            raise failures.pop()

    monkeypatch.setattr(kind, "start", start)
    worker = workers.Worker(HOST, tmp_path)
    worker.wait_ready()
    assert not worker.connection.poll(1), "two workers greeted"
    worker.send(vector_add(1))
    verdict = worker.answer(60)
    assert not failures and verdict is not None and verdict.decision is Decision.PASS
    worker.end()


def test_a_run_that_ends_leaves_an_answer_to_no_other_case(tmp_path: Path) -> None:
    """It ends while the case is out."""

    def ends() -> None:
        raise KeyboardInterrupt

    slot = slots.WorkerSlot(HOST, timeout=600, directory=tmp_path)
    assert slot.judge(vector_add(1), lambda: None).decision is Decision.PASS
    with pytest.raises(KeyboardInterrupt):
        slot.judge(vector_add(fault="hang"), ends)
    assert slot.judge(vector_add(2)).decision is Decision.PASS
    slot.end()
    slot.standbys.end()


def test_a_worker_killed_between_two_cases_is_nobodys_verdict(pool: WorkerPool) -> None:
    for kill_standbys in (False, True):
        pool.judge(case(n=1), FRAGILE)
        for worker in [pool.slots[0, "cuda:0"].worker, *(waiting(pool) if kill_standbys else ())]:
            assert worker is not None
            os.kill(worker.process.pid, signal.SIGKILL)
            assert worker.join(300)
        verdict = pool.judge(case(n=2), FRAGILE)
        assert verdict.decision is Decision.PASS and "again" not in events(pool) and "fault does not repeat" not in verdict.details


def test_the_start_of_a_worker_is_a_bucket_of_its_first_verdict_alone(pool: WorkerPool) -> None:
    first, second = pool.judge(case(n=1), FRAGILE), pool.judge(case(n=2), FRAGILE)
    assert first.seconds["start"] > 0 and "start" not in second.seconds
    parts = sum(seconds for name, seconds in first.seconds.items() if name not in BESIDE_BUCKETS)
    assert parts == pytest.approx(first.seconds["total"], abs=1e-4)


@dataclass(frozen=True)
class Modelled(FragileGpu):
    """As a GPU in everything but where the launch runs."""


@target_device.register(Modelled)
@contextmanager
def _entered(target: Modelled, schedule: str = "eager", tuning: str = "", **options: bool) -> Iterator[object]:
    with emulated("sm_90") as device:
        yield device


def test_what_warms_a_worker_launches_and_looks_at_what_came() -> None:
    warm(Modelled("cuda:0", "sm_90", 0), [ADDRESS, "no.such:CONTRACT"])
    assert "tests.support.fragile_gpu" in sys.modules


def test_a_worker_that_cannot_warm_up_says_why_and_judges(pool: WorkerPool) -> None:
    assert pool.judge(case(n=1), FRAGILE).decision is Decision.PASS
    (said,) = pool.standbys["cuda:0"].failures
    assert "Error" in said  # Triton has no driver here, or will not launch on the CPU


class Waiting:
    """A worker that waits: ready, not ready yet, or (None) killed while it waited."""

    start_seconds, failed = 0.0, ""

    def __init__(self, ready: bool | None) -> None:
        self.ready, self.ended = ready, False

    def is_ready(self) -> bool:
        if self.ready is None:
            raise workers.WorkerDied
        return self.ready

    def wait_ready(self, tick: object) -> float:
        return 0.0

    def end(self) -> None:
        self.ended = True

    def join(self, seconds: float) -> bool:
        return True


def test_the_first_worker_that_is_ready_is_taken_and_killed_ones_removed(tmp_path: Path) -> None:
    killed, slow, ready, later, new = (Waiting(how) for how in (None, False, True, True, False))
    started = iter((killed, slow, ready, later, new))
    standbys = Standbys(HOST, tmp_path, 4, make=lambda: next(started))  # type: ignore[arg-type, return-value]
    standbys.faults = 1  # from then on all four wait
    standbys.refill()
    assert standbys.waiting_workers == (killed, slow, ready, later)
    assert standbys.take() is ready and standbys.waiting_workers == (slow, later)
    assert killed.ended and not slow.ended
    assert [standbys.take() for _ in range(3)] == [later, slow, new]


@pytest.mark.parametrize("text", ["x", "-1", ""])
def test_a_number_of_standby_workers_that_is_none_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the remedy."""
    monkeypatch.setenv("BITVERDICT_SPARES", text)
    with pytest.raises(ValueError, match=r"BITVERDICT_SPARES=.*must be a number, 0 or more; unset it for 3"):
        requested_count()
    monkeypatch.setenv("BITVERDICT_SPARES", "2")
    assert requested_count() == 2


def test_a_worker_pool_that_closes_leaves_no_worker_and_no_log(tmp_path: Path) -> None:
    with WorkerPool(journal=Journal(tmp_path / "run.jsonl"), standbys=2) as pool:
        pool.judge(case("fault"), FRAGILE)
        pool.judge(case(n=1), FRAGILE)
        workers = [worker.process.pid for worker in waiting(pool)] + [pool.slots[0, "cuda:0"].process.pid]
        assert len(workers) == 3
    deadline = time.monotonic() + 300
    while any(map(runs, workers)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(runs, workers)) and not list(tmp_path.glob("*.log"))

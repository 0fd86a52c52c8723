"""Contract under test: after a fault a warm child takes over, only the culprit is convicted, and no child is left behind."""

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

import pytest

from bitverdict.harness.emulator import emulated
from bitverdict.harness.judge.devices import entered
from bitverdict.harness.model.verdict import Outcome, Ruling
from bitverdict.harness.workers import forkserver
from bitverdict.harness.workers import process as children
from bitverdict.harness.workers import slot as cells
from bitverdict.harness.workers.journal import Journal
from bitverdict.harness.workers.pool import Bench
from bitverdict.harness.workers.standby import Spares, asked_for
from bitverdict.harness.workers.warmup import warm
from tests.support.fragile_gpu import ADDRESS, FRAGILE, FragileGpu, case
from tests.support.vector_add import HOST
from tests.support.vector_add import case as vector_add
from tests.workers.test_pool import runs


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench(timeout=60, journal=Journal(tmp_path / "run.jsonl"), spares=2) as bench:
        yield bench


def waiting(bench: Bench) -> list:
    return bench.spares["cuda:0"]._waiting


def events(bench: Bench) -> list[str]:
    return [json.loads(line)["event"] for line in bench.journal.path.read_text().splitlines()]


def test_a_spare_takes_over_after_a_fault_and_another_is_started(bench: Bench) -> None:
    assert bench.judge(case(n=1), FRAGILE).ruling is Ruling.RIGHT
    (spare,) = waiting(bench)
    spare.wait_ready()
    bench.cells[0, "cuda:0"].close()
    faulted = bench.judge(case("fault"), FRAGILE)
    assert (faulted.ruling, faulted.outcome) == (Ruling.CONVICTED, Outcome.ILLEGAL_INSTRUCTION)
    assert events(bench) == ["begin", "end", "begin", "end"]  # the spare had judged nothing: no second look
    assert spare.process.exitcode is None or not runs(spare.process.pid)
    next_one = waiting(bench)[0]
    assert bench.judge(case(n=2), FRAGILE).ruling is Ruling.RIGHT
    assert bench.cells[0, "cuda:0"].process.pid == next_one.process.pid
    assert len(waiting(bench)) == 2  # after a fault all wait


def test_faults_in_a_row_cost_one_child_each(bench: Bench) -> None:
    bench.judge(case(n=1), FRAGILE)
    for n in range(4):
        assert bench.judge(case("fault", n), FRAGILE).outcome is Outcome.ILLEGAL_INSTRUCTION
    assert events(bench).count("again") == 1  # the first alone had a predecessor
    assert len(bench.spares["cuda:0"].starts) == 5  # of the first two cases, of the second look, of three more


def test_a_culprit_comes_again_alone_and_a_victim_does_not(bench: Bench) -> None:
    bench.judge(case(n=1), FRAGILE)
    culprit = bench.judge(case("fault"), FRAGILE)
    assert culprit.outcome is Outcome.ILLEGAL_INSTRUCTION and "again alone" in culprit.details["culprit"]
    bench.judge(case(n=1), FRAGILE)
    victim = bench.judge(case("fault unless first"), FRAGILE)
    assert victim.ruling is Ruling.RIGHT and "illegal address" in victim.details["victim"]
    assert "had judged 1 other" in victim.details["victim"]


def test_a_process_damaged_by_one_case_does_not_convict_the_next(bench: Bench) -> None:
    bench.judge(case(n=1), FRAGILE)
    assert bench.judge(case("damage"), FRAGILE).ruling is Ruling.RIGHT
    victim = bench.judge(case(n=2), FRAGILE)
    assert victim.ruling is Ruling.RIGHT and "segmentation fault" in victim.details["victim"]


def test_without_the_second_look_a_victim_is_convicted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells.Cell, "_may_be_anothers", lambda self, verdict, before: False)
    bench.judge(case(n=1), FRAGILE)
    bench.judge(case("damage"), FRAGILE)
    assert bench.judge(case(n=2), FRAGILE).outcome is Outcome.SEGMENTATION_FAULT


def test_a_kill_from_outside_convicts_nobody_even_in_a_new_child(bench: Bench, tmp_path: Path) -> None:
    killed_once = bench.judge(case("kill", once=str(tmp_path / "done")), FRAGILE)
    assert killed_once.ruling is Ruling.RIGHT and "killed" in killed_once.details["victim"]
    assert bench.judge(case("kill"), FRAGILE).outcome is Outcome.KILLED


def test_a_kill_of_the_forkserver_convicts_nobody(bench: Bench, tmp_path: Path) -> None:
    verdict = bench.judge(case("kill the server", once=str(tmp_path / "done")), FRAGILE)
    assert verdict.ruling is Ruling.RIGHT and "victim" in verdict.details
    assert events(bench) == ["begin", "again", "end"]


def test_children_of_a_killed_forkserver_get_no_case(bench: Bench, tmp_path: Path) -> None:
    bench.judge(case(n=1), FRAGILE)
    (spare,) = waiting(bench)
    spare.wait_ready()
    assert bench.judge(case("leave", once=str(tmp_path / "done")), FRAGILE).ruling is Ruling.RIGHT
    assert spare.join(10) and spare.served == 0


def test_a_childs_status_is_its_own_though_another_thread_starts_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, read = threading.Event(), multiprocessing.forkserver.read_signed

    def slowly(descriptor: int) -> int:
        status = read(descriptor)
        reading.set()
        time.sleep(0.2)
        return status

    def as_a_start_does() -> None:
        with forkserver._starting:
            multiprocessing.process._cleanup()

    child = children.Child(FRAGILE, tmp_path)
    child.wait_ready()
    monkeypatch.setattr(multiprocessing.forkserver, "read_signed", slowly)
    os.kill(child.process.pid, signal.SIGSEGV)
    multiprocessing.connection.wait([child.process.sentinel])
    other = threading.Thread(target=as_a_start_does)
    other.start()
    assert reading.wait(10)
    assert child.status() == -signal.SIGSEGV
    other.join()
    child.end()


def test_a_child_forked_by_a_server_that_then_failed_does_not_speak_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, failures = multiprocessing.context.ForkServerProcess, [EOFError()]

    def start(process: multiprocessing.context.ForkServerProcess) -> None:
        multiprocessing.process.BaseProcess.start(process)
        if failures:
            raise failures.pop()

    monkeypatch.setattr(kind, "start", start)
    child = children.Child(HOST, tmp_path)
    child.wait_ready()
    assert not child.connection.poll(1), "two children greeted"
    child.send(vector_add(1))
    verdict = child.answer(60)
    assert not failures and verdict is not None and verdict.ruling is Ruling.RIGHT
    child.end()


def test_a_run_that_ends_while_a_case_is_out_leaves_its_answer_to_no_other_case(tmp_path: Path) -> None:
    def ends() -> None:
        raise KeyboardInterrupt

    cell = cells.Cell(HOST, timeout=10, directory=tmp_path)
    assert cell.judge(vector_add(1), lambda: None).ruling is Ruling.RIGHT
    with pytest.raises(KeyboardInterrupt):
        cell.judge(vector_add(fault="hang"), ends)
    assert cell.judge(vector_add(2)).ruling is Ruling.RIGHT
    cell.end()
    cell.spares.end()


def test_a_child_killed_between_two_cases_is_nobodys_verdict(bench: Bench) -> None:
    for kill_spares in (False, True):
        bench.judge(case(n=1), FRAGILE)
        for child in [bench.cells[0, "cuda:0"].child, *(waiting(bench) if kill_spares else ())]:
            assert child is not None
            os.kill(child.process.pid, signal.SIGKILL)
            assert child.join(10)
        verdict = bench.judge(case(n=2), FRAGILE)
        assert verdict.ruling is Ruling.RIGHT and "again" not in events(bench) and "victim" not in verdict.details


def test_the_start_of_a_child_is_a_bucket_of_its_first_verdict_alone(bench: Bench) -> None:
    first, second = bench.judge(case(n=1), FRAGILE), bench.judge(case(n=2), FRAGILE)
    assert first.seconds["start"] > 0 and "start" not in second.seconds
    parts = sum(seconds for name, seconds in first.seconds.items() if name != "total")
    assert parts == pytest.approx(first.seconds["total"], abs=1e-4)


@dataclass(frozen=True)
class Modelled(FragileGpu):
    """As a GPU in everything but where the launch runs."""


@entered.register(Modelled)
@contextmanager
def _entered(target: Modelled, schedule: str = "eager", tuning: str = "") -> Iterator[object]:
    with emulated("sm_90") as device:
        yield device


def test_what_warms_a_child_launches_and_looks_at_what_came() -> None:
    warm(Modelled("cuda:0", "sm_90", 0), [ADDRESS, "no.such:CONTRACT"])
    assert "tests.support.fragile_gpu" in sys.modules


def test_a_child_that_cannot_warm_up_says_why_and_judges(bench: Bench) -> None:
    assert bench.judge(case(n=1), FRAGILE).ruling is Ruling.RIGHT
    (said,) = bench.spares["cuda:0"].failures
    assert "Error" in said  # Triton has no driver here, or will not launch on the CPU


class Waiting:
    """A child that waits: ready, not ready yet, or (None) killed while it waited."""

    def __init__(self, ready: bool | None) -> None:
        self.ready, self.ended = ready, False

    def is_ready(self) -> bool:
        if self.ready is None:
            raise children.Gone
        return self.ready

    def end(self) -> None:
        self.ended = True


def test_the_first_child_that_is_ready_is_taken_and_killed_ones_removed(tmp_path: Path) -> None:
    spares = Spares(HOST, tmp_path, 3)
    killed, slow, ready, later = (Waiting(how) for how in (None, False, True, True))
    spares._waiting = [killed, slow, ready, later]
    assert spares._first() is ready and spares._waiting == [slow, later]
    assert spares._dead == [killed] and killed.ended and not slow.ended
    assert [spares._first() for _ in range(3)] == [later, slow, None]


@pytest.mark.parametrize("text", ["x", "-1", ""])
def test_a_number_of_spares_that_is_none_is_refused_with_the_remedy(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_SPARES", text)
    with pytest.raises(ValueError, match=r"HARNESS_SPARES=.*must be a number, 0 or more; unset it for 3"):
        asked_for()
    monkeypatch.setenv("HARNESS_SPARES", "2")
    assert asked_for() == 2


def test_a_bench_that_closes_leaves_no_child_and_no_log(tmp_path: Path) -> None:
    with Bench(journal=Journal(tmp_path / "run.jsonl"), spares=2) as bench:
        bench.judge(case("fault"), FRAGILE)
        bench.judge(case(n=1), FRAGILE)
        children = [child.process.pid for child in waiting(bench)] + [bench.cells[0, "cuda:0"].process.pid]
        assert len(children) == 3
    deadline = time.monotonic() + 10
    while any(map(runs, children)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(runs, children)) and not list(tmp_path.glob("*.log"))

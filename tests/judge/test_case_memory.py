"""Contract under test: a case is admitted to a GPU by its own need of memory. Two that need more than a worker is counted for are
never on one GPU at a time; small ones are. What a launcher allocates counts as it comes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from bitverdict.harness.judge import case_memory, far_views
from bitverdict.harness.judge import launch as launching
from bitverdict.harness.judge.case_memory import WORKER_MEMORY, MemoryReservation, NoRoom, memory_of
from bitverdict.harness.judge.classify import LaunchResult
from bitverdict.harness.judge.clock import Clock
from bitverdict.harness.judge.guarded_buffers import Guard, Poison, guarded_allocations
from bitverdict.harness.model.case import Operand
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.model.verdict import Outcome
from tests.support.vector_add import CONTRACT, case

pytestmark = pytest.mark.usefixtures("no_gpu_to_tidy")
GPU = Target("cuda:0", "sm_90", index=0, uuid="of no GPU, for cases")


def operands(side: int) -> dict[str, Operand]:
    """A matrix (side, side) of fp16 that takes no memory here."""
    return {"x": Operand(name="x", format="fp16", codes=np.broadcast_to(np.uint16(0), (side, side)))}


@pytest.fixture
def no_gpu_to_tidy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collecting all garbage takes most of a second late in a session, and frees nothing here."""
    monkeypatch.setattr(far_views, "free_memory", lambda: None)


def contract(results: int = 0) -> Any:
    return SimpleNamespace(result_bytes=lambda case: results)


def needed(side: int, where: Target = GPU, results: int = 0) -> int:
    return memory_of(SimpleNamespace(), where, contract(results), operands(side).values())  # type: ignore[arg-type]


def test_the_need_of_a_case_follows_from_its_operands_and_results() -> None:
    large = 1 << 15  # a matrix of 2 GiB
    assert needed(large) == 3 * (2 << 30)
    assert needed(large, results=1 << 30) == 3 * (2 << 30) + 2 * (1 << 30)
    assert needed(64, results=2 << 30) == 3 * 64 * 64 * 2 + 2 * (2 << 30), "of a small operand and a large result too"
    assert needed(64) == needed(1 << 13) == 0, "a worker is counted for so much"
    assert needed(large, target("emulated:sm_90")) == 0


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """How many of two cases with operands of a size are launched at a time, on a GPU of 80 GiB, where the launcher takes so many
    bytes besides."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (80 << 30, 80 << 30))

    def most(side: int, workspace: int = 0) -> int:
        both, lock = threading.Barrier(2), threading.Lock()
        now, seen = 0, list[int]()

        def once(*given: Any) -> LaunchResult:
            nonlocal now
            if workspace:
                given[-1].take(workspace)
            with lock:
                now += 1
                seen.append(now)
            try:
                both.wait(0.5)
            except threading.BrokenBarrierError:
                pass
            with lock:
                now -= 1
            return LaunchResult(Outcome.PASS)

        def judge() -> None:
            launching.launch(None, GPU, contract(), None, operands(side), Clock())  # type: ignore[arg-type]

        monkeypatch.setattr(launching, "_launch_once", once)
        threads = [threading.Thread(target=judge) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(seen) == 2, "both are launched"
        return max(seen)

    yield most


def test_two_large_cases_take_turns_on_a_gpu_and_small_ones_do_not(together: Callable[..., int]) -> None:
    assert (together(1 << 15), together(64)) == (1, 2)


def test_what_a_launcher_allocates_counts_as_it_comes(together: Callable[..., int]) -> None:
    assert (together(64, 2 << 30), together(64, 1 << 30)) == (1, 2)


def test_the_mutant_that_counts_no_workspace_is_noticed(together: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryReservation, "take", lambda room, size: None)
    assert together(64, 2 << 30) == 2


def test_a_case_whose_launcher_finds_no_room_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the launcher takes the exception and goes on without."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (4 << 30, 80 << 30))

    def once(*given: Any) -> LaunchResult:
        with pytest.raises(NoRoom):
            given[-1].take(1 << 30)
            given[-1].take(1 << 30)
        return LaunchResult(Outcome.PASS)

    monkeypatch.setattr(launching, "_launch_once", once)
    seen = launching.launch(None, GPU, contract(), None, operands(64), Clock())  # type: ignore[arg-type]
    assert seen.outcome is Outcome.NOT_RUN
    assert seen.message.startswith("3.0 GiB of operands and what the launcher allocates: 4.0 of 80.0 GiB are free on cuda:0")


def test_a_launch_tells_its_room_what_the_launcher_allocates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without room for it the case is not run, and its launcher gets no tensor."""
    where, asked = target("emulated:sm_90"), list[int]()

    def launched(taken: Callable[[MemoryReservation, int], None]) -> LaunchResult:
        monkeypatch.setattr(MemoryReservation, "take", taken)
        given = {each.name: each for each in CONTRACT.operands(case(5))}
        return launching.launch(case(5), where, CONTRACT, None, given, Clock())

    def none(room: MemoryReservation, size: int) -> None:
        room.short = "no room at all"
        raise NoRoom(room.short)

    assert launched(lambda room, size: asked.append(size)).outcome is None and len(asked) == 1, "the one result"
    assert (found := launched(none)).outcome is Outcome.NOT_RUN and found.message == "no room at all"


def test_a_thread_of_autograds_may_be_the_one_that_allocates(monkeypatch: pytest.MonkeyPatch) -> None:
    """The turn that it took ends with the case, and it has none in the next."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (80 << 30, 80 << 30))
    monkeypatch.setattr(far_views, "PATIENCE", 0.2)
    with ThreadPoolExecutor(1) as engine:
        for _ in range(2):
            with MemoryReservation(GPU, 0, 0) as room:
                engine.submit(room.take, 2 << 30).result()
                with MemoryReservation(GPU, 0, 0) as other, pytest.raises(NoRoom, match="another process judged"):
                    other.take(2 << 30)
        assert not engine.submit(far_views.is_admitted).result() and not far_views.is_admitted()
        with far_views.admit_bytes(8 << 30, GPU), MemoryReservation(GPU, 0, 0) as room:  # a study's: its engine waits for nobody
            engine.submit(room.take, 2 << 30).result()


def test_a_second_launch_counts_anew_and_a_guard_asks_before_it_allocates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (3 << 30, 80 << 30))
    asked: list[int] = []
    with guarded_allocations(Guard(Poison.of_seed(1), on_allocation=asked.append)):
        assert torch.empty(1 << 20).numel() and torch.zeros(3).numel()
    assert len(asked) == 2 and 1 << 22 <= asked[0] < 1 << 24 and asked[1] < asked[0]
    with MemoryReservation(GPU, 0, 0) as room:
        for _ in range(3):
            room.begin()
            room.take(1 << 30)
        with pytest.raises(NoRoom):
            room.take(1 << 30)
    with MemoryReservation(target("emulated:sm_90"), 0, 0) as room:
        room.take(1 << 40)


def test_a_need_that_is_one_number_for_all_cases_is_noticed(together: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutants: each case counted as what a worker is counted for, and each as a large one."""
    for constant, wrong in ((0, (2, 2)), (WORKER_MEMORY + 1, (1, 1))):
        monkeypatch.setattr(launching, "memory_of", lambda *given, constant=constant: constant)
        assert (together(1 << 15), together(64)) == wrong


def test_a_large_case_is_not_run_where_less_is_free_than_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (6 << 30, 80 << 30))
    monkeypatch.setattr(launching, "_launch_once", lambda *given: LaunchResult(Outcome.PASS))
    seen = launching.launch(None, GPU, contract(), None, operands(1 << 15), Clock())  # type: ignore[arg-type]
    assert seen.outcome is Outcome.NOT_RUN
    assert seen.message == "6.0 GiB of operands and results: 6.0 of 80.0 GiB are free on cuda:0"
    assert launching.launch(None, GPU, contract(), None, operands(64), Clock()).outcome is Outcome.PASS  # type: ignore[arg-type]


def test_a_study_that_was_admitted_launches_without_waiting_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (80 << 30, 80 << 30))
    monkeypatch.setattr(far_views, "PATIENCE", 0.2)
    with far_views.admit_bytes(8 << 30, GPU) as outer, far_views.admit_bytes(case_memory.WORKER_MEMORY, GPU) as inner:
        assert outer == inner == ""

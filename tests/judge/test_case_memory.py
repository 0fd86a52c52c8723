"""Contract under test: a case is admitted to a GPU by its own need of memory. Two that need more than a worker is counted for are
never on one GPU at a time; small ones are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from bitverdict.harness.judge import case_memory, far_views
from bitverdict.harness.judge import launch as launching
from bitverdict.harness.judge.case_memory import COUNTED, memory_of
from bitverdict.harness.judge.classify import Seen
from bitverdict.harness.judge.clock import Clock
from bitverdict.harness.model.case import Operand
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.model.verdict import Outcome

GPU = Target("cuda:0", "sm_90", index=0, uuid="of no GPU, for cases")


def operands(side: int) -> dict[str, Operand]:
    """A matrix (side, side) of fp16 that takes no memory here."""
    return {"x": Operand(name="x", format="fp16", codes=np.broadcast_to(np.uint16(0), (side, side)))}


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
def together(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], int]]:
    """How many of two cases with operands of a size are launched at a time, on a GPU of 80 GiB."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (80 << 30, 80 << 30))

    def most(side: int) -> int:
        both, lock = threading.Barrier(2), threading.Lock()
        now, seen = 0, list[int]()

        def once(*given: Any) -> Seen:
            nonlocal now
            with lock:
                now += 1
                seen.append(now)
            try:
                both.wait(0.5)
            except threading.BrokenBarrierError:
                pass
            with lock:
                now -= 1
            return Seen(Outcome.PASS)

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


def test_two_large_cases_take_turns_on_a_gpu_and_small_ones_do_not(together: Callable[[int], int]) -> None:
    assert (together(1 << 15), together(64)) == (1, 2)


def test_a_need_that_is_one_number_for_all_cases_is_noticed(
    together: Callable[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutants: each case counted as what a worker is counted for, and each as a large one."""
    for constant, wrong in ((0, (2, 2)), (COUNTED + 1, (1, 1))):
        monkeypatch.setattr(launching, "memory_of", lambda *given, constant=constant: constant)
        assert (together(1 << 15), together(64)) == wrong


def test_a_large_case_is_not_run_where_less_is_free_than_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (6 << 30, 80 << 30))
    monkeypatch.setattr(launching, "_launch_once", lambda *given: Seen(Outcome.PASS))
    seen = launching.launch(None, GPU, contract(), None, operands(1 << 15), Clock())  # type: ignore[arg-type]
    assert seen.outcome is Outcome.NOT_RUN
    assert seen.message == "6.0 GiB of operands and results: 6.0 of 80.0 GiB are free on cuda:0"
    assert launching.launch(None, GPU, contract(), None, operands(64), Clock()).outcome is Outcome.PASS  # type: ignore[arg-type]


def test_a_study_that_was_admitted_launches_without_waiting_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (80 << 30, 80 << 30))
    monkeypatch.setattr(far_views, "PATIENCE", 0.2)
    with far_views.admitted(8 << 30, GPU) as outer, far_views.admitted(case_memory.COUNTED, GPU) as inner:
        assert outer == inner == ""

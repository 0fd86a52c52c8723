"""Contract under test: what is expected is computed while the executor launches, and what was recorded of the launch waited for."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bitverdict.harness.contracts.oracle import gemm_bound
from bitverdict.harness.judge.classify import LaunchResult
from bitverdict.harness.judge.clock import Clock
from bitverdict.harness.judge.pending_launch import PendingLaunch, compute_meanwhile
from bitverdict.harness.model.contract import UndecidedCase


class Launch:
    """A launch that comes to `recorded` and told its `seconds`, and what was done, in its order."""

    def __init__(self, seconds: float = 0.02, **recorded: Any) -> None:
        self.seconds, self.recorded, self.done, self.clock = seconds, recorded, list[str](), Clock()
        self.going = PendingLaunch(self._answer)

    def _answer(self) -> LaunchResult:
        self.done.append("waited")
        self.clock.buckets["launch"] = self.seconds
        return LaunchResult(launch_record=self.recorded)

    def noted(self, what: str) -> None:
        self.done.append(what)


def test_it_is_computed_before_the_answer_is_waited_for() -> None:
    launch = Launch()
    seen, told = compute_meanwhile(launch.going, launch.clock, lambda recorded: launch.noted("computed") or 7)
    assert launch.done == ["computed", "waited"] and seen is launch.going.launch_result() and told() == 7
    assert launch.done.count("waited") == 1


def test_who_asks_for_the_record_waits_there() -> None:
    launch = Launch(outputs=[["c", "fp16"]])

    def work(recorded: Mapping[str, Any]) -> Any:
        launch.noted("begun")
        found = recorded["outputs"], "config" in recorded, {**recorded}
        launch.noted("ended")
        return found

    _, told = compute_meanwhile(launch.going, launch.clock, work)
    assert launch.done == ["begun", "waited", "ended"] and told() == ([["c", "fp16"]], False, launch.recorded)


def test_a_bound_on_a_product_asks_for_its_instructions_last(monkeypatch: pytest.MonkeyPatch) -> None:
    launch, exact = Launch(instructions=[["fma", "", "", "", ""]]), gemm_bound.exact_gemm
    monkeypatch.setattr(gemm_bound, "exact_gemm", lambda *given: launch.noted("multiplied") or exact(*given))
    problem = SimpleNamespace(m=1, n=1, k=1, dtype="fp16", out="fp16", activation="")
    one = np.full((1, 1), 0x3C00, np.uint16)

    def bound(recorded: Mapping[str, Any]) -> Any:
        return gemm_bound.bounded_product(problem, one, one, "sm_90", launched_kinds=gemm_bound.launched_instructions(recorded))

    _, told = compute_meanwhile(launch.going, launch.clock, bound)
    assert launch.done == ["multiplied", "waited"] and "fp32 multiply-adds" in told().basis


def test_what_it_raises_is_raised_where_somebody_asks() -> None:
    launch = Launch()

    def undecided(recorded: Mapping[str, Any]) -> Any:
        raise UndecidedCase("nobody knows")

    seen, told = compute_meanwhile(launch.going, launch.clock, undecided)
    assert launch.done == ["waited"] and seen.outcome is None
    with pytest.raises(UndecidedCase, match="nobody knows"):
        told()


def test_time_that_both_take_is_the_launch_s() -> None:
    launch = Launch()
    compute_meanwhile(launch.going, launch.clock, lambda recorded: time.sleep(0.05))
    assert 0.03 <= launch.clock.buckets["reference"] < launch.clock.seconds()["total"] - 0.019
    longer = Launch(seconds=100)
    compute_meanwhile(longer.going, longer.clock, lambda recorded: time.sleep(0.001))
    assert longer.clock.buckets["reference"] == 0

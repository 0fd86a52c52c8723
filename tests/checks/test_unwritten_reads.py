"""Contract under test: of a result that hangs on uninitialised words the cause is their read, and of no other."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bitverdict.harness.checks.explain import check
from bitverdict.harness.checks.explain.unwritten_reads import KIND, Relaunch, explain_by_unwritten_input
from bitverdict.harness.judge.classify import LaunchResult
from bitverdict.harness.judge.clock import Clock
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.judge.launch import Allocations
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import ExpectedOutput
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from tests.support.vector_add import ADDRESS, Problem, VectorAdd

FILE = Path(__file__).parents[1] / "support" / "unwritten_launchers.py"


def judged(launcher: str, *, data_seed: int = 0) -> Verdict:
    case = Case(contract=ADDRESS, problem=Problem(n=100), data_seed=data_seed, launcher=f"{FILE}:{launcher}")
    return judge(case, target("emulated:sm_90"), VectorAdd())


def line(text: str) -> str:
    return str(next(number for number, each in enumerate(FILE.read_text().splitlines(), 1) if text in each))


@pytest.mark.parametrize("data_seed", [0, 1])
def test_atomics_on_what_nobody_zeroed_are_named(data_seed: int) -> None:
    found = judged("without_zeros", data_seed=data_seed)
    assert (found.outcome, found.details["cause_kind"]) == (Outcome.WRONG_WORDS, KIND)
    at = f"tests/support/unwritten_launchers.py:{line('tl.atomic_add')}"
    said = f"reads uninitialised words ({at}): tensor 2 (empty), c_ptr of the kernel, the first at [0]"
    assert found.details["cause"] == f"{said}; with zeros there c is right"


def test_words_that_are_copied_unwritten_count_as_read() -> None:
    found = judged("half_filled")
    at = f"tests/support/unwritten_launchers.py:{line('old = tl.load')}"
    said = f"reads uninitialised words ({at}): tensor 2 (empty), old_ptr of the kernel, the first at [50]"
    assert found.details["cause"] == said


@pytest.mark.parametrize(("elements", "named"), [(1 << 30, True), (1, False)])
def test_a_cause_is_sought_by_work_counted_and_not_by_seconds(elements: int, named: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "MOST_ELEMENTS", elements)
    monkeypatch.setattr(Clock, "measure", lambda self, name: nullcontext(self.buckets.__setitem__(name, 1e6)))  # all took long
    assert (judged("half_filled").details.get("cause_kind") == KIND) == named


@pytest.mark.parametrize("launcher", ["with_zeros", "zeroed_later", "selected_away"])
def test_a_right_launcher_passes_and_is_told_no_cause(launcher: str) -> None:
    found = judged(launcher)
    assert found.decision is Decision.PASS and "cause" not in found.details


@pytest.mark.parametrize("launcher", ["selected_away_and_wrong", "selected_away_and_short"])
def test_what_is_selected_away_is_no_cause_of_another_failure(launcher: str) -> None:
    found = judged(launcher)
    assert found.failed and "explanation failed" not in found.details
    assert found.details.get("cause_kind") != KIND


def launched(off: float) -> LaunchResult:
    """Three fp32 elements 1, 2, 3 whose real values are `off`, too little for their words."""
    reals = SimpleNamespace(value=np.arange(1.0, 4.0) + off, error=np.full(3, 1e-15))
    seen = LaunchResult(outputs={"c": np.arange(1, 4, dtype=np.float32).view(np.uint32)}, real_values={"c": reals})
    seen.unwritten_reads, seen.unwritten = (("k.py:1", "room", "the first at [0]"),), {"c": np.zeros(3, bool)}
    return seen


def test_poison_too_small_for_a_word_is_told_where_zeros_are_right() -> None:
    exact = np.arange(1.0, 4.0)
    expected = ExpectedOutput(
        name="c", format="fp32", shape=(3,), value=exact, bound=exact * 1e-6, exact=exact, exact_error=np.zeros(3)
    )

    def told(with_zeros: float) -> str:
        first = launched(1e-12)

        def once_more(allocations: Allocations) -> LaunchResult:
            return launched(with_zeros) if allocations.zero_allocation else first

        found = explain_by_unwritten_input(expected, first, Relaunch(first, once_more))
        return "" if found is None else found.sentence

    assert told(0.0) == "reads uninitialised words (k.py:1): room, the first at [0]; with zeros there c is right"
    assert told(1e-9) == "", "wrong in the same words without the poison: there is another cause"

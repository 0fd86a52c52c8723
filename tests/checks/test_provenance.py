"""Contract under test: right words that torch or the host computed are inconclusive with their count, and honest launchers pass."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from bitverdict.harness.checks.provenance import judge_provenance
from bitverdict.harness.judge import judge as judging
from bitverdict.harness.judge import remote_launcher
from bitverdict.harness.judge.devices import target_device
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from tests.support.vector_add import ADDRESS, Problem, VectorAdd

FILE = Path(__file__).parents[1] / "support" / "provenance_launchers.py"
N = 10


def followed(*given: Any, **options: Any) -> AbstractContextManager[Any]:
    return target_device(*given, **options | {"provenance": True})


def judged(launcher: str) -> Verdict:
    case = Case(contract=ADDRESS, problem=Problem(n=N), launcher=f"{FILE}:{launcher}")
    with mock.patch.object(remote_launcher, "target_device", followed):
        return judging.judge(case, target("emulated:sm_90"), VectorAdd())


@pytest.mark.parametrize(
    "launcher",
    [
        "honest",
        "moved_by_torch",
        "scaled_by_torch",
        "half_computed_by_torch",
        "summed_of_parts",
        "summed_in_two_parts",
        "reads_the_greatest",
        "cleared_first",
        "product_into_an_empty_result",
    ],
)
def test_an_honest_launcher_passes(launcher: str) -> None:
    found = judged(launcher)
    assert found.decision is Decision.PASS, found.message
    assert found.details["provenance"] == f"c: {N} of {N} words stored by kernels"


@pytest.mark.parametrize(
    ("launcher", "count", "by"),
    [
        ("beside_a_dummy", N, "torch add"),
        ("copied", N, "torch add"),
        ("copied_twice", N, "torch add"),
        ("copied_and_nothing_added", N, "torch add"),
        ("copied_by_halves", N, "torch add"),
        ("doubled", N, "torch mul"),
        ("last_half_copied", N // 2, "torch add"),
        ("last_three_by_torch", 3, "torch neg"),
        ("one_argument_an_element", N, "the host float argument of any_kernel, after a read by the host"),
        ("two_arguments_an_element", N, "the host float arguments of any_kernel, after a read by the host"),
        ("negated_lazily", N, "torch neg"),
        ("sent_by_the_host", N, "the host to"),
    ],
)
def test_words_that_no_kernel_computed_are_counted(launcher: str, count: int, by: str) -> None:
    found = judged(launcher)
    assert (found.decision, found.outcome) == (Decision.INCONCLUSIVE, Outcome.COMPUTED_ON_HOST), found
    assert found.message.startswith(f"{count} of {N} words of c were computed on the host: {by}")


def test_inputs_that_torch_computed_are_listed_of_a_pass_too() -> None:
    line = next(n for n, text in enumerate(FILE.read_text().splitlines(), 1) if "return _launched(a, b, b * 1, ADDED)" in text)
    (told,) = judged("half_computed_by_torch").details["computed inputs"]
    assert told == f"c_ptr of any_kernel: torch mul at tests/support/provenance_launchers.py:{line}, {4 * N} bytes"
    (read,) = judged("reads_the_greatest").details["host reads"]
    assert read.startswith("item at tests/support/provenance_launchers.py:") and "torch max" in read


def test_a_wrong_case_stays_a_failure() -> None:
    wrong = Verdict(decision=Decision.FAIL, outcome=Outcome.WRONG_WORDS)
    counts = {"words": 2, "kernel": 0, "filled": 0, "operand": 0, "computed": 2, "copied": 0, "others": [["torch add", 2]]}
    seen = {"outputs": {"c": counts}, "inputs": [], "more inputs": 0, "reads": []}
    assert judge_provenance(wrong, seen).outcome is Outcome.WRONG_WORDS
    assert judge_provenance(wrong, {}) == replace(wrong, details={"provenance": "provenance not observed"})

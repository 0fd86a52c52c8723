"""Contract under test: a second call finds out what a launcher keeps from one call to the next, and tells it by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.verdict import Outcome, Ruling
from tests.harness_checks.judged_launcher import judged, launcher

CACHE = "_kept = {}"
BUFFER = "c = _kept.setdefault((M, N), torch.empty((M, N), device=a.device, dtype=a.dtype))"
KEPT = {
    "a cached result": (
        {"module": CACHE, "result": BUFFER},
        "c: the second call overwrites the result of the first; return a buffer of its own from each call",
    ),
    "a stale operand": (
        {"module": CACHE, "before": "a = _kept.setdefault(a.shape, a)"},
        "outside the bound in the second call alone",
    ),
    "a stale result": (
        {"module": CACHE, "after": "c = _kept.setdefault((M, N), c).clone()"},
        "it has the words of the first call's",
    ),
    "a workspace that is not cleared": (
        {
            "module": CACHE,
            "after": "sum_of_all = _kept.setdefault((M, N), torch.zeros_like(c))\nsum_of_all += c\nc = sum_of_all.clone()",
        },
        "the same operands are right in a first call",
    ),
    "a flag that stays": (
        {"module": CACHE, "before": "assert 'done' not in _kept, 'called twice'\n_kept['done'] = True"},
        "launcher error in the second call alone: AssertionError: called twice",
    ),
}
RIGHT = {
    "nothing": {},
    "a copy of a cached buffer": {"module": CACHE, "result": BUFFER, "after": "c = c.clone()"},
    "a cached number": {"module": CACHE, "before": "assert _kept.setdefault('name', torch.cuda.get_device_name())"},
    "a workspace that is cleared": {
        "module": CACHE,
        "after": "sum_of_all = _kept.setdefault((M, N), torch.zeros_like(c)).zero_()\nsum_of_all += c\nc = sum_of_all.clone()",
    },
}


@pytest.mark.parametrize("kind", KEPT)
def test_what_is_kept_between_calls_fails_by_its_name(kind: str, tmp_path: Path) -> None:
    changed, said = KEPT[kind]
    verdict = judged(launcher(**changed), tmp_path, calls=2)
    assert (verdict.ruling, verdict.outcome) == (Ruling.CONVICTED, Outcome.STATE_KEPT), verdict.message
    assert said in verdict.message
    assert judged(launcher(**changed) + "# once", tmp_path).ruling is Ruling.RIGHT, "one call does not show it"


@pytest.mark.parametrize("kind", RIGHT)
def test_what_is_kept_and_does_no_harm_is_right(kind: str, tmp_path: Path) -> None:
    verdict = judged(launcher(**RIGHT[kind]), tmp_path, calls=2)
    assert verdict.ruling is Ruling.RIGHT, (verdict.outcome, verdict.message)
    assert verdict.words == 2 * 70 * 40


def test_a_fault_of_both_calls_keeps_its_own_name(tmp_path: Path) -> None:
    wrong = launcher().replace("mask=offs_k[None, :] < K - k, other=0.0", "")
    assert judged(wrong, tmp_path, calls=2).outcome is Outcome.STRAY_READ
    assert judged(launcher(after="c = c + c"), tmp_path, calls=2).outcome is Outcome.OUTSIDE_BOUND


def test_a_fault_that_the_second_operands_alone_show_keeps_its_own_name(tmp_path: Path) -> None:
    """Operands that happen to be handled wrongly are no state: the second call is wrong alone too."""
    sign = "if a[0, 0] < 0:\n    c.zero_()"
    outcomes = {seed: judged(launcher(after=sign), tmp_path, calls=2, data_seed=seed).outcome for seed in range(6)}
    assert set(outcomes.values()) == {Outcome.RIGHT, Outcome.OUTSIDE_BOUND}, outcomes

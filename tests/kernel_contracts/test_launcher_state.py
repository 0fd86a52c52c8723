"""Contract under test: a second call finds out what a launcher keeps from one call to the next, and tells it by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitverdict.harness.model.verdict import Decision, Outcome
from tests.support.judged_launcher import judged, launcher

CACHE = "_kept = {}"
BUFFER = "c = _kept.setdefault((M, N), torch.empty((M, N), device=a.device, dtype=a.dtype))"
TABLE = """from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def copied(x_desc, y_ptr, M, N, BLOCK: tl.constexpr):
    rows, columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (rows < M)[:, None] & (columns < N)[None, :]
    tl.store(y_ptr + rows[:, None] * N + columns[None, :], x_desc.load([rows.min(0), columns.min(0)]), mask=inside)


@triton.jit
def pointed(table_ptr, y_ptr, size, BLOCK: tl.constexpr):
    x_ptr = tl.load(table_ptr).to(tl.pointer_type(tl.float16))
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + places, tl.load(x_ptr + places, mask=places < size), mask=places < size)


_kept = {}"""
BY_DESCRIPTOR = """d = torch.empty_like(c)
copied[(5, 3)](DESCRIPTOR, d, M, N, BLOCK=16)
c = d"""
BY_POINTER = """from bitverdict.harness.emulator import reach
reach(c)
table = torch.tensor([c.data_ptr()], dtype=torch.int64, device="cuda")
d = torch.empty_like(c)
pointed[(22,)](TABLE, d, c.numel(), BLOCK=128)
c = d"""
NEW_DESCRIPTOR = "TensorDescriptor.from_tensor(c, [16, 16])"
KEPT = {
    "a stale descriptor": (
        {"module": TABLE, "after": BY_DESCRIPTOR.replace("DESCRIPTOR", f"_kept.setdefault((M, N), {NEW_DESCRIPTOR})")},
        "it has the words of the first call's",
    ),
    "a stale pointer in memory": (
        {"module": TABLE, "after": BY_POINTER.replace("TABLE", "_kept.setdefault((M, N), table)")},
        "wrong mathematics in the second call alone",
    ),
    "a cached result": (
        {"module": CACHE, "result": BUFFER},
        "c: the second call overwrites the result of the first; return a buffer of its own from each call",
    ),
    "a stale operand": (
        {"module": CACHE, "before": "a = _kept.setdefault(a.shape, a)"},
        "wrong mathematics in the second call alone",
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
PASS = {
    "nothing": {},
    "a descriptor of each call": {"module": TABLE, "after": BY_DESCRIPTOR.replace("DESCRIPTOR", NEW_DESCRIPTOR)},
    "a pointer in memory of each call": {"module": TABLE, "after": BY_POINTER.replace("TABLE", "table")},
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
    assert (verdict.decision, verdict.outcome) == (Decision.FAIL, Outcome.STATE_KEPT), verdict.message
    assert said in verdict.message
    assert judged(launcher(**changed) + "# once", tmp_path).decision is Decision.PASS, "one call does not show it"


@pytest.mark.parametrize("kind", PASS)
def test_what_is_kept_and_does_no_harm_is_right(kind: str, tmp_path: Path) -> None:
    verdict = judged(launcher(**PASS[kind]), tmp_path, calls=2)
    assert verdict.decision is Decision.PASS, (verdict.outcome, verdict.message)
    assert verdict.words == 2 * 70 * 40


def test_a_fault_of_both_calls_keeps_its_own_name(tmp_path: Path) -> None:
    wrong = launcher().replace("mask=offs_k[None, :] < K - k, other=0.0", "")
    assert judged(wrong, tmp_path, calls=2).outcome is Outcome.STRAY_READ
    assert judged(launcher(after="c = c + c"), tmp_path, calls=2).outcome is Outcome.WRONG_MATHEMATICS


def test_a_fault_that_the_second_operands_alone_show_keeps_its_own_name(tmp_path: Path) -> None:
    """Operands that happen to be handled wrongly are no state: the second call is wrong alone too."""
    sign = "if a[0, 0] < 0:\n    c.zero_()"
    outcomes = {seed: judged(launcher(after=sign), tmp_path, calls=2, data_seed=seed).outcome for seed in range(6)}
    assert set(outcomes.values()) == {Outcome.PASS, Outcome.WRONG_MATHEMATICS}, outcomes

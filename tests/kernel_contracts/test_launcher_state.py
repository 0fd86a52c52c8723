"""Contract under test: a second call finds out what a launcher keeps from one call to the next, and tells it by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Decision, Outcome
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.kernels.matmul import Problem
from tests.support.judged_launcher import CHECKOUT, judged, launcher

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
        Outcome.UNCHANGED,
        "c of the second call: has the words of the first call's",
    ),
    "a stale pointer in memory": (
        {"module": TABLE, "after": BY_POINTER.replace("TABLE", "_kept.setdefault((M, N), table)")},
        Outcome.UNCHANGED,
        "c of the second call: has the words of the first call's",
    ),
    "a cached result": (
        {"module": CACHE, "result": BUFFER},
        Outcome.MEMORY_RETURNED,
        "c of the second call: lies in memory that an earlier call returned; return a buffer of its own from each call",
    ),
    "a result that a later call writes": (
        {"module": CACHE, "after": "_kept.setdefault((M, N), c).copy_(c)"},
        Outcome.WORDS_CHANGED,
        "c: its words are others than those that were returned",
    ),
    "a stale operand": (
        {"module": CACHE, "before": "a = _kept.setdefault(a.shape, a)"},
        Outcome.STATE_KEPT,
        "wrong mathematics in a later call alone",
    ),
    "a stale result": (
        {"module": CACHE, "after": "c = _kept.setdefault((M, N), c).clone()"},
        Outcome.UNCHANGED,
        "c of the second call: has the words of the first call's",
    ),
    "a workspace that is not cleared": (
        {
            "module": CACHE,
            "after": "sum_of_all = _kept.setdefault((M, N), torch.zeros_like(c))\nsum_of_all += c\nc = sum_of_all.clone()",
        },
        Outcome.STATE_KEPT,
        "the same operands are right in a first call",
    ),
    "a flag that stays": (
        {"module": CACHE, "before": "assert 'done' not in _kept, 'called twice'\n_kept['done'] = True"},
        Outcome.STATE_KEPT,
        "launcher error in a later call alone: AssertionError: called twice",
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
    changed, outcome, said = KEPT[kind]
    verdict = judged(launcher(**changed), tmp_path, calls=2)
    assert (verdict.decision, verdict.outcome) == (Decision.FAIL, outcome), verdict.message
    assert said in verdict.message
    assert judged(launcher(**changed) + "# once", tmp_path).decision is Decision.PASS, "one call does not show it"


@pytest.mark.parametrize("kind", PASS)
def test_what_is_kept_and_does_no_harm_is_right(kind: str, tmp_path: Path) -> None:
    verdict = judged(launcher(**PASS[kind]), tmp_path, calls=3)
    assert verdict.decision is Decision.PASS, (verdict.outcome, verdict.message)
    assert verdict.words == 3 * 70 * 40


ONE_ULP = "c.view(torch.int32).add_({})"  # of fp32: inside the bound
IN_THE_SAME_STORAGE = {
    "a result kept by address": (
        {"module": CACHE, "after": "c = _kept.setdefault(a.data_ptr(), c).clone()"},
        Outcome.UNCHANGED,
        "c of the second call: has the words of the first call's",
    ),
    "an operand packed by address": (
        {"module": CACHE, "before": "a = _kept.setdefault(a.data_ptr(), a.clone())"},
        Outcome.STATE_KEPT,
        "c of the second call: ",
    ),
    "a changed operand": ({"module": CACHE, "after": "a[3, 4] = 1"}, Outcome.INPUT_CHANGED, "input a changed: "),
    "an operand that the second call changes": (
        {"module": CACHE, "after": "_kept[len(_kept)] = 1\nif len(_kept) == 2: a[3, 4] = 1"},
        Outcome.INPUT_CHANGED,
        "input a changed: ",
    ),
}


@pytest.mark.parametrize("kind", IN_THE_SAME_STORAGE)
def test_other_contents_in_the_same_storage_show_more(kind: str, tmp_path: Path) -> None:
    changed, outcome, said = IN_THE_SAME_STORAGE[kind]
    verdict = judged(launcher(**changed), tmp_path, calls=3)
    assert (verdict.decision, verdict.outcome) == (Decision.FAIL, outcome) and said in verdict.message, verdict.message


def test_a_result_kept_by_address_needs_the_same_storage_to_show(tmp_path: Path) -> None:
    changed, _, _ = IN_THE_SAME_STORAGE["a result kept by address"]
    assert judged(launcher(**changed), tmp_path, calls=2).decision is Decision.PASS


def test_the_same_contents_elsewhere_come_to_the_same_words(tmp_path: Path) -> None:
    """But where the launcher draws random numbers."""
    third = launcher(module=CACHE, after="_kept[len(_kept)] = 1\n" + ONE_ULP.format("len(_kept) == 3"))
    verdict = judged(third, tmp_path, calls=3, problem=Problem(m=70, n=40, k=50, dtype="fp32", out="fp32"))
    assert (verdict.decision, verdict.outcome) == (Decision.FAIL, Outcome.STATE_KEPT)
    assert verdict.message.startswith("c of the third call: other words than those of the second call, on the same contents")
    drawn = launcher(after=ONE_ULP.format("torch.rand(M, N, device='cuda') < 0.5"))
    verdict = judged(drawn, tmp_path, calls=3, problem=Problem(m=70, n=40, k=50, dtype="fp32", out="fp32"))
    assert verdict.decision is Decision.PASS, (verdict.outcome, verdict.message)


def test_memory_that_an_earlier_case_got_is_not_returned_again(tmp_path: Path) -> None:
    cached = launcher(module=CACHE, result=BUFFER)
    outcomes = [judged(cached, tmp_path, data_seed=seed).outcome for seed in (1, 2)]
    assert outcomes == [Outcome.PASS, Outcome.MEMORY_RETURNED]
    fresh = launcher(module=CACHE, result=BUFFER, after="c = c.clone()")
    assert [judged(fresh, tmp_path, data_seed=seed).outcome for seed in (1, 2)] == [Outcome.PASS] * 2


def test_a_fault_of_both_calls_keeps_its_own_name(tmp_path: Path) -> None:
    wrong = launcher().replace("mask=offs_k[None, :] < K - k, other=0.0", "")
    assert judged(wrong, tmp_path, calls=2).outcome is Outcome.STRAY_READ
    assert judged(launcher(after="c = c + c"), tmp_path, calls=2).outcome is Outcome.WRONG_MATHEMATICS


def test_a_fault_that_the_second_operands_alone_show_keeps_its_own_name(tmp_path: Path) -> None:
    """Operands that happen to be handled wrongly are no state: the second call is wrong alone too."""
    sign = "if a[0, 0] < 0:\n    c.zero_()"
    outcomes = {seed: judged(launcher(after=sign), tmp_path, calls=2, data_seed=seed).outcome for seed in range(6)}
    assert set(outcomes.values()) == {Outcome.PASS, Outcome.WRONG_MATHEMATICS}, outcomes


@pytest.mark.parametrize("stem", ["matmul", "softmax"])
def test_a_sealed_run_calls_cases_of_each_kind_of_sizes_three_times(stem: str) -> None:
    address = f"{CHECKOUT / 'docs' / 'examples' / 'tutorial_matmul.py'}:matmul"
    source = CaseSource(stem, target("emulated:sm_90"), launcher=address)
    plain, sealed = source.required(), replace(source, is_sealed=True).required()
    assert [replace(case, calls=min(case.calls, 2), sealed=False) for case in sealed] == plain
    assert sum(case.calls == 3 for case in sealed) in (2, 3), "whole or ragged sizes, and a 1"
    assert sum(case.calls for case in sealed) <= 1.1 * sum(case.calls for case in plain)

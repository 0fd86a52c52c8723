"""Contract under test: the order of a launcher's sums is recovered by launches, words are expected by it, and where there is none
the bound is kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from bitverdict.harness.checks.sums.order_recovery import RecoveredOrders, recover_orders
from bitverdict.harness.checks.sums.words import ORDER_KEY
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.judge.remote_launcher import launcher_of_case
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Outcome
from bitverdict.reference.sums.tree import Tree, blocks
from tests.support.summing_orders import SUMMING

SM_90 = target("emulated:sm_90")
BY_NAME = {each.name: each for each in SUMMING}

USERS = """
import torch, triton, triton.language as tl
import bitverdict as bv

@triton.jit
def rows(x, y, n, N: tl.constexpr, SWITCHES: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, N)
    backwards = tl.min(tl.load(x + row * n + at, mask=at < n, other=1.0), 0) >= 1.0
    total = 0.0
    for k in range(0, n):
        place = n - 1 - k if SWITCHES and backwards else k
        total += tl.load(x + row * n + place)
    tl.store(y + row, total)

def judged(switches):
    @bv.judged(reference=lambda xp, x: xp.sum(x, axis=1), recover_order=True)
    def test(draw):
        m, n = draw.size(1, 64, name="m"), draw.size(2, 64, name="n")
        x = draw.tensor("fp32", (m, n), values=(1.0, 2.0))
        y = torch.empty(m, device=x.device)
        rows[(m,)](x, y, n, 64, switches, num_warps=1)
        return y
    return test

right, switching = judged(False), judged(True)
"""


def case_of(address: str, line: str) -> tuple[Any, Case]:
    contract: Any = resolve(address)
    return contract, contract.case(contract.problem_told([tuple(each.split("=")) for each in line.split()]))


def order_of(name: str, line: str = "") -> RecoveredOrders:
    contract, case = case_of(BY_NAME[name].address, line or BY_NAME[name].small)
    return recover_orders(case, SM_90, contract, launcher_of_case(case, SM_90))


def test_the_recovered_tree_is_the_one_that_the_launcher_has() -> None:
    found = order_of("dot_chain", "m=48 n=48 k=33")
    (output,) = found.outputs
    (order,) = output.orders
    assert order.tree == Tree.from_lists(blocks(range(33), 16), 33)
    assert order.tree != Tree.from_lists(blocks(range(33), 8), 33)  # of sm_80
    assert [each.name for each in order.operators] == [order.operators[0].name] * 3
    assert "cut at 25 fraction bits, rounded to fp32, toward zero" in order.operators[0].name
    assert output.words >= 3 * 48 * 48
    assert output.telling_words > output.words / 2
    assert "order of sums recovered on emulated:sm_90 by" in found.basis


def test_an_order_that_hangs_on_timing_is_told_and_none_is_expected() -> None:
    found = order_of("atomics", "m=4 n=200")
    assert not found.outputs
    assert "differ under schedule" in found.timing
    assert "atomics" in found.timing


def test_a_compensated_sum_is_no_tree() -> None:
    found = order_of("compensated", "m=32 n=5")
    assert not found.outputs
    assert "in another way than one rounding at a node" in found.why


def test_words_are_expected_by_the_order_and_another_one_fails(tmp_path: Path) -> None:
    """The launcher of another order for some data lies inside the bound: only words tell it."""
    (tmp_path / "users_rows.py").write_text(USERS)
    verdicts = {}
    for name in ("right", "switching"):
        contract, case = case_of(f"{tmp_path / 'users_rows.py'}:{name}", "m=48 n=20")
        assert case.recover_order
        verdicts[name] = judge(case, SM_90, contract)
        bound = judge(replace(case, recover_order=False), SM_90, contract)
        assert bound.outcome is Outcome.PASS
        assert ORDER_KEY not in bound.details
    assert verdicts["right"].outcome is Outcome.PASS
    assert "words by recovered order: order of sums recovered on" in verdicts["right"].basis
    assert "20 terms one after another, ascending" in verdicts["right"].details[ORDER_KEY]
    assert verdicts["switching"].outcome is Outcome.WRONG_WORDS
    twice = judge(replace(case, calls=2), SM_90, contract)
    assert twice.outcome is Outcome.PASS
    assert "calls the launcher twice" in twice.details[ORDER_KEY]


def test_a_softmax_is_told_why_it_has_no_order() -> None:
    contract: Any = resolve("softmax")
    case = next(each for each in contract.required(SM_90) if contract.expected_outcome(each, SM_90).result)
    assert "the reference is no plain sum" in recover_orders(case, SM_90, contract, None).why

"""Contract under test: a float that a launcher passes may have as many digits as its parameter, and no fewer."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Decision, Outcome

HOPPER = target("emulated:sm_90")
TEXT = """
import torch
import triton
import triton.language as tl

import bitverdict as bv


@triton.jit
def powers(x, y, n, scale, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.exp2(tl.load(x + at, mask=at < n) * scale), mask=at < n)


def exponentials(x):
    y = torch.empty_like(x)
    powers[(1,)](x, y, x.numel(), 0.3 * LOG2E, BLOCK=64)
    return y


@bv.judged(reference=lambda xp, x: xp.exp(0.3 * x))
def test_exponentials(draw):
    return exponentials(draw.tensor("fp32", (draw.size(1, 64),)))
"""


@pytest.mark.parametrize(
    ("digits", "decision"), [("1.4426950408889634", Decision.PASS), ("1.44269504", Decision.PASS), ("1.4427", Decision.FAIL)]
)
def test_a_constant_of_as_many_digits_as_fp32_is_right(digits: str, decision: Decision, tmp_path: Path) -> None:
    file = tmp_path / "exponentials.py"
    file.write_text(TEXT.replace("LOG2E", digits))
    contract = resolve(f"{file}:test_exponentials")
    found = judge(contract.required(HOPPER)[1], HOPPER, contract)
    assert found.decision is decision, found.message
    assert found.outcome is (Outcome.PASS if decision is Decision.PASS else Outcome.WRONG_MATHEMATICS)
    assert ("real values" in found.details) == (digits == "1.44269504")

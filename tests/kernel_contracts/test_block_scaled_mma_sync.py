"""Contract under test: on sm_120 a product of two fp8 or two fp4 operands is one instruction that takes the scales."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bitverdict.harness.contracts.block_scaled_matmul import CONTRACT, shared_bytes
from bitverdict.harness.contracts.oracle.dot_scaled_lowering import scaled_plan
from bitverdict.harness.emulator.frontend.lowerings import block_scaled
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.triton_release import stores_in_the_ring
from bitverdict.harness.model.verdict import Decision, Outcome

SM_120 = target("emulated:sm_120")


def case(format_name: str) -> Case:
    first = CONTRACT.required(SM_120)[0]
    problem = type(first.problem)(m=128, n=128, k=256, format=format_name, out="fp32")
    return replace(first, problem=problem, config=type(first.config)(num_stages=2), regime="normal")


def test_the_plan_names_the_instruction_or_the_widening() -> None:
    asked = (("e2m1", "e2m1", "ue4m3", 16), ("e4m3", "e4m3", "e8m0", 32), ("e4m3", "e2m1", "e8m0", 32))
    plans = [scaled_plan("sm_120", *each) for each in asked]
    assert [(plan.family, plan.rule.kind, plan.has_widened_scales) for plan in plans] == [
        ("mma.sync", "mxf4nvf4", False),
        ("mma.sync", "mxf8f6f4", False),
        ("mma.sync", "mma.sync", True),
    ]


@pytest.mark.share(4)
def test_words_are_the_instructions_and_without_its_scales_they_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    right = judge(case("nvfp4"), SM_120, CONTRACT)
    assert right.outcome is Outcome.PASS, right.message
    product = block_scaled.scaled_product
    monkeypatch.setattr(
        block_scaled, "scaled_product", lambda rule, a, rows, b, columns, c: product(rule, a, rows[::-1].copy(), b, columns, c)
    )
    assert judge(case("nvfp4"), SM_120, CONTRACT).decision is Decision.FAIL


def test_what_does_not_fit_in_sm_120_is_known_beforehand() -> None:
    """Bytes as the compiler says: a ring of tiles, scales and barriers, or the tile of C."""
    asked = case("mxfp8")
    wide = replace(asked.config, block_m=256, num_stages=3)
    tile, ring = 256 * 128 * 4, 101392
    assert shared_bytes(asked.problem, wide, "sm_120") == (max(tile, ring) if stores_in_the_ring() else tile + ring)
    assert shared_bytes(replace(asked.problem, out="fp16"), wide, "sm_120") == 101392
    refused = judge(replace(asked, problem=replace(asked.problem, out="fp16"), config=wide), SM_120, CONTRACT)
    assert refused.decision is Decision.PASS and "Required: 101392" in refused.message

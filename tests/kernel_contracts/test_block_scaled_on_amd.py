"""Contract under test: block-scaled products on gfx90a and gfx942 are widened to bf16 as Triton compiles them, then multiplied.

Model only: no AMD GPU was run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bitverdict.harness.contracts.block_scaled_matmul import CONTRACT
from bitverdict.harness.contracts.oracle import dot_scaled_lowering
from bitverdict.harness.contracts.oracle.dot_scaled_lowering import scaled_plan
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import target
from bitverdict.kernels.features import Feature
from bitverdict.reference.tensor_core import upcast_operand
from bitverdict.reference.tensor_core.upcast import ScaleModel
from tests.faults.kernels.block_scaled_matmul import MUTANTS
from tests.faults.mutants import Mutant, write_mutant

GFX942 = target("emulated:gfx942")
FAULTS = [each for each in MUTANTS if each.name in ("scale axes swapped", "scale of A for B")]


def case(format_name: str, regime: str = "normal", **sizes: int) -> Case:
    first = next(each for each in CONTRACT.required(GFX942) if each.problem.format == format_name and each.regime == "cover b")
    return replace(first, problem=replace(first.problem, **sizes), regime=regime)


@pytest.mark.share(2, "right")
@pytest.mark.parametrize("fault", [None, *FAULTS], ids=lambda each: each.name if each else "right")
def test_a_widened_product_is_held_to_words(fault: Mutant | None, tmp_path: Path) -> None:
    contract = resolve(write_mutant(fault, tmp_path)) if fault else CONTRACT
    verdict = judge(case("nvfp4", m=130, n=70), GFX942, contract)
    assert verdict.outcome.value == ("wrong words" if fault else "pass") and (fault or verdict.words == 130 * 70), verdict


@pytest.mark.share(4)
def test_a_nan_of_e4m3_counts_as_480_and_no_other_model_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every code of B, NaN among them; on NVIDIA's chips it stays one."""
    asked = case("mxfp8", "cover b")
    verdict = judge(asked, GFX942, CONTRACT)
    assert verdict.outcome.value == "pass", verdict.message

    def repaired(*given: object) -> object:
        return upcast_operand(*given[:5], ScaleModel.EXACT_ENDS)  # type: ignore[arg-type]

    monkeypatch.setattr(dot_scaled_lowering, "upcast_operand", repaired)
    assert judge(asked, GFX942, CONTRACT).outcome.value == "wrong words"


def test_the_plan_is_a_chain_of_mfma_and_gfx950_names_what_is_missing() -> None:
    for arch in ("gfx90a", "gfx942"):
        plan = scaled_plan(arch, "e4m3", "e2m1", "e8m0", 32)
        assert plan.has_widened_scales and plan.chain is not None and (plan.rule.a, plan.chain.depth) == ("bf16", 8)
        assert not CONTRACT.lacking(target(f"emulated:{arch}"))
    assert CONTRACT.lacking(target("emulated:gfx950")) == {Feature.F8F6F4_MODEL}

"""Contract under test: products on AMD's emulated GPUs are held to a plan of MFMA instructions. Model only: no AMD GPU was run."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from bitverdict.harness.contracts.oracle.dot_lowering import dot_plan, mfma_depth, mutated_model
from bitverdict.harness.contracts.oracle.row_mathematics import trace_outputs
from bitverdict.harness.emulator import LaunchOptions, emulated
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.targets import target
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.kernels.features import Feature
from bitverdict.kernels.matmul import CONFIGS, Problem, matmul_configured
from bitverdict.reference.tensor_core import instruction, product
from tests.faults.kernels import fp8_blockwise_matmul
from tests.faults.kernels.attention import MUTANTS
from tests.faults.mutants import Mutant, once, write_mutant

HIP, WHERE = CONFIGS["hip"], target("emulated:gfx942")
TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "int8": torch.int8, "fp32": torch.float32}


def case(config: int = -1, k: int = 67, contract: str = "matmul", **fields: str) -> Case:
    problem = Problem(**{"m": 33, "n": 40, "k": k, "out": "fp32"} | fields)  # type: ignore[arg-type]
    return Case(contract=contract, problem=problem, config=HIP[config], regime="normal", data_seed=3)


@pytest.mark.parametrize(
    ("config", "k", "activation"),
    [(0, 64, ""), (1, 67, "leaky_relu"), (2, 64, "leaky_relu"), (3, 67, ""), (4, 64, "leaky_relu"), (4, 67, "")],
)
def test_each_hip_configuration_gives_the_words_of_its_plan(config: int, k: int, activation: str) -> None:
    """K in whole blocks (EVEN_K) and not."""
    verdict = judge(case(config, k, activation=activation, out="fp16"), WHERE)
    assert (verdict.decision.value, verdict.words) == ("pass", 33 * 40), verdict.message
    assert verdict.basis.startswith("words by")


def test_block_ping_pong_gives_the_words_of_its_plan() -> None:
    """Two groups of four warps take turns, by barriers of half of the warps."""
    asked = case(k=192)
    config = dataclasses.replace(HIP[0], block_m=256, block_n=256, block_k=64, num_warps=8, num_stages=2)
    with emulated("gfx942", options=LaunchOptions(dry=True)) as device:
        a, b = torch.zeros((48, 192), dtype=torch.float16), torch.zeros((192, 48), dtype=torch.float16)
        matmul_configured(a, b, "", torch.float32, config, "ieee")
        assert device.launches[-1].program.count('"amdg.cond_barrier"') == 2
    problem = dataclasses.replace(asked.problem, m=48, n=48)
    verdict = judge(dataclasses.replace(asked, config=config, problem=problem), WHERE)
    assert (verdict.decision.value, verdict.words) == ("pass", 48 * 48), verdict.message


OF_TYPES = [("gfx942", "bf16"), ("gfx942", "int8"), ("gfx942", "fp32"), ("gfx90a", "bf16"), ("gfx950", "fp16")]


@pytest.mark.parametrize(("arch", "dtype"), OF_TYPES)
def test_each_type_gives_the_words_of_its_plan(arch: str, dtype: str) -> None:
    precision = "tf32" if arch == "gfx942" else "ieee"
    asked = case(dtype=dtype, precision=precision, out="int32" if dtype == "int8" else "fp32")
    verdict = judge(asked, target(f"emulated:{arch}"))
    assert (verdict.decision.value, verdict.words) == ("pass", 33 * 40), verdict.message


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950"])
@pytest.mark.share(4)
def test_the_plan_takes_the_instruction_that_the_compiler_does(arch: str) -> None:
    with emulated(arch, options=LaunchOptions(dry=True)) as device:
        for config in (HIP[0], HIP[-1]):
            for dtype, held in TYPES.items():
                a, b = torch.zeros((70, 100), dtype=held), torch.zeros((100, 90), dtype=held)
                out = torch.int32 if dtype == "int8" else torch.float32
                matmul_configured(a, b, "", out, config, "ieee")
                text = device.launches[-1].program
                shape = re.search(r"instrShape = \[32, 32, (\d+)\]", text)
                sides = {"block_m": config.block_m, "block_n": config.block_n, "block_k": config.block_k}
                plan = dot_plan(arch, dtype, precision="ieee", num_warps=config.num_warps, **sides)
                assert shape is not None and plan.depth == int(shape[1]), (config.name, dtype)
                assert set(re.findall(r"kWidth = (\d+)", text)) == {str(plan.depth // 2)}


def test_what_an_mfma_is_not_known_for_is_refused() -> None:
    with pytest.raises(ValueError, match="a tile of 8x64: which MFMA gfx942 takes"):
        mfma_depth("gfx942", "fp16", block_m=8, block_n=64, block_k=32)
    with pytest.raises(ValueError, match="operands in e4m3: what gfx942 multiplies them by"):
        mfma_depth("gfx942", "e4m3", block_m=64, block_n=64, block_k=32)


DROPPED = Mutant(
    name="last k of a tail dropped",
    kernel="matmul",
    edits=once("left = k - block * BLOCK_K", "left = k - block * BLOCK_K - 1"),
    expected=("wrong words",),
)


def test_a_kernel_that_drops_the_last_k_fails(tmp_path: Path) -> None:
    verdict = judge(case(contract=write_mutant(DROPPED, tmp_path)), WHERE)
    assert (verdict.decision.value, verdict.outcome.value) == ("fail", "wrong words"), verdict


def test_a_plan_with_one_bit_less_fails_right_words() -> None:
    def narrower(rule, a: np.ndarray, b: np.ndarray, c: np.ndarray | None) -> np.ndarray:
        return product(dataclasses.replace(rule, fraction_bits=rule.fraction_bits - 1), a, b, c)

    with mutated_model(narrower):
        assert judge(case(), WHERE).decision.value == "fail"


FAULTS = [each for each in MUTANTS if each.name in ("causal from the first row", "columns behind the end count")]


@pytest.mark.share(2, "right")
@pytest.mark.parametrize(
    ("fault", "arch"), [(None, "gfx90a"), (None, "gfx950"), *((fault, arch) for fault in FAULTS for arch in ("gfx942", "gfx90a"))],
    ids=lambda each: each.name if isinstance(each, Mutant) else str(each or "right"),
)  # fmt: skip
def test_attention_is_held_to_a_bound(fault: Mutant | None, arch: str, tmp_path: Path) -> None:
    contract, where = resolve(write_mutant(fault, tmp_path) if fault else "attention"), target(f"emulated:{arch}")
    asked = [each for each in contract.required(where) if each.regime == "normal" and each.problem.m > 1]
    shown = [judge(each, where, contract) for each in asked if not fault or each.problem.causal == (fault.name[:2] == "ca")][:2]
    assert {each.outcome.value for each in shown} == {"outside the bound" if fault else "pass"}, shown


GRADIENT_FAULTS = [each for each in MUTANTS if each.name in ("delta of O alone", "dK not scaled")]


@pytest.mark.share(2, "right")
@pytest.mark.parametrize("fault", [None, *GRADIENT_FAULTS], ids=lambda each: each.name if each else "right")
def test_gradients_of_attention_are_held_to_a_bound(fault: Mutant | None, tmp_path: Path) -> None:
    contract = resolve(write_mutant(fault, tmp_path) if fault else "attention")
    asked = next(each for each in contract.required(WHERE) if each.problem.backward and each.problem.causal)
    verdict = judge(asked, WHERE, contract)
    assert verdict.outcome.value == ("outside the bound" if fault else "pass") and (fault or verdict.words == 35692), verdict


@pytest.mark.parametrize("factor", [2.0**-15, 1.0])
def test_subnormal_factors_may_be_lost_on_gfx90a_alone(factor: float) -> None:
    """Half of the products have a factor below 2^-14."""
    rng = np.random.default_rng(5)
    a, b = rng.uniform(0.5, 1, (8, 16)).astype(np.float16), rng.uniform(0.5, 1, (16, 8)).astype(np.float16)
    a[:, ::2] *= np.float16(factor)
    codes = [each.view(np.uint16) for each in (a, b)]
    given = [Operand(name=name, format="fp16", codes=each) for name, each in zip("ab", codes, strict=True)]
    inside = {}
    for arch in ("gfx90a", "gfx942"):
        words = product(instruction("gfx90a", "mfma", "fp16", "fp16", "fp32", k=16), *codes).view(np.float32)
        (due,) = trace_outputs(lambda xp, a, b: xp.matmul(a, b), given, {"c": "fp32"}, arch)
        assert due.low is not None and due.high is not None
        inside[arch] = bool(((due.low.view(np.float32) <= words) & (words <= due.high.view(np.float32))).all())
    assert inside == {"gfx90a": True, "gfx942": factor == 1.0}


@pytest.mark.parametrize("seed", range(4))
def test_words_of_an_mfma_lie_within_the_bound_of_a_launcher(seed: int) -> None:
    """Of sums that cancel, too: rows of B come with both signs."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((9, 40)).astype(np.float16)
    b = np.concatenate([right := rng.standard_normal((20, 7)), -right * (1 + 2.0**-9)]).astype(np.float16)
    words = product(instruction("gfx942", "mfma", "fp16", "fp16", "fp32", k=8), a.view(np.uint16), b.view(np.uint16))
    given = [Operand(name=name, format="fp16", codes=each.view(np.uint16)) for name, each in (("a", a), ("b", b))]
    (due,) = trace_outputs(lambda xp, a, b: xp.matmul(a, b), given, {"c": "fp32"}, "gfx942")
    assert due.low is not None and due.high is not None
    low, high, got = (each.view(np.float32) for each in (due.low, due.high, words))
    assert ((low <= got) & (got <= high)).all() and (low < high).any()


@pytest.mark.parametrize("stem", ["grouped_matmul", "split_k_matmul"])
def test_other_products_are_judged_too(stem: str) -> None:
    found = [judge(each, WHERE, resolve(stem)) for each in CaseSource(stem, WHERE).required()[:3]]
    assert [each.decision.value for each in found] == ["pass"] * 3 and sum(each.words for each in found)


E4M3_FAULTS = [each for each in fp8_blockwise_matmul.MUTANTS if each.name in ("scale of B left out", "scales multiplied first")]


@pytest.mark.share(2, "right")
@pytest.mark.parametrize("fault", [None, *E4M3_FAULTS], ids=lambda each: each.name if each else "right")
def test_blocks_of_e4m3_are_widened_and_promoted(fault: Mutant | None, tmp_path: Path) -> None:
    contract = resolve(write_mutant(fault, tmp_path) if fault else "fp8_blockwise_matmul")
    verdict = judge(contract.required(WHERE)[0], WHERE, contract)
    assert verdict.outcome.value == ("wrong words" if fault else "pass") and (fault or verdict.words == 17 * 131), verdict


def test_fp8_products_of_gfx950_name_the_feature_that_is_missing() -> None:
    assert CaseSource("fp8_blockwise_matmul", target("emulated:gfx950")).missing_features == [Feature.F8F6F4_MODEL]
    with pytest.raises(ValueError, match="operands in e4m3: what gfx950 multiplies them by is not known here"):
        dot_plan("gfx950", "e4m3", block_m=64, block_n=64, block_k=128, num_warps=4)


def test_required_cases_have_each_configuration_and_no_type_without_a_plan() -> None:
    for arch in ("gfx90a", "gfx942", "gfx950"):
        asked = CaseSource("matmul", target(f"emulated:{arch}")).required()
        assert {each.config for each in asked} >= set(HIP)
        assert ("e4m3" in {each.problem.dtype for each in asked}) == (arch != "gfx950")
        assert ("e4m3" in {each.problem.out for each in asked}) == (arch != "gfx950")
        tf32 = [each for each in asked if (each.problem.dtype, each.problem.precision) == ("fp32", "tf32")]
        assert bool(tf32) == (arch == "gfx942")

"""Contract under test: on a chip without a tensor-core model a product is held to a bound that no known chip's arithmetic leaves,
its basis says so, and a kernel that drops a product or sums in bf16 fails.

No such GPU was at hand. The chip is stood in for: its name is one without a model, its launches run on an emulated GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bitverdict.harness.contracts.oracle.gemm_bound import LaunchedInstructions, bounded_product, has_model, instructions
from bitverdict.harness.judge.devices import device_of, target_device
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.lab.large_gemm.cases import large_row
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.architectures import ARCHITECTURES, is_amd
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Decision, Outcome
from bitverdict.kernels.matmul import CONFIGS, Problem
from bitverdict.reference.formats import FP32, convert, decode
from bitverdict.reference.tensor_core import INSTRUCTIONS, product
from tests.faults.mutants import Mutant, once, write_mutant

UNMODELLED = [name for name in ARCHITECTURES if not has_model(name) and not is_amd(name)]
MODELLED = [name for name in ARCHITECTURES if has_model(name) and not is_amd(name)]
SMALL = CONFIGS["cuda"][-1]  # 32x64x32
DOT = "accumulator = tl.dot(a, b, accumulator, input_precision=PRECISION, out_dtype=ACCUMULATOR)"
DROPPED = Mutant(
    name="last k of a tail dropped",
    kernel="matmul",
    edits=once("left = k - block * BLOCK_K", "left = k - block * BLOCK_K - 1"),
    expected=("outside the bound",),
)
IN_BF16 = Mutant(
    name="sums kept in bf16",
    kernel="matmul",
    edits=once(DOT, f"{DOT}.to(tl.bfloat16).to(tl.float32)"),
    expected=("outside the bound",),
)


@dataclass(frozen=True)
class StandsIn(Target):
    """A chip by its name alone; `runs_on` is the emulated GPU whose arithmetic it has here."""

    runs_on: str = "sm_80"


@device_of.register(StandsIn)
def _device_of(target: StandsIn) -> Any:
    return device_of(Target(f"emulated:{target.runs_on}", target.runs_on))


@target_device.register(StandsIn)
@contextmanager
def _entered(target: StandsIn, schedule: str = "eager", tuning: str = "", **options: bool) -> Iterator[object]:
    with target_device(Target(f"emulated:{target.runs_on}", target.runs_on), schedule, tuning, **options) as device:
        yield device


AMPERE, BLACKWELL = StandsIn("sm_86", "sm_86"), StandsIn("sm_103", "sm_103", runs_on="sm_100")


def case(contract: str = "matmul", regime: str = "normal", **fields: Any) -> Case:
    problem = Problem(**{"m": 33, "n": 40, "k": 95, "out": "fp32"} | fields)
    return Case(contract=contract, problem=problem, config=SMALL, regime=regime, data_seed=3)


def test_there_are_chips_without_a_model() -> None:
    assert {"sm_86", "sm_87", "sm_103", "sm_110", "sm_120", "sm_121"} <= set(UNMODELLED)
    assert {"sm_80", "sm_89", "sm_90", "sm_100"} <= set(MODELLED)


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "e4m3", "e5m2"])
def test_a_chip_without_a_model_is_taken_for_as_weak_as_any(dtype: str) -> None:
    """Whatever was launched there: its name tells the operands, not how many bits are kept."""
    taken = instructions("sm_86", dtype)
    of_known = [rule for arch in MODELLED for rule in instructions(arch, dtype)]
    assert min(rule.fraction_bits for rule in taken) == min(rule.fraction_bits for rule in of_known)
    assert min(rule.output_fraction_bits for rule in taken) == min(rule.output_fraction_bits for rule in of_known)
    operand = "tf32" if dtype == "fp32" else dtype
    kind = {"fp16": "f16", "bf16": "f16", "fp32": "tf32"}.get(dtype, "f8f6f4")
    launched: LaunchedInstructions = frozenset({("tcgen05", kind, operand, operand, "fp32")})  # known of sm_100 alone, with 25 bits
    same = [rule for rule in INSTRUCTIONS if (rule.a, rule.b, rule.d, rule.scale) == (operand, operand, "fp32", None)]
    assert {rule.a for rule in instructions("sm_103", dtype, launched)} == {operand}
    assert instructions("sm_103", dtype, launched)[0].fraction_bits == min(rule.fraction_bits for rule in same)
    assert instructions("sm_87", dtype, frozenset({("fma", "", "", "", "")})) == []


@pytest.mark.parametrize("rule", [r for r in INSTRUCTIONS if r.d == "fp32" and r.a == r.b and r.scale is None and r.a in
                                  ("fp16", "bf16", "tf32", "e4m3", "e5m2")], ids=lambda rule: rule.name)  # fmt: skip
@pytest.mark.parametrize("spread", [0.0, 6.0])
def test_the_words_of_every_known_instruction_are_within_its_bound(rule: Any, spread: float) -> None:
    rng = np.random.default_rng(5)
    shape, dtype = (9, 257), "fp32" if rule.a == "tf32" else rule.a
    values = [rng.standard_normal(shape) * 2 ** (spread * rng.uniform(-1, 1, shape)) for _ in "ab"]
    words = [value.astype(np.float32).view(np.uint32) for value in values]
    codes = [each & 0xFFFFE000 if dtype == "fp32" else convert("fp32", dtype, each, "sm_90") for each in words]
    a, b = codes[0], np.ascontiguousarray(codes[1].T)  # (9, 257), (257, 9)
    asked = SimpleNamespace(m=9, n=9, k=257, dtype=dtype, out="fp32", activation="")
    due = bounded_product(asked, a, b, "sm_121", launched_kinds=frozenset({("mma.sync", "", rule.a, rule.b, "fp32")}))
    got = decode(FP32, product(rule, a, b))
    low, high = (decode(FP32, words) for words in (due.low, due.high))
    assert ((low <= got) & (got <= high)).all() and (low < high).any()


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "e4m3", "fp32", "int8"])
@pytest.mark.parametrize("where", [AMPERE, BLACKWELL], ids=str)
def test_a_right_kernel_passes_and_its_basis_says_what_is_not_known(where: StandsIn, dtype: str) -> None:
    if dtype == "e4m3" and where is AMPERE:
        dtype = "fp16"  # no such type before sm_89
    verdict = judge(case(dtype=dtype, out="int32" if dtype == "int8" else "fp32"), where)
    assert verdict.decision is Decision.PASS, verdict.message
    head = "exact" if dtype == "int8" else f"bound, no tensor-core model of {where.arch}"
    assert verdict.basis.partition(":")[0] == head
    assert verdict.words == 33 * 40 and (dtype == "int8" or verdict.bound_used is not None)


def test_multiply_adds_need_no_model() -> None:
    verdict = judge(case(dtype="fp32", precision="ieee"), AMPERE)
    assert verdict.decision is Decision.PASS and verdict.basis.startswith("words by specification")


@pytest.mark.parametrize("fault", [DROPPED, IN_BF16], ids=lambda fault: fault.name)
def test_a_wrong_kernel_fails_on_a_chip_without_a_model(fault: Mutant, tmp_path: Path) -> None:
    for where in (AMPERE, BLACKWELL):
        verdict = judge(case(write_mutant(fault, tmp_path)), where)
        assert (verdict.decision, verdict.outcome) == (Decision.FAIL, Outcome.OUTSIDE_BOUND), verdict


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("stem", "where"),
    [
        ("ampere_gemm", AMPERE),
        ("blocked_matmul", BLACKWELL),
        ("small_mma", BLACKWELL),
        ("fused_gather_scatter_matmul", BLACKWELL),
        ("block_scaled_matmul", BLACKWELL),
        ("tma_gather", BLACKWELL),
    ],
)
def test_every_kernel_has_an_expectation_on_a_chip_without_a_model(stem: str, where: StandsIn) -> None:
    """The first cases of the required ones that give a result: none fails, and most are decided."""
    contract = resolve(stem)
    cases = [case for case in contract.required(where) if contract.expected_outcome(case, where).result and case.config is not None]
    verdicts = [judge(case, where, contract) for case in sorted(cases, key=lambda case: case.key)[:4]]
    assert not [verdict for verdict in verdicts if verdict.decision not in (Decision.PASS, Decision.INCONCLUSIVE)], verdicts
    assert any(verdict.decision is Decision.PASS for verdict in verdicts)
    if stem != "tma_gather":
        assert all("no tensor-core model of" in verdict.basis for verdict in verdicts)


def test_a_large_product_is_held_to_the_bound_and_a_wrong_one_fails(tmp_path: Path) -> None:
    right = large_row(case(m=160, n=200, k=64), AMPERE, 64 * 900)
    assert (right.decision, right.words, right.differ) == (Decision.PASS, 900, 0), right.message
    assert right.basis.startswith("bound, no tensor-core model of sm_86")
    wrong = large_row(case(write_mutant(IN_BF16, tmp_path), m=160, n=200, k=64), AMPERE, 64 * 900)
    assert (wrong.decision, wrong.outcome) == (Decision.FAIL, "outside the bound") and "lie outside the bound" in wrong.message

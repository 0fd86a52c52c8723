"""Contract under test: the plan of a `tl.dot` kernel says what the compiler does, for every type, configuration and architecture.

The plan is a rule (`bitverdict.harness.contracts.oracle.dot_lowering`), the compiler's program is text: instruction family, operand
type, K order and the one chain through the accumulator are read off it and must agree. The last tests show that a wrong plan is
noticed."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import replace

import numpy as np
import pytest

from bitverdict.harness.contracts.oracle.dot_lowering import BITS, Plan, accumulator_words, dot_plan, words_rest_on
from bitverdict.harness.contracts.oracle.matmul_support import KINDS
from bitverdict.harness.emulator.numerics.matrix_products import k_order
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.targets import target
from bitverdict.kernels.matmul import CONFIGS, Config
from bitverdict.reference.formats import BF16, E4M3, FP16, FP32, encode
from bitverdict.reference.k_order import instruction_order
from tests.support.tile_program import matmul_ttgir

ARCHS = (80, 90, 100)
OPERAND_TYPES = {"fp16": "f16", "bf16": "bf16", "e4m3": "f8E4M3FN", "int8": "i8", "fp32": "f32", "tf32": "f32"}
SHAPE = re.compile(r"(tensor|memdesc)<\d+x\d+x(\w+),")


def plan_of(arch: int, dtype: str, precision: str, config: Config) -> Plan:
    return dot_plan(
        f"sm_{arch}",
        dtype,
        precision=precision,
        block_m=config.block_m,
        block_n=config.block_n,
        block_k=config.block_k,
        num_warps=config.num_warps,
    )


def read_off(program: str) -> dict:
    """Family, operand type and k_width of the products in a tile program, and whether each adds to an accumulator that is
    handed on."""
    lines = [line for line in program.splitlines() if re.search(r"= (tt\.dot|ttng\.warp_group_dot)\b|ttng\.tc_gen5_mma\b", line)]
    assert lines, "the program multiplies nothing"
    found: dict = {"operand": {SHAPE.search(line)[2] for line in lines}}
    widths = {int(w) for line in lines for w in re.findall(r"kWidth = (\d+)", line)}
    if "tc_gen5_mma" in lines[0]:
        family = "tcgen05"
    elif "warp_group_dot" in lines[0]:
        family = "wgmma"
    else:
        family = "mma.sync" if "#mma" in lines[0] or "nvidia_mma" in lines[0] else "fma"
    added = [
        line
        for line in program.splitlines()
        if re.search(r"arith\.add[fi] .*#(mma|blocked\d*)>|arith\.addf", line) and "xf32" in line
    ]
    imprecise = [int(found) for line in lines for found in re.findall(r"maxNumImpreciseAcc = (\d+)", line)]
    return found | {"family": family, "k_width": widths, "adds outside": len(added), "imprecise": imprecise}


def disagreements(plan: Plan, seen: dict) -> list[str]:
    said = []
    if seen["family"] != plan.family:
        said.append(f"family {seen['family']}, planned {plan.family}")
    if seen["operand"] != {OPERAND_TYPES[plan.operand]}:
        said.append(f"operands {seen['operand']}, planned {plan.operand}")
    if plan.family == "mma.sync" and seen["k_width"] != {plan.k_width}:
        said.append(f"kWidth {seen['k_width']}, planned {plan.k_width}")
    if seen["adds outside"]:
        said.append(f"{seen['adds outside']} additions outside the chain")
    if plan.family == "wgmma" and plan.dtype == "e4m3" and min(seen["imprecise"], default=0) < 1 << 30:
        said.append(f"accumulator promoted every {seen['imprecise']} products, planned never")
    return said


@pytest.mark.share(3, "-80]", "-90]", "-100]")
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(("dtype", "precision"), KINDS)
def test_each_plan_names_what_the_compiler_emits(arch: int, dtype: str, precision: str) -> None:
    if dtype == "e4m3" and arch == 80:
        with pytest.raises(Exception, match="fp8e4nv not supported"):
            matmul_ttgir(arch, dtype, CONFIGS["cuda"][0])
        return
    for config in CONFIGS["cuda"]:
        seen = read_off(matmul_ttgir(arch, dtype, config, precision=precision))
        assert not disagreements(plan_of(arch, dtype, precision, config), seen), config.name


def test_a_wrong_plan_disagrees_with_the_program() -> None:
    config = CONFIGS["cuda"][6]
    plan = plan_of(90, "e4m3", "tf32", config)
    seen = read_off(matmul_ttgir(90, "e4m3", config))
    assert not disagreements(plan, seen)
    for wrong in ({"family": "wgmma"}, {"operand": "e4m3"}, {"k_width": 2}):
        assert disagreements(dataclasses.replace(plan, **wrong), seen)
    assert disagreements(plan, seen | {"adds outside": 1})
    assert disagreements(plan_of(90, "e4m3", "tf32", CONFIGS["cuda"][0]), seen | {"family": "wgmma", "imprecise": [32]})


def test_the_order_of_k_agrees_with_the_one_the_emulator_derived() -> None:
    for k, bits, width in ((32, 16, 4), (64, 16, 4), (64, 16, 8), (32, 8, 4), (16, 16, 2), (64, 32, 4)):
        theirs = k_order(k, width, bits)
        ours = instruction_order(k, bits, width)
        assert np.array_equal(ours, np.arange(k) if theirs is None else theirs)
    taken = instruction_order(32, 16, 4)
    assert set(taken[:16] % 4) == {0, 1}
    assert set(taken[16:] % 4) == {2, 3}


def test_what_the_plan_says_changes_words() -> None:
    """Each field of a plan is decisive: another value gives other words on ordinary data."""
    rng = np.random.default_rng(3)
    a, b = (encode(E4M3, rng.normal(size=shape) * 2.0 ** rng.integers(-6, 7, shape)) for shape in ((24, 96), (96, 24)))
    plan = dot_plan("sm_90", "e4m3", block_m=64, block_n=32, block_k=32, num_warps=2)
    assert (plan.family, plan.operand, plan.k_width) == ("mma.sync", "fp16", 4)
    words = accumulator_words(plan, a, b)
    ascending = accumulator_words(dataclasses.replace(plan, k_width=2), a, b)
    wgmma = accumulator_words(dot_plan("sm_90", "e4m3", block_m=64, block_n=32, block_k=32, num_warps=4), a, b)
    assert not np.array_equal(words, ascending)
    assert not np.array_equal(words, wgmma)


def test_a_masked_tail_turns_an_underflowed_minus_zero_into_plus_zero() -> None:
    tiny = encode(FP32, np.array([[2.0**-149]]))
    minus = encode(FP32, np.array([[-(2.0**-149)]]))
    whole = dot_plan("sm_90", "fp32", precision="ieee", block_m=64, block_n=32, block_k=1, num_warps=2)
    ragged = dataclasses.replace(whole, block_k=32)
    assert accumulator_words(whole, tiny, minus)[0, 0] == 0x80000000
    assert accumulator_words(ragged, tiny, minus)[0, 0] == 0


def test_an_integer_chain_saturates_only_where_mma_sync_does() -> None:
    k = 1 << 17
    a, b = np.full((1, k + 32), -128, np.int8), np.full((k + 32, 1), -128, np.int8)
    clamped = dot_plan("sm_90", "int8", block_m=64, block_n=32, block_k=32, num_warps=2)
    wrapping = dot_plan("sm_90", "int8", block_m=64, block_n=32, block_k=32, num_warps=4)
    assert accumulator_words(clamped, a, b)[0, 0] == 2**31 - 1
    assert accumulator_words(wrapping, a, b)[0, 0] == -(2**31) + 32 * 2**14


@pytest.mark.parametrize(("fmt", "dtype"), [(FP16, "fp16"), (BF16, "bf16")])
def test_no_products_leave_a_zero_accumulator(fmt, dtype: str) -> None:
    empty = np.zeros((3, 0), fmt.storage), np.zeros((0, 2), fmt.storage)
    for arch in ARCHS:
        words = accumulator_words(dot_plan(f"sm_{arch}", dtype, block_m=64, block_n=64, block_k=32, num_warps=4), *empty)
        assert words.shape == (3, 2)
        assert not words.any()
    assert set(BITS) >= {"fp16", "bf16"}


@pytest.mark.parametrize(
    ("arch", "dtype", "tile", "basis"),
    [
        ("sm_80", "fp16", (64, 64, 32), "words by hardware, chain by a model"),
        ("sm_90", "fp16", (64, 64, 32), "words by hardware"),
        ("sm_90", "e4m3", (16, 16, 32), "words by hardware"),
        ("sm_100", "bf16", (64, 64, 32), "words by two models"),  # tcgen05
        ("sm_100", "bf16", (16, 16, 32), "words by hardware"),  # mma.sync
        ("sm_90", "int8", (64, 64, 64), "words by specification"),
    ],
)
def test_words_say_what_their_instruction_rests_on(arch: str, dtype: str, tile: tuple, basis: str) -> None:
    plan = dot_plan(arch, dtype, block_m=tile[0], block_n=tile[1], block_k=tile[2], num_warps=4)
    said = words_rest_on(plan.rule)
    assert said.partition(":")[0] == basis and plan.rule is not None and str(plan.rule.evidence) in said
    assert words_rest_on(None).startswith("words by specification: fp32 fused multiply-adds")


def test_each_verdicts_basis_names_its_instruction() -> None:
    where = {arch: target(f"emulated:{arch}") for arch in ("sm_80", "sm_90", "sm_100")}
    for stem, arch, said in (
        ("ampere_gemm", "sm_80", "words by hardware, chain by a model: sm_80 mma.sync"),
        ("hopper_matmul", "sm_90", "words by hardware: sm_90 wgmma"),
        ("blocked_matmul", "sm_100", "words by two models: sm_100 tcgen05 f16"),
        ("small_mma", "sm_100", "words by two models: sm_100 tcgen05 f16"),
        ("fused_gather_scatter_matmul", "sm_100", "words by two models: sm_100 tcgen05 f16"),
        ("block_scaled_matmul", "sm_100", "words by two models: sm_100 tcgen05 mxf"),
        ("block_scaled_matmul", "sm_90", "words by hardware: the compiler's widening to bf16, as compiled; sm_90 wgmma bf16"),
    ):
        contract = resolve(stem)
        case = next(case for case in contract.required(where[arch]) if contract.expected_outcome(case, where[arch]).result)
        operands = {operand.name: operand for operand in contract.operands(case)}
        assert contract.expected(case, where[arch], operands, {})[0].basis.startswith(said)
        bound = contract.expected(replace(case, launcher="mine.py:f"), where[arch], operands, {})[0].basis
        assert bound.startswith("bound: derived from the operands, for any order of sums by ") and arch in bound
        assert "not seen: the sign of a zero, a NaN's payload" in bound

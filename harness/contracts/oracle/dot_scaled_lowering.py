"""The plan of a `tl.dot_scaled` kernel: the instruction that takes the scales, or the compiler's widening where there is none.

By target and operand formats alone, as Triton 3.9 lowers `tt.dot_scaled` for whole tiles of 128 rows: on sm_100 (and 103, 110)
tcgen05 of the kind that the formats name; on sm_120 (and 121) mma.sync with block scales where both operands are fp8 or both are
fp4; elsewhere elements times scales in bf16, then the matrix instruction for bf16. That it is
so is held to the compiled program in `tests/kernel_contracts/test_block_scaled_matmul.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitverdict.harness.contracts.oracle.dot_lowering import Plan, accumulator_words, chained_product, dot_plan, words_rest_on
from bitverdict.harness.model.architectures import Feature, architecture, is_amd
from bitverdict.harness.model.triton_release import converts_through_fp16, has_exact_scales
from bitverdict.reference.formats import FORMATS, convert
from bitverdict.reference.k_order import instruction_order
from bitverdict.reference.tensor_core import Instruction, elements, instruction, scaled_elements, upcast_operand
from bitverdict.reference.tensor_core.product_query import ProductQuery, answer_product
from bitverdict.reference.tensor_core.upcast import ScaleModel

MMA_SYNC_WIDTH = 8  # bf16 a thread of mma.sync holds of widened operands, four times what one instruction reads
_KINDS = {("e2m1", "e2m1", "e8m0"): "mxf4", ("e2m1", "e2m1", "ue4m3"): "mxf4nvf4"}  # all others: mxf8f6f4


@dataclass(frozen=True, kw_only=True)
class ScaledPlan:
    """One ascending chain from zero over all of K. `has_widened_scales`: the scales are multiplied in before `rule`, in bf16.
    `chain`: the instructions one after another, on AMD."""

    rule: Instruction
    a: str
    b: str
    scale: str
    block_size: int
    has_widened_scales: bool
    chain: Plan | None = None

    @property
    def family(self) -> str:
        return self.rule.family

    @property
    def basis(self) -> str:
        """What the words rest on, for a verdict."""
        return words_rest_on(self.rule, "the compiler's widening to bf16, as compiled" if self.has_widened_scales else "")


def scaled_plan(arch: str, a: str, b: str, scale: str, block_size: int) -> ScaledPlan:
    """The plan for elements in formats `a` and `b` with one scale for `block_size` of them."""
    if is_amd(arch):
        chain = dot_plan(arch, "bf16", block_m=128, block_n=128, block_k=128, num_warps=4)  # larger tiles have the same instruction
        assert chain.rule is not None
        return ScaledPlan(rule=chain.rule, a=a, b=b, scale=scale, block_size=block_size, has_widened_scales=True, chain=chain)
    families, fp4 = architecture(arch).families, (a == "e2m1", b == "e2m1")
    if takes_scales(arch) and fp4[0] == fp4[1]:
        kind = "mxf4nvf4" if all(fp4) else "mxf8f6f4"
        rule = instruction(arch, "mma.sync", a, b, "fp32", scale=scale, scale_block=block_size, kind=kind)
        return ScaledPlan(rule=rule, a=a, b=b, scale=scale, block_size=block_size, has_widened_scales=False)
    if "tcgen05" in families:
        kind = _KINDS.get((a, b, scale), "mxf8f6f4")
        rule = instruction(arch, "tcgen05", a, b, "fp32", scale=scale, scale_block=block_size, kind=kind)
        return ScaledPlan(rule=rule, a=a, b=b, scale=scale, block_size=block_size, has_widened_scales=False)
    rule = instruction(arch, families[0], "bf16", "bf16", "fp32")
    return ScaledPlan(rule=rule, a=a, b=b, scale=scale, block_size=block_size, has_widened_scales=True)


def takes_scales(arch: str) -> bool:
    """Whether mma.sync of `arch` takes block scales."""
    return "tcgen05" not in architecture(arch).families and Feature.BLOCK_SCALED_MMA in architecture(arch).features


def result_words(
    plan: ScaledPlan, out: str, arch: str, a: np.ndarray, a_scales: np.ndarray, b: np.ndarray, b_scales: np.ndarray
) -> np.ndarray:
    """Words (M, N) in `out`: codes a (M, K) and b (N, K), scale codes (M, blocks) and (N, blocks)."""
    if plan.chain is not None:
        sums = accumulator_words(
            plan.chain, _widen_operand(plan, plan.a, a, a_scales), _widen_operand(plan, plan.b, b, b_scales).T
        )  # (M, N)
    elif plan.has_widened_scales:
        sums = chained_product(
            plan.rule, _widen_operand(plan, plan.a, a, a_scales), _widen_operand(plan, plan.b, b, b_scales).T
        )  # (M, N)
    else:
        asked = ProductQuery(rule=plan.rule, a=a, b=np.ascontiguousarray(b.T), a_scales=a_scales, b_scales=b_scales)
        sums = answer_product(asked)  # (M, N)
    return _convert_sums(sums, out, arch)


def element_words(
    plan: ScaledPlan, out: str, arch: str, a: np.ndarray, a_scales: np.ndarray, b: np.ndarray, b_scales: np.ndarray
) -> np.ndarray:
    """Words (P,) of chosen elements: row p of `a` with row p of `b`, (P, K) each, and their scales (P, blocks)."""
    if plan.chain is not None:
        raise ValueError(f"{plan.rule.name}: chosen elements of a chain of MFMA are not computed alone: ask result_words")
    if plan.has_widened_scales:
        sums = elements(plan.rule, _widen_operand(plan, plan.a, a, a_scales), _widen_operand(plan, plan.b, b, b_scales))  # (P,)
    else:
        sums = scaled_elements(plan.rule, a, a_scales, b, b_scales)  # (P,)
    return _convert_sums(sums, out, arch)


def _widen_operand(plan: ScaledPlan, element: str, codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """bf16 codes (L, K'), in the order the instruction takes K."""
    exact, zero = (
        (ScaleModel.EXACT_ENDS, ScaleModel.ZERO_START) if plan.chain is None else (ScaleModel.CUT, ScaleModel.CUT_ZERO_START)
    )
    model = exact if has_exact_scales() else zero
    wide = upcast_operand(element, codes, plan.scale, scales, plan.block_size, model)  # (L, K)
    if plan.family != "mma.sync":
        return wide
    group = 8 * MMA_SYNC_WIDTH
    wide = np.pad(wide, ((0, 0), (0, -wide.shape[1] % group)))  # (L, K')
    return wide[:, instruction_order(wide.shape[1], 16, MMA_SYNC_WIDTH)]  # (L, K')


def _convert_sums(sums: np.ndarray, out: str, arch: str) -> np.ndarray:
    if out == "fp32":
        return sums
    return convert(FORMATS["fp32"], FORMATS[out], sums, arch, through_fp16=converts_through_fp16())

"""The plan of a `tl.dot` kernel: which instruction multiplies, in which blocks, in which order, starting from what.

A plan is derived from the element type, the tile, the warps and the architecture alone, by the rules Triton 3.9 lowers `tt.dot`
with (stated at `family`, with where each was read), and gives an output's accumulator words through the model. It never asks the
emulator or the compiler; that it says what the compiler does is a test (`tests/contracts/test_dot_lowering.py`), not an
assumption."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from bitverdict.harness.model.architectures import architecture, is_amd
from bitverdict.harness.model.triton_release import has_tcgen05_int8
from bitverdict.kernels.features import Feature
from bitverdict.reference.k_order import instruction_order
from bitverdict.reference.tensor_core import Instruction, instruction
from bitverdict.reference.tensor_core.product_query import ProductQuery, answer_product, with_product_model

BITS = {"fp16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8, "int8": 8, "fp32": 32}
_NEVER_SATURATES = 1 << 17  # products of at most 2^14 each: fewer than this stay within int32
FMA, MFMA = "fma", "mfma"

Model = Callable[[Instruction, np.ndarray, np.ndarray, np.ndarray | None], np.ndarray]


@contextmanager
def mutated_model(model: Model) -> Iterator[None]:
    """While entered, accumulator words of products without scales are `model`'s: how many words a wrong constant would change is
    what agreement is worth."""

    def words(asked: ProductQuery) -> np.ndarray:
        if asked.rule is None or asked.a_scales is not None:
            return asked.words()
        return model(asked.rule, asked.a, asked.b, asked.c)

    with with_product_model(words):
        yield


def chained_product(rule: Instruction, a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None) -> np.ndarray:
    """Words of A B + C as `bitverdict.reference.tensor_core.product` gives them, or as the model does that is entered."""
    return answer_product(ProductQuery(rule=rule, a=np.ascontiguousarray(a), b=np.ascontiguousarray(b), c=c))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One ascending chain through the accumulator.

    `family`: "mma.sync", "wgmma", "tcgen05", or "fma" for the chain of fp32 fused multiply-adds. `operand`: the format in which
    the instruction takes what the kernel holds in `dtype` ("tf32" for fp32 words whose low 13 bits are dropped; "fp16" for e4m3
    widened before mma.sync). `k_width`: consecutive K elements a thread of mma.sync holds, which reorders K where it is more
    than one instruction reads (`bitverdict.reference.k_order`). `depth`: the K of one MFMA. The chain starts at zero and is
    never cut: the kernel passes the accumulator to every dot."""

    arch: str
    family: str
    dtype: str
    operand: str
    accumulator: str
    block_k: int
    k_width: int = 1
    depth: int | None = None

    @property
    def rule(self) -> Instruction | None:
        """The matrix instruction; None for fused multiply-adds."""
        if self.family == FMA:
            return None
        return instruction(self.arch, self.family, self.operand, self.operand, self.accumulator, k=self.depth)


def dot_plan(arch: str, dtype: str, *, precision: str = "tf32", block_m: int, block_n: int, block_k: int, num_warps: int) -> Plan:
    """The plan of ``accumulator = tl.dot(a, b, accumulator)`` for operands in `dtype` on `arch` ("sm_90")."""
    accumulator = "int32" if dtype == "int8" else "fp32"
    if is_amd(arch):
        operand = "tf32" if (dtype, precision) == ("fp32", "tf32") else dtype
        if operand == "e4m3" and arch != "gfx950":  # OCP's, which no MFMA before CDNA 4 takes: the compiler widens
            operand = "fp16"
        depth = mfma_depth(arch, operand, block_m=block_m, block_n=block_n, block_k=block_k)
        return Plan(arch=arch, family=MFMA, dtype=dtype, operand=operand, accumulator=accumulator, block_k=block_k, depth=depth)
    if dtype == "fp32" and precision == "ieee":
        return Plan(arch=arch, family=FMA, dtype=dtype, operand="fp32", accumulator=accumulator, block_k=block_k)
    instruction_family = family(arch, dtype, block_m=block_m, block_n=block_n, block_k=block_k, num_warps=num_warps)
    operand = "tf32" if dtype == "fp32" else dtype
    if instruction_family != "mma.sync":
        return Plan(arch=arch, family=instruction_family, dtype=dtype, operand=operand, accumulator=accumulator, block_k=block_k)
    if dtype == "e4m3" and not architecture(arch).mma_sync_fp8:  # no such instruction: the compiler widens
        operand = "fp16"
    return Plan(
        arch=arch,
        family=instruction_family,
        dtype=dtype,
        operand=operand,
        accumulator=accumulator,
        block_k=block_k,
        k_width=32 // BITS[dtype],
    )


def mfma_depth(arch: str, operand: str, *, block_m: int, block_n: int, block_k: int) -> int:
    """K of the MFMA that Triton 3.9 picks: of the shape 32x32, and 16x16 with twice the K for tiles below that.

    AccelerateAMDMatmul, and what compiled programs say. A thread holds the neighbours of one instruction, so K is taken as it
    ascends. ValueError for smaller tiles, and for operands that it multiplies otherwise."""
    if min(block_m, block_n) < 16:
        raise ValueError(f"a tile of {block_m}x{block_n}: which MFMA {arch} takes below 16x16 is not known here")
    deepest = {"fp16": 16, "bf16": 16, "int8": 32, "tf32": 4, "fp32": 2}
    if operand not in deepest:
        raise ValueError(f"operands in {operand}: what {arch} multiplies them by is not known here")
    times = 1 if min(block_m, block_n) >= 32 else 2
    if operand in ("tf32", "fp32") or (arch == "gfx950" and block_k >= times * deepest[operand]):
        return times * deepest[operand]
    return times * deepest[operand] // (4 if (arch, operand) == ("gfx90a", "int8") else 2)


def without_a_model(arch: str) -> frozenset[Feature]:
    """What `arch` lacks for products of fp8 and fp4: Triton 3.9 makes them of f8f6f4 on gfx950, whose sum nobody has published."""
    return frozenset({Feature.F8F6F4_MODEL} if arch == "gfx950" else ())


def words_rest_on(rule: Instruction | None, how: str = "") -> str:
    """What expected words rest on, for a verdict: before the colon as a report counts it. `how`: what the plan adds to `rule`,
    which is None for fused multiply-adds."""
    if rule is None:
        return "words by specification: fp32 fused multiply-adds, each rounded once (IEEE 754, fusedMultiplyAdd)"
    return f"words by {rule.evidence.basis}: {how + '; ' if how else ''}{rule.name}: {rule.evidence}"


def family(arch: str, dtype: str, *, block_m: int, block_n: int, block_k: int, num_warps: int) -> str:
    """The instruction family that Triton picks (AccelerateMatmul: versions 5, 3, 2 in this order, each where it can).

    tcgen05 (version 5): 4 or 8 warps, rows a multiple of 64, columns of 16, and one instruction's K; int8 only on sm_100, by newer
    releases. wgmma (version 3): whole warp groups, rows a multiple of 64, columns of 8, and one instruction's K. Both K are 256
    bits. Otherwise mma.sync."""
    one_instruction, chip = block_k * BITS[dtype] >= 256, architecture(arch)
    if "tcgen05" in chip.families and num_warps in (4, 8) and block_m % 64 == 0 and block_n % 16 == 0 and one_instruction:
        return "mma.sync" if dtype == "int8" and not (chip.tcgen05_int8 and has_tcgen05_int8()) else "tcgen05"
    if "wgmma" in chip.families and num_warps % 4 == 0 and block_m % 64 == 0 and block_n % 8 == 0 and one_instruction:
        return "wgmma"
    return "mma.sync"


def accumulator_words(plan: Plan, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(M, N) codes of the accumulator after the whole chain: a (M, K), b (K, N) codes in `plan.dtype`.

    The masked tail of the last K block adds products of zeros. They take no part in a block step (docs/arithmetic.md, "The
    block step", 2), so there K is padded only where an order over whole groups is asked. In the chain of fused multiply-adds one
    such step shows: it turns the -0 of a negative product that underflowed into +0."""
    k = a.shape[1]
    if plan.family != FMA:
        if plan.depth is not None:
            assert plan.rule is not None
            return _by_instructions(plan, plan.rule, a, b)
        if plan.dtype == "int8" and plan.family == "mma.sync" and k >= _NEVER_SATURATES:
            return _saturating_product(a, b)
        if k == 0 or not a.shape[0] or not b.shape[1]:
            return np.zeros((a.shape[0], b.shape[1]), np.int32 if plan.accumulator == "int32" else np.uint32)
    return answer_product(one_chain(plan, a, b))


def one_chain(plan: Plan, a: np.ndarray, b: np.ndarray) -> ProductQuery:
    """The product that `plan` asks of a (M, K), b (K, N) codes where it is one chain: no MFMA, and no int8 sum that is clamped."""
    k = a.shape[1]
    if plan.family == FMA:
        tail = 1 if k % plan.block_k else 0
        return ProductQuery(rule=None, a=np.pad(a, ((0, 0), (0, tail))), b=np.pad(b, ((0, tail), (0, 0))))
    if plan.depth is not None:
        raise ValueError(f"{plan} is a chain of MFMA instructions, not one: ask accumulator_words")
    if plan.operand != plan.dtype and plan.operand == "fp16":
        a, b = _widen_e4m3(a), _widen_e4m3(b)
    if plan.k_width * BITS.get(plan.operand, 32) > 32:
        group = 8 * plan.k_width
        whole = -(-k // group) * group
        order = instruction_order(whole, BITS[plan.operand], plan.k_width)  # (whole,)
        a = np.pad(a, ((0, 0), (0, whole - k)))[:, order]  # (M, whole)
        b = np.pad(b, ((0, whole - k), (0, 0)))[order]  # (whole, N)
    return ProductQuery(rule=plan.rule, a=np.ascontiguousarray(a), b=np.ascontiguousarray(b))


def _by_instructions(plan: Plan, rule: Instruction, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """As `accumulator_words`, one MFMA after another: some of their rules count from the first product of each. The zeros of the
    last K block are added too."""
    if plan.operand != plan.dtype and plan.operand == "fp16":
        a, b = _widen_e4m3(a), _widen_e4m3(b)
    missing = -a.shape[1] % plan.block_k
    a, b = np.pad(a, ((0, 0), (0, missing))), np.pad(b, ((0, missing), (0, 0)))
    sums = np.zeros((a.shape[0], b.shape[1]), np.int32 if plan.accumulator == "int32" else np.uint32)  # (M, N)
    if not sums.size:
        return sums
    assert plan.depth is not None
    for start in range(0, a.shape[1], plan.depth):
        part = slice(start, start + plan.depth)
        sums = chained_product(rule, a[:, part], b[part], sums)
    return sums


def _saturating_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Triton writes int8 mma.sync with `.satfinite`: each instruction of 32 products clamps its sum to int32."""
    ends, total = np.iinfo(np.int32), np.zeros((a.shape[0], b.shape[1]), np.int64)  # (M, N)
    for start in range(0, a.shape[1], 32):
        part = a[:, start : start + 32].astype(np.int64) @ b[start : start + 32].astype(np.int64)  # (M, N)
        total = np.clip(total + part, ends.min, ends.max)  # (M, N)
    return total.astype(np.int32)


def _widen_e4m3(codes: np.ndarray) -> np.ndarray:
    """e4m3 codes as fp16 codes: exact."""
    from bitverdict.reference.formats import E4M3, FP16, decode, encode

    return encode(FP16, decode(E4M3, codes))

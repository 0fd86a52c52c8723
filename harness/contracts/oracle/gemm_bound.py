"""A product judged by its mathematics alone: whichever instruction multiplied, in whatever order the K blocks came.

For a user's launcher, whose plan nobody knows. What a result may be follows from the instructions that were launched, or else from
all that the target has (`bitverdict.reference.error_bound` has the derivation); no right kernel fails. What it cannot see: -0 for
+0, and the payload of a NaN."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np

from bitverdict.harness.contracts.inputs.narrowed_inputs import narrowing_effect
from bitverdict.harness.contracts.oracle.allowed_results import allowed_output
from bitverdict.harness.model.architectures import is_amd
from bitverdict.harness.model.contract import ExpectedOutput, SecondOpinion
from bitverdict.harness.model.verdict import Basis
from bitverdict.reference.error_bound import (
    Accumulation,
    accumulated_sums,
    of_instruction,
    plain_fp32,
    products_grid,
    subnormal_alignment,
)
from bitverdict.reference.exact_gemm import exact_gemm
from bitverdict.reference.formats import FORMATS, FP32, Format, decode
from bitverdict.reference.stored_sums import store_sum
from bitverdict.reference.tensor_core import INSTRUCTIONS, Instruction
from bitverdict.reference.tensor_core.product_query import words_alone

TF32_PRODUCTS, BF16_PRODUCTS = 3, 6  # for one of fp32: tf32x3 multiplies high and low parts, bf16x6 three parts of each
BF16X3_SHARE = 3 * 2.0**-18  # of sum |a||b|: two bf16 parts of either operand leave out 2^-18 of it, and low times low is left out
LaunchedInstructions = Set[tuple[str, ...]]
"""Matrix instructions in launched kernels: (family, kind, a, b, d), each empty where it is not known; family "fma" for none."""


def bounded_product(
    problem: Any,
    a: np.ndarray,
    b: np.ndarray,
    arch: str,
    *,
    c: np.ndarray | None = None,
    name: str = "c",
    launched_kinds: LaunchedInstructions = frozenset(),
    atomics: int = 0,
) -> ExpectedOutput:
    """What any kernel must give for `problem` (m, n, k, dtype, out, activation): a (M, K), b (K, N) codes in `problem.dtype`, `c`
    (M, N) fp32 words that are added before, among or after the products; `name` of the output; `launched_kinds`: by which
    instructions; `atomics`: how many parts of a sum fp32 atomics add, to which subnormal operands and results are zero.

    Float operands: words from a lowest to a highest. int8: words, since integers are exact."""
    shape = (problem.m, problem.n)
    if problem.dtype == "int8":
        total = a.astype(np.int64) @ b.astype(np.int64)  # (M, N)
        words = total.astype(np.int8 if problem.out == "int8" else np.int32)  # (M, N)
        return ExpectedOutput(name=name, format=problem.out, shape=shape, words=words, basis=Basis.EXACT)
    fmt, k = FORMATS[problem.dtype], problem.k
    left, right = decode(fmt, a), decode(fmt, b)  # (M, K), (K, N)
    addend = None if c is None else decode(FP32, c)  # (M, N)
    exact = exact_gemm(left, right, addend)
    exact = replace(exact, value=store_sum(exact.value))
    grid = products_grid(left, right, addend)  # (M, N)
    rules, terms, losses = instructions(arch, problem.dtype, launched_kinds), k, np.zeros(shape)  # lost: (M, N)
    narrow = narrowing_effect(a, b) if problem.dtype == "fp32" and rules else None  # multiply-adds take all of an operand
    if narrow:
        in_bf16 = any("bf16" in one for one in launched_kinds)
        terms = k * (BF16_PRODUCTS if in_bf16 else TF32_PRODUCTS)
        losses = narrow.loss + (np.nan_to_num(exact.magnitude) * BF16X3_SHARE if in_bf16 else 0.0)  # (M, N)
    if atomics:  # of a grid of 2^-126 or more no partial sum is subnormal
        losses = losses + np.where(grid >= -126, 0.0, 2 * atomics * FP32.smallest_normal)  # (M, N)
    sums = accumulated_sums(
        exact.value,
        exact.magnitude,
        terms,
        accumulations=accumulations(rules, terms, accumulator=addend is not None),
        alignment=subnormal_alignment(left, right, fmt, fmt),
        grid=grid,
        operand_loss=losses,
    )
    inconclusive = np.isinf(exact.value)  # (M, N)
    if inconclusive.any():
        inconclusive &= _may_overflow(left, right, addend)
    if narrow:
        inconclusive |= narrow.hollow | (narrow.unsettled_results & ~np.isnan(exact.value))
    return allowed_output(name, problem.out, sums, left, right, inconclusive=inconclusive, activation=bool(problem.activation),
                   basis=bound_rests_on(rules, arch))  # fmt: skip


def accumulations(rules: Iterable[Instruction], k: int, *, accumulator: bool = False) -> list[Accumulation]:
    """Every way to sum K = `k` products, and a c where there is an `accumulator`: by each of `rules`, in chains of any length whose
    instructions may hold one product each, and by plain fp32."""
    return [*(of_instruction(rule, k, accumulator=accumulator, full=False) for rule in rules), plain_fp32()]


def bound_rests_on(rules: Iterable[Instruction], arch: str) -> str:
    """What a bound over `rules` on `arch` rests on, before the colon as a report counts it, and what it cannot see."""
    names = sorted({f"{rule.name} ({rule.evidence.basis})" for rule in rules}) or ["fp32 multiply-adds"]
    basis = str(Basis.BOUND) if has_model(arch) else f"bound, no tensor-core model of {arch}: as weak as any known instruction"
    return f"{basis}, for any order of sums by {', '.join(names)}; not seen: the sign of a zero, a NaN's payload"


def _may_overflow(left: np.ndarray, right: np.ndarray, added: np.ndarray | None) -> np.ndarray:
    """(M, N): whether the finite terms could leave fp32, which makes a NaN of an expected infinity when it has the other sign."""
    sides = [np.abs(np.where(np.isfinite(side), side, 0.0)) for side in (left, right)]
    terms = sides[0] @ sides[1]  # (M, N)
    if added is not None:
        terms = terms + np.where(np.isfinite(added), np.abs(added), 0.0)  # (M, N)
    return terms >= FP32.largest / 2


def instructions(arch: str, dtype: str, launched_kinds: LaunchedInstructions = frozenset()) -> list[Instruction]:
    """The instructions into fp32 that may have multiplied operands in `dtype` on `arch`: of all that hold them exactly (fp32: tf32)
    those that were launched. All of them where nothing is known of the launch, or nothing launched is among them; of a chip that is
    not modelled the weakest ones that any chip has (`choose_instructions`)."""
    fmt = FORMATS[dtype]
    candidates = [
        rule
        for rule in of_arch(arch)
        if rule.d == "fp32" and rule.a == rule.b and rule.scale is None
        and (rule.a == "tf32" if dtype == "fp32" else _holds_exactly(fmt, FORMATS.get(rule.a)))
    ]  # fmt: skip
    return choose_instructions(candidates, arch, launched_kinds)


def product_opinion(
    problem: Any,
    words: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    arch: str,
    family: str,
    *,
    c: np.ndarray | None = None,
    atomics: int = 0,
) -> SecondOpinion | None:
    """What the bound says of `words` (M, N) in `problem.out`, of a product by instructions of `family`; operands and `atomics` as
    for `bounded_product`. None on AMD's, whose instructions are not among those that the bound is derived for."""
    if is_amd(arch):
        return None

    def bound(rows: np.ndarray, columns: np.ndarray) -> ExpectedOutput:
        part_problem = SimpleNamespace(
            m=len(rows), n=len(columns), k=a.shape[1], dtype=problem.dtype, out=problem.out, activation=problem.activation
        )
        left, right = np.ascontiguousarray(a[rows]), np.ascontiguousarray(b[:, columns])  # (R, K), (K, C)
        added = None if c is None else c[np.ix_(rows, columns)]  # (R, C)
        return bounded_product(
            part_problem, left, right, arch, c=added, launched_kinds=frozenset({(family, "", "", "", "")}), atomics=atomics
        )

    return second_opinion(words, a.shape[1], bound)


def has_plan(arch: str) -> bool:
    """Whether a plan gives the words of a product on `arch`: the reference has its matrix instructions, MFMA among them."""
    return is_amd(arch) or has_model(arch)


def has_model(arch: str) -> bool:
    """Whether the reference has the tensor cores of `arch`. Without them a product is held to the bound."""
    return any(rule.arch == arch for rule in INSTRUCTIONS)


def of_arch(arch: str) -> list[Instruction]:
    """The instructions of `arch`; of every chip where it is none of those modelled."""
    return [rule for rule in INSTRUCTIONS if rule.arch == arch] or list(INSTRUCTIONS)


def choose_instructions(candidates: list[Instruction], arch: str, launched_kinds: LaunchedInstructions) -> list[Instruction]:
    """Those of `candidates` that were launched; none where only fp32 multiply-adds were.

    On a chip that is not modelled, what was launched tells the operands alone: an instruction there may be as weak as any known one
    that takes them, of whatever family. Of each weakness one stands for all."""
    if launched_kinds and all(family == "fma" for family, *_ in launched_kinds):
        return []
    known = has_model(arch)
    asked = [
        rule for rule in candidates if any(_matches_rule(rule, one if known else ("", "", *one[2:])) for one in launched_kinds)
    ] or candidates
    return asked if known else weakest(asked)


def weakest(rules: Iterable[Instruction]) -> list[Instruction]:
    """Of `rules` those that no other one bounds: they cut terms to the fewest bits, or a block's result.

    All of them cut toward zero. How many products a block holds does not matter to `accumulations`, which lets each hold one."""
    kept: list[Instruction] = []
    for rule in sorted(rules, key=lambda rule: (rule.fraction_bits, rule.output_fraction_bits)):
        if not kept or rule.output_fraction_bits < kept[-1].output_fraction_bits:
            kept.append(rule)
    return kept


def launched_instructions(recorded: Mapping) -> LaunchedInstructions:
    """What a run recorded of the matrix instructions in the kernels it launched; empty where it knows nothing. The record is asked
    when the instructions are: the launch may go on until then."""
    return _RecordedInstructions(recorded)


class _RecordedInstructions(Set[tuple[str, ...]]):
    def __init__(self, recorded: Mapping) -> None:
        self._recorded = recorded

    @cached_property
    def _instruction_set(self) -> frozenset[tuple[str, ...]]:
        return frozenset(tuple(one) for one in self._recorded.get("instructions", ()))

    def __contains__(self, one: object) -> bool:
        return one in self._instruction_set

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        return iter(self._instruction_set)

    def __len__(self) -> int:
        return len(self._instruction_set)


def _matches_rule(rule: Instruction, one: tuple[str, ...]) -> bool:
    """Whether `one` (family, kind, a, b, d), empty where unknown, may be `rule`."""
    names = rule.family, rule.kind, rule.a, rule.b, rule.d
    return all(said in ("", name) for said, name in zip(one, names, strict=True))


def _holds_exactly(fmt: Format, operand: Format | None) -> bool:
    """Whether every number in `fmt` is one of `operand`."""
    return operand is not None and (
        operand.mantissa_bits >= fmt.mantissa_bits and operand.largest >= fmt.largest and operand.smallest <= fmt.smallest
    )


ROWS, COLUMNS = 16, 16  # of a result, its first and its last among them
DEEPEST = 1 << 18  # of the products of these rows and columns: fewer of them where K is deep


def second_opinion(words: np.ndarray, k: int, bound: Callable[[np.ndarray, np.ndarray], ExpectedOutput]) -> SecondOpinion | None:
    """The opinion of `bound`, which is given the numbers of rows and of columns, on `words` (M, N) of sums over K = `k`.

    The plan knows instruction, order and roundings; the bound knows of them which family of instructions multiplies. Words
    outside of the bound mean that the two contradict each other: then nothing is known of the kernel. The bound is derived for
    some rows and columns, each with its whole K: at all elements it would cost as much as the launch. None where there is nothing
    to have an opinion on, or nobody wants one."""
    m, n = words.shape
    if not m or not n or words_alone():
        return None
    most = max(DEEPEST // max(k, 1), 4)
    rows, columns = spread_out(m, min(ROWS, max(most // COLUMNS, 2))), spread_out(n, min(COLUMNS, max(most // 2, 2)))
    return SecondOpinion(words=words[np.ix_(rows, columns)], output=bound(rows, columns), word_count=words.size)


def spread_out(size: int, count: int) -> np.ndarray:
    """At most `count` different numbers below `size`, the first and the last among them, evenly spread."""
    return np.unique(np.linspace(0, size - 1, count).round().astype(int))

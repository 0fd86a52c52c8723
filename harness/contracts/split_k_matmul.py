"""What `kernels/split_k_matmul.py` expects: a chain from zero for each share of K, added in ascending order, word for word.

Of parts that atomics add nobody knows the order: one of the words that some order gives must come. Where nobody knows the parts, or
there are many, the sums are held to the derived bound of any order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

import bitverdict.kernels.split_k_matmul
from bitverdict.harness.contracts.base.single_config import Fields, KernelContract, call_launcher, drawn_operand, result_buffer
from bitverdict.harness.contracts.base.tiled_gemm import BlockedContract
from bitverdict.harness.contracts.inputs import regimes
from bitverdict.harness.contracts.oracle import shared_mathematics
from bitverdict.harness.contracts.oracle.dot_lowering import accumulator_words, dot_plan, words_rest_on
from bitverdict.harness.contracts.oracle.gemm_bound import bounded_product, has_plan, launched_instructions, product_opinion
from bitverdict.harness.model.architectures import is_amd
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import ExpectedOutput
from bitverdict.harness.model.mathematics import Mathematics
from bitverdict.harness.model.targets import Target
from bitverdict.kernels.element_types import ELEMENT_TYPES
from bitverdict.reference.formats import convert
from bitverdict.reference.split_sums import MOST_IN_ANY_ORDER, ascending_sum, shares, sums_in_any_order

ATOMICS = "atomics"
NAMES = ("block_m", "block_n", "block_k", "split", "reduction", "num_warps", "stages")
CONFIGS = ((64, 64, 32, 4, "second kernel", 4, 3), (32, 32, 16, 3, "last program", 2, 2), (64, 32, 32, 5, ATOMICS, 4, 3))


class SplitKMatmulContract(BlockedContract):
    by_mfma = True
    parameters = "(a, b, c=None, *, out_dtype=None, config=None)"

    def pool(self, target: Target) -> list[tuple[Fields, Fields]]:
        return [
            ({"dtype": dtype, "out": "fp32" if numbers[NAMES.index("reduction")] == ATOMICS else out}, dict(zip(NAMES, numbers)))
            for dtype, out in (("fp16", "fp32"), ("bf16", "bf16"))
            for numbers in CONFIGS
        ]

    def required(self, target: Target) -> list[Case]:
        found = super().required(target)
        if not is_amd(target.arch):
            return found
        return [dataclasses.replace(each, regime=regimes.of_amd(each.regime, each.problem.dtype)) for each in found]

    def far_problems(self) -> Iterable[tuple[Fields, Fields]]:
        """C's offsets are computed in another place where the last program adds the parts."""
        for problem, config in super().far_problems():
            yield problem, config
            yield problem, config | {"reduction": "last program"}

    def pool_of_far(self) -> tuple[Fields, Fields]:
        return {"dtype": "bf16", "out": "bf16"}, {"block_n": 32, "block_k": 16, "split": 2}

    def listed_problems(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        (problem, of_parts), (_, of_last_program), (_, of_atomics), (narrow, _), *_ = self.pool(target)
        yield self.size_fields(problem, 1, 1, 1), of_parts
        yield self.size_fields(problem, 65, 47, 17 * 32 + 1), of_parts  # shares of 5, 5, 5 and 3 blocks: more than stages
        yield self.size_fields(problem, 64, 47, 5 * 32), of_parts  # of 2, 2, 1 and none
        yield self.size_fields(narrow, 9, 80, 33), of_parts  # of 1, 1 and two of none; C without gaps
        yield self.size_fields(problem, 33, 63, 10 * 16 + 9), of_last_program
        yield self.size_fields(narrow, 31, 31, 2 * 16 - 3), of_last_program
        yield self.size_fields(problem, 70, 31, 25 * 32), of_atomics

    def refusals(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        sizes = {"m": 64, "n": 64, "k": 64}
        yield sizes | {"dtype": "fp32"}, {}
        yield sizes | {"out": "int8"}, {}
        yield sizes, {"reduction": "tree"}
        yield sizes, {"reduction": ATOMICS}
        yield sizes | {"k": 0}, {}
        yield sizes, {"block_n": 48}
        yield sizes, {"block_k": 8}
        yield sizes, {"split": 0}
        yield sizes, {"split": 65}
        yield sizes | {"a_pad": 1}, {}
        yield sizes | {"b_offset": 1}, {}

    def case(self, problem: Fields, config: Fields, **rest: object) -> Case:
        """Where a bound must decide, in a regime in which it can."""
        made = super().case(problem, config, **rest)
        decided = made.config.reduction != ATOMICS
        return made if decided else dataclasses.replace(made, regime=regimes.of_a_launcher(made.regime))

    def operands(self, case: Case) -> list[Operand]:
        p = case.problem
        return [
            drawn_operand(case, "a", p.dtype, (p.m, p.k), pad=p.a_pad, offset=p.a_offset, side="a"),
            drawn_operand(case, "b", p.dtype, (p.k, p.n), pad=p.b_pad, offset=p.b_offset, side="b", k_axis=0),
        ]

    def launch(self, case: Case, tensors: Mapping, launcher: Callable | None) -> Mapping:
        p = case.problem
        if launcher is not None:
            return {"c": call_launcher(launcher, tensors["a"], tensors["b"], out_dtype=ELEMENT_TYPES[p.out].torch)}
        c = result_buffer(case, tensors["a"], (p.m, p.n), pad=p.c_pad, dtype=p.out)
        out_dtype = ELEMENT_TYPES[p.out].torch
        got = self.module.split_k_matmul(tensors["a"], tensors["b"], c, out_dtype=out_dtype, config=case.config)
        return {"c": got if c is None else c}

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        p, c = case.problem, case.config
        a, b = operands["a"].codes, operands["b"].codes
        gemm_problem = SimpleNamespace(m=p.m, n=p.n, k=p.k, dtype=p.dtype, out=p.out, activation="")
        how: dict[str, Any] = {"tile": (c.block_m, c.block_n), "k_block": c.block_k}
        atomic_adds = c.split if c.reduction == ATOMICS else 0  # parts, by atomics
        if case.launcher or atomic_adds > MOST_IN_ANY_ORDER or not has_plan(target.arch):
            atomics = p.k if case.launcher else atomic_adds  # a launcher may add any parts by them
            bound = bounded_product(
                gemm_problem, a, b, target.arch, launched_kinds=launched_instructions(recorded), atomics=atomics
            )
            return [dataclasses.replace(bound, **how)]
        plan = dot_plan(target.arch, p.dtype, block_m=c.block_m, block_n=c.block_n, block_k=c.block_k, num_warps=c.num_warps)
        parts = [accumulator_words(plan, a[:, share], b[share]) for share in shares(p.k, c.block_k, c.split)]  # (M, N) each
        sums = sums_in_any_order(parts) if atomic_adds else ascending_sum(parts)[None]  # (R, M, N)
        words, *other_words = convert("fp32", p.out, sums, target.arch)  # (M, N) each
        order = "atomics in any order" if atomic_adds else "fp32 additions in ascending order"
        return [
            ExpectedOutput(
                name="c",
                format=p.out,
                shape=(p.m, p.n),
                words=words,
                others=np.stack(other_words) if other_words else None,
                any_nan=atomic_adds > 0 or is_amd(target.arch),
                **how,
                basis=words_rest_on(plan.rule, f"a chain a share of K, added by {order}"),
                opinion=product_opinion(gemm_problem, words, a, b, target.arch, plan.family, atomics=atomic_adds),
            )
        ]

    def mathematics(self, case: Case, operands: Mapping[str, Operand]) -> Mathematics:
        return shared_mathematics.product_mathematics(*(shared_mathematics.decode_operand(operands[name]) for name in "ab"))

    def out_format(self, problem: Any) -> str:
        return problem.out

    def coverage(self, case: Case, target: Target) -> dict[str, str | int]:
        p, c = case.problem, case.config
        taken = [share.stop - share.start for share in shares(p.k, max(c.block_k, 1), max(c.split, 1))]
        return KernelContract.coverage(self, case, target) | {
            "out": p.out,
            "reduction": c.reduction,
            "shares": min(sum(length > 0 for length in taken), 4),
            "empty shares": str(0 in taken),
            "K ragged": str(p.k % max(c.block_k, 1) != 0),
        }


contract = SplitKMatmulContract
CONTRACT = contract(bitverdict.kernels.split_k_matmul)

"""What `kernels/small_mma.py` expects: one chain of tcgen05 that starts at C, word for word; a user's launcher, the derived
bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np

import bitverdict.kernels.small_mma
from bitverdict.harness.contracts.base.single_config import (
    Fields,
    KernelContract,
    chain_of,
    drawn_operand,
    empty,
    far_pad,
    multiply_words,
)
from bitverdict.harness.contracts.inputs.all_codes import PAIRS
from bitverdict.harness.contracts.oracle.dot_lowering import words_rest_on
from bitverdict.harness.contracts.oracle.gemm_bound import bounded_product, has_model, launched_instructions, product_opinion
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import ExpectedOutput, PromisedInstruction
from bitverdict.harness.model.targets import Target

TUTORIAL: dict[str, Any] = {
    "m, n, k": ((128, 128, 128), (64, 128, 128), (64, 256, 256), (256, 64, 64)),
    "lhs_in_tmem": (False, True),
    "use_commit": (False, True),
    "num_warps": (4, 8),
}
LEFT_MEMORY = {False: "shared", True: "tensor memory"}


class SmallMmaContract(KernelContract):
    conversions = frozenset()
    parameters = "(a, b, c, d, tmem_block, lhs_in_tmem, use_commit, num_warps)"

    def pool(self, target: Target) -> list[tuple[Fields, Fields]]:
        sizes = [(64, 32, 32), (64, 64, 128), (128, 16, 64), (128, 64, 32), (128, 32, 256), (256, 32, 32)]
        forms = list(
            product(("fp16", "bf16", "e4m3", "e5m2"), ("shared", "tensor memory"), ("commit", "barrier", "conditional"), (4, 8))
        )
        return [
            ({"m": m, "n": n, "k": k, "dtype": dtype}, {"left": left, "completion": completion, "num_warps": warps})
            for place, (dtype, left, completion, warps) in enumerate(forms)
            for m, n, k in (sizes[place % 6], sizes[(place + 3) % 6])
            if n * (1 if dtype[0] == "e" else 2) >= 32
        ]

    def draw_problem(self, draw: Callable, problem: Fields, config: object, target: Target) -> Fields:
        from hypothesis import strategies as st

        pads = st.sampled_from((0, 16))
        return {"a_pad": draw(pads), "b_pad": draw(pads), "c_pad": draw(pads), "d_pad": draw(pads), "a_offset": 0}

    def listed_problems(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        yield from self.pool(target)[::3]

    def tutorial(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        for (m, n, k), left_in_tensor_memory, commit, warps in product(*TUTORIAL.values()):
            yield (
                {"m": m, "n": n, "k": k},
                {
                    "block_m": min(128, m),
                    "block_n": n,
                    "left": LEFT_MEMORY[left_in_tensor_memory],
                    "completion": "commit" if commit else "barrier",
                    "num_warps": warps,
                },
            )

    def covering_problems(self, target: Target) -> Iterable[tuple[Fields, Fields, str]]:
        for dtype in ("e4m3", "e5m2"):
            for _ in range(2):  # half of the codes of A each, by their data seeds: a product of all does not fit
                yield {"m": 128, "n": 256, "k": 32, "dtype": dtype}, {}, PAIRS

    def factors(self, case: Case, operands: Mapping[str, Operand]) -> tuple[np.ndarray, np.ndarray]:
        return operands["a"].codes, operands["b"].codes.T

    def far_problems(self) -> Iterable[tuple[Fields, Fields]]:
        m, n, k = 128, 32, 32
        pads = {"a_pad": far_pad(m, k), "b_pad": far_pad(k, n), "c_pad": far_pad(m, n, 4), "d_pad": far_pad(m, n, 4)}
        yield {"m": m, "n": n, "k": k} | pads, {}

    def result_bytes(self, case: Case) -> int:
        return (case.problem.m - 1) * (case.problem.n + case.problem.d_pad) * 4

    def refusals(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        sizes = {"m": 128, "n": 64, "k": 64}
        yield sizes | {"dtype": "fp32"}, {}
        yield sizes | {"m": 96}, {}
        yield sizes | {"k": 8}, {}
        yield sizes | {"n": 8}, {}
        yield sizes, {"num_warps": 2}
        yield sizes, {"block_m": 32}
        yield sizes, {"block_n": 48}
        yield sizes, {"block_m": 64}
        yield sizes | {"k": 512}, {"left": "tensor memory"}
        yield sizes | {"m": 256, "n": 256, "k": 128}, {}
        yield sizes | {"a_pad": 1}, {}
        yield sizes | {"a_offset": 1}, {}

    def for_launcher(self, case: Case, launcher: str) -> Case | None:
        return super().for_launcher(self.with_regime_of_a_launcher(case), launcher)

    def operands(self, case: Case) -> list[Operand]:
        p = case.problem
        return [
            drawn_operand(case, "a", p.dtype, (p.m, p.k), pad=p.a_pad, offset=p.a_offset, side="a"),
            drawn_operand(case, "b", p.dtype, (p.k, p.n), pad=p.b_pad, side="b", k_axis=0),
            drawn_operand(case, "c", "fp32", (p.m, p.n), pad=p.c_pad),
        ]

    def launch(self, case: Case, tensors: Mapping, launcher: Callable | None) -> Mapping:
        p, c = case.problem, case.config
        d = empty(tensors["c"], (p.m, p.n), pad=p.d_pad)
        block = (c.block_m, c.block_n) if c.block_m or c.block_n else None
        use_commit, rest = c.completion == "commit", {}
        if not launcher:
            by_name = c.completion == "conditional" or case.data_seed % 2 == 1  # which overrides a `use_commit` that says another
            use_commit = use_commit != by_name
            rest = {"completion": self.module.Completion(c.completion) if by_name else None, "chosen": case.data_seed % 2}
        (launcher or self.module.small_mma)(
            tensors["a"], tensors["b"], tensors["c"], d, block, c.left != "shared", use_commit, c.num_warps, **rest
        )
        return {"d": d}

    def promised_instructions(self, case: Case) -> tuple[PromisedInstruction, ...]:
        completion, left = case.config.completion, case.config.left
        barriers = {"commit": 0, "barrier": 1, "conditional": 2}[completion]
        return (
            PromisedInstruction("ttng.tc_gen5_commit", int(completion == "commit"), f"completion={completion}"),
            PromisedInstruction("barriers of ttng.tc_gen5_mma", barriers, f"completion={completion}"),
            PromisedInstruction("ttng.tmem_alloc", 2 if left == "tensor memory" else 1, f"left={left}"),
        )

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        p = case.problem
        gemm_problem = SimpleNamespace(m=p.m, n=p.n, k=p.k, dtype=p.dtype, out="fp32", activation="")
        a, b, c = (operands[name].codes for name in "abc")
        if case.launcher or not has_model(target.arch):  # whose order, or whose step, nobody knows, nor where C enters
            return [bounded_product(gemm_problem, a, b, target.arch, c=c, name="d", launched_kinds=launched_instructions(recorded))]
        words = multiply_words(target.arch, "tcgen05", p.dtype, "fp32", a, b, c)
        tile = self.module.block(p, case.config)
        return [
            ExpectedOutput(
                name="d",
                format="fp32",
                shape=(p.m, p.n),
                words=words,
                tile=tile,
                k_block=p.k,
                basis=words_rest_on(chain_of(target.arch, "tcgen05", p.dtype)),
                opinion=product_opinion(gemm_problem, words, a, b, target.arch, "tcgen05", c=c),
            )
        ]


contract = SmallMmaContract
CONTRACT = contract(bitverdict.kernels.small_mma)

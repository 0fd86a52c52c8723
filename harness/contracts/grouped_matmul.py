"""What `kernels/grouped_matmul.py` expects: one chain over all of K in each product of the list, word for word."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

import bitverdict.kernels.grouped_matmul
from bitverdict.harness.contracts.base.promised_work import cdiv, promise_count
from bitverdict.harness.contracts.base.single_config import Fields, KernelContract, call_launcher, result_buffer
from bitverdict.harness.contracts.inputs import regimes
from bitverdict.harness.contracts.oracle.dot_lowering import accumulator_words, dot_plan, words_rest_on
from bitverdict.harness.contracts.oracle.gemm_bound import bounded_product, has_plan, launched_instructions, product_opinion
from bitverdict.harness.model.architectures import is_amd
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import ExpectedOutput, PromisedInstruction
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.usage import UsageError
from bitverdict.kernels.element_types import ELEMENT_TYPES
from bitverdict.reference.formats import convert
from bitverdict.reference.grouped_products import groups_of, tiles_of

NAMES = ("block_m", "block_n", "block_k", "num_warps", "stages", "programs")
CONFIGS = ((64, 32, 32, 4, 3, 3), (16, 32, 16, 2, 2, 0))
LARGEST = 2  # tiles along M and N, and blocks of K, of a drawn group


class GroupedMatmulContract(KernelContract):
    conversions = frozenset()
    by_mfma = True
    parameters = "(a, b, sizes, c=None, *, out_dtype=None, config=None)"

    def pool(self, target: Target) -> list[tuple[Fields, Fields]]:
        types = (("fp16", "fp32"), ("bf16", "bf16"))
        return [
            ({"dtype": dtype, "out": out}, dict(zip(NAMES, numbers, strict=True))) for dtype, out in types for numbers in CONFIGS
        ]

    def draw_problem(self, draw: Callable, problem: Fields, config: Any, target: Target) -> Fields:
        from hypothesis import strategies as st

        from bitverdict.harness.contracts.inputs import strategies

        kind, unit = draw(st.sampled_from(strategies.KINDS)), draw(st.sampled_from((1, 1, self.module.UNIT)))
        tile = (config.block_m, config.block_n, config.block_k)
        sides = [strategies.sizes(side, LARGEST, kind).map(lambda size: -(-size // unit) * unit) for side in tile]
        groups = draw(st.lists(st.tuples(*sides), min_size=1, max_size=4))
        return {"sizes": (*groups,) if any(m and n for m, n, k in groups) else (*groups, (unit, unit, unit))}  # a tile, to launch

    def listed_problems(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        (problem, persistent), (_, small_config), (narrow, _), *_ = self.pool(target)
        # eight tiles for three programs; M, N and K of each group its own, tiles and blocks of one below, at and above; more blocks
        # than the stages hold
        yield problem | {"sizes": ((65, 33, 31), (64, 32, 32), (1, 65, 165), (130, 1, 33))}, persistent
        yield problem | {"sizes": ((0, 40, 40), (40, 40, 0), (33, 0, 5), (5, 33, 70))}, persistent  # empty ones
        yield narrow | {"sizes": ((64, 32, 176), (70, 48, 16), (128, 32, 32))}, persistent  # all rows on 16 elements
        yield narrow | {"sizes": ((3, 5, 7),)}, persistent
        yield problem | {"sizes": ((17, 33, 15), (33, 31, 49))}, small_config

    def refusals(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        sizes: Fields = {"sizes": ((32, 32, 32),)}
        yield sizes | {"dtype": "fp32"}, {}
        yield sizes | {"out": "int8"}, {}
        yield {"sizes": ((0, 1 << 26, 0),)}, {}
        yield sizes, {"block_n": 48}
        yield sizes, {"block_k": 8}

    def for_launcher(self, case: Case, launcher: str) -> Case | None:
        return super().for_launcher(self.with_regime_of_a_launcher(case), launcher)

    def case_from_json(self, record: Mapping) -> Case:
        """A file has lists where the record has tuples. UsageError unless each group is three integers of at least 0."""
        sizes = record["problem"].get("sizes") if isinstance(record.get("problem"), dict) else None
        rows = sizes if isinstance(sizes, list | tuple) else [None]
        if not all(isinstance(row, list | tuple) and len(row) == 3 and all(type(n) is int and n >= 0 for n in row) for row in rows):
            raise UsageError(f"problem.sizes is {sizes!r:.100}: must be a list of groups, each three integers of at least 0")
        return super().case_from_json({**record, "problem": record["problem"] | {"sizes": tuple(map(tuple, rows))}})

    def operands(self, case: Case) -> list[Operand]:
        p = case.problem
        operand_list = []
        for name, k_axis in (("a", 1), ("b", 0)):
            flat = [np.empty(0, np.uint16)]  # (elements of a group,) each
            for number, (m, n, k) in enumerate(p.sizes):
                shape = (m, k) if name == "a" else (k, n)
                own = f"{name}{number}"
                codes = regimes.factor(p.dtype, shape, case.regime, case.data_seed, own, side=name, k_axis=k_axis)
                flat.append(codes.reshape(-1))
            operand_list.append(Operand(name=name, format=p.dtype, codes=np.concatenate(flat)))
        listed = np.array(p.sizes, np.int32).reshape(-1, 3)  # (groups, 3)
        return [*operand_list, Operand(name="sizes", format="int32", codes=listed, strides=(3, 1))]

    def launch(self, case: Case, tensors: Mapping, launcher: Callable | None) -> Mapping:
        p, out = case.problem, ELEMENT_TYPES[case.problem.out].torch
        own = {} if launcher is not None else {"config": case.config}
        given = [tensors[name] for name in ("a", "b", "sizes")]
        elements = sum(m * n for m, n, _ in p.sizes)
        flat = result_buffer(case, given[0], (1, elements), dtype=p.out) if launcher is None else None  # (1, elements)
        into = {} if flat is None else {"c": flat[0]}
        got = call_launcher(launcher or self.module.grouped_matmul, *given, out_dtype=out, **into, **own)
        c = into.get("c", got)  # (elements,)
        return {_name(number): c[group.c].view(group.m, group.n) for number, group in enumerate(groups_of(p.sizes))}

    def promised_instructions(self, case: Case) -> tuple[PromisedInstruction, ...]:
        c = case.config
        return (promise_count("tt.store", sum(cdiv(m, c.block_m) * cdiv(n, c.block_n) for m, n, _ in case.problem.sizes)),)

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        p, c = case.problem, case.config
        plan = dot_plan(target.arch, p.dtype, block_m=c.block_m, block_n=c.block_n, block_k=c.block_k, num_warps=c.num_warps)
        outputs = []
        for number, group in enumerate(groups_of(p.sizes)):
            a, b = group.factors(operands["a"].codes, operands["b"].codes)  # (m, k), (k, n)
            gemm_problem = SimpleNamespace(m=group.m, n=group.n, k=group.k, dtype=p.dtype, out=p.out, activation="")
            if case.launcher or not has_plan(target.arch):
                by = launched_instructions(recorded)
                outputs.append(bounded_product(gemm_problem, a, b, target.arch, name=_name(number), launched_kinds=by))
                continue
            words = convert("fp32", p.out, accumulator_words(plan, a, b), target.arch)  # (m, n)
            outputs.append(
                ExpectedOutput(
                    name=_name(number),
                    format=p.out,
                    shape=(group.m, group.n),
                    words=words,
                    tile=(c.block_m, c.block_n),
                    k_block=c.block_k,
                    basis=words_rest_on(plan.rule),
                    any_nan=is_amd(target.arch),
                    opinion=product_opinion(gemm_problem, words, a, b, target.arch, plan.family),
                )
            )
        return outputs

    def coverage(self, case: Case, target: Target) -> dict[str, str | int]:
        p, c = case.problem, case.config
        legal = min(c.block_m, c.block_n) > 0
        tiles = len(tiles_of(p.sizes, c.block_m, c.block_n)) if legal else 0
        rows_on_units = all(n % self.module.UNIT == k % self.module.UNIT == 0 for m, n, k in p.sizes)
        return super().coverage(case, target) | {
            "out": p.out,
            "groups": len(p.sizes),
            "turns": min(-(-tiles // (c.programs or 1 << 30)), 3),
            "rows on 16 elements": str(rows_on_units),
            "an empty group": str(any(0 in group for group in p.sizes)),
        }


def _name(number: int) -> str:
    return f"c[{number}]"


contract = GroupedMatmulContract
CONTRACT = contract(bitverdict.kernels.grouped_matmul)

"""What `kernels/rope.py` expects: fp32 arithmetic word for word, one conversion, in place or not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from math import prod

import bitverdict.kernels.rope
from bitverdict.harness.contracts.base.row_contract import DTYPES, output, widen_to_fp32
from bitverdict.harness.contracts.base.single_config import Fields, KernelContract, call_launcher, far_pad
from bitverdict.harness.contracts.inputs import regimes
from bitverdict.harness.contracts.oracle import row_mathematics
from bitverdict.harness.contracts.oracle.row_mathematics import Formula
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import ExpectedOutput
from bitverdict.harness.model.targets import Target
from bitverdict.kernels.element_types import bits_of
from bitverdict.kernels.row_tiles import LONGEST
from bitverdict.reference.row_functions import rope

SIZES = ((1, 1, 2), (3, 2, 64), (2, 5, 34), (5, 1, 128), (2, 3, 96))  # (positions, heads, columns)


class RopeContract(KernelContract):
    conversions = frozenset()
    signed_fields = frozenset({"x_pad"})  # -1 of one position, whose stride no kernel reads
    parameters = "(x, cos, sin, *, in_place=False, per_thread=1, num_warps=1)"

    def pool(self, target: Target) -> list[tuple[Fields, Fields]]:
        return [({"dtype": d}, {"per_thread": p, "num_warps": w}) for d in DTYPES for p, w in ((1, 1), (2, 2))]

    def draw_problem(self, draw: Callable, problem: Fields, config: object, target: Target) -> Fields:
        from hypothesis import strategies as st

        sizes = {"positions": draw(st.integers(0, 6)), "heads": draw(st.integers(1, 5)), "columns": 2 * draw(st.integers(1, 130))}
        pad = draw(st.sampled_from((0, 6) if sizes["positions"] > 1 else (0, -1)))
        return problem | sizes | {"in_place": draw(st.booleans()), "x_pad": pad}

    def listed_problems(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        pool = self.pool(target)
        for place in range(3 * len(pool)):
            problem, config = pool[place % len(pool)]
            sizes = dict(zip(("positions", "heads", "columns"), SIZES[place % len(SIZES)], strict=True))
            pad = 6 * (place % 3 == 1) if sizes["positions"] > 1 else -1  # the stride of one position says nothing
            yield problem | sizes | {"in_place": place % 4 == 1, "x_pad": pad}, config

    def far_problems(self) -> Iterable[tuple[Fields, Fields]]:
        sizes = {"positions": 3, "heads": 2, "columns": 34}
        yield sizes | {"dtype": "bf16", "in_place": True, "x_pad": far_pad(3, 2 * 34)}, {}

    def refusals(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        sizes = {"positions": 2, "heads": 1}
        yield sizes | {"columns": 15}, {}
        yield sizes | {"columns": 16, "dtype": "int32"}, {}
        yield sizes | {"columns": 16}, {"num_warps": 3}
        yield sizes | {"columns": LONGEST + 2}, {}

    def for_launcher(self, case: Case, launcher: str) -> Case | None:
        """Of another's launcher X is contiguous, but where it claims rows far apart."""
        asked = self.with_regime_of_a_launcher(case)
        if not self.is_far(case.problem):
            asked = dataclasses.replace(asked, problem=dataclasses.replace(case.problem, x_pad=0))
        return super().for_launcher(asked, launcher)

    def result_bytes(self, case: Case) -> int:
        p = case.problem
        apart = p.heads * p.columns + p.x_pad if p.in_place else 0
        return (p.positions - 1) * apart * bits_of(p.dtype) // 8

    def operands(self, case: Case) -> list[Operand]:
        p = case.problem
        shapes = {
            "x": (p.positions, p.heads, p.columns),
            "cos": (p.positions, p.columns // 2),
            "sin": (p.positions, p.columns // 2),
        }
        formats = {"x": p.dtype, "cos": "fp32", "sin": "fp32"}
        return [
            Operand(
                name=name,
                format=formats[name],
                codes=regimes.draw(formats[name], shape, case.regime, regimes.generator(case.data_seed, name)),
                strides=(prod(shape[1:]) + p.x_pad * (name == "x"), *(prod(shape[axis + 1 :]) for axis in range(1, len(shape)))),
            )
            for name, shape in shapes.items()
        ]

    def launch(self, case: Case, tensors: Mapping, launcher: Callable | None) -> Mapping:
        import torch

        x = tensors["x"]
        if case.problem.in_place:  # the operand must not change
            x = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)  # (positions, heads, columns)
            x.copy_(tensors["x"])
        settings = vars(case.config) | {"in_place": case.problem.in_place}
        got = call_launcher(launcher or self.module.rope, x, tensors["cos"], tensors["sin"], **settings)
        return {"y": x if case.problem.in_place and launcher is None else got}

    def formula(self, case: Case) -> Formula:
        return Formula(row_mathematics.rope, ("x", "cos", "sin"), {"y": case.problem.dtype})

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        if case.launcher:
            return self.formula(case).expected(operands, target.arch)
        x, cos, sin = (widen_to_fp32(operands[name], target.arch) for name in ("x", "cos", "sin"))
        return [output("y", rope(x, cos, sin), case.problem.dtype, target.arch)]


contract = RopeContract
CONTRACT = contract(bitverdict.kernels.rope)

"""What `kernels/swiglu.py` expects: fp32 arithmetic word for word, one conversion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import bitverdict.kernels.swiglu
from bitverdict.harness.contracts.base.row_contract import DTYPES, RowContract, output, widen_to_fp32
from bitverdict.harness.contracts.base.single_config import Fields, call_launcher, drawn_operand
from bitverdict.harness.contracts.inputs.all_codes import ALL_CODES
from bitverdict.harness.contracts.oracle import row_mathematics
from bitverdict.harness.contracts.oracle.row_mathematics import Formula
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import ExpectedOutput
from bitverdict.harness.model.targets import Target
from bitverdict.reference.row_functions import swiglu


class SwigluContract(RowContract):
    pads = ("a_pad", "b_pad")
    parameters = "(a, b, *, block=1024, per_thread=4, num_warps=4)"
    approximates = True

    def pool(self, target: Target) -> list[tuple[Fields, Fields]]:
        layouts = ((1024, 4, 4), (128, 1, 1), (256, 8, 2))
        return [({"dtype": d}, {"block": b, "per_thread": p, "num_warps": w}) for d in DTYPES for b, p, w in layouts]

    def draw_rest(self, draw: Callable) -> Fields:
        from hypothesis import strategies as st

        return {name: draw(st.sampled_from((0, 5, 16))) for name in ("a_pad", "b_pad")}

    def rest(self, place: int) -> Fields:
        return {"a_pad": (0, 3, 0)[place % 3], "b_pad": (0, 0, 8)[place % 3]}

    def covering_problems(self, target: Target) -> Iterable[tuple[Fields, Fields, str]]:
        """Every code of the 16-bit types, which the kernel widens."""
        of_types = {problem["dtype"]: config for problem, config in reversed(self.pool(target))}
        for dtype in ("fp16", "bf16"):
            yield {"rows": 64, "columns": 1024, "dtype": dtype}, of_types[dtype], ALL_CODES

    def refusals(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        yield {"rows": 2, "columns": 16, "dtype": "int32"}, {}
        yield {"rows": 2, "columns": 16}, {"per_thread": 3}
        yield {"rows": 2, "columns": 16}, {"block": 48}

    def operands(self, case: Case) -> list[Operand]:
        p = case.problem
        shape = (p.rows, p.columns)
        return [drawn_operand(case, "a", p.dtype, shape, pad=p.a_pad), drawn_operand(case, "b", p.dtype, shape, pad=p.b_pad)]

    def launch(self, case: Case, tensors: Mapping, launcher: Callable | None) -> Mapping:
        return {"y": call_launcher(launcher or self.module.swiglu, tensors["a"], tensors["b"], **vars(case.config))}

    def formula(self, case: Case) -> Formula:
        return Formula(row_mathematics.swiglu, ("a", "b"), {"y": case.problem.dtype})

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        if self.has_bound(case, target):
            return self.formula(case).expected(operands, target.arch)
        words = swiglu(widen_to_fp32(operands["a"], target.arch), widen_to_fp32(operands["b"], target.arch))
        return [output("y", words, case.problem.dtype, target.arch)]


contract = SwigluContract
CONTRACT = contract(bitverdict.kernels.swiglu)

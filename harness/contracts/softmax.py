"""What `kernels/softmax.py` expects: fp32 arithmetic word for word, the sum in the order of the layout, one conversion."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import bitverdict.kernels.softmax
from bitverdict.harness.contracts.base.row_contract import RowContract, normal_for, output, row_sum, widen_to_fp32
from bitverdict.harness.contracts.base.single_config import Fields, call_launcher, drawn_operand
from bitverdict.harness.contracts.inputs.regimes import HUNDREDS
from bitverdict.harness.contracts.oracle import row_mathematics
from bitverdict.harness.contracts.oracle.row_mathematics import Formula
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import ExpectedOutput, PromisedInstruction
from bitverdict.harness.model.targets import Target
from bitverdict.reference.row_functions import softmax


class SoftmaxContract(RowContract):
    parameters = "(x, *, per_thread=4, num_warps=4)"
    approximates = True
    wide_regime = HUNDREDS  # a shift by another number than the largest shows where powers overflow alone

    def draw_rest(self, draw: Callable) -> Fields:
        from hypothesis import strategies as st

        return {"x_pad": draw(st.sampled_from((0, 5, 16)))}

    def rest(self, place: int) -> Fields:
        return {"x_pad": (0, 3)[place % 2]}

    def for_launcher(self, case: Case, launcher: str) -> Case | None:
        return super().for_launcher(normal_for(case, "wide", "subnormals"), launcher)

    def operands(self, case: Case) -> list[Operand]:
        p = case.problem
        return [drawn_operand(case, "x", p.dtype, (p.rows, p.columns), pad=p.x_pad)]

    def launch(self, case: Case, tensors: Mapping, launcher: Callable | None) -> Mapping:
        return {"y": call_launcher(launcher or self.module.softmax, tensors["x"], **vars(case.config))}

    def promised_instructions(self, case: Case) -> tuple[PromisedInstruction, ...]:
        columns = case.problem.columns
        row = next(size for size in (1 << power for power in range(4, 32)) if size >= columns)  # the least that holds it
        return (PromisedInstruction("constant BLOCK", row, f"columns={columns}"),)

    def formula(self, case: Case) -> Formula:
        return Formula(row_mathematics.softmax, ("x",), {"y": case.problem.dtype})

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        if self.has_bound(case, target):
            return self.formula(case).expected(operands, target.arch)
        x = widen_to_fp32(operands["x"], target.arch)
        words = softmax(x, row_sum(case.problem.columns, case.config, target.arch))
        return [output("y", words, case.problem.dtype, target.arch)]


contract = SoftmaxContract
CONTRACT = contract(bitverdict.kernels.softmax)

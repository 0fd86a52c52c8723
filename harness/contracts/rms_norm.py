"""What `kernels/rms_norm.py` expects, forward and backward: fp32 arithmetic word for word, sums in the order of the layout and of
the rows, one conversion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import bitverdict.kernels.rms_norm
from bitverdict.harness.contracts.base.row_contract import DTYPES, LAYOUTS, RowContract, output, row_sum, widen_to_fp32
from bitverdict.harness.contracts.base.single_config import Fields, call_launcher, drawn_operand, results_by_name
from bitverdict.harness.contracts.inputs import regimes
from bitverdict.harness.contracts.oracle import row_mathematics
from bitverdict.harness.contracts.oracle.row_mathematics import Formula
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import ExpectedOutput
from bitverdict.harness.model.targets import Target
from bitverdict.reference.row_functions import rms_norm, rms_norm_backward

DY_PAD = 7  # elements after each row of dY in every other case: in rows as far apart as those of dX no stride is told from another


class RmsNormContract(RowContract):
    parameters = "(x, w, *, per_thread=4, num_warps=4)"
    approximates = True

    def pool(self, target: Target) -> list[tuple[Fields, Fields]]:
        return [
            ({"dtype": d}, {"per_thread": p, "num_warps": w, "rows_per_program": (8, 1, 2, 3)[place]})
            for d in DTYPES
            for place, (p, w) in enumerate(LAYOUTS)
        ]

    def draw_rest(self, draw: Callable) -> Fields:
        from hypothesis import strategies as st

        return {"x_pad": draw(st.sampled_from((0, 5, 16))), "backward": draw(st.booleans())}

    def rest(self, place: int) -> Fields:
        return {"x_pad": (0, 3)[place % 2], "backward": place % 5 != 4}

    def refusals(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        yield from super().refusals(target)
        yield {"rows": 2, "columns": 16}, {"rows_per_program": 0}

    def operands(self, case: Case) -> list[Operand]:
        p = case.problem
        weights = regimes.draw(p.dtype, (p.columns,), case.regime, regimes.generator(case.data_seed, "w"))
        return [
            drawn_operand(case, "x", p.dtype, (p.rows, p.columns), pad=p.x_pad),
            Operand(name="w", format=p.dtype, codes=weights),
            drawn_operand(case, "dy", p.dtype, (p.rows, p.columns), pad=(0, DY_PAD)[case.data_seed % 2]),
        ]

    def launch(self, case: Case, tensors: Mapping, launcher: Callable | None) -> Mapping:
        """One pass or both; a user's launcher is asked for the first."""
        x, w, dy, settings = tensors["x"], tensors["w"], tensors["dy"], vars(case.config)
        results = results_by_name(call_launcher(launcher or self.module.rms_norm, x, w, **settings), "y", "r")
        if launcher or not case.problem.backward:
            return results
        dx, dw = call_launcher(self.module.rms_norm_backward, x, w, results["r"], dy, **settings)
        return results | {"dx": dx, "dw": dw}

    def formula(self, case: Case) -> Formula:
        formats, eps = {"y": case.problem.dtype, "r": "fp32"}, {"eps": self.module.EPS}
        if case.problem.backward and not case.launcher:
            formats |= {"dx": case.problem.dtype, "dw": "fp32"}
            return Formula(row_mathematics.rms_norm_with_gradients, ("x", "w", "dy"), formats, eps)
        return Formula(row_mathematics.rms_norm, ("x", "w"), formats, eps)

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        if self.has_bound(case, target):
            return self.formula(case).expected(operands, target.arch)
        x, w, dy = (widen_to_fp32(operands[name], target.arch) for name in ("x", "w", "dy"))
        order = row_sum(case.problem.columns, case.config, target.arch)
        y, r = rms_norm(x, w, self.module.EPS, order)
        outputs = [output("y", y, case.problem.dtype, target.arch), output("r", r, "fp32", target.arch)]
        if case.problem.backward and not case.launcher:
            dx, dw = rms_norm_backward(x, w, r, dy, order, case.config.rows_per_program)
            outputs += [output("dx", dx, case.problem.dtype, target.arch), output("dw", dw, "fp32", target.arch)]
        return outputs


contract = RmsNormContract
CONTRACT = contract(bitverdict.kernels.rms_norm)

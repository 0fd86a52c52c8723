"""What `kernels/cross_entropy.py` expects, forward and backward: fp32 arithmetic word for word, the sum of a block in the order of
its layout, blocks ascending, one conversion of the gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

import bitverdict.kernels.cross_entropy
from bitverdict.harness.contracts.base.row_contract import DTYPES, RowContract, normal_for, output, widen_to_fp32
from bitverdict.harness.contracts.base.single_config import Fields, call_launcher, drawn_operand, empty, results_by_name
from bitverdict.harness.contracts.inputs import regimes
from bitverdict.harness.contracts.oracle import row_mathematics
from bitverdict.harness.contracts.oracle.row_mathematics import Formula
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import ExpectedOutput
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.triton_release import sums_by_tree
from bitverdict.reference.formats import FORMATS
from bitverdict.reference.row_functions import RowSum, cross_entropy, cross_entropy_backward

LAYOUTS = ((1024, 4, 4), (128, 1, 1))  # (block, per_thread, num_warps)
SMOOTHINGS, IGNORE_INDICES = (0.0, 0.1, 1.0), (-100, 0)


class CrossEntropyContract(RowContract):
    parameters = "(x, targets, *, smoothing=0.0, ignore_index=-100, block=4096, per_thread=4, num_warps=4)"
    approximates = True
    signed_fields = frozenset({"ignore_index"})

    def pool(self, target: Target) -> list[tuple[Fields, Fields]]:
        kinds = zip((*DTYPES, DTYPES[0]), LAYOUTS * 2, strict=True)
        return [({"dtype": d}, {"block": b, "per_thread": p, "num_warps": w}) for d, (b, p, w) in kinds]

    def draw_rest(self, draw: Callable) -> Fields:
        from hypothesis import strategies as st

        return {
            "x_pad": draw(st.sampled_from((0, 5, 16))),
            "smoothing": draw(st.sampled_from(SMOOTHINGS) | st.floats(0, 1)),
            "ignore_index": draw(st.sampled_from(IGNORE_INDICES)),
            "backward": draw(st.booleans()),
            "in_place": draw(st.booleans()),
        }

    def rest(self, place: int) -> Fields:
        return {
            "x_pad": (0, 3)[place % 2],
            "smoothing": SMOOTHINGS[place % 3],
            "ignore_index": IGNORE_INDICES[place // 3 % 2],
            "backward": place % 4 != 3,
            "in_place": place % 4 == 1,
        }

    def listed_problems(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        """Of each kind with small blocks the second case has several."""
        for place, (problem, config) in enumerate(super().listed_problems(target)):
            yield problem | ({"rows": 4, "columns": 300 + place} if place % 2 and place > 3 else {}), config

    def regime(self, place: int) -> str:
        """Another one for a kind's second case than for its first."""
        return super().regime(place + 5 * (place // 4))

    def refusals(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        sizes = {"rows": 2, "columns": 16}
        yield sizes | {"dtype": "int32"}, {}
        yield sizes | {"columns": 0}, {}
        yield sizes | {"smoothing": 1.5}, {}
        yield sizes, {"per_thread": 3}
        yield sizes, {"block": 48}

    def for_launcher(self, case: Case, launcher: str) -> Case | None:
        return super().for_launcher(normal_for(case, "wide", "subnormals"), launcher)

    def operands(self, case: Case) -> list[Operand]:
        """Logits, gradients of the losses, and targets, of which one in four is ignored. Of one row in three the first half is
        -inf, which masks a logit. Of one row in three, the first among them, every logit is below zero."""
        p = case.problem
        rng = regimes.generator(case.data_seed, "targets")
        targets = rng.integers(0, max(p.columns, 1), p.rows)
        targets[rng.random(p.rows) < 0.25] = p.ignore_index
        x = drawn_operand(case, "x", p.dtype, (p.rows, p.columns), pad=p.x_pad)
        if p.dtype in FORMATS:
            x.codes[rng.random(p.rows) < 1 / 3, : p.columns // 2] = regimes.decisive_codes(FORMATS[p.dtype])["-inf"]
            x.codes[::3] |= x.codes.dtype.type(FORMATS[p.dtype].sign_bit)
        return [
            x,
            Operand(name="targets", format="int64", codes=targets.astype(np.int64)),
            Operand(
                name="g", format="fp32", codes=regimes.draw("fp32", (p.rows,), case.regime, regimes.generator(case.data_seed, "g"))
            ),
        ]

    def launch(self, case: Case, tensors: Mapping, launcher: Callable | None) -> Mapping:
        """One pass or both; a user's launcher is asked for the first."""
        p, x, targets = case.problem, tensors["x"], tensors["targets"]
        settings = vars(case.config) | {"smoothing": p.smoothing, "ignore_index": p.ignore_index}
        results = results_by_name(call_launcher(launcher or self.module.cross_entropy, x, targets, **settings), "loss", "lse")
        if launcher or not p.backward:
            return results
        if p.in_place:
            x = empty(x, (p.rows, p.columns), pad=p.x_pad).copy_(x)
        gradient = {"in_place": p.in_place} | settings
        dx = call_launcher(self.module.cross_entropy_backward, x, targets, results["lse"], tensors["g"], **gradient)
        return results | {"dx": dx}

    def formula(self, case: Case) -> Formula:
        formats = {"loss": "fp32", "lse": "fp32"}
        keywords = {"smoothing": case.problem.smoothing, "ignore_index": case.problem.ignore_index}
        if case.problem.backward and not case.launcher:
            formats |= {"dx": case.problem.dtype}
            return Formula(row_mathematics.cross_entropy_with_gradient, ("x", "targets", "g"), formats, keywords)
        return Formula(row_mathematics.cross_entropy, ("x", "targets"), formats, keywords)

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        if self.has_bound(case, target):
            return self.formula(case).expected(operands, target.arch)
        p, c = case.problem, case.config
        x, targets = widen_to_fp32(operands["x"], target.arch), operands["targets"].codes
        order = RowSum(c.block, c.per_thread, c.num_warps, int(target.arch.removeprefix("sm_")), chain=not sums_by_tree())
        loss, lse = cross_entropy(x, targets, p.smoothing, p.ignore_index, order)
        outputs = [output("loss", loss, "fp32", target.arch), output("lse", lse, "fp32", target.arch)]
        if p.backward and not case.launcher:
            dx = cross_entropy_backward(x, targets, lse, operands["g"].codes.view(np.uint32), p.smoothing, p.ignore_index)
            outputs.append(output("dx", dx, p.dtype, target.arch))
        return outputs


contract = CrossEntropyContract
CONTRACT = contract(bitverdict.kernels.cross_entropy)

"""What `kernels/dropout.py` expects: Philox's integers, an fp32 product and one conversion, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np

import bitverdict.kernels.dropout
from bitverdict.harness.contracts.base.row_contract import DTYPES, RowContract, output, widen_to_fp32
from bitverdict.harness.contracts.base.single_config import Fields, call_launcher, drawn_operand
from bitverdict.harness.contracts.oracle import row_mathematics
from bitverdict.harness.contracts.oracle.row_mathematics import Formula
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import ExpectedOutput
from bitverdict.harness.model.targets import Target
from bitverdict.reference.philox import uniform
from bitverdict.reference.row_functions import dropout

SHARES = (0.5, 0.1, 0.0, 0.9)
KEYS = (0, 1, (1 << 31) + 5, 0x736EBF511D95389B, (1 << 63) - 1, (1 << 64) - 1)  # of 32 bits and of 64, signed and not
SMALL_FIRST_KEY = 0x8D103ED3CC667E97
"""Under it the first element's word has 24 bits, so that its last one is in its number. One more in the last round's key would make
that number less."""
NUMBER_OF_ITS_FIRST = {"p": float(uniform(SMALL_FIRST_KEY, np.zeros((), np.uint64))), "key": SMALL_FIRST_KEY}
"""p is the uniform number of the first element, which stays."""
ENDS = 1352247272, 1836991927
"""Keys under which Philox's first word is 2^32 - 1 and 0: both make the number 0, which stays where p is 0."""


class DropoutContract(RowContract):
    parameters = "(x, key, *, p=0.5, block=1024, num_warps=4)"

    def pool(self, target: Target) -> list[tuple[Fields, Fields]]:
        kinds = zip((*DTYPES, DTYPES[0]), ((1024, 4), (128, 1)) * 2, strict=True)
        return [({"dtype": dtype}, {"block": block, "num_warps": warps}) for dtype, (block, warps) in kinds]

    def draw_rest(self, draw: Callable) -> Fields:
        from hypothesis import strategies as st

        return {
            "x_pad": draw(st.sampled_from((0, 5, 16))),
            "p": draw(st.sampled_from(SHARES) | st.floats(0, 0.999)),
            "key": draw(st.sampled_from(KEYS) | st.integers(0, (1 << 64) - 1)),
            "backward": draw(st.booleans()),
        }

    def rest(self, place: int) -> Fields:
        if place == 0:
            return {"x_pad": 0, "p": 0.0, "key": ENDS[1], "backward": True}
        return {
            "x_pad": (0, 3)[place % 2],
            "p": SHARES[place % len(SHARES)],
            "key": ENDS[place // 4 % 2] if place % 4 == 2 else KEYS[place % len(KEYS)],
            "backward": place % 3 != 2,
        } | (NUMBER_OF_ITS_FIRST if place == 7 else {})

    def refusals(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        sizes = {"rows": 2, "columns": 16}
        yield sizes | {"dtype": "int32"}, {}
        yield sizes | {"p": 1.0}, {}
        yield sizes | {"key": 1 << 64}, {}
        yield sizes, {"block": 48}
        yield sizes, {"num_warps": 32}

    def operands(self, case: Case) -> list[Operand]:
        p = case.problem
        return [drawn_operand(case, name, p.dtype, (p.rows, p.columns), pad=p.x_pad) for name in ("x", "dy")]

    def launch(self, case: Case, tensors: Mapping, launcher: Callable | None) -> Mapping:
        """One pass or both; a user's launcher is asked for the first."""
        p = case.problem
        settings = vars(case.config) | {"p": p.p}
        found = {"y": call_launcher(launcher or self.module.dropout, tensors["x"], p.key, **settings)}
        if p.backward and not launcher:
            found["dx"] = call_launcher(self.module.dropout_backward, tensors["dy"], p.key, **settings)
        return found

    def formula(self, case: Case) -> Formula:
        """Of the forward pass."""
        keywords = {"key": case.problem.key, "p": case.problem.p}
        return Formula(row_mathematics.dropout, ("x",), {"y": case.problem.dtype}, keywords)

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        if case.launcher:
            return self.formula(case).expected(operands, target.arch)
        p = case.problem
        asked = {"y": "x", "dx": "dy"} if p.backward and not case.launcher else {"y": "x"}
        return [
            output(name, dropout(widen_to_fp32(operands[given], target.arch), p.key, p.p), p.dtype, target.arch)
            for name, given in asked.items()
        ]

    def coverage(self, case: Case, target: Target) -> dict[str, str | int]:
        p = case.problem
        kept = "all" if p.p == 0 else "from the number of an element on" if p == replace(p, **NUMBER_OF_ITS_FIRST) else "some"
        return super().coverage(case, target) | {"bits of the key": 64 if p.key >> 31 else 32, "kept": kept}


contract = DropoutContract
CONTRACT = contract(bitverdict.kernels.dropout)

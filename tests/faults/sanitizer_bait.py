"""A launch for sanitizers to fail: a store far past the end of its tensor, past the guard bands of the harness too.

It is addressed as a contract (`ADDRESS`); its required cases are the right launch and the faulty one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import Contract, ExpectedOutput
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Basis

ADDRESS = "tests.faults.sanitizer_bait:CONTRACT"
COUNT = 64
FAR = 3 << 20  # elements: behind the guard band of a GPU's tensor, which is a MiB


@dataclass(frozen=True, kw_only=True)
class Problem:
    past: int = 0  # elements past its place at which the last element is written


@triton.jit
def shifted_copy_kernel(source, out, past, COUNT: tl.constexpr):
    place = tl.arange(0, COUNT)  # (COUNT,)
    values = tl.load(source + place)  # (COUNT,)
    tl.store(out + place + tl.where(place == COUNT - 1, past, 0), values)


class BaitContract(Contract):
    stem, address = "sanitizer_bait", ADDRESS

    def required(self, target: Target) -> list[Case]:
        return [Case(contract=ADDRESS, problem=Problem(past=past)) for past in (0, FAR)]

    def operands(self, case: Case) -> list[Operand]:
        return [Operand(name="source", format="int32", codes=np.arange(1, COUNT + 1, dtype=np.int32))]

    def launch(self, case: Case, tensors: Mapping, launcher: Callable | None) -> Mapping:
        out: Any = torch.empty(COUNT, dtype=torch.int32, device=tensors["source"].device)  # (COUNT,)
        shifted_copy_kernel[(1,)](tensors["source"], out, case.problem.past, COUNT=COUNT)
        return {"out": out}

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        return [ExpectedOutput(name="out", format="int32", shape=(COUNT,), words=operands["source"].codes, basis=Basis.EXACT)]

    def case_from_json(self, record: Mapping) -> Case:
        return Case(contract=ADDRESS, problem=Problem(**record["problem"]))


CONTRACT = BaitContract()

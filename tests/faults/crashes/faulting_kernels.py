"""Launches that fault on a GPU, each by its own kernel and with its own name, and the same launches made benign.

One kernel a kind; what makes it fault is a number at run time. Addressed as a contract (`ADDRESS`).
`late` is the awkward one: its launcher raises while its faulty launch is still under way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import Contract, ExpectedOutput
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Basis, Outcome

ADDRESS = "tests.faults.crashes.faulting_kernels:CONTRACT"
SIDE = 32
COUNT = SIDE * SIDE
FAR = 1 << 40  # bytes: no allocation is that large
KINDS = {
    "illegal instruction": Outcome.ILLEGAL_INSTRUCTION,
    "illegal address": Outcome.ILLEGAL_ADDRESS,
    "misaligned address": Outcome.MISALIGNED_ADDRESS,
    "device assert": Outcome.DEVICE_ASSERT,
    "launch failure": Outcome.LAUNCH_FAILURE,
}
"""Kind -> what a GPU with TMA calls it."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    kind: str
    faulty: bool = False
    late: bool = False  # the launcher raises after its launch, without waiting for it


@triton.jit(do_not_specialize=["column"])
def tiled_copy_kernel(source, out, column, SIDE: tl.constexpr):
    tile = source.load([0, column])  # (SIDE, SIDE)
    place = tl.arange(0, SIDE)[:, None] * SIDE + tl.arange(0, SIDE)[None, :]  # (SIDE, SIDE)
    tl.store(out + place, tile)


@triton.jit(do_not_specialize=["past"])
def shifted_copy_kernel(source, out, past, COUNT: tl.constexpr):
    place = tl.arange(0, COUNT)  # (COUNT,)
    shifted = (source.to(tl.pointer_type(tl.int8)) + past).to(tl.pointer_type(tl.int32))
    tl.store(out + place, tl.load(shifted + place))


@triton.jit(do_not_specialize=["least"], debug=True)
def asserting_copy_kernel(source, out, least, COUNT: tl.constexpr):
    place = tl.arange(0, COUNT)  # (COUNT,)
    values = tl.load(source + place)  # (COUNT,)
    tl.device_assert(values >= least, "a value is too small")
    tl.store(out + place, values)


@triton.jit(do_not_specialize=["trap"])
def trapping_copy_kernel(source, out, trap, COUNT: tl.constexpr):
    place = tl.arange(0, COUNT)  # (COUNT,)
    told = tl.inline_asm_elementwise(
        "{ .reg .pred p; setp.ne.s32 p, $2, 0; @p trap; mov.b32 $0, $1; }",
        "=r,r,r",
        [tl.load(source + place), tl.zeros([COUNT], tl.int32) + trap],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )  # (COUNT,)
    tl.store(out + place, told)


class FaultingContract(Contract):
    """Expects a copy of its operand, whatever it was asked to do."""

    stem, address = "faulting_kernels", ADDRESS

    def required(self, target: Target) -> list[Case]:
        return [case(kind, faulty=faulty) for kind in KINDS for faulty in (False, True)]

    def operands(self, case: Case) -> list[Operand]:
        return [Operand(name="source", format="int32", codes=np.arange(1, COUNT + 1, dtype=np.int32).reshape(SIDE, SIDE))]

    def launch(self, case: Case, tensors: Mapping, launcher: Callable | None) -> Mapping:
        source, faulty = tensors["source"], case.problem.faulty
        out: Any = torch.empty((SIDE, SIDE), dtype=torch.int32, device=source.device)  # (SIDE, SIDE)
        if case.problem.kind == "illegal instruction":  # TMA takes columns of whole 16 bytes only
            tiled_copy_kernel[(1,)](TensorDescriptor.from_tensor(source, [SIDE, SIDE]), out, 2 if faulty else 0, SIDE=SIDE)
        elif case.problem.kind == "device assert":
            asserting_copy_kernel[(1,)](source, out, 2 if faulty else 1, COUNT=COUNT)
        elif case.problem.kind == "launch failure":
            trapping_copy_kernel[(1,)](source, out, int(faulty), COUNT=COUNT)
        else:
            past = (2 if case.problem.kind == "misaligned address" else FAR) if faulty else 0
            shifted_copy_kernel[(1,)](source, out, past, COUNT=COUNT)
        if case.problem.late:
            raise KeyError("the launcher's own bug")
        return {"out": out}

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        return [ExpectedOutput(name="out", format="int32", shape=(SIDE, SIDE), words=operands["source"].codes, basis=Basis.EXACT)]

    def case_from_json(self, record: Mapping) -> Case:
        return Case(contract=ADDRESS, problem=Problem(**record["problem"]), data_seed=record["data_seed"])


CONTRACT = FaultingContract()


def case(kind: str, *, faulty: bool = False, late: bool = False, data_seed: int = 0) -> Case:
    return Case(contract=ADDRESS, problem=Problem(kind=kind, faulty=faulty, late=late), data_seed=data_seed)

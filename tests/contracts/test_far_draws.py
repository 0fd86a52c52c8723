"""Contract under test: `strides="far"` reaches offsets beyond 32 bits; a kernel that computes them in 32 bits fails."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from bitverdict.harness.contracts.described.contract import DescribedContract, Description
from bitverdict.harness.contracts.described.draw import Draw
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Decision, Outcome

SM_90 = target("emulated:sm_90")


@triton.jit
def scale_kernel(x, y, n, x_stride, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    row = tl.program_id(0)
    place = row.to(tl.int64) * x_stride if WIDE else row * x_stride
    column = tl.arange(0, BLOCK)  # (BLOCK,)
    values = tl.load(x + place + column, mask=column < n)  # (BLOCK,)
    tl.store(y + row * n + column, values * 2, mask=column < n)


def contract(wide: bool) -> Any:
    def body(draw: Draw) -> Any:
        x = draw.tensor("fp16", (draw.size(1, 9), draw.size(1, 70)), strides="far")
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)  # (m, n)
        scale_kernel[(x.shape[0],)](x, y, x.shape[1], x.stride(0), triton.next_power_of_2(x.shape[1]), wide)
        return y

    made = Description(body=body, reference=lambda xp, x: x * 2)
    return DescribedContract(made, lambda: ("somewhere.py:NAME", ("/folder",)))


@pytest.mark.parametrize("wide", [True, False])
def test_a_kernel_of_32_bit_offsets_fails_on_far_rows(wide: bool) -> None:
    asked = contract(wide)
    far = [case for case in asked.required(SM_90) if case.problem.draws[-1].value == "far"]
    verdict = judge(far[0], SM_90, asked)
    assert verdict.decision is (Decision.PASS if wide else Decision.FAIL)
    assert wide or verdict.outcome is Outcome.ILLEGAL_ADDRESS


SHAPES = (((7, 5), 0), ((2, 4, 5), 1), ((5, 9, 6), 0), ((3, 5), None), ((9,), None), ((40, 40, 5), None))


@pytest.mark.parametrize(("dtype", "itemsize"), [("e4m3", 1), ("bf16", 2), ("fp32", 4)])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_a_far_axis_leaves_32_bits_and_its_stride_does_not(shape: tuple, axis: int | None, dtype: str, itemsize: int) -> None:
    body = lambda draw: draw.tensor(dtype, shape, strides="far")
    drawn = DescribedContract(Description(body=body, reference=lambda xp, x: x), lambda: ("", ())).required(SM_90)
    far = [entry for case in drawn for entry in case.problem.draws if entry.value == "far"]
    assert bool(far) == (axis is not None)
    for entry in far:
        half = max((shape[axis] + 1) // 2, 3) * entry.strides[axis]
        assert entry.strides[axis] < 1 << 31 <= half and half * itemsize >= 1 << 32 and entry.strides[-1] == 1

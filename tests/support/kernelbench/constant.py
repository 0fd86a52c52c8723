"""Candidates that write one number into every element of a right shape: what a tolerance lets pass, and a bound must not.

`text(problem, number)` is the file of a candidate. `number` is "zero", or "mean": the mean of what `Model` gives for other inputs
of the same sizes (their squares), computed by torch: that of the same inputs is the right output of a loss. A Triton kernel writes
it, so that a launch is seen and every word is written.
"""

from __future__ import annotations

NUMBERS = ("zero", "mean")

_CANDIDATE = """

import triton
import triton.language as tl


@triton.jit
def fill_kernel(y_ptr, number_ptr, size, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    number = tl.load(number_ptr)
    tl.store(y_ptr + places, number + tl.zeros([BLOCK], number.dtype), mask=places < size)


class ModelNew(Model):
    def forward(self, *inputs):
        right = super().forward(*inputs)
        others = [each * each if each.is_floating_point() else each for each in inputs]
        number = {number}
        y = torch.empty(right.shape, dtype=right.dtype, device=right.device)
        fill_kernel[(triton.cdiv(y.numel(), 128),)](y, number, y.numel(), BLOCK=128)
        return y
"""
_WHOLE = {
    "zero": "torch.zeros((), dtype=right.dtype, device=right.device)",
    "mean": "super().forward(*others).double().mean().to(right.dtype)",
}


def text(problem: str, number: str) -> str:
    """The text of the constant candidate for the problem with the text `problem`."""
    return problem + _CANDIDATE.replace("{number}", _WHOLE[number])

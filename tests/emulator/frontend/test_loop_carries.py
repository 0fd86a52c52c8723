"""Triton 3.9.0's front end leaves out a loop-carried value that had another name's handle before the loop.

It finds what a loop carries by visiting the body once with the values from before the loop, and compares each name's handle before
and after (`CodeGenerator._find_carries`). Where two names have one handle, an assignment between them leaves the handle as it
was, and the value is not carried. The tile program then computes something else than the source says. The emulated GPU executes it,
so the words are those of the release; a contract whose reference does not come from Triton fails such a kernel.
docs/emulator.md tells of it. With a release that mends it `WRONG` goes.
"""

import pytest
import torch
import triton
import triton.language as tl

from bitverdict.harness.emulator import emulated


@triton.jit
def fibonacci_of_one_name(out, steps, first):
    before = first
    last = before  # the same value under two names
    for _ in range(steps):
        sum_of_both = before + last
        before = last
        last = sum_of_both
    tl.store(out, before)
    tl.store(out + 1, last)


@triton.jit
def fibonacci_of_two_loads(out, steps, first):
    before = tl.load(out + 2)
    last = tl.load(out + 3)
    for _ in range(steps):
        sum_of_both = before + last
        before = last
        last = sum_of_both
    tl.store(out, before)
    tl.store(out + 1, last)


@triton.jit
def conditional_exchange(out, steps, first):
    before = first
    last = before
    for step in range(steps):
        if step % 2:
            before = last
            last = last + 10
    tl.store(out, before)
    tl.store(out + 1, last)


def written(kernel, steps: int, first: int) -> tuple[int, int]:
    out = torch.tensor([0, 0, first, first], dtype=torch.int32)
    with emulated("sm_90"):
        kernel[(1,)](out, steps, first)
    return tuple(out[:2].tolist())


SAID = {fibonacci_of_one_name: (25, 40), fibonacci_of_two_loads: (25, 40), conditional_exchange: (15, 25)}
WRONG = {fibonacci_of_one_name: (5, 25), conditional_exchange: (5, 25)}
"""With 4 steps from 5: what the source says, and what the tile program of Triton 3.9.0 writes instead."""


@pytest.mark.parametrize("kernel", SAID, ids=lambda kernel: kernel.fn.__name__)
def test_an_alias_before_a_loop_is_carried_as_the_release_does(kernel) -> None:
    assert written(kernel, 4, 5) == WRONG.get(kernel, SAID[kernel])

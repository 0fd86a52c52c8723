"""Contract under test: a trace of a launch has the kernel's variables after each line, in each program."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import bitverdict as bv


@triton.jit
def halves_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + at, mask=at < n, other=0.0)
    total = tl.zeros((BLOCK,), tl.float32)
    for _step in range(3):
        total += a.to(tl.float32)
    tl.store(y + at, total, mask=at < n)


@pytest.fixture(scope="module")
def traced() -> tuple:
    with bv.emulated("sm_90") as gpu:
        x = torch.arange(40, dtype=torch.float32).to(torch.bfloat16).cuda()
        y = torch.empty(40, dtype=torch.float32, device="cuda")
        found = bv.trace(halves_kernel[(2,)], x, y, 40, BLOCK=32)
        halves_kernel[(2,)](x, y, 40, BLOCK=32)
        return found, y.cpu().numpy(), len(found.tiles), gpu.options.edited_programs


def test_a_tile_is_that_of_its_program_in_its_format(traced: tuple) -> None:
    found, y, kept, edited = traced
    assert found.tile("a", program=1).tolist() == [*range(32, 40), *[0.0] * 24], "bf16 by value, not by code"
    assert found.tile("a").tolist() == list(range(32))
    assert np.array_equal(y, 3 * np.arange(40)), "the launch itself is as ever"
    assert edited is None and kept == len(found.tiles), "later launches are not traced"


def test_a_variable_of_a_loop_has_its_last_value_and_each_before(traced: tuple) -> None:
    found = traced[0]
    assert found.tile("total").tolist() == [3.0 * i for i in range(32)]
    sums = [each.value[1] for each in found.tiles if each.program == 0 and each.name == "total" and each.value.shape == (32,)]
    assert sums[-1] == 3.0 and 1.0 in sums
    line = next(each.line for each in found.tiles if each.name == "a")
    assert found.tile("a", line=line) is not None
    with pytest.raises(ValueError, match=r"trace of 'b' in program 0: no such value; there are .*a \(line"):
        found.tile("b")
    with pytest.raises(ValueError, match="of no such program"):
        found.tile("a", program=2)


def test_a_notebook_shows_lines_and_values(traced: tuple) -> None:
    shown = traced[0]._repr_html_()
    assert "total += a.to(tl.float32)" in shown and "mask=at &lt; n" in shown and "0 1 2 3 4 5 6 7 ..." in shown


def test_outside_of_an_emulated_gpu_it_says_what_to_write() -> None:
    with pytest.raises(ValueError, match=r"write it inside of `with bv\.emulated"):
        bv.trace(halves_kernel[(1,)])

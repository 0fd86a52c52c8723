"""Contract under test: what a program implements an operator of torch's by for CUDA computes it on the emulated GPU."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from bitverdict.harness.emulator import emulated

pytestmark = pytest.mark.compiles


@triton.jit
def negative_kernel(x, out, N: tl.constexpr):
    places = tl.arange(0, N)
    tl.store(out + places, -tl.load(x + places))


def negative(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    negative_kernel[(1,)](x, out, x.numel())
    return out


def test_functions_of_a_library_take_the_place_of_torchs_until_it_goes() -> None:
    with emulated("sm_90") as device:
        x = torch.tensor([1.0, -2.0], device="cuda", requires_grad=True)
        library = torch.library.Library("aten", "IMPL")
        library.impl("abs", negative, "CUDA")  # wrong, to be told apart from torch's own
        library.impl("add.Tensor", lambda x, y, *, alpha=1: negative(x), "CUDA")
        assert torch.abs(x).tolist() == [-1.0, 2.0] and (x + x).tolist() == [-1.0, 2.0] and len(device.launches) == 2
        x.abs().sum().backward()
        assert x.grad is not None and x.grad.tolist() == [1.0, -1.0]  # torch's own derivative
        assert torch.tensor([-1.0]).abs().item() == 1
        library._destroy()
        assert torch.abs(x).tolist() == [1.0, 2.0] and len(device.launches) == 3
        own = torch.library.Library("bitverdict_theirs", "FRAGMENT")
        own.define("negative(Tensor x) -> Tensor")
        own.impl("negative", negative, "CUDA")
        assert torch.ops.bitverdict_theirs.negative(x.detach()).tolist() == [-1.0, 2.0] and len(device.launches) == 4


def test_functions_of_a_library_allocate() -> None:
    """In the place of `zeros`, `full_like` and `arange` with a start, on the GPU alone, until the library goes."""
    with emulated("sm_90") as device:
        x = torch.ones(2, device="cuda")
        library = torch.library.Library("aten", "IMPL")
        library.impl("zeros", lambda size, **named: negative(torch.ones(size, device=named["device"])), "CUDA")
        library.impl("full_like", lambda like, value, **_: negative(like), "CUDA")
        library.impl("arange.start", lambda start, end, **_: negative(x), "CUDA")
        made = torch.zeros(2, device="cuda"), torch.full_like(x, 3.0), torch.arange(0, 2, device="cuda")
        assert [each.tolist() for each in made] == [[-1.0, -1.0]] * 3 and len(device.launches) == 3
        assert torch.zeros(2).tolist() == [0.0, 0.0] and torch.arange(2, device="cuda").tolist() == [0, 1]
        library._destroy()
        assert torch.zeros(2, device="cuda").tolist() == [0.0, 0.0] and len(device.launches) == 3


def test_functions_of_a_library_stand_for_operators_made_of_others() -> None:
    """`isclose` and `where` of a number are made of others: torch's dispatcher hands them to no tensor."""
    with emulated("sm_90") as device:
        x = torch.tensor([1.0, -2.0], device="cuda", requires_grad=True)
        library = torch.library.Library("aten", "IMPL")
        library.impl("isclose", lambda x, y, rtol, atol, equal_nan=False: negative(x), "CUDA")
        library.impl("where.ScalarSelf", lambda condition, number, x: negative(x), "CUDA")
        assert torch.isclose(x, x, 0.0, 0.0, equal_nan=True).tolist() == x.isclose(x, 0.0, 0.0).tolist() == [-1.0, 2.0]
        assert torch.where(x > 0, 5.0, x).tolist() == [-1.0, 2.0] and len(device.launches) == 3
        assert torch.where(x > 0, x, 5.0).tolist() == [1.0, 5.0], "another overload is torch's own"
        assert torch.isclose(torch.ones(1), torch.ones(1)).item() is True, "and so is any on the CPU"
        library.impl("pad", lambda x, pad, mode="constant", value=None: negative(x) if pad == [1, 0] else x, "CUDA")
        sides = [torch.tensor(1), torch.tensor(0)]  # which the dispatcher makes numbers
        assert torch.nn.functional.pad(x, sides, mode="reflect").tolist() == [-1.0, 2.0] and len(device.launches) == 4
        library._destroy()
        assert torch.isclose(x, x).tolist() == [True, True] and len(device.launches) == 4

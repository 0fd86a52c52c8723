"""Kernels that some layer of the compiler refuses, each with a mark on the line that is wrong, and a launcher of each."""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@triton.jit
def innermost(x):
    y = x + 1
    return y.nosuch  # nested


@triton.jit
def between(x):
    return innermost(x)


@triton.jit
def nested(a, c, N: tl.constexpr):
    places = tl.arange(0, N)  # (N,)
    tl.store(c + places, between(tl.load(a + places)))


@triton.jit
def shape(a, c, N: tl.constexpr):
    places = tl.arange(0, N)  # (N,)
    tl.store(c + places, tl.load(a + places) + tl.arange(0, 2 * N))  # shape


@triton.jit
def asserted(a, c, N: tl.constexpr):
    places = tl.arange(0, N)  # (N,)
    tl.static_assert(N == 7, "N must be 7")  # asserted
    tl.store(c + places, tl.load(a + places))


@triton.jit
def unnamed(a, c, N: tl.constexpr):
    places = tl.arange(0, N)  # (N,)
    tl.store(c + places, no_such_name)  # unnamed  # noqa: F821


@tl.core.builtin
def integers(x, _semantic=None):
    assert x.dtype.is_int()
    return x


@triton.jit
def silent(a, c, N: tl.constexpr):
    places = tl.arange(0, N)  # (N,)
    tl.store(c + places, integers(tl.load(a + places)))  # silent


@gluon.jit
def layouts(a, c, N: gl.constexpr):
    ONE: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    TWO: gl.constexpr = gl.BlockedLayout([2], [32], [4], [0])
    gl.store(c + gl.arange(0, N, layout=ONE), gl.load(a + gl.arange(0, N, layout=TWO)))  # layouts


@gluon.jit
def warps(a, c, N: gl.constexpr):
    EIGHT: gl.constexpr = gl.BlockedLayout([1], [32], [8], [0])  # of a kernel that has four
    places = gl.arange(0, N, layout=EIGHT)  # warps
    gl.store(c + places, gl.load(a + places))


@triton.jit
def taken(a, c, N: tl.constexpr):
    places = tl.arange(0, N)  # (N,)
    tl.store(c + places, tl.load(a + places))


KERNELS = {kernel.fn.__name__: kernel for kernel in (nested, shape, asserted, unnamed, silent, layouts, warps, taken)}


def launcher_of(kernel) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    def launch(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        c = torch.empty(64, device=a.device)  # (64,)
        kernel[(1,)](a, c, N=64)
        return c

    return launch


globals().update({f"launch_{name}": launcher_of(kernel) for name, kernel in KERNELS.items()})

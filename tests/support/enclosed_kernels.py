"""Kernels whose sums are open, and what their two choices give."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from bitverdict.harness.emulator import device as emulated_device
from bitverdict.harness.emulator import emulated
from bitverdict.harness.emulator.frontend.contraction import Contraction, Fate
from bitverdict.harness.emulator.numerics.enclosures import keys

N = 64


@pytest.fixture(autouse=True)
def open_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled program leaves each choice of a sum open, in every test of a file that imports this."""
    monkeypatch.setattr(Contraction, "fate", lambda self, line: Fate())
    monkeypatch.setattr(Contraction, "registers", {})
    monkeypatch.setattr(emulated_device, "_translations", {})
    monkeypatch.setenv("BITVERDICT_TRANSLATIONS", "off")


@triton.jit
def summed(x, y, z, out, KIND: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b, c = tl.load(x + at), tl.load(y + at), tl.load(z + at)
    s = a * b + tl.where(a > 100, b * b, c)
    if KIND == "sum":
        tl.store(out + at, s)
    elif KIND == "scaled":
        tl.store(out + at, (tl.maximum(-s, 0.25) - c) * c)
    elif KIND == "rows":
        tl.store(out + tl.arange(0, 8), tl.sum(tl.reshape(s, [8, N // 8]), 1))
    elif KIND == "exp":
        tl.store(out + at, tl.exp(s))
    elif KIND == "sine":
        tl.store(out + at, tl.sin(s))
    elif KIND == "compared":
        tl.store(out + at, tl.where(s > 0.0, a, b))
    elif KIND == "equal":
        tl.store(out + at, tl.where(s == tl.load(out + at), a, b))
    elif KIND == "above":
        tl.store(out + at, tl.where(s > tl.load(out + at), a, b))
    elif KIND == "masked":
        tl.store(out + at, a, mask=s > tl.load(out + at))
    elif KIND == "address":
        tl.store(out + tl.where(s > tl.load(out + at), at, 0), a)
    elif KIND == "branch":
        if tl.sum(tl.where(s > tl.load(out + at), 1, 0)) > 32:
            tl.store(out + at, a)
    elif KIND == "count":
        tl.store(out + at, (tl.sum(tl.where(s > tl.load(out + at), 1, 0)) * 3 - 7).to(tl.float32) + tl.zeros((N,), tl.float32))
    elif KIND == "bits":
        tl.store(out + at, s.to(tl.int32, bitcast=True).to(tl.float32))


@triton.jit
def several(x, y, z, out, KIND: tl.constexpr, N: tl.constexpr):
    """A row of open sums a program, and what `KIND` makes of them."""
    row, at = tl.program_id(0), tl.arange(0, N)
    places = row * N + at
    a, b, c = tl.load(x + places), tl.load(y + at), tl.load(z + places)
    s = a * b + c
    shared = b * b + tl.load(z + at)  # the same for all programs
    tile = tl.reshape(s, [8, N // 8])
    if KIND == "sum":
        s = tl.maximum(-s, 0.25) * shared
    elif KIND == "function":
        s = tl.exp(s) / (tl.abs(shared) + 1) + tl.sqrt(tl.abs(s)) + tl.sin(s)
    elif KIND == "chosen":
        s = tl.where(s > shared, a, tl.where(s == c, s, b * b - s * s))
    elif KIND == "counted":
        s = c + tl.sum(tl.where(s > 0, 1, 0)) * 3 + (s * 9).to(tl.int32)
    elif KIND == "reduced":
        s = c + tl.sum(s) + tl.max(s) - tl.sum(shared)
    elif KIND == "extreme":
        s = c + tl.sum(tl.broadcast_to(tl.argmax(tile, 1)[:, None], [8, N // 8]))
    elif KIND == "combined":
        _, s = tl.associative_scan((a, s), 0, carried)
    elif KIND == "scanned":
        s = tl.cumsum(s)
    elif KIND == "shaped":
        low, high = tl.split(tl.reshape(tl.trans(tl.reshape(tile, [N // 8, 8])), [N // 2, 2]))
        s = tl.reshape(tl.join(high, low), [N]) + tl.max(tile)
    elif KIND == "carried":
        for i in range(3):
            s = s * 0.5 + a * tl.load(y + i)
    elif KIND == "branched":
        if tl.sum(a) > -1000:
            s = s + row
    elif KIND == "in place" or KIND == "parted in place":
        s = tl.load(out + places) * 2
    elif KIND == "parted":
        if row % 2 == 0:
            s = s * b
    elif KIND == "emptied":  # no open word is left where the programs part
        s = tl.load(out + places) * 2
        tl.store(out + places, a)
        if row % 2 == 0:
            s = s * b
        places += tl.num_programs(0) * N
    elif KIND == "parted behind":
        tl.store(out + places, s, mask=at < 8)
    elif KIND == "half":
        s = s + s.to(tl.float16).to(tl.float32) + tl.floor(s)
    elif KIND == "masked":
        tl.store(out + places, a, mask=s > 0)
    elif KIND == "bits":
        s = s.to(tl.int32, bitcast=True).to(tl.float32)
    elif KIND == "address":
        s = tl.load(z + tl.floor(tl.clamp(s, -4.0, 4.0)).to(tl.int32) + 4)
    elif KIND == "again":
        tl.store(out + places, tl.load(out + places) * 2)
        s = tl.load(out + places) + 1
    if KIND == "parted behind" or KIND == "parted in place":
        if row % 2 == 0:
            s = s * b
        tl.store(out + places, s, mask=at >= 8)
    else:
        tl.store(out + places, s)


@triton.jit
def carried(a, b, c, d):
    return a * c, b * c + d


@triton.jit
def decided(x, y, z, scale, out, KIND: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    a = tl.load(scale + at)
    s = tl.load(x + at) * tl.load(y + at) + tl.load(z + at)
    if KIND == "int8" or KIND == "int32":
        tl.store(out + at, (s * a).to(out.dtype.element_ty))
    elif KIND == "uint8":
        tl.store(out + at, tl.abs(s * a).to(tl.uint8))
    elif KIND == "largest" or KIND == "smallest":
        rows = tl.reshape(s, [N // 8, 8])
        which = tl.argmax(rows, 1) if KIND == "largest" else tl.argmin(rows, 1)
        tl.store(out + tl.arange(0, N // 8), which * 2 + 1)


@triton.jit
def integers(x, y, z, scale, term, out, KIND: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    number = ((tl.load(x + at) * tl.load(y + at) + tl.load(z + at)) * tl.load(scale + at)).to(tl.int32)
    other = tl.load(term + at)
    if KIND == "plus":
        tl.store(out + at, number + other)
    elif KIND == "minus":
        tl.store(out + at, other - number)
    elif KIND == "times":
        tl.store(out + at, number * other)
    elif KIND == "total":
        tl.store(out, tl.sum(number + other))
    elif KIND == "gathered":
        tl.store(out + at, tl.load(term + number, mask=at > 7, other=-7))
    elif KIND == "one of all":
        tl.store(out, tl.load(term + tl.sum(tl.where(at == tl.load(out), number, 0))))
    elif KIND == "its own":
        tl.store(out + at, tl.load(out + number % 8))


@triton.jit
def functions(x, y, z, scale, out, KIND: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    a = tl.load(scale + at)
    s = tl.load(x + at) * tl.load(y + at) + tl.load(z + at)
    if KIND == "exp":
        s = tl.exp(s)
    elif KIND == "exp2":
        s = tl.exp2(s)
    elif KIND == "log":
        s = tl.log(s)
    elif KIND == "sqrt":
        s = tl.sqrt(s)
    elif KIND == "rsqrt":
        s = tl.rsqrt(s)
    elif KIND == "over":
        s = a / s
    elif KIND == "under":
        s = s / a
    elif KIND == "third":
        s = s / 3.0
    elif KIND == "square":
        s = (s + 1e-9) * (s + 1e-9)
    elif KIND == "size":
        s = tl.abs(s + 1e-9)
    elif KIND == "times":
        s = s * (a / 0.0)
    tl.store(out + at, s)


@triton.jit
def convolved(x, w, out, TAPS: tl.constexpr, N: tl.constexpr):
    """A causal convolution, and SiLU of it."""
    at = tl.arange(0, N)
    s = tl.zeros([N], tl.float32)
    for k in tl.static_range(TAPS):
        s += tl.load(x + at - k, mask=at >= k, other=0.0).to(tl.float32) * tl.load(w + k).to(tl.float32)
    tl.store(out + at, s * tl.sigmoid(s))


@triton.jit
def copied(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at) * 2.0)


@triton.jit
def converted(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, (tl.load(x + at).to(tl.int32) * 2).to(tl.float32))


@triton.jit
def added(x, N: tl.constexpr):
    tl.atomic_add(x + tl.arange(0, N), 1.0)


@triton.jit
def counted(x):
    tl.atomic_add(x, 1.0)  # of one word: its mask is one truth


@triton.jit
def exchanged(x, N: tl.constexpr):
    tl.atomic_xchg(x + tl.arange(0, N), 1.0)


@triton.jit
def swapped(x):
    tl.atomic_cas(x, 0, 1)


@triton.jit
def accumulated(x, y, z, total, old, SCALE: tl.constexpr, N: tl.constexpr):
    """Pairs of neighbours add to one word, but for the last pair."""
    at = tl.arange(0, N)
    s = tl.load(x + at) * tl.load(y + at) + tl.load(z + at)
    tl.store(old + at, tl.atomic_add(total + at // 2, (s * SCALE).to(total.dtype.element_ty), mask=at < N - 2))
    tl.atomic_add(total + N // 2, tl.sum(s, 0).to(total.dtype.element_ty))


def operands() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    x, y, z = (torch.randn(N, generator=generator) for _ in range(3))
    return x, y, z


def choices() -> tuple[np.ndarray, np.ndarray]:
    """The sum with the product rounded, and with it as it is."""
    x, y, z = (each.numpy() for each in operands())
    return x * y + z, (x.astype(np.float64) * y + z).astype(np.float32)


def launched(kind: str, count: int = N) -> tuple[torch.Tensor, np.ndarray, np.ndarray]:
    """The result, and the keys of the ends of its words."""
    out = torch.zeros(count)
    with emulated("sm_90") as device:
        summed[(1,)](*operands(), out, KIND=kind, N=N, num_warps=1)
        low, high = device.enclosure(out)
    return out, keys(low), keys(high)


def holds(low: np.ndarray, high: np.ndarray, words: np.ndarray) -> bool:
    return bool(((low <= keys(words)) & (keys(words) <= high)).all())

"""Contract under test: words that a kernel passes on, or restores, keep the origin of what they were made of, and no others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from bitverdict.harness.emulator import EmulatedFault, LaunchOptions, emulated
from bitverdict.harness.emulator.restored_words import _affine

N = 48
Launcher = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@triton.jit(do_not_specialize=["n", "low"], do_not_specialize_on_alignment=["x", "index", "scale", "more", "out"])
def gathered_kernel(x, index, scale, more, out, n, low, BLOCK: tl.constexpr):
    """out[i] = max(x[index[i]] * scale[i] + more[i], low)"""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + tl.load(index + at, mask=at < n, other=0), mask=at < n) * tl.load(scale + at, mask=at < n)
    tl.store(out + at, tl.maximum(value + tl.load(more + at, mask=at < n), low), mask=at < n)


def launched(x, index, scale=None, more=None, low=float("-inf"), dtype=torch.float32) -> torch.Tensor:
    """The kernel's; an index is none where it is a number, scales are 1 and there is nothing more where none is given."""
    out = torch.empty(N, dtype=dtype, device="cuda")
    index = torch.arange(index, index + N, device="cuda") if isinstance(index, int) else index
    scale = torch.ones(N, device="cuda") if scale is None else scale
    gathered_kernel[(2,)](x, index, scale, torch.zeros(N, device="cuda") if more is None else more, out, N, low, BLOCK=32)
    return out


@triton.jit(do_not_specialize=["number"])
def word_kernel(x, out, number, ONLY: tl.constexpr):
    """What the host says, and a load that comes to nothing; or what is loaded, where the host allows it."""
    if ONLY:
        tl.store(out, number.to(tl.float32) + 0.0 * tl.load(x))
    else:
        tl.store(out, number.to(tl.float32) + tl.load(x))


@triton.jit(do_not_specialize=["key"])
def locked_kernel(x, words, out, n, key, BLOCK: tl.constexpr):
    """Twice the words; their address is one of memory's only where the first word of x is the one that the host names."""
    at = tl.arange(0, BLOCK)
    far = (tl.load(x).to(tl.int32, bitcast=True) != key).to(tl.int64) << 40
    tl.store(out + at, 2 * tl.load(words + at + far, mask=at < n), mask=at < n)


@triton.jit
def cast_kernel(words, out, n, BLOCK: tl.constexpr):
    """Twice the words, by pointers that are cast in the kernel."""
    at = tl.arange(0, BLOCK)
    found = tl.load(words.to(tl.pointer_type(tl.float32), bitcast=True) + at, mask=at < n)
    tl.store(out.to(tl.pointer_type(tl.float32), bitcast=True) + at, 2 * found, mask=at < n)


@triton.jit
def bits_kernel(words, out, n, BLOCK: tl.constexpr):
    """Twice the words, which it loads and stores as integers."""
    at = tl.arange(0, BLOCK)
    found = tl.load(words + at, mask=at < n).to(tl.float32, bitcast=True)
    tl.store(out + at, (2 * found).to(tl.int32, bitcast=True), mask=at < n)


def as_bits(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty(N, dtype=torch.float32, device="cuda")
    bits_kernel[(1,)]((x * y).view(torch.int32), out.view(torch.int32), N, BLOCK=64)
    return out


def viewed(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The words of x in memory that was allocated as another type."""
    held = torch.empty(4 * N // dtype.itemsize, dtype=dtype, device="cuda")
    held = torch.view_as_real(held).reshape(-1) if dtype.is_complex else held.view(torch.float32)
    return held.copy_(x)


def by_integers(x: torch.Tensor, y: torch.Tensor, only: bool) -> torch.Tensor:
    out = torch.empty(N, dtype=torch.float32, device="cuda")
    for place, word in enumerate((x * y).tolist()):
        word_kernel[(1,)](x[place:], out[place:], int(1000 * word) | 1, ONLY=only)
    return out


def locked(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty(N, dtype=torch.float32, device="cuda")
    locked_kernel[(1,)](x, x * y, out, N, x.view(torch.int32)[0].item(), BLOCK=64)
    return out


def cast(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty(4 * N, dtype=torch.uint8, device="cuda")
    cast_kernel[(1,)](viewed(x * y, torch.uint8).view(torch.uint8), out, N, BLOCK=64)
    return out.view(torch.float32)


def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x.view(8, 6) @ y.view(6, 8))[:6].reshape(-1)  # (N,)


def looked_up(words: torch.Tensor, ones: torch.Tensor) -> torch.Tensor:
    table, place = torch.unique(words, return_inverse=True)  # (words,), (N,)
    return launched(table, place, ones)


HONEST: dict[str, Launcher] = {
    "indices by a sort": lambda x, y, i: launched(x, torch.argsort(y)),
    "weights permuted by torch": lambda x, y, i: launched(x[torch.argsort(i)], 0),
    "an operand padded by torch": lambda x, y, i: launched(torch.nn.functional.pad(x, (4, 4)), 4),
    "scales of the operand": lambda x, y, i: launched(x, 0, (1 / x.abs().amax()).expand(N).contiguous()),
    "tables of cosines": lambda x, y, i: launched(x, 0, torch.cos(torch.arange(N, device="cuda") / 7)),
    "a mask of the data": lambda x, y, i: launched(x, 0, (y > 0).float()),
    "constants looked up by an operand": lambda x, y, i: launched(torch.arange(1.0, N + 1, device="cuda"), i),
    "random numbers": lambda x, y, i: launched(x, 0, (torch.rand(N, device="cuda") > 0.5).float()),
    "torch's product added": lambda x, y, i: launched(x, 0, None, product(x, y)),
    "what is above 0 of torch's product": lambda x, y, i: launched(product(x, y), 0, None, None, 0.0),
    "two factors of torch's": lambda x, y, i: launched(x / 3, 0, y / 5),
    "the result of an earlier kernel": lambda x, y, i: launched(launched(x, 0, y).flip(0).clone(), 0).flip(0),
    "indices that the host made": lambda x, y, i: launched(x, torch.tensor(i.tolist(), device="cuda")),
    "a sum with what the host chose": lambda x, y, i: by_integers(x, y, only=False),
    "operands in memory of bytes": lambda x, y, i: launched(viewed(x, torch.uint8), 0, viewed(y, torch.complex64)),
}
PASSED: dict[str, tuple[Launcher, str]] = {
    "copied": (lambda x, y, i: launched(x * y, 0), "torch mul"),
    "picked": (lambda x, y, i: launched(x * y, i), "torch mul"),
    "looked up": (lambda x, y, i: looked_up(x * y, torch.ones(N, device="cuda")), "torch _unique2"),
    "looked up in a table of all": (
        lambda x, y, i: launched(torch.arange(1.0, 200.0, device="cuda"), (x * y).round().to(torch.int64) + 99),
        "torch arange",
    ),
    "doubled": (lambda x, y, i: launched((x * y) / 2, 0, torch.ones(N, device="cuda") * 2), "torch div"),
    "shifted": (lambda x, y, i: launched(x * y + 3, 0, None, torch.full((N,), -3.0, device="cuda")), "torch add"),
    "rounded on the way": (lambda x, y, i: launched(x * y, 0, dtype=torch.float16), "torch mul"),
    "by another kernel": (lambda x, y, i: launched(launched(x * y, 0).clone(), 0), "torch mul"),
    "out of bytes": (lambda x, y, i: launched(viewed(x * y, torch.uint8), 0), "torch mul"),
    "out of complex numbers": (lambda x, y, i: launched(viewed(x * y, torch.complex64), 0), "torch mul"),
    "out of integers": (
        lambda x, y, i: launched(viewed((x * y) / 2, torch.int64), 0, torch.ones(N, device="cuda") * 2),
        "torch div",
    ),
    "by pointers of another type": (lambda x, y, i: cast(x, y), "torch mul"),
    "as bits": (lambda x, y, i: as_bits(x, y), "torch mul"),
    "by integers": (
        lambda x, y, i: by_integers(x, y, only=True),
        "the host choices of word_kernel's launch, after a read by the host",
    ),
    "under a lock": (
        lambda x, y, i: locked(x, y),
        "the host what locked_kernel was given, and no other words (illegal address on others)",
    ),
    "added to nothing of an operand": (lambda x, y, i: launched(x, 0, torch.zeros(N, device="cuda"), x * y), "torch mul"),
}


def origins(launcher: Launcher) -> tuple[set[str], int]:
    """The origins of what `launcher` returns, without lines, and how many launches the device keeps."""
    drawn = torch.Generator().manual_seed(7)
    with emulated("sm_90", options=LaunchOptions(provenance=True, takes_cpu_tensors=False)) as device:
        x, y = (device.place(torch.randn(N, generator=drawn)) for _ in range(2))
        found = device.provenance(launcher(x, y, device.place(torch.randperm(N, generator=drawn))))
        assert found is not None and not device.findings
        return {f"{each.kind} {each.maker}".strip() for each in found.counts()}, len(device.launches)


@pytest.mark.parametrize("name", HONEST)
def test_what_a_kernel_computes_is_its_own(name: str) -> None:
    assert origins(HONEST[name])[0] == {"a kernel's store"}


@pytest.mark.parametrize("name", PASSED)
def test_what_a_kernel_passes_on_or_restores_is_not(name: str) -> None:
    launcher, by = PASSED[name]
    assert origins(launcher) == ({by}, {"by another kernel": 2, "by integers": N}.get(name, 1))


def test_memory_is_as_the_launch_left_it() -> None:
    """The operands too, whatever the repeated launches were given; and what they fault with is no finding."""
    with emulated("sm_90", options=LaunchOptions(provenance=True, takes_cpu_tensors=False)) as device:
        x = device.place(torch.arange(float(N)))
        doubled, index = x * 2, torch.argsort(x.flip(0))
        out = launched(doubled, index)
        assert out.tolist() == [2.0 * (N - 1 - n) for n in range(N)] and x.tolist() == list(range(N))
        assert doubled.tolist() == [2.0 * n for n in range(N)] and index.tolist() == list(range(N))[::-1]
        with pytest.raises(EmulatedFault, match=r"illegal address|stray read"):
            launched(doubled, index + 2 * N)
        assert len(device.findings) == 1


def test_a_line_is_told_from_a_curve() -> None:
    at = np.array([-1.0, 0.0, 1.0, 2.0])
    for function, straight in (
        (lambda x: 0.3 * x + 0.7, True), (lambda x: -5e3 * x, True), (lambda x: 0 * x + 1, False), (np.tanh, False),
        (lambda x: np.maximum(x, 0), False), (lambda x: x * x, False), (lambda x: x / (1 + np.exp(-x)), False),
    ):  # fmt: skip
        for kind in (torch.float32, torch.float16, torch.bfloat16):
            words = torch.from_numpy(function(at)).to(kind).view(torch.int32 if kind is torch.float32 else torch.int16)
            bits = list(words.numpy().view(f"u{kind.itemsize}").reshape(4, 1))
            assert bool(_affine(bits, kind)[0]) is straight, function

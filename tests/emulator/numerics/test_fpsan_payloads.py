"""Contract under test: `gl.fpsan.embed` and `unembed` give on the emulated GPU the words of their PTX, one by one and in batches;
each payload stands for one float, and 1.0 is embedded as 1."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from bitverdict.harness.emulator import LaunchOptions, emulated
from bitverdict.harness.emulator.frontend.lowerings.fpsan_payloads import PayloadRing
from tests.support import payload_kernels as kernels
from tests.support.ptx_threads import DeviceMemory, Threads

COUNT = 1024
TYPES = {
    torch.float64: (torch.int64, PayloadRing(64, 52)),
    torch.float32: (torch.int32, PayloadRing(32, 23)),
    torch.float16: (torch.int16, PayloadRing(16, 10)),
    torch.bfloat16: (torch.int16, PayloadRing(16, 7)),
    torch.float8_e5m2: (torch.int8, PayloadRing(8, 2)),
    torch.float8_e4m3fn: (torch.int8, PayloadRing(8, 3)),
}


def drawn_words(ring: PayloadRing) -> np.ndarray:
    """(COUNT,) words of all exponents and both signs, NaN and infinities among them; the first are 1.0, -1.0, 0.0 and -0.0."""
    unsigned = np.dtype(f"u{ring.bits // 8}")
    sign, one = 1 << (ring.bits - 1), (1 << (ring.bits - 2)) - (1 << ring.fraction_bits)
    drawn = np.random.default_rng(ring.bits + ring.fraction_bits).bytes(COUNT * ring.bits // 8)
    return np.concatenate([np.array([one, sign | one, 0, sign], unsigned), np.frombuffer(drawn, unsigned)[4:]])


def embedded(dtype: torch.dtype, arch: str = "sm_90", programs: int = 1, **options: Any) -> tuple[Any, list[np.ndarray], Any]:
    """The compiled kernel, words, their payloads, and what the words stand for as payloads; the launch."""
    integer, ring = TYPES[dtype]
    words = drawn_words(ring)
    given = torch.from_numpy(words.view(f"i{words.itemsize}").copy())
    payloads, back = torch.zeros(COUNT, dtype=integer), torch.zeros(COUNT, dtype=integer)
    lanes = 64 if arch.startswith("gfx") else 32
    with emulated(arch, options=LaunchOptions(**options)) as device:
        kernel = kernels.round_trip[(programs,)](given.view(dtype), payloads, back.view(dtype), N=COUNT // programs, LANES=lanes)
    return kernel, [words, *(each.numpy().view(words.dtype) for each in (payloads, back))], device.launches[-1]


def by_ptx(text: str, words: np.ndarray) -> list[np.ndarray]:
    """`embedded` by `text`, PTX of the kernel."""
    arrays = [words.copy(), np.zeros_like(words), np.zeros_like(words)]
    Threads(text, [each.__array_interface__["data"][0] for each in arrays], DeviceMemory(*arrays)).run()
    return arrays


@pytest.mark.parametrize(
    ("dtype", "arch"),
    [(dtype, arch) for dtype in TYPES for arch in ("sm_80", "sm_90", "sm_100") if (dtype, arch) != (torch.float8_e4m3fn, "sm_80")],
    ids=str,
)
def test_payloads_and_their_floats_are_those_of_the_ptx(dtype: torch.dtype, arch: str) -> None:
    kernel, found, _ = embedded(dtype, arch)
    for got, due in zip(found, by_ptx(kernel.asm["ptx"], found[0]), strict=True):
        np.testing.assert_array_equal(got, due)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_the_words_tell_another_ring_from_the_compilers(dtype: torch.dtype) -> None:
    """Mutants: another factor, another count of fraction bits."""
    _, (words, payloads, back), _ = embedded(dtype)
    ring = TYPES[dtype][1]
    assert np.array_equal(ring.payloads_of(words), payloads) and np.array_equal(ring.words_of(words), back)
    for mutant in (replace(ring, factor=ring.factor + 2), *(replace(ring, fraction_bits=ring.fraction_bits + n) for n in (-1, 1))):
        assert not np.array_equal(mutant.payloads_of(words), payloads), mutant
        assert not np.array_equal(mutant.words_of(words), back), mutant


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_each_payload_stands_for_one_float_and_one_is_one(dtype: torch.dtype) -> None:
    _, ring = TYPES[dtype]
    words = np.arange(1 << ring.bits).astype(f"u{ring.bits // 8}") if ring.bits <= 16 else drawn_words(ring)
    payloads = ring.payloads_of(words)
    np.testing.assert_array_equal(ring.words_of(payloads), words)
    assert len(np.unique(payloads)) == len(np.unique(words))
    assert ring.payloads_of(drawn_words(ring)[:4]).view(f"i{ring.bits // 8}").tolist() == [1, -1, 0, -(1 << (ring.bits - 1))]


def test_amd_and_programs_in_batches_have_the_same_payloads() -> None:
    results = [embedded(torch.float32), embedded(torch.float32, "gfx942"), embedded(torch.float32, programs=8)]
    results.append(embedded(torch.float32, programs=8, batches=False))
    assert [bool(launch.serial_reason) for *_, launch in results[2:]] == [False, True]
    for (_, one, _), (_, other, _) in pairwise(results):
        np.testing.assert_array_equal(one, other)


def test_a_number_alone_is_embedded_as_it_is_in_a_tensor() -> None:
    x, payload, word = torch.tensor([-1.0, *[1.0] * 127]), torch.zeros(1, dtype=torch.int32), torch.zeros(128)
    with emulated("sm_90"):
        kernels.single_payload[(1,)](x, payload, word)
        assert payload.tolist() == [-1] and word.tolist() == [-1.0, *[0.0] * 127]
        kernels.payload_by_element[(1,)](x, word, N=128)
    assert torch.equal(word, x)


def ring_sums(**options: Any) -> tuple[torch.Tensor, torch.Tensor, Any]:
    generator = torch.Generator().manual_seed(0)
    x, y, out = torch.randn(128, generator=generator), torch.randn(128, generator=generator), torch.zeros(3, 128)
    with emulated("sm_90", options=LaunchOptions(**options)) as device:
        kernels.ring_sums[(1,)](x, y, out, 100, N=128)
    return y, out, device


def test_a_lane_that_nobody_loads_is_followed_through_the_ring() -> None:
    y, out, device = ring_sums()
    assert torch.equal(out[2, :100], out[0, :100]) and torch.equal(out[2, 100:], y[100:])
    (advice,) = device.advice
    assert "depends on lanes" in f"{advice}"


def test_a_payload_of_a_rounded_float_hangs_on_the_rounding() -> None:
    _, out, device = ring_sums(real_values=frozenset())
    found = device.real_values(out)
    assert found is not None and not found.error[[0, 2]].any() and np.isinf(found.error[1]).any()
    np.testing.assert_array_equal(found.value[0], out[0].double().numpy())
    assert {reason for reason, _ in device.hangs} == {"bit cast"}

"""Contract under test: a launch is repeated under other schedules where one could choose, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from bitverdict.harness.emulator import LaunchOptions, emulated
from bitverdict.harness.emulator.execution.program_batches import DIFFERING_LANES, FEW_PROGRAMS
from bitverdict.harness.emulator.frontend.lowerings.program_batches import HELD_ACCESSES, ONE_PROGRAM
from bitverdict.harness.emulator.numerics.matrix_products import ProductCache
from bitverdict.harness.emulator.other_schedules import OtherSchedules, other_schedules
from bitverdict.reference import tensor_core

pytestmark = pytest.mark.compiles


@triton.jit
def plain(x, y, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + places, 2 * tl.load(x + places))


@triton.jit
def hinted(x, y, BLOCK: tl.constexpr):
    places = tl.multiple_of(tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), 2)
    tl.store(y + places, 2 * tl.load(x + places))


@triton.jit
def alone(x, y, BLOCK: tl.constexpr):
    tl.store(y + tl.arange(0, BLOCK), 2 * tl.load(x + tl.arange(0, BLOCK)))


@triton.jit
def summed(x, y, BLOCK: tl.constexpr):
    tl.atomic_add(y, tl.sum(tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))))


@triton.jit
def squared(x, y, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + places)
    tl.store(y + places, value / tl.sum(value * value))


CASES = {
    "batched": (plain, 8, ""),
    "few": (plain, 2, FEW_PROGRAMS),
    "held": (hinted, 8, HELD_ACCESSES),
    "one": (alone, 1, ONE_PROGRAM),
    "enclosed": (plain, 8, ""),
    "lanes": (squared, 8, DIFFERING_LANES),
    "summed": (summed, 8, "tt.atomic_rmw"),
}


@pytest.mark.parametrize("name", CASES)
def test_only_what_orders_something_is_repeated(name: str) -> None:
    """Programs that run one by one because accesses are held to widths, words those of a lane, or they are few order nothing."""
    kernel, programs, reason = CASES[name]
    repeats = OtherSchedules(["latest"], lambda sentence: None)
    with emulated("sm_90", options=LaunchOptions(probes=(repeats,))) as device:
        repeats.device = device
        x, y = torch.arange(512.0, device="cuda") / 7, torch.zeros(512, device="cuda")
        if name == "enclosed":
            words = torch.zeros(4, device="cuda").view(torch.int32).numpy(force=True)
            device.enclosed.store(x.data_ptr() + words[:1].astype("i8"), words[:1], words[:1], words[:1] + 1, 4)
        kernel[(programs,)](x, y, 32 if name == "lanes" else 64, num_warps=1 if name == "lanes" else 4)
    assert device.launches[0].serial_reason == reason
    assert repeats.repeated_launches == (name == "summed")


@triton.jit
def multiplied(x, y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tile = at[:, None] * BLOCK + at[None, :]
    tl.store(y + tl.program_id(0) * BLOCK * BLOCK + tile, tl.dot(tl.load(x + tile), tl.load(x + tile)))


@pytest.mark.parametrize("count", [1, 2])
def test_a_launch_that_is_repeated_has_its_products_from_the_first_time(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of `count` schedules; and keeps none of them."""
    computed, product = [], tensor_core.product
    monkeypatch.setattr(tensor_core, "product", lambda *operands: computed.append(1) or product(*operands))
    repeats = OtherSchedules(other_schedules(count), lambda sentence: None)
    with emulated("sm_90", options=LaunchOptions(probes=(repeats,))) as device:
        repeats.device = device
        x, y = torch.randn(16, 16, device="cuda").half(), torch.zeros(2, 16, 16, device="cuda")
        for _ in range(2):
            multiplied[(2,)](x, y, 16, num_warps=1)
    assert len(computed) == 2 * (1 if count == 2 else 2)  # the two programs multiply the same
    assert repeats.repeated_launches == 2 * (count - 1)


def test_products_of_other_operands_are_computed() -> None:
    cache, given = ProductCache(), np.arange(4.0)
    cache.begin()
    first = cache.result(("mma",), (given,), lambda: given * 2)
    first += 1  # what a launch does to it
    assert cache.result(("mma",), (given,), lambda: given * 3).tolist() == [0, 2, 4, 6]
    assert cache.result(("wgmma",), (given,), lambda: given * 3).tolist() == [0, 3, 6, 9]
    assert cache.result(("mma",), (given.reshape(2, 2),), lambda: given * 4).tolist() == [0, 4, 8, 12]
    assert cache.result(("mma",), (given + 1,), lambda: given * 5).tolist() == [0, 5, 10, 15]
    cache.end()
    assert cache.result(("mma",), (given,), lambda: given * 6).tolist() == [0, 6, 12, 18]

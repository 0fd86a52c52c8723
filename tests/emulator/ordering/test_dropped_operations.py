"""Contract under test: a tile program without one of the compiler's waits, fences or stores fails by name, with both lines;
what never ends is a timeout."""

from __future__ import annotations

import re

import pytest
import torch

from bitverdict.harness.emulator import EmulatedFault, LaunchOptions, emulated
from bitverdict.kernels.tma_gather import tma_gather
from tests.support import tile_kernels as kernels
from tests.support.emulated_products import SCHEDULES, multiply, operands


def without(name: str, attribute: str):
    """A change of the tile program that makes every wait `name` wait for nothing."""

    def change(text: str) -> str:
        return re.sub(rf'("{name}"\(.*?\) <\{{{attribute} = )\d+', r"\g<1>99", text)

    return change


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("arch", "wait", "attribute", "writer"),
    [("sm_80", "ttg.async_wait", "num", "cp.async"), ("sm_90", "ttg.async_wait", "num", "cp.async")],
)
def test_a_dropped_cp_async_wait_is_a_race_with_both_lines(arch, wait, attribute, writer, schedule):
    a, b = operands("fp16", 128, 128, 256)
    with (
        emulated(arch, schedule, options=LaunchOptions(rewrite=without(wait, attribute))) as device,
        pytest.raises(EmulatedFault) as raised,
    ):
        multiply(device, a, b, tile=(64, 64, 32))
    fault = raised.value
    assert fault.outcome == "race" and writer in fault.message
    lines = {re.search(r"tile_kernels\.py:(\d+)$", place)[1] for place in (fault.location, fault.details["other location"])}
    source = (kernels.product.fn.__code__.co_firstlineno, kernels.product.raw_src)
    assert all("tl.load" in source[1][int(n) - source[0]] or "tl.dot" in source[1][int(n) - source[0]] for n in lines)
    assert "async_copy_global_to_local" in fault.details["other operation"]


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_a_dropped_proxy_fence_is_a_race_with_both_lines(arch):
    a, b = operands("fp16", 128, 128, 70)  # rows that are no multiple of 16 bytes: operands go through registers
    with (
        emulated(
            arch,
            options=LaunchOptions(
                rewrite=lambda text: "\n".join(line for line in text.splitlines() if '"ttng.fence_async_shared"' not in line)
            ),
        ) as device,
        pytest.raises(EmulatedFault, match="proxy fence") as raised,
    ):
        multiply(device, a, b)
    assert raised.value.outcome == "race"
    assert "tile_kernels.py" in raised.value.location and "tile_kernels.py" in raised.value.details["other location"]


def test_scratch_memory_that_tma_writes_over_wants_the_fence():
    """A conversion of layouts takes the bytes where the gathered rows land: the compiler fences between the two."""
    rows, table = torch.arange(8, dtype=torch.int32), torch.zeros((9, 64), dtype=torch.bfloat16)
    change = lambda text: "\n".join(line for line in text.splitlines() if '"ttng.fence_async_shared"' not in line)
    with (
        emulated("sm_100", options=LaunchOptions(rewrite=change)),
        pytest.raises(EmulatedFault, match=r"ttg.convert_layout at .* used through the generic one: no proxy fence") as raised,
    ):
        tma_gather(table, rows, 0, 8, 64)
    assert raised.value.outcome == "race" and "tma_gather.py" in raised.value.details["other location"]


def test_registers_of_a_wgmma_that_nobody_waited_for_are_a_race():
    a, b = operands("fp16", 128, 128, 64)
    with (
        emulated("sm_90", options=LaunchOptions(rewrite=without("ttng.warp_group_dot_wait", "pendings"))) as device,
        pytest.raises(EmulatedFault, match="race"),
    ):
        multiply(device, a, b)


def test_an_accumulator_read_before_the_barrier_is_waited_for_is_a_race():
    a, b = operands("fp16", 128, 128, 256)
    with (
        emulated(
            "sm_100",
            options=LaunchOptions(
                rewrite=lambda text: "\n".join(line for line in text.splitlines() if '"ttng.wait_barrier"' not in line)
            ),
        ) as device,
        pytest.raises(EmulatedFault, match="race"),
    ):
        multiply(device, a, b)


def test_a_barrier_that_nobody_arrives_at_is_a_deadlock_with_its_state():
    a, b = operands("fp16", 128, 128, 64)
    with (
        emulated(
            "sm_100", options=LaunchOptions(rewrite=lambda text: text.replace("<{count = 1 : i32}>", "<{count = 2 : i32}>"))
        ) as device,
        pytest.raises(EmulatedFault) as raised,
    ):
        multiply(device, a, b)
    assert raised.value.outcome == "deadlock"
    assert any("1 of 2 arrivals" in state for state in raised.value.details["barriers"].values())


def test_uninitialised_shared_memory_fails():
    a, b = operands("fp16", 128, 128, 64)
    with (
        emulated(
            "sm_80",
            options=LaunchOptions(
                rewrite=lambda text: re.sub(
                    r'= "ttg.local_alloc"\((%\w+)\) (.*) : \((tensor<[^)]*>)\)', r'= "ttg.local_alloc"() \2 : ()', text
                )
            ),
        ) as device,
        pytest.raises(EmulatedFault, match="uninitialised read"),
    ):
        multiply(device, a, b, stages=1)


def test_a_kernel_that_never_ends_is_a_timeout(monkeypatch):
    monkeypatch.setattr("bitverdict.harness.emulator.device.STEP_LIMIT", 10_000)
    with emulated("sm_90"), pytest.raises(EmulatedFault, match="timeout"):
        kernels.spin[(1,)](torch.zeros(1, dtype=torch.int32), 1 << 30)

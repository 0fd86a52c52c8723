"""Contract under test: the emulated GPU says how many multiprocessors it has, holds as many programs as they do, and refuses a
grid as the driver does."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from triton.runtime import driver

from bitverdict.harness.emulator import EmulatedFault, emulated
from bitverdict.harness.emulator.execution import interleaving
from bitverdict.harness.emulator.residency import LARGEST_GRID, Registers, check_grid, most_registers, residency
from bitverdict.harness.judge.classify import outcome_of
from bitverdict.harness.model.architectures import ARCHITECTURES
from bitverdict.harness.model.verdict import Outcome
from tests.support import ordered_kernels as ordered
from tests.support import tile_kernels as kernels

MULTIPROCESSORS = {"sm_80": 108, "sm_90": 132, "sm_100": 148}  # A100, H100 SXM, B200


@pytest.mark.parametrize(("arch", "count"), MULTIPROCESSORS.items())
def test_a_launcher_is_told_the_multiprocessors_of_the_real_chip(arch, count):
    with emulated(arch):
        assert driver.active.utils.get_device_properties(0)["multiprocessor_count"] == count


def test_no_launcher_changes_what_a_gpu_is():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ARCHITECTURES["sm_90"].shared_memory = 1 << 20
    with emulated("sm_90"), pytest.raises(dataclasses.FrozenInstanceError):
        torch.cuda.get_device_properties().multi_processor_count = 1


@pytest.mark.parametrize("schedule", ["eager on 2", "latest on 2", "drawn:3 on 2"])
def test_a_schedule_can_ask_for_two_multiprocessors(schedule):
    with emulated("sm_90", schedule) as device:
        assert driver.active.utils.get_device_properties(0)["multiprocessor_count"] == device.multiprocessors == 2


@pytest.mark.parametrize("schedule", ["eager on 0", "eager on two", "eager on ", "eager on -2", "on 2"])
def test_multiprocessors_that_are_no_number_from_one_are_refused(schedule):
    with pytest.raises(ValueError, match="schedule"), emulated("sm_90", schedule):
        pass


# by hand from the table of the programming guide: 65536 registers, 2048 threads, 32 programs, 164 or 228 KiB of which 1 a program
@pytest.mark.parametrize(
    ("arch", "shared", "warps", "columns", "registers", "each", "scarce"),
    [
        ("sm_80", 0, 4, 0, 255, 2, "registers (255 a thread, told)"),
        ("sm_80", 0, 1, 0, 32, 32, "programs"),
        ("sm_90", 0, 32, 0, 32, 2, "threads"),
        ("sm_90", 0, 8, 0, 64, 4, "registers (64 a thread, told)"),
        ("sm_90", 0, 8, 0, 57, 4, "registers (57 a thread, told)"),  # allocated by 8
        ("sm_90", 113 * 1024, 4, 0, 64, 2, "shared memory"),
        ("sm_90", 114 * 1024, 4, 0, 64, 1, "shared memory"),
        ("sm_80", 163 * 1024, 4, 0, 64, 1, "shared memory"),
        ("sm_100", 0, 4, 512, 64, 1, "tensor memory"),
        ("sm_100", 0, 4, 128, 64, 4, "tensor memory"),
    ],
)
def test_programs_of_a_multiprocessor_are_limited_by_what_is_scarce(arch, shared, warps, columns, registers, each, scarce):
    found = residency(arch, 3, shared=shared, warps=warps, columns=columns, registers=Registers(registers, "told"))
    assert found.programs == 3 * each
    assert f"3 multiprocessors of {arch} hold {each} each by their {scarce}" == found.reason


def test_registers_nobody_limited_are_the_most_there_can_be():
    assert [most_registers(warps, None).count for warps in (1, 4, 8, 16, 32)] == [255, 255, 255, 128, 64]
    assert most_registers(8, 96) == Registers(96, "maxnreg")


@pytest.mark.parametrize("grid", [(1, 65536, 1), (1, 1, 65536), (2**31, 1, 1)])
def test_a_grid_beyond_the_limits_is_a_launch_failure(grid):
    source, destination = torch.ones(64), torch.zeros(64)
    with emulated("sm_90") as device, pytest.raises(RuntimeError, match=r"invalid argument.*65535") as raised:
        kernels.copy[grid](source, destination, 64, 64, BLOCK=64)
    assert outcome_of(raised.value).outcome is Outcome.LAUNCH_FAILURE
    assert not device.launches and (destination == 0).all()


def test_the_largest_grid_and_one_without_programs_are_no_failure():
    check_grid(LARGEST_GRID)
    check_grid((0, 65536, 1))
    destination = torch.zeros(64)
    with emulated("sm_90"):
        kernels.copy[(1, 2)](torch.ones(64), destination, 64, 64, BLOCK=64)
        kernels.copy[(0, 1)](torch.ones(64), destination, 64, 64, BLOCK=64)
    assert (destination == 1).all()


# of the small kernels here 16 programs of four warps, or 8 of eight, fill the 2048 threads of a multiprocessor
@pytest.mark.parametrize("schedule", ["eager on 2", "latest on 2", "drawn:1 on 2", "drawn:2 on 2"])
@pytest.mark.parametrize(
    ("kernel", "programs", "options"),
    [
        (ordered.backward_chain, 32, {}),
        (ordered.backward_chain, 16, {"num_warps": 8}),
        (ordered.chain, 40, {}),  # waits for lower numbers only, which begin first
        (ordered.chain_by_ticket, 40, {}),
        (ordered.grid_barrier, 32, {}),
        (ordered.lock, 40, {}),
        (ordered.counter, 40, {}),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_wait_ends_where_who_is_waited_for_is_resident(kernel, programs, options, schedule):
    first, second = torch.zeros(programs * 128, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    rest = [] if kernel is ordered.lock else [torch.zeros(programs * 128, dtype=torch.int32)]
    with emulated("sm_90", schedule) as device:
        kernel[(programs,)](first, second, *rest, 128, **options)
    assert not device.findings


@pytest.mark.parametrize("schedule", ["eager on 2", "latest on 2", "drawn:1 on 2", "drawn:2 on 2"])
@pytest.mark.parametrize(
    ("kernel", "programs", "options", "resident"),
    [
        (ordered.backward_chain, 33, {}, 32),
        (ordered.backward_chain, 17, {"num_warps": 8}, 16),
        (ordered.grid_barrier, 40, {}, 32),
        (ordered.grid_barrier, 33, {"maxnreg": 64}, 32),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_wait_for_a_program_that_cannot_be_resident_is_a_deadlock(kernel, programs, options, resident, schedule):
    first, second, third = (torch.zeros(programs * 128, dtype=torch.int32) for _ in range(3))
    with emulated("sm_90", schedule), pytest.raises(EmulatedFault) as raised:
        kernel[(programs,)](first, second, third, 128, **options)
    fault = raised.value
    assert fault.outcome == "deadlock" and fault.message.startswith(f"needs programs resident together: {resident} of the launch")
    assert f"2 multiprocessors of sm_90 hold {resident // 2} each by their threads" in fault.message
    assert f"{programs - resident} have not begun" in fault.message
    assert fault.message.count(" waits at ") == 3 and fault.message.endswith(f"; and {resident - 3} more")
    line = Path(ordered.__file__).read_text().splitlines()[int(fault.location.rpartition(":")[2]) - 1]
    assert "tl.atomic_add" in line and "while" in line
    assert len(fault.details["waits"]) == min(resident, 20) and fault.details["waiting lines"] == [fault.location]


@pytest.mark.parametrize("schedule", ["eager", "latest", "drawn:3"])
def test_a_spin_with_a_counter_of_its_own_ends_as_it_would(schedule):
    found = torch.zeros(2, dtype=torch.int32)
    with emulated("sm_90", schedule):
        ordered.patient[(1,)](torch.zeros(1, dtype=torch.int32), found, 100)
    assert found.tolist() == [0, 100]


def test_a_spin_that_never_stops_counting_ends_by_the_limit(monkeypatch):
    monkeypatch.setattr(interleaving, "MOST_LOOKS", 1000)
    with emulated("sm_90"), pytest.raises(EmulatedFault, match="found the words they had found before") as raised:
        ordered.patient[(1,)](torch.zeros(1, dtype=torch.int32), torch.zeros(2, dtype=torch.int32), 2**30)
    assert raised.value.outcome == "timeout"

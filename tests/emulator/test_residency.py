"""Contract under test: the emulated GPU says how many multiprocessors it has, holds as many programs as they do, and refuses a
grid as the driver does."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
import torch
from triton.runtime import driver

from bitverdict.harness.emulator import EmulatedFault, emulated
from bitverdict.harness.emulator.execution import interleaved_programs
from bitverdict.harness.emulator.frontend.assembly import ptx
from bitverdict.harness.emulator.residency import LARGEST_GRID, Registers, check_grid, most_registers, residency
from bitverdict.harness.judge.classify import outcome_of
from bitverdict.harness.model.architectures import ARCHITECTURES
from bitverdict.harness.model.verdict import Outcome
from tests.faults.mutants import mutant_source, source_of
from tests.faults.timing.tensor_memory import BY_NUMBER, MUTANTS
from tests.support import ordered_kernels as ordered
from tests.support import tile_kernels as kernels
from tests.support.emulated_launches import load
from tests.support.tutorial_facts import holds

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
    ("arch", "shared", "warps", "registers", "each", "scarce"),
    [
        ("sm_80", 0, 4, 255, 2, "registers (255 a thread, told)"),
        ("sm_80", 0, 1, 32, 32, "programs"),
        ("sm_90", 0, 32, 32, 2, "threads"),
        ("sm_90", 0, 8, 64, 4, "registers (64 a thread, told)"),
        ("sm_90", 0, 8, 57, 4, "registers (57 a thread, told)"),  # allocated by 8
        ("sm_90", 113 * 1024, 4, 64, 2, "shared memory"),
        ("sm_90", 114 * 1024, 4, 64, 1, "shared memory"),
        ("sm_80", 163 * 1024, 4, 64, 1, "shared memory"),
    ],
)
def test_programs_of_a_multiprocessor_are_limited_by_what_is_scarce(arch, shared, warps, registers, each, scarce):
    found = residency(arch, 3, shared=shared, warps=warps, columns=0, registers=Registers(registers, "told"))
    assert found.programs == found.concurrent_programs == 3 * each
    assert f"3 multiprocessors of {arch} hold {each} each by their {scarce}" == found.reason


@holds("occupancy of tensor memory", columns_in_all=512)
@pytest.mark.parametrize(("columns", "holders"), [(32, 8), (64, 8), (128, 4), (256, 2), (512, 1)])
def test_tensor_memory_limits_who_holds_it_and_not_who_is_resident(columns, holders):
    found = residency("sm_100", 3, shared=0, warps=4, columns=columns, registers=Registers(64, "told"))
    assert (found.programs, found.concurrent_programs) == (3 * 8, 3 * holders)


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
    monkeypatch.setattr(interleaved_programs, "MOST_LOOKS", 1000)
    with emulated("sm_90"), pytest.raises(EmulatedFault, match="found the words they had found before") as raised:
        ordered.patient[(1,)](torch.zeros(1, dtype=torch.int32), torch.zeros(2, dtype=torch.int32), 2**30)
    assert raised.value.outcome == "timeout"


WAITING = load(source_of(BY_NUMBER.kernel))
TWO = tuple(f"{schedule} on 2" for schedule in ("eager", "latest", *(f"drawn:{i}" for i in range(4))))


def chained(module, programs: int, columns: int, schedule: str) -> list[int]:
    """What each of a chain of programs left."""
    sums, flags = torch.zeros(programs, dtype=torch.int32), torch.zeros(programs + 1, dtype=torch.int32)
    with emulated("sm_100", schedule):
        module.chain[(programs,)](sums, flags, columns)
    return sums.tolist()


@holds("allocation blocks")
@pytest.mark.parametrize("programs", [2, 4, 12])  # of 512 columns each of two multiprocessors has one program at a time
def test_programs_that_number_themselves_may_wait_in_tensor_memory(programs):
    for schedule in TWO:
        assert chained(WAITING, programs, 512, schedule) == [n * (n + 1) // 2 for n in range(1, programs + 1)]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_who_holds_tensor_memory_and_waits_for_who_has_none_is_named(mutant, tmp_path):
    path = tmp_path / "mutant.py"
    path.write_text(mutant_source(mutant))
    module, found = load(path), []
    for schedule in TWO:
        try:
            chained(module, 12, 512, schedule)
        except EmulatedFault as fault:
            found.append(fault)
            assert fault.outcome in mutant.expected
            assert fault.message.startswith(
                "needs tensor memory of programs that wait: 1 of each multiprocessor can have their 512 columns"
            )
            assert mutant.at in path.read_text().splitlines()[int(fault.location.rpartition(":")[2]) - 1]
            waits = fault.details["waits"]
            assert any(w.startswith("tcgen05.alloc: 512 columns of multiprocessor ") for w in waits.values()), waits
            assert "have their tensor memory together (2)" in fault.details["remedy"]
    assert len(found) == len(TWO) if mutant is not BY_NUMBER else 1 < len(found) < len(TWO)


def test_numbers_will_do_where_no_two_wait_for_one_tensor_memory(tmp_path):
    (tmp_path / "mutant.py").write_text(mutant_source(BY_NUMBER))
    module = load(tmp_path / "mutant.py")
    for programs, columns in ((2, 512), (4, 512), (4, 256), (6, 256)):  # each beside at most one that waits
        for schedule in TWO:
            assert chained(module, programs, columns, schedule)[-1] == programs * (programs + 1) // 2


def test_the_compiler_takes_tensor_memory_first_and_gives_it_back_last():
    with emulated("sm_100") as device:
        WAITING.chain[(1,)](torch.zeros(1, dtype=torch.int32), torch.zeros(2, dtype=torch.int32), 512)
    text = ptx(device.launches[0].program, 100, fuses_sums=False)
    seen = re.findall(r"tcgen05\.(?:alloc|relinquish|dealloc)|atom\.|ld\.global|st\.global|ret;", text)
    assert seen[:2] == ["tcgen05.alloc", "tcgen05.relinquish"] and seen[-2:] == ["tcgen05.dealloc", "ret;"]
    assert seen.count("tcgen05.alloc") == seen.count("tcgen05.dealloc") == seen.count("ret;") == 1
    assert "atom." in seen[2:-2]

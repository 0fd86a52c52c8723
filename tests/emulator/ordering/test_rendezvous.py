"""Contract under test: where the emulated GPU lets all threads of a program meet, the compiled program has a barrier (bar.sync),
and nowhere else: a missing barrier is one that is missing in the compiled program."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
import torch

from bitverdict.harness.emulator import EmulatedFault, LaunchOptions, emulated
from bitverdict.harness.emulator.execution.threads import WARP, owners, stays_in_warp
from bitverdict.harness.emulator.frontend import assembly
from bitverdict.harness.emulator.memory.global_order import GlobalOrder
from bitverdict.harness.emulator.mlir_types import parse_type
from tests.support import meeting_kernels as kernels
from tests.support.emulated_products import ARCHITECTURES

_ACCESS = re.compile(r"(?:ld|st|atom|red)\.")
_MEETS = re.compile(r"bar\.sync|barrier\.sync")
_STRONG = re.compile(r"atom|red|volatile|relaxed|acquire|release")
SEMANTICS = ("relaxed", "acquire", "release", "acq_rel")
CASES = [
    *((kind, sem, used) for kind in ("add", "add of a tensor", "swap", "swap of a tensor") for sem in SEMANTICS for used in (0, 1)),
    *(("exchange", sem, 0) for sem in SEMANTICS),
    *((kind, sem, 1) for kind in ("load", "load of a tensor") for sem in ("relaxed", "acquire")),
    *((kind, sem, 0) for kind in ("store", "store of a tensor") for sem in ("relaxed", "release")),
    *(("poll", sem, 0) for sem in ("relaxed", "acquire")),
    *((kind, "", 1) for kind in ("volatile", "ordinary", "sum", "scan", "turn")),
    ("barrier", "", 0),
]


def compiled(program: str, arch: str) -> list[str]:
    """Accesses to global memory ("ld", "st", "strong") and "meet" for each barrier, in the order of the PTX."""
    found = []
    for each in assembly.instructions(assembly.ptx(program, int(arch.removeprefix("sm_")), fuses_sums=True)):
        if _MEETS.match(each.opcode):
            found.append("meet")
        elif _ACCESS.match(each.opcode) and not re.search("shared|param", each.opcode):
            found.append("strong" if _STRONG.search(each.opcode) else each.opcode[:2])
    return apart(found)


def apart(found: list[str]) -> list[str]:
    """`found` without repetitions, and without barriers before the first access and behind the last."""
    kept = [one for place, one in enumerate(found) if place == 0 or one != found[place - 1]]
    accesses = [place for place, one in enumerate(kept) if one != "meet"]
    return kept[accesses[0] : accesses[-1] + 1]


@pytest.fixture
def seen(monkeypatch) -> list[str]:
    """What the emulated GPU does, in the same words."""
    found: list[str] = []
    for name, word in (("meet", "meet"), ("read", "ld"), ("write", "st"), ("before_atomic", "strong")):
        do = getattr(GlobalOrder, name)
        monkeypatch.setattr(GlobalOrder, name, lambda *rest, _do=do, _word=word: (found.append(_word), _do(*rest))[1])
    return found


def launched(seen: list[str], arch: str, call: Callable[[], object]) -> tuple[list[str], list[str]]:
    """(what the compiled program does, what the emulated one did) in the launch `call`, up to a race that is its end."""
    with emulated(arch, options=LaunchOptions(dry=True)) as device:
        call()
    expected = compiled(device.launches[-1].program, arch)
    seen.clear()
    with emulated(arch):
        try:
            call()
        except EmulatedFault as fault:
            assert fault.outcome == "race"
            return expected[: len(apart(seen))], apart(seen)
    return expected, apart(seen)


@pytest.mark.share(2)
@pytest.mark.parametrize(("kind", "sem", "used"), CASES)
def test_threads_meet_where_the_compiled_program_has_a_barrier(kind, sem, used, seen):
    memory = torch.zeros(1024, dtype=torch.int32)
    for warps, arch in ((4, "sm_90"), (1, "sm_100"), (2, "sm_80"))[: 3 if sem in ("", "acq_rel") else 1]:
        call = lambda: kernels.between[(1,)](memory, memory[512:], kind, sem, bool(used), 256, num_warps=warps)
        expected, found = launched(seen, arch, call)
        assert found == expected and found[0] == "st" and len(found) > 1, arch


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
@pytest.mark.parametrize("kind", ["arrive", "wait", "init", "copies", "barrier"])
def test_threads_meet_where_an_mbarrier_is_used(kind, arch, seen):
    memory = torch.zeros(1024, dtype=torch.int32)
    expected, found = launched(seen, arch, lambda: kernels.arrival[(1,)](memory, memory, kind))
    assert found == expected and (kind == "init" or "meet" in expected)  # at `init` some releases meet, by their PTX


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("kind", ["across warps", "inside warps", "inside threads"])
def test_a_conversion_meets_where_values_go_from_warp_to_warp(kind, arch, seen):
    memory = torch.zeros(512, dtype=torch.int32)
    expected, found = launched(seen, arch, lambda: kernels.conversion[(1,)](memory, memory, kind))
    assert found == expected and ("meet" in expected) == (kind == "across warps")
    assert torch.equal(memory, torch.arange(512, dtype=torch.int32) + 1)


def held(text: str):
    kind = parse_type(text)
    assert kind is not None
    return owners(kind, kind.layout)


def test_the_thread_of_each_element_is_the_layouts():
    """By hand: a thread holds `sizePerThread` neighbours, lanes come next, then warps; what is left over is held by copies."""
    blocked = "#ttg.blocked<{sizePerThread = [2], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>"
    assert np.array_equal(held(f"tensor<256xi32, {blocked}>").threads, np.arange(256) // 2)
    assert np.array_equal(held(f"tensor<512xi32, {blocked}>").threads, np.arange(512) // 2 % 128)
    small = held(f"tensor<64x!tt.ptr<f32>, {blocked}>")
    assert np.array_equal(small.threads, np.arange(64) // 2) and small.copies == 3 * WARP
    rows = "#ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [8, 4], warpsPerCTA = [2, 1], order = [1, 0]}>"
    row, column = np.divmod(np.arange(16 * 16), 16)
    assert np.array_equal(held(f"tensor<16x16xf16, {rows}>").threads, row % 8 * 4 + column // 4 + row // 8 * WARP)
    sliced = held(f"tensor<16xf16, #ttg.slice<{{dim = 1, parent = {rows}}}>>")
    assert np.array_equal(sliced.threads, np.arange(16) % 8 * 4 + np.arange(16) // 8 * WARP) and sliced.copies == 3
    assert held("!tt.ptr<f32>").threads.tolist() == [0] and held("i32").copies == -1
    assert stays_in_warp(small, small) and not stays_in_warp(
        held(f"tensor<256xi32, {blocked}>"),
        held("tensor<256xi32, #ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>>"),
    )

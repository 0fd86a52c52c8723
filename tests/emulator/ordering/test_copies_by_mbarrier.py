"""Contract under test: an mbarrier that cp.async arrives at completes when the copies are in, and only who waits for it may read
them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mbarrier

from bitverdict.harness.emulator import EmulatedFault, emulated
from tests.faults.mutants import replaced_once
from tests.support.emulated_launches import SCHEDULES, load


@gluon.jit
def copied(source, out, COUNTED: gl.constexpr):
    """COUNTED: the arrivals of all 128 threads are those that the barrier expects."""
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    at = gl.arange(0, 512, layout=layout)
    tile = gl.allocate_shared_memory(gl.float32, [512], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    arrived = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(arrived, count=129 if COUNTED else 1)
    async_copy.async_load(tile, source + at)
    async_copy.mbarrier_arrive(arrived, increment_count=not COUNTED)
    mbarrier.arrive(arrived)
    mbarrier.wait(arrived, 0)
    gl.store(out + at, tile.load(layout))


@pytest.mark.parametrize("counted", [False, True])
def test_who_waits_for_the_barrier_may_read_what_was_copied(counted: bool) -> None:
    source = torch.randn(512)
    for schedule in SCHEDULES:
        out = torch.empty(512)
        with emulated("sm_80", schedule):
            copied[(1,)](source, out, counted)
        assert torch.equal(out, source)


TWINS = [
    ("    async_copy.mbarrier_arrive(arrived, increment_count=not COUNTED)\n", "", False, "race"),
    ("    mbarrier.arrive(arrived)\n", "", False, "deadlock"),
    ("    mbarrier.arrive(arrived)\n", "", True, "deadlock"),
    ("    mbarrier.wait(arrived, 0)\n", "", False, "race"),
    ("mbarrier_arrive(arrived, increment_count=not COUNTED)", "mbarrier_arrive(arrived)", True, "deadlock"),
    ("129 if COUNTED else 1", "127", True, "barrier misuse"),
]


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: f"{twin[3]}-{TWINS.index(twin)}")
def test_its_twin_fails_by_name_under_every_schedule(twin: tuple[str, str, bool, str], tmp_path: Path) -> None:
    text, by, counted, outcome = twin
    path = tmp_path / "twin.py"
    path.write_text(replaced_once(Path(__file__).read_text().partition("\n\n\n@pytest")[0], text, by, "copied"))
    kernel = load(path).copied
    for schedule in SCHEDULES:
        with emulated("sm_80", schedule), pytest.raises(EmulatedFault) as raised:
            kernel[(1,)](torch.randn(512), torch.empty(512), counted)
        assert raised.value.outcome == outcome

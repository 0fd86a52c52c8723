"""Contract under test: a slot of a GPU has one holder, whatever a run may see, and comes back when the holder dies."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bitverdict.harness.model.targets import Target
from bitverdict.harness.workers.gpu_lease import NEED, free_places, lease, places

CHECKOUT = Path(__file__).resolve().parents[2]
A, B = Target("cuda:0", "sm_90", 0, "", "aa-a", 2 * NEED, 2 * NEED), Target("cuda:1", "sm_90", 1, "", "bb-b", 2 * NEED, 2 * NEED)


@pytest.fixture(autouse=True)
def no_slots_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BITVERDICT_GPU_SLOTS", "BITVERDICT_GPU_PLACES", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)


def other(directory: Path, gpus: str, end: str) -> subprocess.Popen:
    """Another process that takes a lease on `gpus`, prints its UUID and slot, and then does `end`."""
    take = (
        "import os, time; from pathlib import Path; from bitverdict.harness.workers.gpu_lease import NEED, lease; from "
        "bitverdict.harness.model.targets import Target\n"
        "def gpu(i, u): return Target(f'cuda:{i}', 'sm_90', i, '', u, 2 * NEED, 2 * NEED)\n"
        f"held = lease([{gpus}], wait=0, directory=Path({str(directory)!r}))\n"
        f"print(held.place.device, held.place.slot, flush=True); {end}"
    )
    return subprocess.Popen([sys.executable, "-c", take], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True)


def test_leases_fill_the_gpus_evenly(tmp_path: Path) -> None:
    taken = [lease([A, B], directory=tmp_path) for _ in range(4)]
    assert [(one.index, one.place.slot) for one in taken] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    with pytest.raises(TimeoutError, match=r"no slot free on aa-a, bb-b .* start fewer workers \(-n\)$"):
        lease([A, B], wait=0, directory=tmp_path)
    taken[2].release()
    assert lease([A, B], wait=0, directory=tmp_path).index == 0


@pytest.mark.compiles
def test_a_slot_comes_back_when_its_holder_is_killed(tmp_path: Path) -> None:
    holder = other(tmp_path, "gpu(0, 'aa-a')", "time.sleep(60)")
    assert holder.stdout is not None and holder.stdout.readline().split() == ["aa-a", "0"]
    one = lease([A], wait=0, directory=tmp_path)
    assert one.place.slot == 1
    with pytest.raises(TimeoutError):
        lease([A], wait=0, directory=tmp_path)
    holder.kill(), holder.wait()
    assert lease([A], wait=5, directory=tmp_path).place.slot == 0


@pytest.mark.compiles
def test_runs_that_see_the_gpus_in_another_order_or_names_share_them(tmp_path: Path) -> None:
    """Locked by index, the second run would take slot 0 of the GPU that the first one holds."""
    first = lease([A, B], directory=tmp_path)  # 0 is A
    holder = other(tmp_path, "gpu(0, 'bb-b'), gpu(1, 'aa-a')", "time.sleep(60)")
    assert holder.stdout is not None and holder.stdout.readline().split() == ["bb-b", "0"]
    second = lease([A, B], wait=0, directory=tmp_path)
    assert (first.place.device, second.place.device, second.place.slot) == ("aa-a", "aa-a", 1)
    holder.kill(), holder.wait()


def test_a_gpu_without_a_uuid_is_locked_by_its_visible_devices_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-7a/1,3")
    found = places([Target("cuda:0", "sm_90", 0), Target("cuda:1", "sm_90", 1)])
    assert [str(place) for place in found] == ["MIG-7a_1.0", "3.0"]


def test_places_counted_are_those_that_are_free_and_fit_the_free_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    big = Target("cuda:0", "sm_90", 0, "", "aa-a", free=5 * NEED // 2, total=6 * NEED)
    assert [place.slot for place in free_places([big], directory=tmp_path)] == [0, 1]
    held = lease([big], directory=tmp_path)
    assert [place.slot for place in free_places([big], directory=tmp_path)] == [1, 2]
    monkeypatch.setenv("BITVERDICT_GPU_SLOTS", "1")
    assert free_places([big], directory=tmp_path) == []
    held.release()
    assert len(free_places([big], directory=tmp_path)) == 1


def test_a_worker_takes_a_place_that_its_run_was_counted_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GPU A is full of somebody else's work: the run was counted for B alone."""
    full = Target("cuda:0", "sm_90", 0, "", "aa-a", free=0, total=2 * NEED)
    counted = free_places([full, B], directory=tmp_path)
    assert {place.device for place in counted} == {"bb-b"}
    monkeypatch.setenv("BITVERDICT_GPU_PLACES", ",".join(map(str, counted)))
    assert [lease([full, B], directory=tmp_path).index for _ in range(2)] == [1, 1]


@pytest.mark.parametrize("given", ["0", "many", "-1"])
def test_a_bad_number_of_slots_is_refused(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("BITVERDICT_GPU_SLOTS", given)
    with pytest.raises(ValueError, match="must be a positive integer"):
        lease([A])

"""Contract under test: across partitions a proxy fence stands between a generic access to a tile and TMA that writes it; the
finding names both lines, the rule and the remedy. Within one partition the compiler's own fence passes, and an advice says so."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bitverdict.harness.emulator import EmulatedFault, emulated
from bitverdict.harness.emulator.async_rules import rule_of
from tests.faults.mutants import replaced_once
from tests.support.emulated_launches import SCHEDULES, described, load, matrix

SOURCE = Path(__file__).resolve().parents[2] / "faults" / "idioms" / "gluon_partition_idioms.py"
REFILLED = "copy_is_refilled_behind_the_fence_of_its_reader"
READ = "    kept.store(a_tile.load(layout))  # (M, K)\n    fence_async_shared()  # between"


def launched(place: Path, idiom: str, replace: str, by: str, schedule: str):
    """Run `idiom` with one text replaced; the device."""
    path = place / "mutated.py"
    path.write_text(replaced_once(SOURCE.read_text(), replace, by, SOURCE.name))
    a, b, out = matrix(128, 64), matrix(64, 64, 1), torch.full((128, 64), float("nan"), dtype=torch.float16)
    with emulated("sm_100", schedule) as device:
        getattr(load(path), idiom)[(1,)](described(a, [128, 64]), described(b, [64, 64]), described(out, [128, 64]), num_warps=4)
    assert torch.equal(out, a)
    return device


def line_of(place: Path, text: str) -> str:
    """File and number of the first line that holds `text`."""
    lines = (place / "mutated.py").read_text().splitlines()
    return f"mutated.py:{next(n for n, line in enumerate(lines, 1) if text in line)}"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_refill_without_a_fence_after_the_read_is_told(tmp_path: Path, schedule) -> None:
    """The failure has both lines, the rule and the remedy."""
    with pytest.raises(EmulatedFault) as raised:
        launched(tmp_path, REFILLED, READ, READ.replace("    fence_async_shared()  # between", "    # between"), schedule)
    fault = raised.value
    assert fault.outcome == "race" and "no proxy fence (fence_async_shared) between them" in fault.message
    assert "writes shared memory" in fault.message and "read through the generic one" in fault.message
    read = line_of(tmp_path, "kept.store(a_tile.load(layout))  # (M, K)")
    assert fault.details["other location"].endswith(read) and "mutated.py" in fault.location and not fault.location.endswith(read)
    assert fault.details["rule"] == rule_of("ordinary load") and "9.7.13.4" in fault.details["rule"]
    assert fault.details["remedy"].startswith("fence_async_shared() after ") and "before the arrival" in fault.details["remedy"]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_store_that_tma_writes_over_wants_the_fence_too(tmp_path: Path, schedule) -> None:
    with pytest.raises(EmulatedFault, match="wrote through the generic one") as raised:
        launched(tmp_path, REFILLED, READ, "    a_tile.store(gl.zeros([128, 64], gl.float16, layout))\n    # between", schedule)
    assert raised.value.outcome == "race" and raised.value.details["rule"] == rule_of("ordinary store")


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_within_one_partition_the_compiler_fences_and_an_advice_says_so(tmp_path: Path, schedule) -> None:
    device = launched(tmp_path, "copy_is_refilled_by_the_partition_that_read_it", "it sees read", "it sees read", schedule)
    (advice,) = device.advice
    assert "a proxy fence that the compiler inserts" in advice and "read here" in advice
    place = int(advice.partition("mutated.py:")[2].partition(":")[0])
    assert (tmp_path / "mutated.py").read_text().splitlines()[place - 1].strip() == "value = a_tile.load(layout)  # (M, K)"


def test_a_fence_of_its_own_leaves_no_advice(tmp_path: Path) -> None:
    for idiom in (REFILLED, "copy_is_refilled_behind_the_fence_of_its_loader"):
        assert not launched(tmp_path, idiom, "it sees read", "it sees read", "latest").advice

"""Contract under test: programs that run several at once enclose what they enclose one by one: the same words, ends, advice and
refusals, of memory that earlier launches left open too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from bitverdict.harness.emulator import EmulatedFault, LaunchOptions, emulated
from bitverdict.harness.emulator.numerics.enclosed_memory import EnclosedMemory
from bitverdict.harness.emulator.numerics.enclosures import keys, words_of
from tests.support.enclosed_kernels import N, open_sums, several  # noqa: F401

PROGRAMS = 9
KINDS = "sum function chosen counted reduced extreme combined scanned shaped carried branched half parted".split()
REFUSED_KINDS = ("masked", "bits")
CANCELLING_KINDS = ("chosen", "counted", "masked", "address")
"""Some of their sums are zero, or the error of a product: the choice decides."""


def launched(kinds: list[str], *, batches: bool) -> tuple[Any, list[str]]:
    """(words, their ends, advice, what was refused) of launches of `kinds`, one behind the other; why each ran one by one."""
    generator = torch.Generator().manual_seed(5)
    x, z = (torch.randn(PROGRAMS * N, generator=generator) for _ in range(2))
    y, out, refused = torch.randn(N, generator=generator), torch.zeros(2 * PROGRAMS * N), ""
    if kinds[-1] == "extreme":  # elements that differ by the choice alone
        x, y = (each.reshape(-1, 8)[:, :1].expand(-1, 8).reshape(-1) for each in (x, y))
        z = z.sign() * 0.1
    if kinds[-1] in CANCELLING_KINDS:
        z[::8] = -(x * y.repeat(PROGRAMS))[::8]
    with emulated("sm_90", options=LaunchOptions(batches=batches)) as device:
        try:
            for kind in kinds:
                several[(PROGRAMS,)](x, y, z, out, KIND=kind, N=N, num_warps=1)
        except EmulatedFault as fault:
            refused = f"{fault.outcome} {fault.message} {fault.location}"
        ends = device.enclosure(out)
        left = None if ends is None else [end.tobytes() for end in ends]
        records = device.enclosed.words()
    records["address"] -= out.data_ptr()
    said = out.numpy().tobytes(), left, records.tolist(), sorted(map(str, device.advice)), refused
    return said, [launch.serial_reason for launch in device.launches]


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_encloses_what_each_program_does_alone(kind: str) -> None:
    together, reasons = launched([kind], batches=True)
    assert together == launched([kind], batches=False)[0]
    assert reasons == [""] and together[1] is not None and not together[4]


@pytest.mark.parametrize("kind", [*REFUSED_KINDS, "address", "again", "parted behind", "emptied"])
def test_what_a_batch_cannot_enclose_is_told_one_by_one(kind: str) -> None:
    """What an earlier launch left open is as it was, too."""
    together, reasons = launched(["sum", kind], batches=True)
    assert together == launched(["sum", kind], batches=False)[0]
    assert reasons[1] and bool(together[4]) == (kind in REFUSED_KINDS)


@pytest.mark.parametrize("kind", ["in place", "parted in place"])
def test_a_later_launch_changes_in_place_what_an_earlier_one_left_open(kind: str) -> None:
    together, reasons = launched(["sum", kind, "sum", kind], batches=True)
    assert together == launched(["sum", kind, "sum", kind], batches=False)[0]
    assert reasons == [""] * 4 and together[1] is not None


def test_memory_that_a_batch_does_not_give_back_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EnclosedMemory, "become", lambda self, other: None)
    assert launched(["sum", "again"], batches=True)[0] != launched(["sum", "again"], batches=False)[0]


def test_keys_and_words_of_many_rows_that_are_each_repeated() -> None:
    """What remains without the repeats may be large itself."""
    rows = np.broadcast_to(np.linspace(-3, 3, 2048, dtype=np.float32)[:, None], (2048, 3))
    assert np.array_equal(keys(rows), keys(np.ascontiguousarray(rows)))
    assert np.array_equal(words_of(keys(rows), rows.dtype), rows)

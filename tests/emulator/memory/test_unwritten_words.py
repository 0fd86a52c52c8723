"""Contract under test: a device that follows allocations tells each line that takes words nobody wrote, and no other."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch
import triton
import triton.language as tl

from bitverdict.harness.emulator import AllocatedStorage, LaunchOptions, emulated
from bitverdict.harness.emulator.device_probe import WordAccess
from bitverdict.harness.emulator.memory.unwritten_words import UnwrittenWords

FILL = 0xA5


def access(room: torch.Tensor, places: slice | np.ndarray) -> WordAccess:
    """One of words of `room`, by the line k.py:1 of a kernel that calls it room_ptr."""
    line, region = SimpleNamespace(location="k.py:1"), SimpleNamespace(base=room.data_ptr(), name="room_ptr")
    return WordAccess(line, region, places, 4, None)  # type: ignore[arg-type]


def filled(count: int) -> torch.Tensor:
    return torch.full((4 * count,), FILL, dtype=torch.uint8).view(torch.int32)  # (count,)


@triton.jit(do_not_specialize=["n"])
def touching_kernel(room, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)  # (BLOCK,)
    tl.store(out + at, tl.load(room + at, mask=at < n), mask=at < n)
    tl.atomic_add(room + BLOCK + at, at, mask=at < n)


def test_loads_and_atomics_are_told_by_line_and_first_byte() -> None:
    room, out = filled(64), filled(32)
    allocated = [AllocatedStorage("room", room, FILL), AllocatedStorage("out", out, FILL)]
    room[:8] = torch.arange(8, dtype=torch.int32)
    with emulated("sm_90", options=LaunchOptions(list_allocations=lambda: allocated)) as device:
        touching_kernel[(1,)](room, out, 8, BLOCK=32)
        assert [read[1:] for read in device.unwritten_reads] == [("room", "room", 4 * 32)], "the host wrote what is loaded"
        assert device.unwritten_elements(out).tolist() == [False] * 8 + [True] * 24
        assert device.has_loaded(room) and not device.has_loaded(out)
        touching_kernel[(1,)](room, out, 12, BLOCK=32)
        atomic, load = device.unwritten_reads
        assert (load.byte, atomic.byte) == (4 * 8, 4 * 32)
        lines = [int(read.location.rpartition(":")[2]) for read in (load, atomic)]
        assert lines[1] == lines[0] + 1 and __file__.endswith(load.location.rpartition(":")[0].rpartition("/")[2])


def test_of_one_line_the_lowest_place_is_told_in_whatever_order() -> None:
    words, room = UnwrittenWords(lambda: [AllocatedStorage("room", room, FILL)]), filled(8)
    words.look()
    for places in (np.array([6, 5]), slice(3, 5), np.array([4])):
        words.on_load(access(room, places))
    assert [read[1:] for read in words.reads.values()] == [("room", "room_ptr", 12)]


def test_what_a_batch_did_is_forgotten_where_it_is_taken_back() -> None:
    room = filled(8)
    words = UnwrittenWords(lambda: [AllocatedStorage("room", room, FILL)])
    words.look()
    for kept in (False, True):
        words.begin_batches()
        words.on_store(access(room, slice(0, 2)))
        words.end_batches(kept=kept)
        assert words.unwritten_elements(room).tolist() == [not kept] * 2 + [True] * 6


def test_a_word_is_written_where_one_of_its_bytes_is() -> None:
    room = filled(4)
    words = UnwrittenWords(lambda: [AllocatedStorage("room", room, FILL)])
    room.view(torch.uint8)[5] = 1
    assert words.unwritten_elements(room).tolist() == [True, False, True, True]
    assert words.unwritten_elements(torch.zeros(2)).tolist() == [False, False], "what is not followed counts as written"

"""Contract under test: an access to neighbouring elements, which goes by slices, ends as the same access element by element does:
in the same words, or the same fault."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from bitverdict.harness.emulator import EmulatedFault, emulated
from bitverdict.harness.emulator.memory.global_memory import GlobalMemory
from bitverdict.harness.emulator.memory.global_order import Access, GlobalOrder


@triton.jit(do_not_specialize=["first", "step", "length", "hole", "second", "limit"])
def moves(x, out, first, step, length, hole, second, limit, BLOCK: tl.constexpr):
    """Each program copies `BLOCK` elements `step` apart, but for those from `length` on and each third, `hole`; then it writes
    `limit` of them again from `second` on."""
    lane = tl.arange(0, BLOCK)  # (BLOCK,)
    at = tl.program_id(0) * first + lane * step
    mask = (lane < length) & (lane % 3 != hole)
    tl.store(out + at, tl.load(x + at, mask=mask, other=-1.0) + 1, mask=mask)
    again = tl.load(out + second + lane, mask=lane < limit)
    tl.store(out + second + lane, again * 2, mask=lane < limit)


def outcome(seed: int) -> tuple:
    """One drawn launch: its words, or its fault without addresses; its advice."""
    draw = np.random.default_rng(seed)
    size, strided = int(draw.integers(60, 200)), 2 if draw.integers(4) == 0 else 1
    x = torch.randn(400, generator=torch.Generator().manual_seed(seed))[::strided][:size]
    out = torch.zeros(2 * size)[::strided][:size]
    first, step = int(draw.choice([0, 16, 31, 32, 33])), int(draw.choice([1, 1, 1, 2, 0]))
    length, hole = int(draw.choice([0, 1, 20, 31, 32])), int(draw.choice([0, 1, 2, 3, 3, 3, 3]))
    second, limit = int(draw.integers(0, 40)), int(draw.choice([0, 0, 5, 32]))
    with emulated("sm_90", f"drawn:{seed}") as device:
        try:
            moves[(3,)](x, out, first, step, length, hole, second, limit, BLOCK=32)
            said = ""
        except EmulatedFault as fault:
            said = re.sub(r"0x\w+|-?\d+ bytes from its start", "", f"{fault.outcome} {fault.message} {fault.location}")
    return out.tolist(), said, device.advice


def test_slices_end_as_single_elements_do(monkeypatch: pytest.MonkeyPatch) -> None:
    sliced: list[bool] = []
    run = GlobalMemory._run
    with monkeypatch.context() as patch:
        patch.setattr(GlobalMemory, "_run", lambda *given: (found := run(*given), sliced.append(found is not None))[0])
        told = [outcome(seed) for seed in range(150)]
    monkeypatch.setattr(GlobalMemory, "_run", lambda *given: None)
    alone = [outcome(seed) for seed in range(150)]
    assert told == alone
    kinds = {said.split(" ", 1)[0] for _, said, _ in told}
    assert {"", "race", "stray"} <= kinds and sliced.count(True) > 200 < sliced.count(False)


MUTANTS: dict[str, Callable[[tuple], tuple]] = {
    "one element further": lambda found: (found[0], slice(found[1].start + 4, found[1].stop + 4), found[2]),
    "one element less": lambda found: (found[0], slice(found[1].start, found[1].stop - 4), found[2] - 1),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_wrong_slice_is_seen(monkeypatch: pytest.MonkeyPatch, mutant: str) -> None:
    right, run = [outcome(seed) for seed in range(20)], GlobalMemory._run
    monkeypatch.setattr(GlobalMemory, "_run", lambda *given: (found := run(*given)) and MUTANTS[mutant](found))
    wrong: list[tuple] = []
    for seed in range(20):
        try:
            wrong.append(outcome(seed))
        except (ValueError, IndexError):
            wrong.append(())
    assert wrong != right


def test_races_are_missed_where_slices_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    right, at = [outcome(seed) for seed in range(40)], GlobalOrder._events_at

    def forgets(self: GlobalOrder, events: np.ndarray, access: Access) -> np.ndarray:
        found = at(self, events, access)
        return np.zeros_like(found) if isinstance(access.index, slice) else found

    monkeypatch.setattr(GlobalOrder, "_events_at", forgets)
    found = [outcome(seed) for seed in range(40)]
    assert sum("race" in said for _, said, _ in found) < sum("race" in said for _, said, _ in right)

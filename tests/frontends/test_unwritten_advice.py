"""Contract under test: under `--emulate` a kernel that takes words which nobody wrote draws an advice by its line, and no other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from bitverdict.harness.emulator.gpu_operators import PoisonedMemory
from bitverdict.harness.frontends.emulated_session import EmulatedSession
from tests.support import suite_kernels

pytestmark = pytest.mark.compiles


def _by_a_kernel() -> torch.Tensor:
    y = torch.empty(100, device="cuda")
    suite_kernels.doubled[(2,)](torch.ones(100, device="cuda"), y, 100, BLOCK=64)
    return y


def _by_parts() -> torch.Tensor:
    y = torch.empty(50, 2, device="cuda")
    y[:, 0], y[:, 1] = 1.0, 2.0
    return y


def _by_bits() -> torch.Tensor:
    """Minus one, whose bytes are those of uninitialised memory."""
    y = torch.empty(100, device="cuda", dtype=torch.int32).fill_(-1)
    return y.view(torch.float32)


def _by_the_host() -> torch.Tensor:
    """By none of torch's operators."""
    y = torch.empty(100, device="cuda")
    y.untyped_storage()[:] = 0
    return y


WRITTEN = {
    "zeros": lambda: torch.zeros(100, device="cuda"),
    "by a copy": lambda: torch.empty(100, device="cuda").copy_(torch.ones(100)),
    "by the host": _by_the_host,
    "by a kernel": _by_a_kernel,
    "by parts": _by_parts,
    "by its bits": _by_bits,
}
UNWRITTEN = {
    "nothing": (lambda: torch.empty(100, device="cuda"), 0),
    "a part": (lambda: (y := torch.empty(100, device="cuda"), y[:60].zero_(), y)[-1], 240),
}


def _advice(allocate: Callable[[], torch.Tensor]) -> list[str]:
    session = EmulatedSession(["sm_90"])
    session.enter()
    try:
        suite_kernels.added[(2,)](torch.ones(100, device="cuda"), allocate(), 100, BLOCK=64)
        return [said for said in session.take("here")["advice"] if "uninitialised" in said]
    finally:
        session.close()


@pytest.mark.parametrize("name", WRITTEN)
def test_what_was_written_draws_none(name: str) -> None:
    assert not _advice(WRITTEN[name])


@pytest.mark.parametrize("name", UNWRITTEN)
def test_what_nobody_wrote_is_named_by_line_and_byte(name: str) -> None:
    allocate, byte = UNWRITTEN[name]
    lines = Path(suite_kernels.__file__).read_text().split("\n")
    (line,) = (place for place, text in enumerate(lines, 1) if "total = " in text)
    where = f"{suite_kernels.__file__}:{line}"
    assert _advice(allocate) == [f"{where}: takes uninitialised words of y, the first at byte {byte} of its storage"]


@pytest.mark.parametrize("lives", [True, False])
def test_of_an_allocation_that_is_gone_nothing_is_kept(lives: bool) -> None:
    memory, place = PoisonedMemory(), bytearray(400)
    first = torch.frombuffer(place, dtype=torch.float32)
    memory.on_allocation(first, "empty", (), {})
    if not lives:
        del first
    memory.on_placement(torch.frombuffer(place, dtype=torch.int32))
    assert bool(memory.storages) == lives

"""Contract under test: programs that run several at once end as programs that run one by one do: in the same words, counts and
advice, or in the same fault with the same memory."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from bitverdict.harness.emulator import EmulatedFault, LaunchOptions, device, emulated
from bitverdict.harness.emulator.execution import cta_state, program_batches
from tests.support import batched_kernels as kernels
from tests.support.suite_kernels import doubled

PROGRAMS, BLOCK = 8, 32


@pytest.fixture(autouse=True)
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No program has failed as a batch before."""
    monkeypatch.setattr(device, "_translations", {})


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def rows() -> tuple[torch.Tensor, ...]:
    out, extra = torch.zeros(9, 50), torch.zeros(9)
    kernels.rows[(9,)](normal(9, 50), normal(50, seed=1), out, extra, 50, 24, BLOCK=64, num_warps=1)
    return out, extra


def tiles() -> tuple[torch.Tensor, ...]:
    out = torch.zeros(30, 37, dtype=torch.int32)
    x = torch.randint(-99, 99, (37, 30), generator=torch.Generator().manual_seed(2), dtype=torch.int32)
    kernels.tiles[(3, 2)](x, out, 37, 30, BLOCK=16)
    return (out,)


def uneven(kind: str) -> Callable[[], tuple[torch.Tensor, ...]]:
    def launch() -> tuple[torch.Tensor, ...]:
        out, other = torch.zeros(PROGRAMS * BLOCK), torch.zeros(PROGRAMS * BLOCK)
        launch.memory = out, other  # type: ignore[attr-defined]
        kernels.uneven[(PROGRAMS,)](normal(PROGRAMS * BLOCK), out, other, KIND=kind, BLOCK=BLOCK, debug=kind == "assert")
        return out, other

    return launch


def ended(launch: Any, *, batches: bool, arch: str = "sm_90", schedule: str = "latest") -> tuple[tuple, str]:
    """(all that a launch leaves behind, why its programs ran one by one)."""
    with emulated(arch, schedule, options=LaunchOptions(batches=batches)) as gpu:
        try:
            outputs, said = launch(), ""
        except EmulatedFault as fault:
            told = f"{fault.outcome} {fault.message} {fault.location} {sorted(fault.details.items())}"
            outputs, said = launch.memory, re.sub(r"0x\w+|-?\d+ bytes from its start", "", told)
    done = gpu.launches[-1]
    words = [each.view(torch.uint8).tolist() for each in outputs]
    return (words, said, done.operations, gpu.advice, gpu.schedule.pick(1 << 30)), done.serial_reason


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("launch", [rows, tiles], ids=["rows", "tiles"])
def test_programs_of_a_batch_give_the_words_of_each_alone(launch: Any, arch: str) -> None:
    together, reason = ended(launch, batches=True, arch=arch, schedule="drawn:3")
    alone, _ = ended(launch, batches=False, arch=arch, schedule="drawn:3")
    assert together == alone and reason == ""


def drawn(seed: int) -> Callable[[], tuple[torch.Tensor, ...]]:
    """A launch whose programs may meet, or leave their tensors."""

    def launch() -> tuple[torch.Tensor, ...]:
        draw = np.random.default_rng(seed)
        size, apart = int(draw.integers(170, 400)), 2 if draw.integers(4) == 0 else 1
        x, out = normal(800, seed=seed)[::apart][:size], torch.zeros(2 * size)[::apart][:size]
        launch.memory = (out.contiguous(),)  # type: ignore[attr-defined]
        first, step = (int(draw.choice(given)) for given in ([16, 31, 32, 32, 33], [1, 1, 1, 2, 0]))
        length, hole = int(draw.choice([0, 1, 20, 31, 32])), int(draw.choice([0, 2, 3, 3, 3]))
        far, again, limit = int(draw.integers(0, 250)), int(draw.choice([8, 32])), int(draw.choice([0, 0, 5, 32]))
        kernels.drawn[(5,)](x, out, first, step, length, hole, far, again, limit, BLOCK=32)
        return (out.contiguous(),)

    return launch


def test_drawn_launches_end_as_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    told, reasons = [], []
    for seed in range(80):
        together, reason = ended(drawn(seed), batches=True, schedule=f"drawn:{seed}")
        for ready in device._translations.values():
            ready.no_batch_reason = ""  # each launch tries
        assert together == ended(drawn(seed), batches=False, schedule=f"drawn:{seed}")[0]
        told.append(together[1].split(" ", 1)[0])
        reasons.append(reason)
    assert {"", "race", "stray"} <= set(told) and 10 < reasons.count("") < 60 and told.count("") > reasons.count("")


FAULTS = {"beyond": "stray", "neighbour": "race", "theirs": "race", "assert": "device assert", "endless": "timeout"}


@pytest.mark.parametrize("kind", [*FAULTS, "equal", "again"])
def test_what_a_batch_cannot_tell_is_told_one_by_one(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "STEP_LIMIT", 1000)
    together, reason = ended(uneven(kind), batches=True)
    alone, _ = ended(uneven(kind), batches=False)
    assert together == alone and reason
    assert alone[1].startswith(FAULTS.get(kind, "")) and bool(alone[1]) == (kind in FAULTS)
    assert bool(alone[3]) == (kind == "equal")


@pytest.mark.parametrize("kind", ["none", "ways"])
def test_even_programs_run_together(kind: str) -> None:
    assert ended(uneven(kind), batches=True) == (ended(uneven(kind), batches=False)[0], "")


def parted(kind: str, *, ways: int, count: int = 90) -> Callable[[], tuple[torch.Tensor, ...]]:
    """A launch of `count` programs, which go up to `ways` ways."""

    def launch() -> tuple[torch.Tensor, ...]:
        steps = torch.randint(0, ways, (count,), generator=torch.Generator().manual_seed(6), dtype=torch.int32)
        out = normal((count + 1) * BLOCK, seed=1)
        launch.memory = (out,)  # type: ignore[attr-defined]
        kernels.parted[(count,)](normal(count * BLOCK), out, steps, KIND=kind, BLOCK=BLOCK)
        return (out,)

    return launch


@pytest.mark.parametrize("elements", [8 * BLOCK, 1 << 15])
@pytest.mark.parametrize("kind", ["plain", "stored", "in place", "left", "apart"])
def test_programs_that_part_go_on_in_groups(kind: str, elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one batch or in many; programs that meet are still a race."""
    monkeypatch.setattr(program_batches, "ELEMENTS", elements)
    together, reason = ended(parted(kind, ways=4), batches=True)
    alone, _ = ended(parted(kind, ways=4), batches=False)
    assert together == alone
    assert (reason == "") == (alone[1] == "") == (kind != "apart")


def test_programs_with_little_in_common_run_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_batches, "ELEMENTS", 8 * BLOCK)
    together, reason = ended(parted("plain", ways=90), batches=True)
    assert together == ended(parted("plain", ways=90), batches=False)[0] and reason.endswith("many ways")


@pytest.mark.parametrize("kind", ["stored", "in place"])
def test_what_a_parted_batch_did_is_taken_back(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its programs meet themselves."""
    monkeypatch.setattr(program_batches._Order, "take_batch_back", lambda self: None)
    reason = ended(parted(kind, ways=4), batches=True)[1]
    assert reason.endswith("a write of what was " + ("written" if kind == "stored" else "read"))


@pytest.mark.parametrize("kind", ["own", "again", "backwards", "turned", "neighbour", "joined", "twice"])
def test_who_stores_by_the_pointers_of_its_loads_stays_in_a_batch(kind: str) -> None:
    """By others the words come from other threads: a race, where programs run one by one."""

    def launch() -> tuple[torch.Tensor, ...]:
        x = normal(9 * 64 + 8)
        launch.memory = (x,)  # type: ignore[attr-defined]
        kernels.in_place[(9,)](x, 64, KIND=kind, BLOCK=64)
        return (x,)

    together, reason = ended(launch, batches=True)
    alone, _ = ended(launch, batches=False)
    assert together == alone and (reason == "") == (kind in ("own", "again", "backwards")) == (alone[1] == "")


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(
    "kind", ["own", "same", "selected", "single", "summed", "scanned", "branched", "carried", "joined", "turned"]
)
def test_undefined_lanes_are_followed_in_a_batch(kind: str, wide: bool) -> None:
    def launch() -> tuple[torch.Tensor, ...]:
        x, out = (
            torch.randint(-9, 9, (1024,), generator=torch.Generator().manual_seed(4), dtype=torch.int32),
            torch.zeros(9 * 1024, dtype=torch.int32),
        )
        kernels.masked[(9,)](x, out, 24, KIND=kind, WIDE=wide, BLOCK=32)
        return (out,)

    together, reason = ended(launch, batches=True)
    alone, _ = ended(launch, batches=False)
    assert together == alone and reason == "" and bool(alone[3]) == wide


def test_a_launch_that_failed_as_a_batch_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = uneven("equal")
    with emulated("sm_90") as gpu:
        launch()
        monkeypatch.setattr(program_batches.Batch, "start", None)
        launch()
    assert gpu.launches[0].serial_reason == gpu.launches[1].serial_reason != ""


@pytest.mark.parametrize(
    ("kind", "check"), [("neighbour", "write"), ("theirs", "read"), ("ways", "common_condition"), ("equal", "write")]
)
def test_each_check_of_a_batch_is_needed(kind: str, check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the launch ends otherwise than one by one."""
    owner = program_batches.Batch if check == "common_condition" else program_batches._Order
    monkeypatch.setattr(owner, check, lambda *given: bool(given[1][0]) if check == "common_condition" else None)
    assert ended(uneven(kind), batches=True)[0] != ended(uneven(kind), batches=False)[0]


@pytest.mark.parametrize("batches", [True, False])
def test_a_launch_over_its_limit_ends_as_too_large(monkeypatch: pytest.MonkeyPatch, batches: bool) -> None:
    clock = itertools.count()
    monkeypatch.setattr(cta_state, "process_time", lambda: next(clock))  # each look at it is a second
    monkeypatch.setattr(program_batches, "ELEMENTS", 4 * 64)

    def launch(seconds: int) -> torch.Tensor:
        x, y = normal(64 * 40), torch.zeros(64 * 40)
        with emulated("sm_90", options=LaunchOptions(batches=batches, seconds_limit=seconds)):
            doubled[(40,)](x, y, 64 * 40, BLOCK=64)
        return y - 2 * x

    with pytest.raises(EmulatedFault, match=r"too large: \d+ of 40 programs had begun after 5 s of processor time") as caught:
        launch(5)
    assert caught.value.outcome == "not modelled" and not re.search(r"\b(0|1|40) of 40", str(caught.value))
    assert not launch(1000).any()

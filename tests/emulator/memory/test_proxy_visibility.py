"""Contract under test: the states of a byte between the generic and the async proxy. An async access is ordered after a generic one
by a proxy fence of a partition that knows the access, for a partition that knows the fence, and by nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bitverdict.harness.emulator.advice import Advice, Note
from bitverdict.harness.emulator.execution.partitions import MOST_AGENTS, Agent
from bitverdict.harness.emulator.faults import OnChipFault
from bitverdict.harness.emulator.memory.onchip import Space, View
from bitverdict.harness.emulator.memory.proxy_fences import ProxyVisibility

SIZE = 64


def operation(name: str) -> Any:
    return SimpleNamespace(name=name, location=f"kernel.py:{len(name)}", brief=name)


WRITE, READ, COPY, SEND, FILL = (operation(name) for name in ("store", "load", "an async copy", "TMA store", "TMA load"))


class Program:
    """Two partitions over 64 bytes of shared memory, and what they do in words."""

    def __init__(self) -> None:
        self.notes: set[Note] = set()
        self.proxies = ProxyVisibility(SIZE, self.notes)
        self.agents = [Agent(number, f"partition {number}", np.zeros(MOST_AGENTS, np.int32)) for number in range(2)]
        for agent in self.agents:
            agent.clock[agent.number] = 1
        self.space = Space("shared memory", SIZE)

    def view(self, low: int = 0, high: int = SIZE) -> View:
        return View(self.space, low, (high - low,), (1,), np.dtype(np.uint8))

    def do(self, *steps: str) -> None:
        """Each step is "<partition> <what>": partition 0 or 1, or "0>1" for a release of 0 that 1 acquires."""
        for step in steps:
            who, _, what = step.partition(" ")
            if ">" in who:
                first, second = (self.agents[int(number)] for number in who.split(">"))
                second.acquire(first.release())
                continue
            agent, proxies, view = self.agents[int(who)], self.proxies, self.view()
            match what:
                case "writes":
                    proxies.generic_write(WRITE, view, agent)
                case "reads":
                    proxies.generic_read(READ, view, agent)
                case "fences" | "is fenced":
                    proxies.proxy_fence(agent, by_author=what == "fences", is_alone=False)
                case "sends":
                    proxies.async_read(SEND, view, agent)
                case "fills":
                    proxies.async_write(FILL, view, agent, partitions=True)
                case _:
                    raise ValueError(f"{step!r}: no such step")


ORDERED = [
    ("0 sends",),
    ("0 writes", "0 fences", "0 sends"),
    ("0 writes", "0 fences", "0>1", "1 sends"),
    ("0 writes", "0>1", "1 fences", "1 sends"),
    ("0 reads", "0 fences", "0>1", "1 fills"),
    ("0 reads", "0>1", "1 fences", "1 fills"),
    ("0 reads", "1 sends"),
    ("0 writes", "0 fences", "0>1", "1 fills", "1 sends"),
]
RACES = [  # each differs from one above by one step, or by the order of two
    ("0 writes", "0 sends"),
    ("0 writes", "0>1", "1 sends"),
    ("0 writes", "0>1", "0 fences", "1 sends"),
    ("0 writes", "1 fences", "0>1", "1 sends"),
    ("0 fences", "0 writes", "0 sends"),
    ("0 writes", "0 fences", "1 sends"),
    ("0 reads", "0>1", "1 fills"),
    ("0 reads", "0>1", "0 fences", "1 fills"),
    ("0 reads", "1 fences", "0>1", "1 fills"),
    ("0 writes", "0>1", "1 fills"),
    ("0 writes", "0 fences", "0 writes", "0 sends"),
]


@pytest.mark.parametrize("steps", ORDERED, ids=", ".join)
def test_a_known_fence_behind_a_known_access_orders_the_proxies(steps: tuple[str, ...]) -> None:
    program = Program()
    program.do(*steps)
    assert not program.notes


@pytest.mark.parametrize("steps", RACES, ids=", ".join)
def test_without_such_a_fence_the_async_access_is_a_race(steps: tuple[str, ...]) -> None:
    program = Program()
    program.do(*steps[:-1])
    with pytest.raises(OnChipFault, match="no proxy fence") as raised:
        program.do(steps[-1])
    read = any("reads" in step for step in steps)
    assert raised.value.outcome == "race" and f"{'read' if read else 'wrote'} through the generic one" in raised.value.message


@pytest.mark.parametrize(("steps", "note"), [
    (("0 writes", "0 is fenced", "0 sends"), Note(Advice.FENCE, WRITE.location)),
    (("0 reads", "0 is fenced", "0>1", "1 fills"), Note(Advice.FENCE_AFTER_READ, READ.location)),
])  # fmt: skip
def test_a_fence_of_the_compilers_orders_them_with_an_advice(steps: tuple[str, ...], note: tuple[str, str]) -> None:
    program = Program()
    program.do(*steps)
    assert program.notes == {note}


def test_in_one_partition_a_fence_since_the_last_use_is_asked_for() -> None:
    program = Program()
    unfenced, fill = (
        program.proxies.of_one,
        lambda view: program.proxies.async_write(FILL, view, program.agents[0], partitions=False),
    )
    unfenced.use(READ, program.view(0, 32))
    fill(program.view(32, 64))
    with pytest.raises(OnChipFault, match=r"load at kernel.py:4 used through the generic one: no proxy fence"):
        fill(program.view(31, 64))
    program.do("0 is fenced")
    fill(program.view())
    unfenced.use(WRITE, program.view(40, 41))
    fill(program.view(0, 40))
    with pytest.raises(OnChipFault, match="store at"):
        fill(program.view(0, 41))
    assert not program.notes


def test_what_the_async_proxy_wrote_is_ordered_and_the_rest_is_not() -> None:
    program = Program()
    first = program.agents[0]
    program.do("0 writes")
    program.proxies.async_write(FILL, program.view(0, 32), first, partitions=False)  # and nothing used it since a fence
    program.proxies.async_read(SEND, program.view(0, 32), first)
    with pytest.raises(OnChipFault):
        program.proxies.async_read(SEND, program.view(31, 33), first)
    program.proxies.reset()
    program.do("0 sends")

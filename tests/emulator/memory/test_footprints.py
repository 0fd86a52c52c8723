"""Contract under test: two partitions conflict over a byte on chip where one of them writes it, unless one knows of the other's
access; what an operation in flight touches is checked and not remembered.
"""

from __future__ import annotations

import numpy as np
import pytest

from bitverdict.harness.emulator.execution.partitions import MOST_AGENTS, Agent, Footprints
from bitverdict.harness.emulator.faults import OnChipFault
from bitverdict.harness.emulator.memory.onchip import Space, View
from bitverdict.harness.emulator.mlir_reader import Operation

ACCESSES = [(False, False, ""), (False, True, "overwrites read"), (True, False, "reads wrote"), (True, True, "writes wrote")]


def operation(name: str) -> Operation:
    return Operation(name, [], [], {}, [], [], [], f"{name}.py:1", name)


class Two:
    """Two partitions, and words 0 to 7 of a space that they share."""

    def __init__(self) -> None:
        self.space = Space("shared memory", 64)
        self.footprints = Footprints(self.space, 2)
        self.agents = [Agent(number, f"partition {number}", np.zeros(MOST_AGENTS, np.int32)) for number in range(2)]
        for agent in self.agents:
            agent.clock[agent.number] = 1

    def touch(self, number: int, *, write: bool, word: int = 0, words: int = 4, keep: bool = True) -> None:
        view = View(self.space, 4 * word, (words,), (4,), np.dtype(np.float32))
        self.footprints.touch(self.agents[number], operation(f"op{number}"), view, write=write, keep=keep)

    def hand_over(self, giver: int, taker: int) -> None:
        self.agents[taker].acquire(self.agents[giver].release())


@pytest.mark.parametrize(("first", "second", "said"), ACCESSES)
def test_partitions_conflict_where_one_of_them_writes(first: bool, second: bool, said: str) -> None:
    two = Two()
    two.touch(0, write=first)
    if not said:
        two.touch(1, write=second)
        return
    verb, did = said.split()
    with pytest.raises(OnChipFault, match=rf"op1 in partition 1 {verb} .*op0 at op0\.py:1 {did} in another partition"):
        two.touch(1, write=second, word=3)  # the last of the four


@pytest.mark.parametrize(("first", "second", "said"), ACCESSES)
def test_a_handover_of_the_first_to_the_second_orders_them(first: bool, second: bool, said: str) -> None:
    two = Two()
    two.touch(0, write=first)
    two.hand_over(0, 1)
    two.touch(1, write=second)
    backwards = Two()
    backwards.touch(0, write=first)
    backwards.hand_over(1, 0)  # tells the second nothing
    if said:
        with pytest.raises(OnChipFault):
            backwards.touch(1, write=second)


@pytest.mark.parametrize(("first", "second"), [access[:2] for access in ACCESSES])
def test_other_bytes_and_a_partitions_own_are_no_conflict(first: bool, second: bool) -> None:
    two = Two()
    two.touch(0, write=first)
    two.touch(0, write=second)
    two.touch(1, write=second, word=4)


def test_an_access_of_an_operation_in_flight_is_checked_not_kept() -> None:
    two = Two()
    two.touch(0, write=True, keep=False)
    two.touch(1, write=True)  # what was in flight tells by its own completion who may rely on it
    with pytest.raises(OnChipFault, match="writes"):
        two.touch(0, write=True, keep=False)


def test_an_access_after_the_handover_is_not_known_by_it() -> None:
    two = Two()
    two.touch(0, write=True)
    two.hand_over(0, 1)
    two.touch(1, write=False)
    two.touch(0, write=True, word=4)
    with pytest.raises(OnChipFault, match="reads"):
        two.touch(1, write=False, word=4)

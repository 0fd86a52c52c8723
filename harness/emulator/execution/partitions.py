"""Agents: the partitions of a program, who knows what of whom, and the drive that lets them run.

An unspecialised program is one agent: order among its threads is the compiler's (membar). Under `warp_specialize` each partition
is an agent; only mbarriers order them, so each agent keeps a vector clock and each byte remembers who wrote and who read it last.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.emulator.async_rules import rule_of
from bitverdict.harness.emulator.execution.async_ops import Flights, Groups
from bitverdict.harness.emulator.faults import OnChipFault
from bitverdict.harness.emulator.memory.onchip import Space, View

if TYPE_CHECKING:
    from bitverdict.harness.emulator.mlir_reader import Operation


MOST_AGENTS = 16
GLOBAL = -1  # in place of a barrier's byte: a wait for words of global memory


@dataclass
class Wait:
    """What an agent that cannot move waits for."""

    op: Operation
    passes: Callable[[], bool]
    describe: Callable[[], str]
    barrier: int  # byte of shared memory, or `GLOBAL`
    initialisation: Operation | None = None  # where that barrier began


class Turn(Enum):
    """Why a program that could go on lets others run: it is about to make an atomic, or has read the same words once more."""

    PAUSES = "pauses"
    SPINS = "spins"


@dataclass
class Stuck:
    """A program whose agents all wait, some of them for global memory: only another program can help."""

    waits: dict[str, Wait]  # by the agent's name


Thread = Generator[Wait | Turn | Stuck, None, Any]


@dataclass
class Poll:
    """The last time that a load or atomic in a loop looked, and what it found. `acts` counts what its program had done till then;
    `state` are the values of the loop, once the same words were found twice."""

    addresses: np.ndarray
    words_found: np.ndarray
    acts: int
    state: dict[str, Any] | None = None


@dataclass(eq=False)
class Agent:
    """One partition: its number and name, its clock, the groups of operations that its own waits count, and where it stands in the
    order of global memory (`global_order`)."""

    number: int
    name: str
    clock: np.ndarray  # (MOST_AGENTS + others,) int32: epochs it knows of its program's agents, then of all programs'
    thread: Thread | None = None
    wait: Wait | None = None
    result: Any = None
    groups: Groups = field(default_factory=Groups)  # of operations that its own waits count
    polls: dict[int, Poll] = field(default_factory=dict)  # by operation
    spins: bool = False  # has read the same words once more
    program: int = 0
    place: tuple[int, int, int] = (0, 0, 0)
    slot: int = 0  # of `beyond`: itself
    known_epochs: np.ndarray = field(init=False)  # (slots,) view of `beyond`: epochs it knows
    fenced_epochs: np.ndarray = field(init=False)  # (slots,) or (0,) view of `beyond`: epochs that the async proxy sees too
    released_epochs: np.ndarray | None = None  # as `beyond`, at its last fence that releases
    segment: int = 1  # events from here on came after its last barrier
    warp_segment: int = 1
    joined_epoch: int = 0  # its epoch that the last barrier ended
    traced_events: list[int] = field(default_factory=list)  # its events since then, whose threads are remembered
    places: int = 0  # that they touched
    wrote: bool = False  # several threads have written global memory since then

    def __post_init__(self) -> None:
        self.known_epochs = self.fenced_epochs = self.beyond[:0]

    @property
    def beyond(self) -> np.ndarray:
        """The part of the clock that tells of all programs."""
        return self.clock[MOST_AGENTS:]

    @property
    def epoch(self) -> int:
        """What it does now belongs to this epoch of its own."""
        return int(self.clock[self.number])

    def release(self) -> np.ndarray:
        """What others learn by acquiring now; later acts of this agent are a new epoch."""
        known = self.clock.copy()
        if self.known_epochs.size:
            known[MOST_AGENTS + self.slot] = self.clock[self.number]
        self.clock[self.number] += 1
        return known

    def acquire(self, known: np.ndarray) -> None:
        np.maximum(self.clock, known, out=self.clock)


class Footprints:
    """Who touched each byte of a space last, while a program is specialised."""

    def __init__(self, space: Space, agents: int) -> None:
        self.space = space
        self.operations: list[Operation] = []
        self.writer = np.zeros(space.size, np.uint8)  # (size,)
        self.written = np.zeros(space.size, np.int32)  # (size,) epoch of the writer, 0 for never
        self.write_op = np.zeros(space.size, np.int32)  # (size,) index into operations
        self.read = np.zeros((agents, space.size), np.int32)  # (agents, size) epoch
        self.read_op = np.zeros((agents, space.size), np.int32)  # (agents, size)

    def touch(self, agent: Agent, op: Operation, view: View, *, write: bool, keep: bool = True) -> None:
        """An access; a race when a conflicting one of another agent is not known to this one. It is remembered when `keep`: what an
        operation in flight touches is not, since its own completion tells who may rely on it."""
        where = view.bytes()  # (bytes,) positions
        unseen = self.written[where] > agent.clock[self.writer[where]]
        if unseen.any():
            self._fail(agent, op, view, self.write_op[where[unseen.argmax()]], "writes" if write else "reads", "wrote")
        if write:
            for other in range(len(self.read)):
                if other != agent.number and (late := self.read[other, where] > agent.clock[other]).any():
                    self._fail(agent, op, view, self.read_op[other, where[late.argmax()]], "overwrites", "read")
        if not keep:
            return
        self.operations.append(op)
        if write:
            self.writer[where], self.written[where] = agent.number, agent.clock[agent.number]
            self.write_op[where] = len(self.operations) - 1
        else:
            self.read[agent.number, where] = agent.clock[agent.number]
            self.read_op[agent.number, where] = len(self.operations) - 1

    def _fail(self, agent: Agent, op: Operation, view: View, other: int, verb: str, did: str) -> None:
        earlier_operation = self.operations[other]
        raise OnChipFault(
            "race",
            f"{op.name} in {agent.name} {verb} {view}, which {earlier_operation.name} at "
            f"{earlier_operation.location} {did} in another partition: "
            "no barrier orders them",
            op.location,
            {
                "rule": rule_of("another partition"),
                "operation": op.brief,
                "other operation": earlier_operation.brief,
                "other location": earlier_operation.location,
            },
        )


def drive(agents: list[Agent], flights: Flights, turn: Callable[[Agent], None], state: Callable[[], dict[str, str]]) -> Thread:
    """Run `agents` until all have ended; yields where another program may, or must, run. `turn` makes one of them current. Raises
    EmulatedFault "deadlock" when nobody can move."""
    live_agents = list(agents)
    while live_agents:
        runnable = [a for a in live_agents if a.wait is None or a.wait.passes()]
        if not runnable:
            waits = {a.name: a.wait for a in live_agents if a.wait is not None}
            awaited = {blocked.barrier for blocked in waits.values()}
            flight = next((f for f in flights.pending if not f.landed and awaited.intersection(f.barriers)), None)
            if flight is not None:
                flights.land(flight)
            elif GLOBAL in awaited:
                yield Stuck(waits)
            else:
                _deadlock(live_agents, state())
            continue
        if all(a.spins for a in runnable):
            for agent in runnable:
                agent.spins = False
            yield Turn.SPINS
        runnable = [a for a in runnable if not a.spins]
        agent = runnable[flights.schedule.pick(len(runnable))] if len(runnable) > 1 else runnable[0]
        turn(agent)
        assert agent.thread is not None
        try:
            signal = next(agent.thread)
        except StopIteration as end:
            agent.result = end.value
            live_agents.remove(agent)
            continue
        agent.wait = signal if isinstance(signal, Wait) else None
        if signal is Turn.SPINS:
            agent.spins = True
        elif agent.wait is None:
            yield signal


def _deadlock(running: list[Agent], state: dict[str, str]) -> None:
    waits = {a.name: f"{a.wait.op.location}: {a.wait.describe()}" for a in running if a.wait is not None}
    first_wait = next(a.wait for a in running if a.wait is not None)
    began = (
        {}
        if first_wait.initialisation is None
        else {"other operation": first_wait.initialisation.brief, "other location": first_wait.initialisation.location}
    )
    said = "; ".join(f"{name} waits at {wait}" for name, wait in waits.items())
    raise OnChipFault(
        "deadlock",
        f"everything waits, and nothing in flight could end a wait: {said}",
        first_wait.op.location,
        {"operation": first_wait.op.brief, "waits": waits, "barriers": state, **began},
    )

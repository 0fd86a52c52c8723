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
class Blocked:
    """What an agent that cannot move waits for."""

    op: Operation
    passes: Callable[[], bool]
    describe: Callable[[], str]
    barrier: int  # byte of shared memory, or `GLOBAL`
    initialised: Operation | None = None  # where that barrier began


class Turn(Enum):
    """Why a program that could go on lets others run: it is about to make an atomic, or has read the same words once more."""

    PAUSES = "pauses"
    SPINS = "spins"


@dataclass
class Stuck:
    """A program whose agents all wait, some of them for global memory: only another program can help."""

    waits: dict[str, Blocked]  # by the agent's name


Thread = Generator[Blocked | Turn | Stuck, None, Any]


@dataclass
class Poll:
    """The last time that a load or atomic in a loop looked, and what it found. `acts` counts what its program had done till then;
    `state` are the values of the loop, once the same words were found twice."""

    addresses: np.ndarray
    found: np.ndarray
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
    blocked: Blocked | None = None
    result: Any = None
    groups: Groups = field(default_factory=Groups)  # of operations that its own waits count
    polls: dict[int, Poll] = field(default_factory=dict)  # by operation
    spins: bool = False  # has read the same words once more
    program: int = 0
    place: tuple[int, int, int] = (0, 0, 0)
    slot: int = 0  # of `beyond`: itself
    known: np.ndarray = field(init=False)  # (slots,) view of `beyond`: epochs it knows
    fenced: np.ndarray = field(init=False)  # (slots,) or (0,) view of `beyond`: epochs that the async proxy sees too
    released: np.ndarray | None = None  # as `beyond`, at its last fence that releases
    segment: int = 1  # events from here on came after its last barrier
    warp_segment: int = 1
    joined: int = 0  # its epoch that the last barrier ended
    traced: list[int] = field(default_factory=list)  # its events since then, whose threads are remembered
    places: int = 0  # that they touched
    wrote: bool = False  # several threads have written global memory since then

    def __post_init__(self) -> None:
        self.known = self.fenced = self.beyond[:0]

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
        if self.known.size:
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
        earlier = self.operations[other]
        raise OnChipFault(
            "race",
            f"{op.name} in {agent.name} {verb} {view}, which {earlier.name} at {earlier.location} {did} in another partition: "
            "no barrier orders them",
            op.location,
            {
                "rule": rule_of("another partition"),
                "operation": op.brief,
                "other operation": earlier.brief,
                "other location": earlier.location,
            },
        )


def drive(agents: list[Agent], flights: Flights, turn: Callable[[Agent], None], state: Callable[[], dict[str, str]]) -> Thread:
    """Run `agents` until all have ended; yields where another program may, or must, run. `turn` makes one of them current. Raises
    EmulatedFault "deadlock" when nobody can move."""
    running = list(agents)
    while running:
        ready = [a for a in running if a.blocked is None or a.blocked.passes()]
        if not ready:
            waits = {a.name: a.blocked for a in running if a.blocked is not None}
            awaited = {blocked.barrier for blocked in waits.values()}
            flight = next((f for f in flights.pending if not f.landed and awaited.intersection(f.barriers)), None)
            if flight is not None:
                flights.land(flight)
            elif GLOBAL in awaited:
                yield Stuck(waits)
            else:
                _deadlock(running, state())
            continue
        if all(a.spins for a in ready):
            for agent in ready:
                agent.spins = False
            yield Turn.SPINS
        ready = [a for a in ready if not a.spins]
        agent = ready[flights.schedule.pick(len(ready))] if len(ready) > 1 else ready[0]
        turn(agent)
        assert agent.thread is not None
        try:
            said = next(agent.thread)
        except StopIteration as end:
            agent.result = end.value
            running.remove(agent)
            continue
        agent.blocked = said if isinstance(said, Blocked) else None
        if said is Turn.SPINS:
            agent.spins = True
        elif agent.blocked is None:
            yield said


def _deadlock(running: list[Agent], state: dict[str, str]) -> None:
    waits = {a.name: f"{a.blocked.op.location}: {a.blocked.describe()}" for a in running if a.blocked is not None}
    first = next(a.blocked for a in running if a.blocked is not None)
    began = (
        {}
        if first.initialised is None
        else {
            "other operation": first.initialised.brief,
            "other location": first.initialised.location,
        }
    )
    said = "; ".join(f"{name} waits at {wait}" for name, wait in waits.items())
    raise OnChipFault(
        "deadlock",
        f"nobody can move and nothing is left that could arrive: {said}",
        first.op.location,
        {"operation": first.op.brief, "waits": waits, "barriers": state, **began},
    )

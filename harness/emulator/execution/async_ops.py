"""Time: asynchronous operations are issued, land when the schedule says, and may be relied on only after what PTX says orders them.

Two things are kept apart. *Landing* moves the data: at issue (eager), when something waits for it (latest), or in between (drawn).
*Knowledge* is what an agent may rely on: an operation is in flight for an agent until a wait of that agent has covered it, landed
or not. A touch of memory that an operation in flight still writes, or an overwrite of memory it still reads, is a race under every
schedule.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

from bitverdict.harness.emulator.async_rules import AsyncKind, Completion
from bitverdict.harness.emulator.execution.cluster_order import OWN, Use
from bitverdict.harness.emulator.faults import BadArgument, OnChipFault
from bitverdict.harness.emulator.memory.onchip import View

if TYPE_CHECKING:
    from bitverdict.harness.emulator.execution.cta_state import CtaState
    from bitverdict.harness.emulator.execution.partitions import Agent
    from bitverdict.harness.emulator.mlir_reader import Operation


READ_BY = "read by"  # in the details of a fault whose reader only the running program knows


class InFlight:
    """One asynchronous operation of a `kind`, issued by partition `agent`.

    `landing` moves its data; `barriers` are the bytes of shared memory of the mbarriers that it arrives at; `known` the agents that
    have waited for it; `adds`: it adds to what it writes over. ValueError where it uses memory that the record of its kind does not
    name.
    """

    __slots__ = (
        "adds",
        "after",
        "agent",
        "barriers",
        "behind",
        "everywhere",
        "kind",
        "known",
        "landed",
        "landing",
        "number",
        "op",
        "pipe",
        "reads",
        "real",
        "value",
        "writes",
    )

    def __init__(
        self,
        op: Operation,
        kind: AsyncKind,
        agent: int,
        *,
        reads: tuple[View, ...] = (),
        writes: tuple[View, ...] = (),
        barriers: tuple[int, ...] = (),
    ) -> None:
        kind.check(reads, writes)
        self.op, self.kind, self.agent, self.pipe = op, kind, agent, kind.pipe_of(agent)
        self.reads, self.writes, self.barriers = reads, writes, barriers
        self.landing: Callable[[], None] = _land_nothing
        self.landed = self.adds = False
        self.known: set[int] = set()
        self.after: list[InFlight] = []  # what its issuer had waited for: its completion implies theirs
        self.number = 0
        self.value: Any = None
        self.real: Any = None  # of its value, where floats carry real values
        self.everywhere = OWN  # in which CTAs of a cluster it is over for whoever waits for it
        self.behind: list[Use] = []  # uses of memory before it


def _land_nothing() -> None: ...


class Groups:
    """What the waits of one agent count: its operations that complete by a wait_group, in committed groups, oldest first."""

    def __init__(self) -> None:
        self.open: dict[str, list[InFlight]] = {}  # by `AsyncKind.group`: issued since the last commit
        self.committed: dict[str, list[list[InFlight]]] = {}
        self.unwritten: list[list[int]] = []  # bulk stores whose writes are not waited for, by their events in global memory

    def add(self, flight: InFlight) -> None:
        self.open.setdefault(flight.kind.group, []).append(flight)

    def commit(self, group: str) -> None:
        """What was issued since the last commit is one group, empty or not."""
        self.committed.setdefault(group, []).append(self.open.pop(group, []))

    def older(self, group: str, most: int) -> list[InFlight]:
        """The operations of all committed groups but the last `most`, which are groups no more."""
        groups = self.committed.get(group, [])
        count = max(len(groups) - most, 0)
        found = [flight for each in groups[:count] for flight in each]
        del groups[:count]
        return found


class PendingTensor:
    """Registers that a wgmma in flight still writes: only its wait, or a wgmma behind it, may touch them."""

    def __init__(self, flight: InFlight) -> None:
        self.flight = flight

    def __getattr__(self, name: str) -> Any:
        raise OnChipFault(
            "race",
            f"registers are read while the {self.flight.kind.name} that writes them is in flight: no wait orders them",
            self.flight.op.location,
            {"rule": self.flight.kind.rule.sentence, "operation": self.flight.op.brief, READ_BY: True},
        )

    def __array__(self, *_: object, **__: object) -> Any:
        return self.__getattr__("array")


class Schedule:
    """When operations land: "eager", "latest" or "drawn:<schedule_seed>" (ValueError for anything else). "... on <count>" asks for
    a GPU of `count` multiprocessors: a launcher that begins one program on each then gives each of them several turns.

    "immediate" is for comparison only: operations land and are known to be complete at issue, as in a simulator without time.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.draw: random.Random | None = None
        kind, _, count = text.partition(" on ")
        if kind.startswith("drawn:") and kind[6:].lstrip("-").isdigit():
            self.draw = random.Random(int(kind[6:]))
        elif kind not in ("eager", "latest", "immediate"):
            raise BadArgument(f"schedule {text!r}: must be 'eager', 'latest' or 'drawn:<integer>', and may end in ' on <count>'")
        if " on " in text and (not count.isdigit() or int(count) < 1):
            raise BadArgument(f"schedule {text!r}: multiprocessors must be a number from 1; write 'eager on 2'")
        self.multiprocessors = int(count) if count else None
        self.timeless = kind == "immediate"
        self.eager = kind == "eager" or self.timeless

    def lands_now(self) -> bool:
        return self.eager or (self.draw is not None and self.draw.random() < 0.5)

    def order(self, count: int) -> list[int]:
        """The order in which `count` independent things (programs of a grid, rows of a scatter) happen."""
        order = list(range(count))
        if self.draw is not None:
            self.draw.shuffle(order)
        elif not self.eager:
            order.reverse()
        return order

    def interrupts(self) -> bool:
        """Whether a program that is about to make an atomic lets others run first."""
        return self.draw is not None and self.draw.random() < 0.5

    def pick(self, count: int) -> int:
        """Which of `count` agents that could move does."""
        if self.draw is not None:
            return self.draw.randrange(count)
        return 0 if self.eager else count - 1


def unwritten_fault(op: Operation, view: View) -> OnChipFault | None:
    """The fault of `op`, which reads `view`, where elements of it were never written."""
    if not (missing := view.unknown()):
        return None
    said = f"{op.name} reads {view}, of which {missing} of {prod(view.shape)} elements were never written"
    return OnChipFault("uninitialised read", said, op.location, {"operation": op.brief})


class Flights:
    """All operations in flight of one program. `agents` are its partitions while it is specialised, or its one agent."""

    def __init__(self, cta: CtaState) -> None:
        self.cta, self.schedule = cta, cta.schedule
        self.pending: list[InFlight] = []
        self.agents: list[Agent] = []

    def reset(self, agents: list[Agent]) -> None:
        """Nothing is in flight in a program of `agents`."""
        self.pending, self.agents = [], agents

    def flights_known_to(self, agent: Agent) -> list[InFlight]:
        """What is in flight for others, and has been waited for by `agent`."""
        return [flight for flight in self.pending if agent.number in flight.known]

    def issue(self, flight: InFlight, land: Callable[[], None]) -> InFlight:
        """Put `flight`, whose data `land` moves, in the air; a race when what it touches is still touched by another that nothing
        orders before it."""
        agent = self.cta.agent
        self.cta.acts += 1
        flight.landing = land
        for pending_flight in self.pending:
            if agent.number in pending_flight.known or (pending_flight.pipe and pending_flight.pipe == flight.pipe):
                continue  # waited for; or of one pipe, which hands accumulators on in order
            for view in flight.reads:
                self._collide(pending_flight.writes, view, flight.op, pending_flight, "reads", "writes")
            for view in flight.writes:
                self._collide(pending_flight.writes, view, flight.op, pending_flight, "writes", "writes")
                self._collide(pending_flight.reads, view, flight.op, pending_flight, "overwrites", "reads")
        flight.after = self.flights_known_to(agent)
        flight.behind = self.cta.cluster.uses_so_far(agent.number)
        self.pending.append(flight)
        if flight.kind.completes_by is Completion.WAIT_GROUP:
            agent.groups.add(flight)
        self.cta.note_issue(flight)
        if self.schedule.lands_now():
            self.land(flight)
            if self.schedule.timeless:
                flight.known.update(a.number for a in self.agents)
                self.pending.remove(flight)
        elif self.schedule.draw is not None:
            for other in list(self.pending):
                if not other.landed and self.schedule.lands_now():
                    self.land(other)
        return flight

    def land(self, flight: InFlight) -> None:
        """Move the data of `flight`, after that of everything before it in its pipe."""
        if flight.landed:
            return
        if flight.pipe:
            for earlier in [f for f in self.pending if f.pipe == flight.pipe and not f.landed]:
                if earlier is flight:
                    break
                self._land(earlier)
        self._land(flight)

    def _land(self, flight: InFlight) -> None:
        flight.landed = True
        flight.landing()
        self.cta.note_landing(flight)

    def before(self, flight: InFlight) -> list[InFlight]:
        """`flight` and everything before it in its pipe that a commit completes: what an arrival of `flight` stands for."""
        covered_flights = []
        for other in self.pending:
            if (other is flight or (flight.pipe and other.pipe == flight.pipe)) and other.kind.completes_by is Completion.COMMIT:
                covered_flights.append(other)
            if other is flight:
                break
        return covered_flights

    def wait_group(self, agent: Agent, group: str, most: int) -> list[InFlight]:
        """`agent` waits until all but the last `most` committed groups are complete: the operations it has waited for."""
        found = agent.groups.older(group, most)
        for flight in found:
            self.complete(agent, flight)
        return found

    def complete(self, agent: Agent, flight: InFlight, known_ctas: int = OWN) -> None:
        """`agent` has waited for `flight`: it may rely on it from here, of a cluster in as many CTAs as are `known`."""
        if agent.number in flight.known:
            return
        self.land(flight)
        flight.known.add(agent.number)
        self.cta.note_wait(flight, agent)
        cluster, known_ctas = self.cta.cluster, max(known_ctas, flight.everywhere)
        for views, writes in ((flight.reads, False), (flight.writes, True)):
            for view in views:
                cluster.use(flight.op, view, writes=writes, agent=agent.number, known_ctas=known_ctas)
        cluster.learn(agent.number, flight.behind, known_ctas)
        for earlier in flight.after:
            self.complete(agent, earlier, known_ctas)
        if all(a.number in flight.known for a in self.agents) and flight in self.pending:
            self.pending.remove(flight)

    def read(self, agent: Agent, op: Operation, view: View) -> None:
        """`agent` reads `view`: a race with what is in flight, or an uninitialised read."""
        for flight in self.pending:
            if agent.number not in flight.known:
                self._collide(flight.writes, view, op, flight, "reads", "writes")
        if fault := unwritten_fault(op, view):
            raise fault

    def write(self, agent: Agent, op: Operation, view: View) -> None:
        """`agent` overwrites `view`: a race with what is in flight there."""
        for flight in self.pending:
            if agent.number not in flight.known:
                self._collide(flight.writes, view, op, flight, "writes", "writes")
                self._collide(flight.reads, view, op, flight, "overwrites", "reads")

    def _collide(self, views: tuple[View, ...], view: View, op: Operation, flight: InFlight, verb: str, busy: str) -> None:
        for other_view in views:
            if other_view.overlaps(view):
                self.cta.tell_access("fault", op, view, writes=verb != "reads")
                raise OnChipFault(
                    "race",
                    f"{op.name} {verb} {view} while the {flight.kind.name} issued at {flight.op.location or 'an unknown line'} "
                    f"still {busy} {other_view}: no wait orders them",
                    op.location,
                    {
                        "rule": flight.kind.rule.sentence,
                        "operation": op.brief,
                        "other operation": flight.op.brief,
                        "other location": flight.op.location,
                        "other landed": flight.landed,
                        "schedule": self.schedule.text,
                    },
                )

    def finish(self, end: str = "") -> None:
        """The program has ended: what is still in the air lands, unless it needs memory that the program no longer owns."""
        for flight in list(self.pending):
            if flight.kind.must_finish_before_exit:
                raise OnChipFault(
                    "race",
                    f"the program ends while the {flight.kind.name} issued at {flight.op.location} still uses "
                    f"{(*flight.reads, *flight.writes)[0]}: no wait of the program covers it",
                    flight.op.location,
                    {
                        "rule": flight.kind.rule.sentence,
                        "operation": flight.op.brief,
                        "other operation": "the program's end",
                        "other location": end,
                        "schedule": self.schedule.text,
                    },
                )
            self.land(flight)
        self.pending.clear()

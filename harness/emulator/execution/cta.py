"""One program (CTA) of a launch while it runs: its units, its agents, what it has in flight.

The translated code calls the methods of the units. Each checks what the operation it stands for may rely on, then moves the bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.emulator.execution.async_copies import AsyncCopies
from bitverdict.harness.emulator.execution.async_ops import Flights
from bitverdict.harness.emulator.execution.cta_state import CtaState, LaunchContext
from bitverdict.harness.emulator.execution.global_access import GlobalAccess
from bitverdict.harness.emulator.execution.mbarriers import Mbarriers
from bitverdict.harness.emulator.execution.onchip_access import OnChipMemory
from bitverdict.harness.emulator.execution.partitions import MOST_AGENTS, Agent, Footprints, Thread, drive
from bitverdict.harness.emulator.execution.tensor_core_pipes import TensorCore
from bitverdict.harness.emulator.execution.tma import Tma
from bitverdict.harness.emulator.faults import EmulatedFault
from bitverdict.harness.emulator.memory.global_atomics import GlobalAtomics
from bitverdict.harness.emulator.memory.tensor_maps import Descriptor

if TYPE_CHECKING:
    from bitverdict.harness.emulator.mlir_reader import Operation


class Cta:
    """One program at a time of a launch, and its units."""

    def __init__(self, launch: LaunchContext) -> None:
        self.launch, self.grid, self.memory = launch, launch.grid, launch.memory
        self.notes, self.false_hints = launch.notes, launch.false_hints
        self.state = CtaState(launch)
        self.flights = Flights(self.state)
        self.mbarriers = Mbarriers(self.state, self.flights)
        self.onchip = OnChipMemory(self.state, self.flights, self.mbarriers)
        self.global_access = GlobalAccess(self.state)
        self.atomics = GlobalAtomics(self.state)
        self.async_copies = AsyncCopies(self.state, self.flights, self.onchip)
        self.tma = Tma(self.state, self.flights, self.mbarriers, self.onchip)
        self.tensor_core = TensorCore(self.state, self.flights, self.mbarriers, self.onchip)
        self.start(0)

    def start(self, number: int) -> None:
        """Become program `number` of the grid: fresh, poisoned memories, one agent, nothing in flight."""
        agent = Agent(0, "the program", _first_clock(self.launch.memory.order.clock_length))
        self.state.start(number, agent)
        self.number, self.program = number, self.state.program
        self.onchip.reset()
        self.flights.reset([agent])
        self.mbarriers.reset()
        self.refused_cancel: Operation | None = None  # by which it has seen that no program is left to cancel
        self.tensor_maps: dict[int, Descriptor] = {}  # descriptors the program made, by their place in scratch memory
        self.unfenced_maps: set[int] = set()

    def sibling(self) -> Cta:
        """For another program of the launch: it has units of its own, and counts and notes where this does."""
        return Cta(self.launch)

    def run(self, thread: Thread) -> Thread:
        """Run the program that `thread` is to its end; yields where another program may, or must, run."""
        agent = self.state.agent
        agent.thread = thread
        yield from drive([agent], self.flights, self._turn, self.mbarriers.state)
        self.flights.finish(self.launch.end)
        self.state.meet()

    def _turn(self, agent: Agent) -> None:
        self.state.agent = agent

    def specialize(self, op: Operation, default: Thread, partitions: list[Thread]) -> Thread:
        """warp_specialize: the default region and each partition run as agents of their own, until all have ended."""
        parent, outer = self.state.agent, self.flights.agents
        if len(outer) > 1 or len(partitions) + 1 > MOST_AGENTS:
            raise EmulatedFault("not modelled", f"{op.name} inside another, or with {len(partitions)} partitions", op.location)
        names = ["the default partition", *(f"partition {i}" for i in range(len(partitions)))]
        self.state.meet()
        known = parent.release()
        agents = [Agent(i, name, known.copy()) for i, name in enumerate(names)]
        for agent, thread in zip(agents, [default, *partitions], strict=True):
            agent.thread = thread
            agent.clock[agent.number] = parent.clock[agent.number] + 1  # above what an earlier one of its number left
            self.state.admit(agent)
        default_agent = agents[0]
        default_agent.groups, default_agent.released_epochs = parent.groups, parent.released_epochs
        for flight in self.flights.pending:
            if parent.number in flight.known:
                flight.known.update(a.number for a in agents)
        self.flights.agents = agents
        if not self.state.schedule.timeless:
            spaces = self.onchip.shared, self.onchip.tensor
            self.state.footprints = {space.name: Footprints(space, len(agents)) for space in spaces}
        yield from drive(agents, self.flights, self._turn, self.mbarriers.state)
        self.state.agent, self.flights.agents, self.state.footprints = parent, outer, {}
        for agent in agents:
            self.state.launch.memory.order.meet(agent)
            parent.acquire(agent.release())
        parent.clock[0] += 1
        self.state.admit(parent)
        self.flights.pending = [f for f in self.flights.pending if not f.known]  # what one of them knew, the join knows
        return default_agent.result

    # -- bookkeeping --------------------------------------------------------------------------------------------------
    def report(self, collides: str = "", other_location: str = "") -> dict[str, Any]:
        """Where the program is, for a finding: what is in flight, its barriers, the end of the timeline."""
        flying = [f"{f.kind.name} at {f.op.location} ({'landed' if f.landed else 'not landed'})" for f in self.flights.pending]
        return {
            "program": str(self.program),
            "schedule": self.state.schedule.text,
            "in flight": flying[-20:],
            "barriers": self.mbarriers.state(),
            "timeline": self.state.timeline.lines(collides, other_location),
        }

    def tick(self, block: int, operations: int) -> None:
        state = self.state
        self.launch.check_time()
        self.launch.runs[block] += 1
        state.steps += operations
        state.operations += operations
        if state.operations > self.launch.step_limit:
            raise EmulatedFault("timeout", f"program {self.program}: more than {self.launch.step_limit} operations in one program")

    def check(self, op: Operation, condition: np.ndarray | bool) -> None:
        if not np.all(condition):
            message = op.string("message") or op.string("msg")
            raise EmulatedFault("device assert", message, op.location, {"operation": op.brief, "program": str(self.program)})

    def meet(self) -> None:
        """bar.sync: all threads of the running agent meet."""
        self.launch.memory.order.meet(self.state.agent)

    def meet_cluster(self, op: Operation, *, is_relaxed: bool, is_inserted: bool) -> None:
        """barrier.cluster: the threads of all CTAs of the cluster meet. `is_inserted`: by the compiler."""
        if len(self.flights.agents) > 1:
            raise EmulatedFault(
                "deadlock",
                f"{op.name} in {self.state.agent.name} waits for all threads of the cluster: those of other partitions never come",
                op.location,
                {"operation": op.brief},
            )
        self.meet()
        if not is_relaxed:
            self.state.cluster.reset()
        elif is_inserted:
            self.state.cluster.meet_relaxed()

    def meet_warps(self) -> None:
        """Values go from thread to thread, but none from one warp to another."""
        self.launch.memory.order.meet_warps(self.state.agent)


def _first_clock(others: int) -> np.ndarray:
    clock = np.zeros(MOST_AGENTS + others, np.int32)
    clock[0] = 1
    return clock

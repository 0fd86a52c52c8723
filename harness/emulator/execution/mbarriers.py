"""mbarriers (PTX ISA 9.7.13.15): counts, bytes, phases, and what the completion of a phase lets its waiters rely on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from bitverdict.harness.emulator.advice import Advice, Note
from bitverdict.harness.emulator.async_rules import Completion, Proxy
from bitverdict.harness.emulator.execution.async_ops import Flights, InFlight
from bitverdict.harness.emulator.execution.cluster_order import OWN, Use
from bitverdict.harness.emulator.execution.cta_state import CtaState
from bitverdict.harness.emulator.execution.partitions import Thread, Wait
from bitverdict.harness.emulator.faults import OnChipFault
from bitverdict.harness.emulator.memory.onchip import View

if TYPE_CHECKING:
    from bitverdict.harness.emulator.mlir_reader import Operation


class Barrier:
    """One mbarrier object: `phase` phases are complete; `arrivals` and `bytes` are missing for the next one.

    What arrived in the open phase is `carried` and `told`; what its completion has made known to waiters is `finished` and `known`.
    """

    def __init__(self, op: Operation, count: int, agents: int, reach: int) -> None:
        self.op, self.count, self.reach = op, count, reach  # `reach`: of which CTAs of a cluster who waits knows
        self.behind: list[Use] = []
        self.met: list[Use] = []
        self.phase, self.arrivals, self.bytes = 0, count, 0
        self.carried: list[InFlight] = []
        self.finished: list[InFlight] = []
        self.told = np.zeros(agents, np.int32)  # (agents,)
        self.known = np.zeros(agents, np.int32)  # (agents,)

    def __str__(self) -> str:
        return f"phase {self.phase}, {self.arrivals} of {self.count} arrivals and {self.bytes} bytes missing"


class Mbarriers:
    """The unit of a CTA that holds its mbarriers, by the byte of shared memory they lie at."""

    def __init__(self, cta: CtaState, flights: Flights) -> None:
        self.cta, self.flights = cta, flights
        self.generic_write: Callable[[Operation, View], None] = lambda op, view: None  # told by the memory that holds them
        self.reset()

    def reset(self) -> None:
        """None is initialised."""
        self.live: dict[int, Barrier] = {}
        self.ended: dict[int, Operation] = {}  # by whom the last barrier at a byte was invalidated

    def barrier_at(self, op: Operation, view: View) -> Barrier:
        """The barrier in `view`; a failure when none was initialised there, or it was invalidated."""
        barrier = self.live.get(view.offset)
        if barrier is None:
            ended = self.ended.get(view.offset)
            if ended is None:
                self._misuse(op, f"{op.name} on {view}, where no barrier is initialised")
            self._misuse(op, f"{op.name} on {view}, where the barrier was invalidated at {ended.location}", ended)
        return barrier

    def _misuse(self, op: Operation, message: str, other: Operation | None = None) -> NoReturn:
        details = {"operation": op.brief, "barriers": self.state()}
        if other is not None:
            details |= {"other operation": other.brief, "other location": other.location}
        raise OnChipFault("barrier misuse", message, op.location, details)

    def state(self) -> dict[str, str]:
        """Each live barrier, for a person to read."""
        return {f"byte {offset}": f"{bar} (initialised at {bar.op.location})" for offset, bar in sorted(self.live.items())}

    def init(self, op: Operation, view: View, count: int, reach: int = OWN) -> None:
        """mbarrier.init for `count` arrivals a phase, in a cluster from each of the CTAs that share it: of those within `reach`."""
        agent = self.cta.agent
        self.cta.touch(op, view, write=True, keep=True)
        if view.offset in self.live:
            self._misuse(op, f"{op.name} on {view}, where a barrier lives already: invalidate it first", self.live[view.offset].op)
        self.flights.write(agent, op, view)
        view.put(np.full(view.shape, count, view.dtype))
        self.live[view.offset] = Barrier(op, count, len(agent.clock), reach)
        self.cta.tell("mbarrier", op, f"initialised at byte {view.offset} for {count} arrivals a phase")
        self.cta.tell_barrier("barrier", op, view.offset, 0)

    def invalidate(self, op: Operation, view: View) -> None:
        self.barrier_at(op, view)
        del self.live[view.offset]
        self.ended[view.offset] = op
        self.cta.tell("mbarrier", op, f"invalidated at byte {view.offset}")

    def overwritten(self, op: Operation, view: View) -> None:
        """A write to `view`: no barrier may live there."""
        for offset in self.live:
            if view.holds(offset):
                self._misuse(op, f"{op.name} overwrites {view}, where a barrier lives: invalidate it first", self.live[offset].op)

    def read(self, op: Operation, view: View) -> None:
        """A read of `view` as data: a barrier that lives there has overwritten what was stored (PTX ISA, mbarrier: opaque)."""
        for offset in self.live:
            if view.holds(offset):
                self._misuse(op, f"{op.name} reads {view}, where a barrier lives", self.live[offset].op)

    def arrive(self, op: Operation, view: View, count: int) -> None:
        """mbarrier.arrive by one thread, behind a barrier of all (as compiled: bar.sync). It releases what the agent knows."""
        agent = self.cta.agent
        self.cta.acts += 1
        self.cta.meet()
        self.signal(op, view, count, self.flights.flights_known_to(agent), agent.release())

    def expect(self, op: Operation, view: View, size: int) -> None:
        """mbarrier.arrive.expect_tx, as `arrive`: `size` bytes more, then one arrival."""
        agent = self.cta.agent
        self.cta.acts += 1
        self.cta.meet()
        known, released = self.flights.flights_known_to(agent), agent.release()
        self.barrier_at(op, view).bytes += size
        self.cta.tell("mbarrier", op, f"at byte {view.offset} expects {size} bytes")
        self.signal(op, view, 1, known, released)

    def signal(self, op: Operation, view: View, count: int, flights: list[InFlight], epochs: np.ndarray | None = None) -> None:
        """`count` arrivals that stand for the completion of `carried`, and for what an agent has `told`."""
        barrier = self.barrier_at(op, view)
        if count > barrier.arrivals:
            self._misuse(op, f"{count} arrivals at a barrier that expects {barrier.arrivals} more in this phase", barrier.op)
        barrier.arrivals -= count
        barrier.carried += flights
        if epochs is not None:
            np.maximum(barrier.told, epochs, out=barrier.told)
            barrier.behind += self.cta.cluster.uses_so_far(self.cta.agent.number)
        self._settle(op, view, barrier)

    def receive(self, op: Operation, view: View, size: int, flight: InFlight) -> None:
        """complete_tx: `size` bytes of `flight` are in."""
        barrier = self.barrier_at(op, view)
        barrier.bytes -= size
        if flight.kind.completes_by is Completion.MBARRIER_BYTES:
            barrier.carried.append(flight)
        self._settle(op, view, barrier)

    def _settle(self, op: Operation, view: View, barrier: Barrier) -> None:
        """Complete the open phase when nothing is missing."""
        if barrier.arrivals:
            return
        if barrier.bytes < 0:
            self._misuse(op, f"{-barrier.bytes} bytes more arrived at a barrier than it expects in this phase", barrier.op)
        if barrier.bytes == 0:
            barrier.phase += 1
            barrier.arrivals = barrier.count
            barrier.finished += barrier.carried
            barrier.carried = []
            barrier.met, barrier.behind = barrier.met + barrier.behind, []
            barrier.known = np.maximum(barrier.known, barrier.told)
            self.cta.tell("mbarrier", op, f"at byte {view.offset} completes phase {barrier.phase - 1}")
            self.cta.tell_barrier("phase", op, view.offset, barrier.phase)

    def wait(self, op: Operation, view: View, parity: int) -> Thread:
        """try_wait.parity in a loop: passes when the last completed phase has `parity`; the phase before the first has parity 1. A
        parity other than 0 or 1 is misuse (PTX ISA 9.7.13.15, mbarrier.try_wait: phaseParity). ptxas shifts the parity left by 31,
        so that its lowest bit decides: what the compiler writes is executed as that, with a note."""
        agent = self.cta.agent
        if self.cta.launch.is_compiled and parity not in (0, 1):
            self.cta.notes.add(Note(Advice.PARITY, op.location))
            parity &= 1
        barrier = self.barrier_at(op, view)
        if parity not in (0, 1):
            self._misuse(op, f"{op.name} for parity {parity} at {view}: must be 0 or 1; pass the phase modulo 2", barrier.op)

        def passes() -> bool:
            return (barrier.phase - 1) & 1 == parity

        if not passes():
            self.cta.tell("mbarrier", op, f"waits for parity {parity} at byte {view.offset}: {barrier}")
            self.cta.tell_barrier("waits", op, view.offset, barrier.phase, f"parity {parity}")
            yield Wait(op, passes, lambda: f"parity {parity} of the barrier at {view} ({barrier})", view.offset, barrier.op)
        self.cta.tell("mbarrier", op, f"wait for parity {parity} at byte {view.offset} passes, {barrier.phase} phases complete")
        self.cta.tell_barrier("passes", op, view.offset, barrier.phase, f"parity {parity}")
        for flight in barrier.finished:
            by_group = flight.kind.completes_by is Completion.WAIT_GROUP
            if by_group and flight.kind.proxy is Proxy.GENERIC and agent.number not in flight.known:
                for view in flight.writes:  # by cp.async: whoever waited for it knows of it as of ordinary stores
                    self.generic_write(flight.op, view)
            self.flights.complete(agent, flight, barrier.reach)
        self.cta.cluster.learn(agent.number, barrier.met, barrier.reach)
        barrier.finished = [f for f in barrier.finished if f in self.flights.pending]
        agent.acquire(barrier.known)

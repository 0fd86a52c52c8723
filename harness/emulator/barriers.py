"""mbarriers (PTX ISA 9.7.13.15): counts, phases, and what the completion of a phase lets its waiters rely on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from harness.emulator.asynchrony import Flights, InFlight
from harness.emulator.faults import EmulatedFault
from harness.emulator.memory import View

if TYPE_CHECKING:
    from harness.emulator.program import Operation


class Barrier:
    """One mbarrier object: `phase` phases are complete; `arrivals` and `bytes` are missing for the next one."""

    def __init__(self, op: Operation, count: int) -> None:
        self.op, self.count = op, count
        self.phase, self.arrivals, self.bytes = 0, count, 0
        self.carried: list[InFlight] = []  # operations whose completion arrived in the phase that is open
        self.finished: list[InFlight] = []  # and in those that are complete

    def __str__(self) -> str:
        return f"phase {self.phase}, {self.arrivals} of {self.count} arrivals and {self.bytes} bytes missing"


class Barriers:
    """The mbarriers of one program, by the byte of shared memory they lie at."""

    def __init__(self, flights: Flights) -> None:
        self.flights = flights
        self.live: dict[int, Barrier] = {}

    def at(self, op: Operation, view: View) -> Barrier:
        """The barrier in `view`; a conviction when none was initialised there, or it was invalidated."""
        found = self.live.get(view.offset)
        if found is None:
            raise EmulatedFault(
                "barrier misuse",
                f"{op.name} on {view}, where no barrier is initialised",
                op.location,
                {"operation": op.brief, "barriers": self.state()},
            )
        return found

    def state(self) -> dict[str, str]:
        return {
            f"byte {offset}": f"{barrier} (initialised at {barrier.op.location})" for offset, barrier in sorted(self.live.items())
        }

    def init(self, op: Operation, view: View, count: int) -> None:
        if view.offset in self.live:
            raise EmulatedFault(
                "barrier misuse",
                f"{op.name} on {view}, where a barrier lives already: invalidate it first",
                op.location,
                {"operation": op.brief, "barriers": self.state()},
            )
        self.flights.write(op, view)
        view.array[...] = count
        view.known[...] = view.full
        self.live[view.offset] = Barrier(op, count)

    def invalidate(self, op: Operation, view: View) -> None:
        self.at(op, view)
        del self.live[view.offset]

    def arrive(self, op: Operation, view: View, count: int, carried: list[InFlight]) -> None:
        """`count` arrivals that stand for the completion of `carried`."""
        barrier = self.at(op, view)
        if count > barrier.arrivals:
            raise EmulatedFault(
                "barrier misuse",
                f"{count} arrivals at a barrier that expects {barrier.arrivals} more in this phase",
                op.location,
                {"operation": op.brief, "barriers": self.state()},
            )
        barrier.arrivals -= count
        barrier.carried += carried
        self.settle(barrier)

    def settle(self, barrier: Barrier) -> None:
        """Complete the open phase when nothing is missing."""
        if barrier.arrivals == 0 and barrier.bytes == 0:
            barrier.phase += 1
            barrier.arrivals = barrier.count
            barrier.finished += barrier.carried
            barrier.carried = []

    def wait(self, op: Operation, view: View, parity: int) -> Iterator[None]:
        """try_wait.parity in a loop: passes when the last completed phase has `parity`; the phase before the first has parity 1."""
        barrier = self.at(op, view)
        while (barrier.phase - 1) & 1 != parity & 1:
            waiting = next((f for f in self.flights.pending if not f.landed), None)
            if waiting is None:
                raise EmulatedFault(
                    "deadlock",
                    f"{op.name} waits for parity {parity & 1} of the barrier at {view} ({barrier}) and "
                    "nothing is left that could arrive",
                    op.location,
                    {"operation": op.brief, "barriers": self.state()},
                )
            self.flights.land(waiting)
        for flight in barrier.finished:
            self.flights.complete(flight)
        barrier.finished.clear()
        yield from ()

"""cp.async: copies from global to shared memory that each thread issues (PTX ISA 9.7.9.25.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bitverdict.harness.emulator.async_rules import CP_ASYNC, LOAD_TO_LDS, Proxy
from bitverdict.harness.emulator.execution.async_ops import Flights
from bitverdict.harness.emulator.execution.cta_state import CtaState
from bitverdict.harness.emulator.execution.onchip_access import OnChipMemory
from bitverdict.harness.emulator.memory.global_order import ORDINARY
from bitverdict.harness.emulator.memory.onchip import View
from bitverdict.harness.emulator.memory.undefined_lanes import union
from bitverdict.harness.emulator.numerics.enclosures import enclosure_of_copy

if TYPE_CHECKING:
    from bitverdict.harness.emulator.mlir_reader import Operation


class AsyncCopies:
    """The unit of a CTA that makes cp.async."""

    def __init__(self, cta: CtaState, flights: Flights, onchip: OnChipMemory) -> None:
        self.cta, self.flights, self.onchip = cta, flights, onchip
        self.memory = cta.launch.memory

    def copy(
        self,
        op: Operation,
        pointer: np.ndarray,
        view: View,
        mask: np.ndarray | None,
        leaves_undefined: bool,
        displaced_lanes: np.ndarray | None = None,
        to_lds: bool = False,
    ) -> None:
        """cp.async, or AMD's load `to_lds`: addresses are checked at issue, the source is read at landing. `leaves_undefined`:
        where the mask is False, by the language, whatever the instruction writes there; and what `displaced_lanes` copy."""
        kind = LOAD_TO_LDS if to_lds else CP_ASYNC
        zero, agent = np.zeros((), view.dtype), self.cta.agent
        self.memory.look(op, pointer, mask, view.dtype.itemsize, agent, ORDINARY, kind.proxy)
        flight = self.onchip.begin(op, kind, writes=(view,))

        def land() -> None:
            found = self.memory.load(op, pointer, mask, zero, view.dtype, agent, None)
            view.put(found, self.memory.shadow_words(pointer, mask, view.dtype.itemsize))
            view.enclose(enclosure_of_copy(self.cta, op, found, pointer, mask))
            lanes = union(displaced_lanes, ~mask if leaves_undefined and mask is not None and not mask.all() else None)
            if lanes is not None:
                view.leave_undefined(lanes, (op.location,))

        self.flights.issue(flight, land)

    def arrive(self, op: Operation, view: View, threads: int, *, increments: bool) -> None:
        """cp.async.mbarrier.arrive by each of `threads`: an arrival once its cp.async so far are complete, for which the barrier
        expects one more where it `increments`."""
        barriers, number = self.onchip.mbarriers, self.cta.agent.number
        if increments:
            barriers.barrier_at(op, view).arrivals += threads
        pending_copies = [f for f in self.flights.pending if f.kind is CP_ASYNC and f.agent == number and number not in f.known]
        flight = self.onchip.begin(op, CP_ASYNC, barriers=(view.offset,))

        def land() -> None:
            for copy in pending_copies:
                self.flights.land(copy)
            barriers.signal(op, view, threads, [*pending_copies, flight])

        self.flights.issue(flight, land)

    def commit(self) -> None:
        """cp.async.commit_group."""
        self.cta.agent.groups.commit(CP_ASYNC.group)

    def wait(self, most: int) -> None:
        """cp.async.wait_group: all but the last `most` committed groups are complete. What they wrote counts as written by whoever
        waited for them."""
        for flight in self.flights.wait_group(self.cta.agent, CP_ASYNC.group, most):
            if flight.kind.proxy is Proxy.GENERIC:
                self.onchip.generic_write(flight.op, flight.writes[0])

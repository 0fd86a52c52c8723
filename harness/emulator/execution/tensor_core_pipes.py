"""wgmma and tcgen05: what the tensor cores do on their own time (PTX ISA, wgmma.mma_async; tcgen05)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.emulator.async_rules import TCGEN05_COMMIT, TCGEN05_CP, TCGEN05_MMA, WGMMA, AsyncKind
from bitverdict.harness.emulator.execution.async_ops import Flights, InFlight, PendingTensor
from bitverdict.harness.emulator.faults import OnChipFault
from bitverdict.harness.emulator.memory.onchip import View
from bitverdict.harness.emulator.memory.undefined_lanes import undefined_product

if TYPE_CHECKING:
    from bitverdict.harness.emulator.execution.mbarriers import Barriers
    from bitverdict.harness.emulator.execution.partitions import Agent, Footprints
    from bitverdict.harness.emulator.mlir_reader import Operation


class TensorOperations:
    """The part of a program that issues matrix products and what follows them through their pipes."""

    flights: Flights
    barriers: Barriers
    agent: Agent
    footprints: dict[str, Footprints]

    def begin(  # type: ignore[empty-body]
        self,
        op: Operation,
        kind: AsyncKind,
        *,
        reads: tuple[View, ...] = (),
        writes: tuple[View, ...] = (),
        in_turn: tuple[View, ...] = (),
        barriers: tuple[int, ...] = (),
    ) -> InFlight: ...
    def issue(self, flight: InFlight, land: Callable[[], None]) -> InFlight: ...  # type: ignore[empty-body]

    # -- wgmma (PTX ISA 9.7.15.7) -------------------------------------------------------------------------------------
    def warp_group_dot(
        self, op: Operation, run: Callable, a: np.ndarray | View, b: View, c: Any, use: Any, is_async: bool
    ) -> np.ndarray | PendingTensor:
        """wgmma: operands in shared memory are read until its group is waited for; the result is registers in flight."""
        flight = self.begin(op, WGMMA, reads=tuple(v for v in (a, b) if isinstance(v, View)))

        def land() -> None:
            before = c.flight.value if isinstance(c, PendingTensor) else c
            left = a.get() if isinstance(a, View) else a
            flight.value = run(left, b.get(), before if use else np.zeros_like(before))

        self.issue(flight, land)
        self.agent.groups.commit(WGMMA.group)
        if is_async:
            return PendingTensor(flight)
        self.wait_dots(0)
        return flight.value

    def wait_dots(self, most: int) -> None:
        """wgmma.wait_group: all but the last `most` are complete."""
        self.flights.wait_group(self.agent, WGMMA.group, most)

    def arrived(self, value: Any) -> Any:
        """`value` after a wait: registers no longer in flight are ordinary again."""
        if isinstance(value, PendingTensor) and self.agent.number in value.flight.known:
            return value.flight.value
        return value

    # -- tcgen05 (PTX ISA 9.7.16) -------------------------------------------------------------------------------------
    def tensor_core_mma(self, op: Operation, run: Callable, a: View, b: View, d: View, use: Any, signals: tuple) -> None:
        """tcgen05.mma, and the commit behind it: operands are read, and the accumulator written, until a barrier it signals is
        waited for. The pipe hands the accumulator from one to the next in order."""
        flights, signalled = self.flights, tuple(barrier.offset for barrier, when in signals if when)
        flight = self.begin(op, TCGEN05_MMA, reads=(a, b), writes=(d,), barriers=signalled)

        def land() -> None:
            if use and (missing := d.unknown()):
                raise OnChipFault(
                    "uninitialised read",
                    f"{op.name} accumulates on {d}, of which {missing} elements were never written",
                    op.location,
                    {"operation": op.brief},
                )
            before, lanes = d.get(), undefined_product(a, b, d, use)
            d.put(run(a.get(), b.get(), before if use else np.zeros_like(before)))
            if lanes is not None:
                d.leave_undefined(lanes, a.space.undefined_by)
            for barrier, when in signals:
                if when:
                    self.barriers.arrive(op, barrier, 1, flights.before(flight))

        self.issue(flight, land)

    def tensor_core_copy(self, op: Operation, source: View, target: View, barrier: View | None) -> None:
        """tcgen05.cp: shared to tensor memory, in the order of the pipe."""
        signalled = () if barrier is None else (barrier.offset,)
        flight = self.begin(op, TCGEN05_CP, reads=(source,), writes=(target,), barriers=signalled)

        def land() -> None:
            target.put(source.get().reshape(target.shape))
            if barrier is not None:
                self.barriers.arrive(op, barrier, 1, self.flights.before(flight))

        self.issue(flight, land)

    def tensor_core_commit(self, op: Operation, barrier: View) -> None:
        """tcgen05.commit: one arrival when everything before it in the pipe has completed."""
        self.barriers.at(op, barrier)
        flight = self.begin(op, TCGEN05_COMMIT, barriers=(barrier.offset,))

        def land() -> None:
            self.barriers.arrive(op, barrier, 1, self.flights.before(flight))

        self.issue(flight, land)

"""wgmma and tcgen05: what the tensor cores do on their own time (PTX ISA, wgmma.mma_async; tcgen05)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.emulator.async_rules import TCGEN05_COMMIT, TCGEN05_CP, TCGEN05_MMA, WGMMA
from bitverdict.harness.emulator.execution.async_ops import Flights, InFlight, PendingTensor
from bitverdict.harness.emulator.execution.cluster_order import OWN, PAIR
from bitverdict.harness.emulator.execution.cta_state import CtaState
from bitverdict.harness.emulator.execution.mbarriers import Mbarriers
from bitverdict.harness.emulator.execution.onchip_access import OnChipMemory
from bitverdict.harness.emulator.faults import OnChipFault
from bitverdict.harness.emulator.memory.onchip import View
from bitverdict.harness.emulator.memory.undefined_lanes import undefined_product
from bitverdict.reference import packing
from bitverdict.reference.tensor_core import Instruction, scaled_product

if TYPE_CHECKING:
    from bitverdict.harness.emulator.mlir_reader import Operation


class TensorCore:
    """The unit of a CTA that issues matrix products, and what follows them through their pipes."""

    def __init__(self, cta: CtaState, flights: Flights, mbarriers: Mbarriers, onchip: OnChipMemory) -> None:
        self.cta, self.flights, self.mbarriers, self.onchip = cta, flights, mbarriers, onchip

    # -- wgmma (PTX ISA 9.7.15.7) -------------------------------------------------------------------------------------
    def wgmma(
        self, op: Operation, run: Callable, a: np.ndarray | View, b: View, c: Any, use: Any, is_async: bool
    ) -> np.ndarray | PendingTensor:
        """wgmma: operands in shared memory are read until its group is waited for; the result is registers in flight."""
        flight = self.onchip.begin(op, WGMMA, reads=tuple(v for v in (a, b) if isinstance(v, View)))

        def land() -> None:
            before = c.flight.value if isinstance(c, PendingTensor) else c
            left = a.get() if isinstance(a, View) else a
            flight.value = run(left, b.get(), before if use else np.zeros_like(before))

        self.flights.issue(flight, land)
        self.cta.agent.groups.commit(WGMMA.group)
        if is_async:
            return PendingTensor(flight)
        self.wgmma_wait(0)
        return flight.value

    def wgmma_wait(self, most: int) -> None:
        """wgmma.wait_group: all but the last `most` are complete."""
        self.flights.wait_group(self.cta.agent, WGMMA.group, most)

    def arrived(self, value: Any) -> Any:
        """`value` after a wait: registers no longer in flight are ordinary again."""
        if isinstance(value, PendingTensor) and self.cta.agent.number in value.flight.known:
            return value.flight.value
        return value

    # -- tcgen05 (PTX ISA 9.7.16) -------------------------------------------------------------------------------------
    def mma(
        self,
        op: Operation,
        run: Callable,
        a: View,
        b: View,
        d: View,
        use: Any,
        signals: tuple,
        count: int = 1,
        over: int = OWN,
        pair: bool = False,
    ) -> None:
        """tcgen05.mma, and the commit behind it: operands are read, and the accumulator written, until a barrier it signals is
        waited for. The pipe hands the accumulator from one to the next in order. In a cluster a signal
        is `count` arrivals, and tells that the product is `over` in as many CTAs. `pair`: it reads the operands of two."""
        if pair:
            for view in (a, b):
                self.cta.cluster.hold(op, view, writes=False, needs=PAIR)
        flights, signalled = self.flights, tuple(barrier.offset for barrier, when in signals if when)
        flight = self.onchip.begin(op, TCGEN05_MMA, reads=(a, b), writes=(d,), barriers=signalled)

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
                    self.mbarriers.signal(op, barrier, count, _over(flights.before(flight), over))

        self.flights.issue(flight, land)

    def scaled_mma(
        self,
        op: Operation,
        model: Instruction,
        a: View,
        a_scales: View,
        b: View,
        b_scales: View,
        d: View,
        use: Any,
        signals: tuple,
        is_async: bool,
        count: int = 1,
        over: int = OWN,
        pair: bool = False,
    ) -> None:
        """tcgen05.mma with block scales: as `mma`, and the scales are read in the order of the pipe that a copy filled them in."""
        flights, signalled = self.flights, tuple(barrier.offset for barrier, when in signals if when)
        scales = a_scales, b_scales
        if pair:
            for view in (a, b):
                self.cta.cluster.hold(op, view, writes=False, needs=PAIR)
        flight = self.onchip.begin(op, TCGEN05_MMA, reads=(a, b), in_turn=scales, writes=(d,), barriers=signalled)

        def land() -> None:
            for view, wanted in ((a_scales, True), (b_scales, True), (d, use)):
                if wanted and (missing := view.unknown()):
                    raise OnChipFault(
                        "uninitialised read",
                        f"{op.name} reads {view}, of which {missing} elements were never written",
                        op.location,
                        {"operation": op.brief},
                    )
            left, right = _codes(model.a, a.get(), 1), _codes(model.b, b.get(), 0)  # (M, K), (K, N)
            before = d.get().view(np.uint32) if use else None
            rows, columns = a_scales.get().view(np.uint8), b_scales.get().view(np.uint8)
            d.put(scaled_product(model, left, rows, right, columns, before).view(np.float32))
            for barrier, when in signals:
                if when:
                    self.mbarriers.signal(op, barrier, count, _over(flights.before(flight), over))

        flights.issue(flight, land)
        if not is_async:
            flights.complete(self.cta.agent, flight)

    def copy(self, op: Operation, source: View, target: View, barrier: View | None) -> None:
        """tcgen05.cp: shared to tensor memory, in the order of the pipe."""
        signalled = () if barrier is None else (barrier.offset,)
        flight = self.onchip.begin(op, TCGEN05_CP, reads=(source,), writes=(target,), barriers=signalled)

        def land() -> None:
            target.put(source.get().reshape(target.shape))
            if barrier is not None:
                self.mbarriers.signal(op, barrier, 1, self.flights.before(flight))

        self.flights.issue(flight, land)

    def commit(self, op: Operation, barrier: View, count: int = 1, over: int = OWN) -> None:
        """tcgen05.commit: an arrival when everything before it in the pipe has completed; `count` and `over` as of `mma`."""
        self.mbarriers.at(op, barrier)
        flight = self.onchip.begin(op, TCGEN05_COMMIT, barriers=(barrier.offset,))

        def land() -> None:
            self.mbarriers.signal(op, barrier, count, _over(self.flights.before(flight), over))

        self.flights.issue(flight, land)


def _over(flights: list[InFlight], known: int) -> list[InFlight]:
    """`flights`, of which whoever waits for the commit knows in as many CTAs."""
    for flight in flights:
        flight.everywhere = max(flight.everywhere, known)
    return flights


def _codes(element: str, held: np.ndarray, axis: int) -> np.ndarray:
    held = held.view(np.uint8)
    return packing.unpack(held, axis) if element == "e2m1" else held

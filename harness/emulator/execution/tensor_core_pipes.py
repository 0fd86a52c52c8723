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
from bitverdict.harness.emulator.execution.real_products import product, scale_operand, shadow_of
from bitverdict.harness.emulator.faults import OnChipFault
from bitverdict.harness.emulator.memory.onchip import View
from bitverdict.harness.emulator.memory.real_shadows import EXACT, PARTS
from bitverdict.harness.emulator.memory.undefined_lanes import undefined_product
from bitverdict.harness.emulator.numerics.enclosed_products import dot_words
from bitverdict.harness.emulator.numerics.enclosures import refuse
from bitverdict.reference import packing
from bitverdict.reference.tensor_core import Instruction, scaled_product

if TYPE_CHECKING:
    from bitverdict.harness.emulator.memory.real_shadows import ShadowWords
    from bitverdict.harness.emulator.mlir_reader import Operation
    from bitverdict.harness.emulator.numerics.enclosures import Enclosure
    from bitverdict.reference.error_bound import Accumulation

    Bound = tuple[Accumulation, tuple[str, str]] | None


class TensorCore:
    """The unit of a CTA that issues matrix products, and what follows them through their pipes."""

    def __init__(self, cta: CtaState, flights: Flights, mbarriers: Mbarriers, onchip: OnChipMemory) -> None:
        self.cta, self.flights, self.mbarriers, self.onchip = cta, flights, mbarriers, onchip
        self.registers: tuple[Any, Any] = None, None  # Reals of a and c of the next wgmma, where they are in registers
        self.last: InFlight | None = None  # the last wgmma that was waited for at once

    # -- wgmma (PTX ISA 9.7.15.7) -------------------------------------------------------------------------------------
    def wgmma(
        self, op: Operation, run: Callable, a: np.ndarray | View, b: View, c: Any, use: Any, is_async: bool, bound: Bound = None
    ) -> np.ndarray | PendingTensor:
        """wgmma: operands in shared memory are read until its group is waited for; the result is registers in flight. `bound`: how
        it sums and its operands' formats, where a bound of what is enclosed is known."""
        flight = self.onchip.begin(op, WGMMA, reads=tuple(v for v in (a, b) if isinstance(v, View)))
        registers, self.registers = self.registers, (None, None)

        def land() -> None:
            before = c.flight.value if isinstance(c, PendingTensor) else c
            left, right = a.get() if isinstance(a, View) else a, b.get()
            before = before if use else np.zeros_like(before)
            flight.value = run(left, right, before)
            self._enclose_product(op, bound, flight.value, a, b, before)
            if self.cta.launch.real_access is not None:
                held = registers[0] if not isinstance(a, View) else self._read(op, 0, a, left)
                there = c.flight.real if isinstance(c, PendingTensor) else registers[1]
                flight.real = product(held, self._read(op, 1, b, right), there if use else None)

        self.flights.issue(flight, land)
        self.cta.agent.groups.commit(WGMMA.group)
        if is_async:
            return PendingTensor(flight)
        self.wgmma_wait(0)
        self.last = flight
        return flight.value

    def _enclose_product(self, op: Operation, bound: Bound, words: np.ndarray, *operands: np.ndarray | View) -> Enclosure | None:
        """Hold what `words`, the product `op` of `operands`, may be where one of these is enclosed."""
        enclosures = self.cta.launch.enclosures
        if any(map(enclosures.enclosure_of, operands)):
            if bound is None:
                refuse(self.cta, op, "a value that is enclosed", *operands)
            else:
                dot_words(self.cta, op, *bound, words, *operands)
        return enclosures.enclosure_of(words)

    def give(self, a: Any, c: Any) -> None:
        """The Reals of what the next wgmma takes from registers."""
        self.registers = a, c

    def real_of(self, value: Any, previous_real: Any) -> Any:
        """The Real of `value`, registers of a wgmma; while the wgmma is in flight None, or that of `previous_real`."""
        flight = value.flight if isinstance(value, PendingTensor) else self.last
        if flight is None:
            return previous_real
        if isinstance(value, PendingTensor):
            return flight.real if self.cta.agent.number in flight.known else previous_real
        return flight.real if flight.value is value else previous_real

    def _read(self, op: Operation, number: int, view: View, words: np.ndarray) -> Any:
        """The Real, or Taint, of operand `number` of `op`, whose `words` lie in `view`."""
        access, kind = self.cta.launch.real_access, op.inputs[number]
        assert access is not None and kind is not None
        return access.read(op, view, words, kind.element)

    def wgmma_wait(self, most: int) -> None:
        """wgmma.wait_group: all but the last `most` are complete."""
        self.flights.wait_group(self.cta.agent, WGMMA.group, most)

    def settle_value(self, value: Any) -> Any:
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
        scope: int = OWN,
        pair: bool = False,
        bound: Bound = None,
    ) -> None:
        """tcgen05.mma, and the commit behind it: operands are read, and the accumulator written, until a barrier it signals is
        waited for. The pipe hands the accumulator from one to the next in order. In a cluster a signal
        is `count` arrivals, and tells that the product is over in the CTAs of `scope`. `pair`: it reads the operands of two.
        `bound` as of `wgmma`."""
        if pair:
            for view in (a, b):
                self.cta.cluster.hold(op, view, writes=False, needs=PAIR)
        flights, signalled = self.flights, tuple(barrier.offset for barrier, when in signals if when)
        flight = self.onchip.begin(op, TCGEN05_MMA, reads=(a, b), writes=(d,), barriers=signalled)
        flight.adds = bool(use)

        def land() -> None:
            if use and (missing := d.unknown()):
                raise OnChipFault(
                    "uninitialised read",
                    f"{op.name} accumulates on {d}, of which {missing} elements were never written",
                    op.location,
                    {"operation": op.brief},
                )
            before, lanes = d.get(), undefined_product(a, b, d, use)
            left, right = a.get(), b.get()
            made, real = run(left, right, before if use else np.zeros_like(before)), None
            if self.cta.launch.real_access is not None:
                there = self._read(op, 2, d, before) if use else None
                real = product(self._read(op, 0, a, left), self._read(op, 1, b, right), there)
            ends = self._enclose_product(op, bound, made, a, b, d if use else np.zeros_like(before))
            d.put(made, self._accumulator_shadow(op, real, made))
            d.enclose(ends)
            if lanes is not None:
                d.leave_undefined(lanes, a.space.undefined_by)
            for barrier, when in signals:
                if when:
                    self.mbarriers.signal(op, barrier, count, _widen_scope(flights.before(flight), scope))

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
        scope: int = OWN,
        pair: bool = False,
    ) -> None:
        """tcgen05.mma with block scales: as `mma`, and the scales are read in the order of the pipe that a copy filled them in."""
        flights, signalled = self.flights, tuple(barrier.offset for barrier, when in signals if when)
        scales = a_scales, b_scales
        if pair:
            for view in (a, b):
                self.cta.cluster.hold(op, view, writes=False, needs=PAIR)
        flight = self.onchip.begin(op, TCGEN05_MMA, reads=(a, b), in_turn=scales, writes=(d,), barriers=signalled)
        flight.adds = bool(use)

        def land() -> None:
            for view, wanted in ((a_scales, True), (b_scales, True), (d, use)):
                if wanted and (missing := view.unknown()):
                    raise OnChipFault(
                        "uninitialised read",
                        f"{op.name} reads {view}, of which {missing} elements were never written",
                        op.location,
                        {"operation": op.brief},
                    )
            left, right = element_codes(model.a, a.get(), 1), element_codes(model.b, b.get(), 0)  # (M, K), (K, N)
            before = d.get().view(np.uint32) if use else None
            rows, columns = a_scales.get().view(np.uint8), b_scales.get().view(np.uint8)
            made, real = scaled_product(model, left, rows, right, columns, before).view(np.float32), None
            if self.cta.launch.real_access is not None:
                real = self._scaled_product(op, model, (a, b), (a_scales, b_scales), d if use else None)
            d.put(made, self._accumulator_shadow(op, real, made))
            for barrier, when in signals:
                if when:
                    self.mbarriers.signal(op, barrier, count, _widen_scope(flights.before(flight), scope))

        flights.issue(flight, land)
        if not is_async:
            flights.complete(self.cta.agent, flight)

    def _accumulator_shadow(self, op: Operation, real: Any, words: np.ndarray) -> ShadowWords | None:
        """What tensor memory carries beside the accumulator `words` of `op`."""
        return None if real is None or (kind := op.inputs[2]) is None else shadow_of(real, kind.element, words.shape)

    def _scaled_product(
        self, op: Operation, model: Instruction, operands: tuple[View, View], scales: tuple[View, View], d: View | None
    ) -> Any:
        """The Real of a product of `operands` with block scales."""
        sides, scale, block = [], str(model.scale), model.scale_block or 1
        for number, (element, view, by) in enumerate(zip((model.a, model.b), operands, scales, strict=True)):
            held = self._read(op, number, view, view.get()) if element != "e2m1" else _unknown_elements(view)
            sides.append(scale_operand(element, view.get(), 1 - number, held, scale, by.get(), block, _unknown_elements(by)))
        return product(sides[0], sides[1], None if d is None else self._read(op, 2, d, d.get()))

    def copy(self, op: Operation, source: View, target: View, barrier: View | None) -> None:
        """tcgen05.cp: shared to tensor memory, in the order of the pipe."""
        signalled = () if barrier is None else (barrier.offset,)
        flight = self.onchip.begin(op, TCGEN05_CP, reads=(source,), writes=(target,), barriers=signalled)

        def land() -> None:
            target.put(source.get().reshape(target.shape), source.shadow_words())
            target.enclose(source.enclosure())
            if barrier is not None:
                self.mbarriers.signal(op, barrier, 1, self.flights.before(flight))

        self.flights.issue(flight, land)

    def commit(self, op: Operation, barrier: View, count: int = 1, scope: int = OWN) -> None:
        """tcgen05.commit: an arrival when everything before it in the pipe has completed; `count` and `scope` as of `mma`."""
        self.mbarriers.barrier_at(op, barrier)
        flight = self.onchip.begin(op, TCGEN05_COMMIT, barriers=(barrier.offset,))

        def land() -> None:
            self.mbarriers.signal(op, barrier, count, _widen_scope(self.flights.before(flight), scope))

        self.flights.issue(flight, land)


def _unknown_elements(view: View) -> np.ndarray | None:
    """Which elements of `view`, read as integers or codes, are none that is known."""
    found = view.shadow_words()
    if found is None:
        return None
    return (found.kind != EXACT) & ((found.error > 0) | (found.kind == PARTS))


def _widen_scope(flights: list[InFlight], known: int) -> list[InFlight]:
    """`flights`, of which whoever waits for the commit knows in as many CTAs."""
    for flight in flights:
        flight.everywhere = max(flight.everywhere, known)
    return flights


def element_codes(element: str, held: np.ndarray, axis: int) -> np.ndarray:
    """The codes in `held`, of which e2m1 are two a byte along `axis`, as one a byte."""
    held = held.view(np.uint8)
    return packing.unpack(held, axis) if element == "e2m1" else held

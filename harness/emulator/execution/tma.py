"""TMA: copies between global and shared memory through tensor descriptors (PTX ISA 9.7.9.27, cp.async.bulk.tensor)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.emulator.advice import Advice, Note
from bitverdict.harness.emulator.async_rules import TMA_GATHER, TMA_LOAD, TMA_SCATTER, TMA_STORE, AsyncKind
from bitverdict.harness.emulator.execution.async_ops import Flights
from bitverdict.harness.emulator.execution.cluster_order import CLUSTER
from bitverdict.harness.emulator.execution.cta_state import CtaState
from bitverdict.harness.emulator.execution.mbarriers import Mbarriers
from bitverdict.harness.emulator.execution.onchip_access import OnChipMemory
from bitverdict.harness.emulator.faults import EmulatedFault
from bitverdict.harness.emulator.memory.global_memory import BulkLanding
from bitverdict.harness.emulator.memory.global_order import BULK
from bitverdict.harness.emulator.memory.onchip import View
from bitverdict.harness.emulator.memory.real_shadows import round_shadow_words
from bitverdict.harness.emulator.memory.tensor_maps import AnyDescriptor, Descriptor, check_alignment, check_sign
from bitverdict.harness.emulator.memory.undefined_lanes import note_dependence
from bitverdict.harness.emulator.numerics.enclosures import Enclosure, enclosure_of_copy, keys, note_store, words_of

if TYPE_CHECKING:
    from bitverdict.harness.emulator.mlir_reader import Operation


class Tma:
    """The unit of a CTA that copies tiles and rows through tensor descriptors."""

    def __init__(self, cta: CtaState, flights: Flights, mbarriers: Mbarriers, onchip: OnChipMemory) -> None:
        self.cta, self.flights, self.mbarriers, self.onchip = cta, flights, mbarriers, onchip
        self.memory = cta.launch.memory

    def load(
        self,
        op: Operation,
        descriptor: AnyDescriptor,
        starts: tuple[int, ...],
        barrier: View,
        target: View,
        when: Any,
        ctas: int = 1,
        multicast: bool = False,
    ) -> None:
        """A tile into shared memory; its bytes, those outside the tensor included, are counted by `barrier`. It is dealt out to as
        many `ctas`, each of which counts its own. `multicast`: one CTA writes the copies of others too."""
        if when:
            tensor_map = descriptor.tensor_map(op)
            check_alignment(op, starts[-1], tensor_map.itemsize)
            lead = (1,) * (len(starts) - len(target.shape))
            self._load(op, TMA_LOAD, tensor_map, *tensor_map.box(starts, (*lead, *target.shape)), barrier, target, ctas)
            if multicast:
                self.cta.cluster.hold(op, target, writes=True, needs=CLUSTER)

    def load_pixels(
        self,
        op: Operation,
        descriptor: AnyDescriptor,
        starts: tuple[int, ...],
        offsets: tuple[int, ...],
        barrier: View,
        target: View,
        when: Any,
    ) -> None:
        """A column of pixels into shared memory (im2col mode), (pixels, channels). Offsets are unsigned."""
        if when:
            tensor_map = descriptor.tensor_map(op)
            check_alignment(op, starts[-1], tensor_map.itemsize)
            moved = [offset % (1 << 16) for offset in offsets]
            self._load(op, TMA_LOAD, tensor_map, *tensor_map.columns(starts, moved, *target.shape), barrier, target)

    def gather(
        self, op: Operation, descriptor: AnyDescriptor, rows: np.ndarray, column: int, barrier: View, target: View, when: Any,
        ctas: int = 1, multicast: bool = False,
    ) -> None:  # fmt: skip
        """Chosen rows into shared memory, from `column` on; `ctas` and `multicast` as of `load`."""
        if when:
            tensor_map = descriptor.tensor_map(op)
            check_alignment(op, column, tensor_map.itemsize)
            self._load(op, TMA_GATHER, tensor_map, *tensor_map.rows(rows, column, target.shape[-1]), barrier, target, ctas)
            if multicast:
                self.cta.cluster.hold(op, target, writes=True, needs=CLUSTER)

    def _load(
        self,
        op: Operation,
        kind: AsyncKind,
        descriptor: Descriptor,
        addresses: np.ndarray,
        inside: np.ndarray | None,
        barrier: View,
        target: View,
        ctas: int = 1,
    ) -> None:
        self.mbarriers.barrier_at(op, barrier)
        flight = self.onchip.begin(op, kind, writes=(target,), barriers=(barrier.offset,))
        padding, agent = None if inside is None else descriptor.padding(op, target.dtype), self.cta.agent
        self.memory.look(op, addresses, inside, target.dtype.itemsize, agent, BULK, kind.proxy)

        def land() -> None:
            loaded_words = self.memory.load(op, addresses, inside, padding, target.dtype, agent, None)
            carried = self.memory.shadow_words(addresses, inside, target.dtype.itemsize)
            if descriptor.to_tf32 and self.cta.launch.real_access is not None:
                carried = round_shadow_words(carried, loaded_words, inside)
            target.put(descriptor.loaded_values(loaded_words, inside).reshape(target.shape), carried)
            if ends := enclosure_of_copy(self.cta, op, loaded_words, addresses, inside):
                words = (descriptor.loaded_values(words_of(end, loaded_words.dtype), inside) for end in (ends.low, ends.high))
                target.enclose(Enclosure(*map(keys, words)))  # rounding keeps their order
            self.mbarriers.receive(op, barrier, addresses.size * target.dtype.itemsize // ctas, flight)

        self.flights.issue(flight, land)

    def store(self, op: Operation, descriptor: AnyDescriptor, starts: tuple[int, ...], source: View) -> None:
        """A tile from shared memory; nothing is written outside the tensor but what is left of a row's last 16 bytes."""
        tensor_map = descriptor.tensor_map(op)
        check_alignment(op, starts[-1], tensor_map.itemsize)
        check_sign(op, starts, "coordinates")
        lead = (1,) * (len(starts) - len(source.shape))
        self._store(op, TMA_STORE, *tensor_map.store_view.box(starts, (*lead, *source.shape)), source)

    def scatter(self, op: Operation, descriptor: AnyDescriptor, rows: np.ndarray, column: int, source: View) -> None:
        """Rows of shared memory to chosen rows. Nothing orders two rows that go to one place: the schedule does."""
        tensor_map = descriptor.tensor_map(op)
        check_alignment(op, column, tensor_map.itemsize)
        check_sign(op, [column], "column")
        check_sign(op, [int(np.min(rows, initial=0))], "row")
        reached = rows[(rows >= 0) & (rows < tensor_map.shape[0])]
        if np.unique(reached).size != reached.size:
            self.cta.notes.add(Note(Advice.DUPLICATE_ROWS, op.location))
            self._differing_rows(op, rows, (rows >= 0) & (rows < tensor_map.shape[0]), source)
        self._store(op, TMA_SCATTER, *tensor_map.store_view.rows(rows, column, source.shape[-1]), source, np.array(rows))

    def _differing_rows(self, op: Operation, rows: np.ndarray, inside: np.ndarray, source: View) -> None:
        """Two rows of one scatter that go to one place: nothing orders them, a race where they differ and that matters."""
        if self.cta.launch.allow_duplicate_rows or self.cta.schedule.timeless:
            return
        self.onchip.begin(op, TMA_SCATTER, reads=(source,))
        held, first = source.get(), dict[int, int]()
        for place in np.flatnonzero(inside).tolist():
            earlier = first.setdefault(int(rows[place]), place)
            if held[earlier].tobytes() != held[place].tobytes():
                raise EmulatedFault(
                    "race",
                    f"{op.name} scatters rows {earlier} and {place} of {source}, which differ, to row {int(rows[place])}: "
                    "either may stay",
                    op.location,
                    {
                        "rule": TMA_SCATTER.rule.sentence,
                        "operation": op.brief,
                        "other operation": op.brief,
                        "other location": op.location,
                    },
                )

    def _store(
        self,
        op: Operation,
        kind: AsyncKind,
        addresses: np.ndarray,
        inside: np.ndarray | None,
        source: View,
        rows: np.ndarray | None = None,
    ) -> None:
        flight = self.onchip.begin(op, kind, reads=(source,))
        agent = self.cta.agent
        landings = self.memory.issue(op, addresses, inside, source.dtype.itemsize, agent, kind.proxy)
        if (lanes := source.undefined_lanes()) is not None and (inside is None or (lanes.reshape(inside.shape) & inside).any()):
            note_dependence(self.cta, op, source.space.undefined_by, lanes)

        def land() -> None:
            values, carried = source.get().reshape(addresses.shape), source.shadow_words()
            order = [slice(None)]
            if rows is not None and np.unique(rows).size != rows.size:
                order = [slice(row, row + 1) for row in self.cta.schedule.order(len(rows))]
            self.memory.land(op, landings, values, order, agent, carried if carried is None else carried.reshape(addresses.shape))
            if ends := source.enclosure():
                self.cta.launch.enclosures.hold(values, Enclosure(*(end.reshape(values.shape) for end in (ends.low, ends.high))))
            note_store(self.cta, op, addresses, values, inside, values.dtype)

        self.flights.issue(flight, land)
        agent.groups.commit(kind.group)
        self.note_issue(landings)

    def note_issue(self, landings: list[BulkLanding]) -> None:
        """The running agent issued a bulk operation that writes at `landings`: its next wait without .read is for them too."""
        self.cta.agent.groups.unwritten.append([each.event for each in landings])
        if self.cta.schedule.timeless:
            self._complete_stores(0)

    def store_wait(self, most: int, *, read: bool) -> None:
        """cp.async.bulk.wait_group: all but the last `most` have read their source, and have written unless the wait is for the
        `read` only. What they wrote may be touched after that."""
        self.flights.wait_group(self.cta.agent, TMA_STORE.group, most)
        if not read:
            self._complete_stores(most)

    def _complete_stores(self, most: int) -> None:
        """All bulk stores of this agent but the last `most` have written."""
        unwritten = self.cta.agent.groups.unwritten
        while len(unwritten) > most:
            for event in unwritten.pop(0):
                self.memory.order.complete(event, self.cta.agent)

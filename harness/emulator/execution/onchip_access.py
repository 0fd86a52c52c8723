"""Shared and tensor memory of a program: who may touch what, and through which proxy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from bitverdict.harness.emulator.async_rules import AsyncKind, Proxy
from bitverdict.harness.emulator.execution.async_ops import Flights, InFlight, unwritten_fault
from bitverdict.harness.emulator.execution.cta_state import CtaState
from bitverdict.harness.emulator.execution.mbarriers import Mbarriers
from bitverdict.harness.emulator.faults import OnChipFault
from bitverdict.harness.emulator.memory.byte_arrays import UNSIGNED_TYPES
from bitverdict.harness.emulator.memory.global_memory import in_turns
from bitverdict.harness.emulator.memory.onchip import Outside, Space, View
from bitverdict.harness.emulator.memory.placed_views import ScatteredView
from bitverdict.harness.emulator.memory.proxy_fences import ProxyVisibility
from bitverdict.harness.emulator.memory.real_updates import update_of

if TYPE_CHECKING:
    from bitverdict.harness.emulator.mlir_reader import Operation

TENSOR_ROW = 512 * 4  # bytes of one lane's 512 columns
TENSOR_BYTES = 128 * 512 * 4


class OnChipMemory:
    """The unit of a CTA that holds its shared memory, and its tensor memory where it has any."""

    def __init__(self, cta: CtaState, flights: Flights, mbarriers: Mbarriers) -> None:
        self.cta, self.flights, self.mbarriers = cta, flights, mbarriers
        ctas = cta.launch.ctas
        self.shared = Space("shared memory", cta.launch.shared * ctas)
        self.tensor = Space("tensor memory", TENSOR_BYTES * ctas if cta.launch.tensor else 0)
        mbarriers.generic_write = self.generic_write
        self.proxies = ProxyVisibility(cta.launch.shared * ctas, cta.notes)

    def reset(self) -> None:
        """Poisoned, and nothing known of it."""
        self.shared.reset()
        self.proxies.reset()
        if self.tensor.size:
            self.tensor.reset()

    def allocate(
        self,
        op: Operation,
        tensor: bool,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: np.dtype,
        pieces: tuple[int, ...] | None,
        value: np.ndarray | None,
        spread: int = 1,
    ) -> View:
        """local_alloc and tmem_alloc: a view, written when there is a `value`, unknown otherwise."""
        return self._begin_view(
            op, View(self.tensor if tensor else self.shared, offset, shape, strides, dtype, pieces, spread), value
        )

    def place(
        self, op: Operation, offset: int, places: np.ndarray, dtype: np.dtype, value: np.ndarray | None, tensor: bool = False
    ) -> View:
        """local_alloc or tmem_alloc whose elements begin `places` bytes from `offset`, as `allocate`."""
        return self._begin_view(op, ScatteredView(self.tensor if tensor else self.shared, places + offset, dtype), value)

    def _begin_view(self, op: Operation, view: View, value: np.ndarray | None) -> View:
        if value is not None:
            self.write(op, view, value)
        else:
            view.forget()  # no access yet: what is still in flight here may be waited for before the first one
        return view

    def scratch(self, op: Operation, offset: int, size: int) -> None:
        """The lowering of `op` uses `size` bytes of shared memory for itself: what was there is lost."""
        if size:
            for cta in range(self.cta.launch.ctas):
                view = View(self.shared, offset + cta * self.cta.launch.shared, (size,), (1,), np.dtype(np.uint8))
                self._touch(op, view, write=True)
                self._generic_use(op, view)
                view.forget()

    def index(self, op: Operation, view: View, at: int) -> View:
        """Buffer `at` of an allocation of several. Beyond them it is an address that nothing may be done with."""
        if 0 <= at < view.shape[0]:
            return view.index(at)
        said = f"index {at} of a descriptor of {view.shape[0]} buffers at {view}"
        return Outside(view.shape[1:], view.dtype, said, {"other operation": op.brief, "other location": op.location})

    def begin(
        self,
        op: Operation,
        kind: AsyncKind,
        *,
        reads: tuple[View, ...] = (),
        writes: tuple[View, ...] = (),
        in_turn: tuple[View, ...] = (),
        barriers: tuple[int, ...] = (),
    ) -> InFlight:
        """An asynchronous operation that is about to be issued: the agent must know what it `reads` to be there, and nobody may
        still use what it `writes`. What it reads `in_turn` the operations before it in its pipe may still write. `barriers` are the
        bytes of the mbarriers that it will arrive at."""
        through_async = kind.proxy is Proxy.ASYNC
        for view in reads:
            self._touch(op, view, write=False, keep=False)
            if through_async and view.space is self.shared:
                self.proxies.async_read(op, view, self.cta.agent)
        for view in writes:
            self.cta.touch(op, view, write=True, keep=False)
            if view.space is self.shared:
                self.mbarriers.overwritten(op, view)
                if through_async:
                    self.proxies.async_write(op, view, self.cta.agent, partitions=bool(self.cta.footprints))
        return InFlight(op, kind, self.cta.agent.number, reads=(*reads, *in_turn), writes=writes, barriers=barriers)

    def _touch(self, op: Operation, view: View, *, write: bool, keep: bool = True) -> None:
        """An access: held against what is in flight, and against other partitions."""
        if keep:
            self.cta.tell("ordinary store" if write else "ordinary load", op, f"{'writes' if write else 'reads'} {view}")
            self.cta.tell_access("written" if write else "read", op, view, writes=write)
        if write:
            self.flights.write(self.cta.agent, op, view)
            if view.space is self.shared:
                self.mbarriers.overwritten(op, view)
        else:
            self.flights.read(self.cta.agent, op, view)
            if view.space is self.shared:
                self.mbarriers.read(op, view)
        self.cta.touch(op, view, write=write, keep=keep)
        if keep:
            self.cta.cluster.use(op, view, writes=write, agent=self.cta.agent.number)

    def read(self, op: Operation, view: View) -> np.ndarray:
        self._touch(op, view, write=False)
        if view.space is self.shared:
            if self.cta.footprints:
                self.proxies.generic_read(op, view, self.cta.agent)
            else:
                self._generic_use(op, view)
        if (access := self.cta.launch.real_access) is not None:
            access.read_words = view.shadow_words()
        words = view.get()
        if ends := view.enclosure():
            self.cta.launch.enclosures.hold(words, ends)
        return words

    def read_followed(self, op: Operation, view: View) -> np.ndarray:
        """As `read`, where all that the words may come to is followed: elements that were never written are a failure once they
        decide something (`undefined_lanes`)."""
        if fault := unwritten_fault(op, view):
            self.cta.launch.displaced_loads.setdefault(op.location, fault)
            view.leave_undefined(view.unknown_lanes(), (op.location,))
            view.know()
        return self.read(op, view)

    def write(self, op: Operation, view: View, value: np.ndarray) -> None:
        self.cta.acts += 1
        self._touch(op, view, write=True)
        view.put(value, self.cta.launch.take_reals(op, view.shape))
        view.enclose(self.cta.launch.enclosures.enclosure_of(value))
        if view.space is self.shared:
            self.generic_write(op, view)

    # -- elements that an index tensor picks --------------------------------------------------------------------------
    def gather(self, op: Operation, view: View, indices: np.ndarray, axis: int) -> np.ndarray:
        """local_gather: of each element of `indices` (any shape of the view's rank) the one at that index along `axis`."""
        return self.read(op, self._pick_elements(op, view, indices, axis, "reads"))

    def scatter(self, op: Operation, view: View, values: np.ndarray, indices: np.ndarray, axis: int) -> None:
        """local_scatter: `values` to the elements at `indices` along `axis`. A race where two that differ go to one place."""
        picked = self._pick_elements(op, view, indices, axis, "writes")
        self.write(op, picked, values)
        words = UNSIGNED_TYPES[picked.dtype.itemsize]
        if (picked.get().view(words) != np.ascontiguousarray(values, picked.dtype).view(words).reshape(picked.shape)).any():
            raise OnChipFault(
                "race",
                f"lanes of one {op.name} write different values to one element of {view}",
                op.location,
                {"operation": op.brief, "other operation": op.brief, "other location": op.location},
            )

    def update(
        self,
        op: Operation,
        view: View,
        values: np.ndarray,
        indices: np.ndarray,
        mask: np.ndarray | None,
        axis: int,
        update: Callable[[np.ndarray, np.ndarray], np.ndarray] | None,
    ) -> np.ndarray:
        """local_atomic_scatter_rmw: as `scatter`, but `update` of (what is there, the value) goes there, one lane after another in
        the order of the elements, the value itself where there is no `update`. What was there; 0 where `mask` is False."""
        old_values = np.zeros(indices.shape, view.dtype)
        lanes = np.arange(indices.size) if mask is None else np.flatnonzero(np.broadcast_to(mask, indices.shape))
        if not lanes.size:
            return old_values
        elements = self._pick_elements(op, view, indices, axis, "updates", np.ones((), np.bool_) if mask is None else mask)
        lane_values = np.ascontiguousarray(np.broadcast_to(values, indices.shape), view.dtype).reshape(-1)[lanes]
        self.read(op, elements)
        reals = None
        if (access := self.cta.launch.real_access) is not None:
            sent = access.take(op, indices.shape)
            chosen = None if sent is None else sent.reshape(-1)[lanes]
            reals = update_of(op, op.inputs[1].element if op.inputs[1] else "", lanes.size, chosen)
        before = np.zeros(lanes.size, view.dtype)
        for turn in in_turns(elements.at, np.arange(lanes.size)):
            part = ScatteredView(elements.space, elements.at[turn], elements.dtype)
            before[turn] = old = part.get()
            carried = None if reals is None else reals.combine(part.shadow_words(), turn, old, lane_values[turn])
            if access is not None:
                access.send(op, carried)
            self.write(op, part, lane_values[turn] if update is None else update(old, lane_values[turn]))
        old_values.reshape(-1)[lanes] = before
        if access is not None and reals is not None:
            access.read_words = None if reals.found is None else reals.found.spread(lanes, indices.shape)
        return old_values

    def _pick_elements(
        self, op: Operation, view: View, indices: np.ndarray, axis: int, does: str, mask: np.ndarray | None = None
    ) -> ScatteredView:
        """The elements at `indices` along `axis` of `view`, in one row where there is a `mask`."""
        size = view.shape[axis]
        out_of_range = (indices < 0) | (indices >= size)
        if mask is not None:
            out_of_range &= mask
        if out_of_range.any():
            first = indices.reshape(-1)[int(out_of_range.argmax())]
            raise OnChipFault(
                "illegal address",
                f"{op.name} {does} index {first} along axis {axis} of {view}, which has {size}",
                op.location,
                {"operation": op.brief},
            )
        reached = [slice(None) if i == axis else slice(n) for i, n in enumerate(indices.shape)]
        chosen = np.where(out_of_range | ~mask, 0, indices) if mask is not None else indices
        found = np.take_along_axis(view.places()[tuple(reached)], chosen.astype(np.int64), axis)
        return ScatteredView(view.space, found if mask is None else found[np.broadcast_to(mask, indices.shape)], view.dtype)

    def generic_write(self, op: Operation, view: View) -> None:
        """Ordinary stores (or cp.async) wrote `view`: the async proxy may not read it before a proxy fence."""
        if not self.cta.schedule.timeless:
            self.proxies.generic_write(op, view, self.cta.agent)
            self._generic_use(op, view)

    def _generic_use(self, op: Operation, view: View) -> None:
        """`op`, of a program that is not split, uses `view`: the async proxy may not write it before a proxy fence."""
        if not (self.cta.schedule.timeless or self.cta.footprints):
            self.proxies.of_one.use(op, view)

    def fence(self, op: Operation, written: bool = False) -> None:
        """fence.proxy.async of shared memory: what this agent knows to be written becomes visible to the async proxy. `written`: by
        the author, which else follows from its line."""
        self.cta.tell("proxy fence", op, "generic reads and writes so far are ordered before the async proxy")
        alone = len(self.flights.agents) == 1
        self.proxies.proxy_fence(self.cta.agent, by_author=written or op.location in self.cta.launch.fence_lines, is_alone=alone)

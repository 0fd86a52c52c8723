"""Shared and tensor memory of a program: who may touch what, and through which proxy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bitverdict.harness.emulator.async_rules import AsyncKind, Proxy
from bitverdict.harness.emulator.execution.async_ops import Flights, InFlight
from bitverdict.harness.emulator.execution.cta_state import CtaState
from bitverdict.harness.emulator.execution.mbarriers import Mbarriers
from bitverdict.harness.emulator.memory.onchip import Outside, Space, View
from bitverdict.harness.emulator.memory.proxy_fences import ProxyVisibility

if TYPE_CHECKING:
    from bitverdict.harness.emulator.mlir_reader import Operation

TENSOR_BYTES = 128 * 512 * 4


class OnChipMemory:
    """The unit of a CTA that holds its shared memory, and its tensor memory where it has any."""

    def __init__(self, cta: CtaState, flights: Flights, mbarriers: Mbarriers) -> None:
        self.cta, self.flights, self.mbarriers = cta, flights, mbarriers
        self.shared = Space("shared memory", cta.launch.shared)
        self.tensor = Space("tensor memory", TENSOR_BYTES if cta.launch.tensor else 0)
        self.proxies = ProxyVisibility(cta.launch.shared, cta.notes)

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
        view = View(self.tensor if tensor else self.shared, offset, shape, strides, dtype, pieces, spread)
        if value is not None:
            self.write(op, view, value)
        else:
            view.known[...] = 0  # no access yet: what is still in flight here may be waited for before the first one
        return view

    def scratch(self, op: Operation, offset: int, size: int) -> None:
        """The lowering of `op` uses `size` bytes of shared memory for itself: what was there is lost."""
        if size:
            view = View(self.shared, offset, (size,), (1,), np.dtype(np.uint8))
            self._touch(op, view, write=True)
            view.known[...] = 0

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
        if write:
            self.flights.write(self.cta.agent, op, view)
            if view.space is self.shared:
                self.mbarriers.overwritten(op, view)
        else:
            self.flights.read(self.cta.agent, op, view)
            if view.space is self.shared:
                self.mbarriers.read(op, view)
        self.cta.touch(op, view, write=write, keep=keep)

    def read(self, op: Operation, view: View) -> np.ndarray:
        self._touch(op, view, write=False)
        if self.cta.footprints and view.space is self.shared:
            self.proxies.generic_read(op, view, self.cta.agent)
        return view.get()

    def write(self, op: Operation, view: View, value: np.ndarray) -> None:
        self.cta.acts += 1
        self._touch(op, view, write=True)
        view.put(value)
        if view.space is self.shared:
            self.generic_write(op, view)

    def generic_write(self, op: Operation, view: View) -> None:
        """Ordinary stores (or cp.async) wrote `view`: the async proxy may not read it before a proxy fence."""
        if not self.cta.schedule.timeless:
            self.proxies.generic_write(op, view, self.cta.agent)

    def fence(self, op: Operation, written: bool = False) -> None:
        """fence.proxy.async of shared memory: what this agent knows to be written becomes visible to the async proxy. `written`: by
        the author, which else follows from its line."""
        self.cta.tell("proxy fence", op, "generic reads and writes so far are ordered before the async proxy")
        alone = len(self.flights.agents) == 1
        self.proxies.proxy_fence(self.cta.agent, by_author=written or op.location in self.cta.launch.written, alone=alone)

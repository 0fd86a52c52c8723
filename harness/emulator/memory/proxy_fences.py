"""Whether the async proxy sees what ordinary accesses did to shared memory (PTX ISA 8.6, proxies; 9.7.13.4, fence.proxy.async).

TMA, wgmma and tcgen05 reach shared memory through the async proxy. Ordinary loads and stores, and cp.async, take the generic one.
A proxy fence must stand between a generic write and an async access to the same bytes, and between a generic read and an async
write. In global memory the same rule goes by the clocks of its events (`global_order.GlobalOrder.fence_proxy`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from bitverdict.harness.emulator.advice import Advice, Note
from bitverdict.harness.emulator.async_rules import rule_of
from bitverdict.harness.emulator.faults import OnChipFault

if TYPE_CHECKING:
    from bitverdict.harness.emulator.execution.partitions import Agent
    from bitverdict.harness.emulator.memory.onchip import View
    from bitverdict.harness.emulator.mlir_reader import Operation

MOST_WRITES = 0xFFFE  # generic writes that a byte can name


@dataclass(eq=False)
class GenericAccess:
    """A generic write or read by partition `agent` in `epoch`. `fences` are the proxy fences behind it, by partition the epoch of
    its first: those of the author, and those that the compiler inserted."""

    op: Operation
    agent: int
    epoch: int
    authors: dict[int, int] = field(default_factory=dict)
    compilers: dict[int, int] = field(default_factory=dict)

    def fence(self, agent: Agent, *, by_author: bool) -> None:
        """`agent` executes a proxy fence: it orders this access if `agent` knows of it. Of several fences the first says most."""
        if self.epoch <= agent.clock[self.agent]:
            (self.authors if by_author else self.compilers).setdefault(agent.number, agent.epoch)

    def is_ordered(self, clock: np.ndarray, *, by_author: bool) -> bool:
        """Whether whoever knows `clock` knows of a fence behind this access: not of one after the release that it acquired."""
        fences = self.authors if by_author else self.compilers
        return any(epoch <= clock[agent] for agent, epoch in fences.items())


class ProxyVisibility:
    """The bytes of one program's shared memory, as the async proxy may rely on them.

    Each byte is in one of three states (a generic read is followed likewise, by view, while there are several partitions):

                    generic write w                   proxy fence f by a partition that knows w
        ORDERED ----------------------> UNFENCED ------------------------------------------------> FENCED by f
           ^                               |                                                           |
           |                               | async access: race                                        | async access by a partition
           |                               |                                                           | that knows f: ordered;
           |         async write           |                       async write                         | by another: race
           +-------------------------------+-----------------------------------------------------------+

    A partition knows what it did itself, and what it has acquired. A release (an arrival on an mbarrier) makes known what came
    before it to each partition that acquires it (a wait for the phase that it completes). A fence of the compiler's orders as the
    author's does, and an advice in `notes` names the access. Between a generic access and an async write of one partition the
    compiler inserts the fence, whose absence is a race (`UnfencedAccesses`): scratch memory of an operation counts; no advice.
    """

    def __init__(self, size: int, notes: set[Note]) -> None:
        self.notes = notes
        self.last_write = np.zeros(size, np.uint16)  # (size,) 1 + the generic write that is not ordered, 0 for none
        self.writes: list[GenericAccess] = []
        self.reads: dict[tuple, tuple[View, GenericAccess]] = {}  # by partition and place: its last generic read
        self.of_one = UnfencedAccesses(size)

    def reset(self) -> None:
        """All bytes are ordered."""
        self.last_write.fill(0)
        self.writes = []
        self.reads = {}
        self.of_one.fence()

    def generic_write(self, op: Operation, view: View, agent: Agent) -> None:
        """`agent` wrote `view` by ordinary stores, or waited for a cp.async that did."""
        if len(self.writes) >= MOST_WRITES:
            self.writes = []
            self.last_write.fill(0)
        self.writes.append(GenericAccess(op, agent.number, agent.epoch))
        self.last_write[view.extent] = len(self.writes)

    def generic_read(self, op: Operation, view: View, agent: Agent) -> None:
        """`agent`, one of several partitions, read `view` by ordinary loads."""
        place = agent.number, view.identity
        self.reads[place] = view, GenericAccess(op, agent.number, agent.epoch)

    def proxy_fence(self, agent: Agent, *, by_author: bool, is_alone: bool) -> None:
        """`agent` executes fence.proxy.async. `is_alone`: there is no other partition, so that it knows of all."""
        self.of_one.fence()
        for _, read in self.reads.values():
            read.fence(agent, by_author=by_author)
        if not self.writes:
            return
        if by_author and is_alone:
            self.last_write.fill(0)
            self.writes = []
            return
        for write in self.writes:
            write.fence(agent, by_author=by_author)

    def async_read(self, op: Operation, view: View, agent: Agent) -> None:
        """`agent` lets the async proxy read `view`. Raises OnChipFault "race" where it may miss a generic write."""
        if self.writes:
            self._hold(op, view, agent, "reads", "ordinary store", self._generic_writes(view))

    def async_write(self, op: Operation, view: View, agent: Agent, *, partitions: bool) -> None:
        """`agent`, one of several `partitions` or alone, lets the async proxy write `view`. Raises OnChipFault "race" where that
        may come before a generic access. What the async proxy wrote needs no fence to be read again."""
        if partitions:
            if self.writes:
                self._hold(op, view, agent, "writes", "ordinary store", self._generic_writes(view))
            read = [access for seen, access in self.reads.values() if seen.overlaps(view)]
            self._hold(op, view, agent, "writes", "ordinary load", read)
        elif (last := self.of_one.last_operation(view)) is not None:
            raise _race(op, view, "writes", last, "used", "ordinary store", "between them")
        if self.writes:
            self.last_write[view.extent] = 0

    def _generic_writes(self, view: View) -> list[GenericAccess]:
        """The generic writes that the bytes of `view` hold, and that the async proxy did not write over."""
        return [self.writes[number - 1] for number in np.unique(self.last_write[view.extent]).tolist() if number]

    def _hold(
        self, op: Operation, view: View, agent: Agent, does: str, earlier_kind: str, accesses: Iterable[GenericAccess]
    ) -> None:
        """The async proxy `does` something to `view` after generic `accesses`. A race where `agent` knows of no fence behind one of
        them, an advice where it knows only of the compiler's."""
        unfenced_accesses = [access for access in accesses if not access.is_ordered(agent.clock, by_author=True)]
        if not unfenced_accesses:
            return
        missed_access = next((access for access in unfenced_accesses if not access.is_ordered(agent.clock, by_author=False)), None)
        if missed_access is None:
            advice = Advice.FENCE if earlier_kind == "ordinary store" else Advice.FENCE_AFTER_READ
            self.notes.add(Note(advice, unfenced_accesses[0].op.location))
            return
        other, did = missed_access.op, "wrote" if earlier_kind == "ordinary store" else "read"
        place = "between them" if missed_access.agent == agent.number else f"after {other.location}, before the arrival behind it"
        raise _race(op, view, does, other, did, earlier_kind, place)


class UnfencedAccesses:
    """The generic accesses of a program that is not split, since its last proxy fence: which of them used a byte last."""

    def __init__(self, size: int) -> None:
        self.used = np.zeros(size, np.int32)  # (size,) the number of the last access, counted from 1
        self.behind = 0  # the accesses that a fence is behind
        self.accesses: list[Operation] = []

    def use(self, op: Operation, view: View) -> None:
        """`op` reads or writes `view` through the generic proxy, or its lowering does."""
        self.accesses.append(op)
        self.used[view.extent] = self.behind + len(self.accesses)

    def fence(self) -> None:
        """What was used so far is ordered."""
        self.behind += len(self.accesses)
        self.accesses = []

    def last_operation(self, view: View) -> Operation | None:
        """Which operation used a byte of `view` last, with no fence since; None where none did."""
        if not self.accesses:
            return None
        number = int(self.used[view.extent].max(initial=0)) - self.behind
        return self.accesses[number - 1] if number > 0 else None


def _race(op: Operation, view: View, does: str, other_operation: Operation, did: str, earlier_kind: str, place: str) -> OnChipFault:
    """`op` does something to `view` through the async proxy, and nothing orders that behind what `other` did."""
    return OnChipFault(
        "race",
        f"{op.name} {does} {view} through the async proxy, which {other_operation.name} at "
        f"{other_operation.location} {did} through the "
        "generic one: no proxy fence (fence_async_shared) between them",
        op.location,
        {
            "rule": rule_of(earlier_kind),
            "remedy": f"fence_async_shared() {place}",
            "operation": op.brief,
            "other operation": other_operation.brief,
            "other location": other_operation.location,
        },
    )

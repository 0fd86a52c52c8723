"""Shared memory of the CTAs of a batch, and which of its bytes are used by operations that go on their own time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from bitverdict.harness.emulator.ptx.opcodes import DTYPES
from bitverdict.harness.ptx_machine.memory import Judge, Observer
from bitverdict.harness.ptx_machine.program import ThreadStep, fault
from bitverdict.harness.ptx_machine.thread_order import Order

RANK_BITS = 24  # an address of shared memory has the rank of its CTA in the cluster above these
OWN, PEERS, ASYNC_PEERS = range(3)  # whose shared memory an operation may use; the last one lands later
Reach = Callable[[ThreadStep, np.ndarray, np.ndarray, bool], None]  # instruction, threads, their CTAs, whether it lands later


@dataclass(eq=False)
class SharedSpace:
    """Shared memory of the CTAs of a batch: [CTAs, bytes]. `in_flight` marks units that an asynchronous copy will write. `reach` is
    told of accesses to other CTAs of a cluster."""

    raw: np.ndarray
    judge: Judge
    in_flight: np.ndarray  # (units,) of all CTAs: number of the operation that will write them, 0 for none
    is_read: np.ndarray  # (units,) likewise of one that reads them on its own time
    steps: dict[int, ThreadStep] = field(default_factory=dict)  # of operations in flight, by number
    observe: Observer | None = None
    reach: Reach | None = None

    @classmethod
    def empty(cls, ctas: int, size: int, order: Order, unit: int) -> SharedSpace:
        size = -(-max(size, 16) // 16) * 16
        units = ctas * size // unit
        return cls(
            np.zeros((ctas, size), np.uint8), Judge(order, units, unit, is_whole=units <= 1 << 18), *np.zeros((2, units), np.int32)
        )

    def ranks(self, ctas: np.ndarray) -> np.ndarray:
        """What addresses in `ctas` have above their `RANK_BITS` bits."""
        return ctas % (self.judge.order.threads // self.judge.order.cta_threads) << RANK_BITS

    def split(
        self, step: ThreadStep, threads: np.ndarray, addresses: np.ndarray, peer_access: int = OWN
    ) -> tuple[np.ndarray, np.ndarray]:
        """(CTA, byte of its shared memory) that each of `threads` means by its address. A fault where that is a CTA which the
        instruction does not reach."""
        order = self.judge.order
        own = threads // order.cta_threads
        if order.threads == order.cta_threads:
            return own, addresses
        ctas = threads // order.threads * (order.threads // order.cta_threads) + (addresses >> RANK_BITS)
        is_wrong = ctas != own if peer_access == OWN else ctas // (order.threads // order.cta_threads) != threads // order.threads
        if is_wrong.any():
            place = int(is_wrong.argmax())
            rank = int(addresses[place]) >> RANK_BITS
            reason = "which is none of its cluster" if peer_access else "whose shared memory needs .shared::cluster"
            message = f"{step.statement.opcode} at {int(addresses[place]):#x} of shared memory, of the CTA of rank {rank}, {reason}"
            raise fault("illegal address", message, step, thread=int(threads[place]))
        if self.reach is not None and peer_access != OWN and (ctas != own).any():
            self.reach(step, threads, ctas, peer_access == ASYNC_PEERS)
        return ctas, addresses & ((1 << RANK_BITS) - 1)

    def flat_offsets(
        self, step: ThreadStep, threads: np.ndarray, addresses: np.ndarray, size: int, verb: str, peer_access: int = OWN
    ) -> np.ndarray:
        """Offsets in all of `raw` for `addresses` in the CTA of each thread, or, as `peer_access` says, of a peer; a fault
        outside of what the launch was given."""
        ctas, addresses = self.split(step, threads, addresses, peer_access)
        if self.observe is not None:
            self.observe("shared", step, threads, addresses, size)
        bytes_of_cta = self.raw.shape[1]
        is_conflict = (addresses < 0) | (addresses + size > bytes_of_cta)
        if is_conflict.any():
            place = int(is_conflict.argmax())
            message = f"{verb} of {size} bytes at {int(addresses[place])} of shared memory, of which a CTA has {bytes_of_cta} bytes"
            raise fault("illegal address", message, step, thread=int(threads[place]))
        if size > 1 and (off := addresses & (size - 1)).any():
            place = int((off != 0).argmax())
            raise fault("misaligned address", f"{verb} of {size} bytes at {int(addresses[place])} of shared memory", step)
        return ctas * bytes_of_cta + addresses

    def units(self, offsets: np.ndarray, size: int) -> np.ndarray:
        """The units of `size` bytes at each of `offsets`."""
        return (offsets[:, None] // self.judge.unit + np.arange(max(size // self.judge.unit, 1))).reshape(-1)

    def words(self, size: int) -> np.ndarray:
        """All of it as unsigned words of `size` bytes."""
        return self.raw.reshape(-1).view(DTYPES[8 * size])

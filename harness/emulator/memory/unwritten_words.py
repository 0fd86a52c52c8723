"""Words that nobody wrote: of storages that were allocated full of one byte, which words a launch or the host has written, and
which loads and atomics take others.

A word is unwritten as long as each of its bytes holds the fill, and no launch has stored to one of them. What the host writes shows
when the next launch begins: as bytes that differ from the fill. So what the host fills with the very same byte counts as
unwritten: who asks must make sure by another fill.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bitverdict.harness.emulator.async_rules import Proxy
from bitverdict.harness.emulator.memory.byte_arrays import UNSIGNED_TYPES, zeros
from bitverdict.harness.emulator.memory.global_memory import BulkLanding, GlobalMemory
from bitverdict.harness.emulator.memory.global_order import ORDINARY
from bitverdict.harness.emulator.memory.real_memory import storage_of

if TYPE_CHECKING:
    import torch

    from bitverdict.harness.emulator.execution.partitions import Agent
    from bitverdict.harness.emulator.frontend.program_facts import ProgramFacts
    from bitverdict.harness.emulator.mlir_reader import Operation

WRITTEN_MARK = 0xFF  # of a byte, in a mask


class AllocatedStorage(NamedTuple):
    """A storage that a launcher allocated, by a name: a tensor (CPU) whose storage it is, and the byte it was full of."""

    name: str
    tensor: torch.Tensor
    fill: int


class UnwrittenRead(NamedTuple):
    """The first word in an allocation that the operation of one line took, and nobody had written: the line, the name of the
    allocation and of the kernel's parameter, and the word's first byte in the storage."""

    location: str
    allocation: str
    parameter: str
    byte: int


@dataclass(eq=False)
class _Storage:
    name: str
    raw: np.ndarray  # (bytes,) uint8
    fill: int
    written_marks: np.ndarray  # (bytes,) uint8, WRITTEN or 0

    def marks(self, size: int) -> np.ndarray:
        """`written` of words of `size` bytes: 0 where nobody wrote one of them."""
        return self.written_marks[: self.written_marks.size // size * size].view(UNSIGNED_TYPES[size])


class UnwrittenWords:
    """Over all launches of a device. `allocated` is asked for what there is, each time that a launch begins."""

    def __init__(self, allocated: Callable[[], Iterable[AllocatedStorage]]) -> None:
        self.allocated = allocated
        self.storages: dict[int, _Storage] = {}  # by where they begin
        self.reads: dict[tuple[str, str], UnwrittenRead] = {}  # by line and allocation, as they came

    def look(self) -> None:
        """Take in what was allocated, and what the host has written, since the last look."""
        for name, tensor, fill in self.allocated():
            base, raw = storage_of(tensor)
            if base not in self.storages:
                self.storages[base] = _Storage(name, raw, fill, zeros(raw.size, np.uint8))
        for held in self.storages.values():
            held.written_marks[held.raw != held.fill] = WRITTEN_MARK

    def begin(self) -> None:
        """Programs run several at once from here on."""
        self._before = [(held, held.written_marks.copy()) for held in self.storages.values()], dict(self.reads)

    def end(self, *, kept: bool) -> None:
        """They have run: what they did is `kept`, or taken back."""
        if not kept:
            masks, self.reads = self._before
            for held, written in masks:
                held.written_marks = written
        del self._before

    def read(
        self, op: Operation, addresses: np.ndarray, mask: np.ndarray | None, size: int, parameter: Callable[[int], str]
    ) -> None:
        """`op` takes the words of `size` bytes at `addresses` where `mask`. `parameter` names the tensor at an address."""
        for base, held, places in self._parts(addresses, mask, size):
            unwritten = places[held.marks(size)[places] == 0]
            if unwritten.size:
                first, before = int(unwritten.min()) * size, self.reads.get((op.location, held.name))
                if before is None or first < before.byte:
                    self.reads[op.location, held.name] = UnwrittenRead(op.location, held.name, parameter(base), first)

    def wrote(self, addresses: np.ndarray, mask: np.ndarray | None, size: int) -> None:
        """A launch has written the words of `size` bytes at `addresses` where `mask`."""
        for _, held, places in self._parts(addresses, mask, size):
            held.marks(size)[places] = np.iinfo(UNSIGNED_TYPES[size]).max

    def _parts(self, addresses: np.ndarray, mask: np.ndarray | None, size: int) -> Iterator[tuple[int, _Storage, np.ndarray]]:
        """Where a storage begins, the storage, and the numbers of the words in it, for each that is touched."""
        touched_addresses = (
            addresses.reshape(-1) if mask is None else addresses[np.broadcast_to(mask, addresses.shape)]
        )  # (elements,)
        if not touched_addresses.size:
            return
        low, high = int(touched_addresses.min()), int(touched_addresses.max())
        for base, held in self.storages.items():
            end = base + held.raw.size
            if base <= high and low < end:
                here = touched_addresses[(touched_addresses >= base) & (touched_addresses < end)]
                if here.size:
                    yield base, held, (here - base) // size

    def unwritten_elements(self, tensor: torch.Tensor) -> np.ndarray:
        """Which elements of `tensor` (CPU), in its shape, nobody has written; those of a storage that is not followed count as
        written."""
        self.look()
        shape, size = tuple(tensor.shape), tensor.element_size()
        held = self.storages.get(storage_of(tensor)[0]) if tensor.numel() else None
        if held is None:
            return np.zeros(shape, np.bool_)
        strides = tuple(size * stride for stride in tensor.stride())
        return np.ndarray(shape, UNSIGNED_TYPES[size], held.written_marks, size * tensor.storage_offset(), strides) == 0


class FollowedMemory(GlobalMemory):
    """Global memory that tells `unwritten` of each access."""

    def __init__(self, whole_storages: bool, unwritten: UnwrittenWords) -> None:
        super().__init__(whole_storages)
        self.unwritten = unwritten

    def begin(self, programs: int, facts: ProgramFacts, arguments: Sequence[Any]) -> None:
        super().begin(programs, facts, arguments)
        self.unwritten.look()

    def _parameter(self, base: int) -> str:
        return next((region.name for region in self.regions if region.base == base), "")

    def load(
        self,
        op: Operation,
        addresses: np.ndarray,
        mask: np.ndarray | None,
        other: np.ndarray | None,
        dtype: np.dtype,
        agent: Agent,
        kind: int | None = ORDINARY,
    ) -> np.ndarray:
        found = super().load(op, addresses, mask, other, dtype, agent, kind)
        self.unwritten.read(op, addresses, mask, dtype.itemsize, self._parameter)
        return found

    def store(
        self, op: Operation, addresses: np.ndarray, values: np.ndarray, mask: np.ndarray | None, agent: Agent, carried: Any = None
    ) -> None:
        super().store(op, addresses, values, mask, agent, carried)
        self.unwritten.wrote(addresses, mask, values.dtype.itemsize)

    def issue(
        self, op: Operation, addresses: np.ndarray, mask: np.ndarray | None, size: int, agent: Agent, proxy: Proxy
    ) -> list[BulkLanding]:
        landings = super().issue(op, addresses, mask, size, agent, proxy)
        self.unwritten.wrote(addresses, mask, size)  # nobody may look before it has come
        return landings

    def issue_update(
        self, op: Operation, addresses: np.ndarray, mask: np.ndarray | None, size: int, agent: Agent
    ) -> list[BulkLanding]:
        landings = super().issue_update(op, addresses, mask, size, agent)
        self.unwritten.read(op, addresses, mask, size, self._parameter)
        self.unwritten.wrote(addresses, mask, size)
        return landings

    def atomic(
        self, op: Operation, addresses: np.ndarray, mask: np.ndarray | None, dtype: np.dtype, agent: Agent, **update: Any
    ) -> tuple[np.ndarray, bool]:
        found = super().atomic(op, addresses, mask, dtype, agent, **update)
        if op.name != "tt.atomic_store":
            self.unwritten.read(op, addresses, mask, dtype.itemsize, self._parameter)
        if update.get("values") is not None:
            self.unwritten.wrote(addresses, mask, dtype.itemsize)
        return found


__all__ = ["AllocatedStorage", "FollowedMemory", "UnwrittenRead", "UnwrittenWords"]

"""Words that nobody wrote: of storages that were allocated full of one byte, which words a launch or the host has written, and
which loads and atomics take others.

A word is unwritten as long as each of its bytes holds the fill, and no launch has stored to one of them. What the host writes shows
when the next launch begins: as bytes that differ from the fill. So what the host fills with the very same byte counts as
unwritten: who asks must make sure by another fill.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bitverdict.harness.emulator.device_probe import DeviceProbe, LaunchRun, WordAccess
from bitverdict.harness.emulator.memory.byte_arrays import UNSIGNED_TYPES, zeros
from bitverdict.harness.emulator.memory.real_memory import storage_of

if TYPE_CHECKING:
    import torch


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
class AllocatedWords:
    """What is known of one allocation: its bytes, the byte that it was full of, and which were written."""

    name: str
    raw: np.ndarray  # (bytes,) uint8
    fill: int
    written_marks: np.ndarray  # (bytes,) uint8, WRITTEN or 0

    def marks(self, size: int) -> np.ndarray:
        """`written` of words of `size` bytes: 0 where nobody wrote one of them."""
        return self.written_marks[: self.written_marks.size // size * size].view(UNSIGNED_TYPES[size])


class UnwrittenWords(DeviceProbe):
    """Over all launches of a device. `allocated` is asked for what there is, each time that a launch begins."""

    def __init__(self, allocated: Callable[[], Iterable[AllocatedStorage]]) -> None:
        self.allocated = allocated
        self.storages: dict[int, AllocatedWords] = {}  # by where they begin
        self.reads: dict[tuple[str, str], UnwrittenRead] = {}  # by line and allocation, as they came

    def look(self) -> None:
        """Take in what was allocated, and what the host has written, since the last look."""
        for name, tensor, fill in self.allocated():
            base, raw = storage_of(tensor)
            if base not in self.storages:
                self.storages[base] = AllocatedWords(name, raw, fill, zeros(raw.size, np.uint8))
        for held in self.storages.values():
            held.written_marks[held.raw != held.fill] = WRITTEN_MARK

    def begin(self, run: LaunchRun) -> None:
        self.look()

    def begin_batches(self) -> None:
        self._before = [(held, held.written_marks.copy()) for held in self.storages.values()], dict(self.reads)

    def end_batches(self, *, kept: bool) -> None:
        if not kept:
            masks, self.reads = self._before
            for held, written in masks:
                held.written_marks = written
        del self._before

    def on_load(self, access: WordAccess) -> None:
        if (storage := self.storages.get(access.region.base)) is None:
            return
        unwritten = np.flatnonzero(storage.marks(access.size)[access.places] == 0)
        if not unwritten.size:
            return
        place = access.places.start + int(unwritten[0]) if isinstance(access.places, slice) else int(access.places[unwritten].min())
        key, first_byte = (access.op.location, storage.name), place * access.size
        before = self.reads.get(key)
        if before is None or first_byte < before.byte:
            self.reads[key] = UnwrittenRead(*key, access.region.name, first_byte)

    def on_store(self, access: WordAccess) -> None:
        if (storage := self.storages.get(access.region.base)) is not None:
            storage.marks(access.size)[access.places] = np.iinfo(UNSIGNED_TYPES[access.size]).max

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


__all__ = ["WRITTEN_MARK", "AllocatedStorage", "AllocatedWords", "UnwrittenRead", "UnwrittenWords"]

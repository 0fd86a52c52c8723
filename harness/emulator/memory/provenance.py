"""Where each byte of the emulated GPU's memory comes from: a kernel's store, an operand, torch, or the host.

Beside each storage lies one number a byte, of its *origin*. A launch marks what it stores (`OriginProbe`), operations of torch on
tensors of the GPU move the numbers or give new ones (`emulator.provenance_tensors`). Origins of which nobody computed a value have
the numbers below `LOWEST_COMPUTED`, so that one comparison finds what torch or the host computed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bitverdict.harness.emulator.memory.byte_arrays import UNSIGNED_TYPES, zeros
from bitverdict.harness.model.paths import HARNESS, is_foreign, source_line
from bitverdict.harness.model.torch_internals import StorageWeakRef

if TYPE_CHECKING:
    import torch

    from bitverdict.harness.emulator.memory.global_memory import Region


class Kind(StrEnum):
    """What a byte's value was made by."""

    UNWRITTEN = "never written"
    KERNEL = "a kernel's store"
    CONSTANT = "a constant"
    OPERAND = "an operand"
    COPY = "a copy of an operand"
    TORCH = "torch"
    HOST = "the host"


class Origin(NamedTuple):
    """A kind, the operator or call of torch (`by`), and the launcher's ``file:line``, empty where it is not known. What is `blind`
    was made of constants alone, before the host had read any memory: it tells nothing of the operands."""

    kind: Kind
    maker: str = ""
    line: str = ""
    blind: bool = False

    @property
    def is_computed(self) -> bool:
        """Whether torch or the host made the value."""
        return self.kind in (Kind.TORCH, Kind.HOST)

    def __str__(self) -> str:
        said = f"{self.kind} {self.maker}".rstrip()
        return f"{said} at {self.line}" if self.line else said


UNWRITTEN, KERNEL, CONSTANT_FILL, OPERAND = range(4)
BLIND, LOWEST_COMPUTED = 48, 80
"""The lowest numbers of origins whose value torch or the host computed: of those that are blind, and of the others."""
_FIXED_ORIGINS = (Origin(Kind.UNWRITTEN), Origin(Kind.KERNEL), Origin(Kind.CONSTANT), Origin(Kind.OPERAND))
EARLIER_MEMORY = Origin(Kind.HOST, "memory from before the call")
Place = tuple[tuple[int, ...], tuple[int, ...], int]
"""Sizes, strides and first byte of elements in a storage, in bytes, axes that follow one another merged: two tensors that give the
same bytes in the same order have equal ones."""


class Origins(NamedTuple):
    """Of each element of a tensor, in its shape, the number of its origin; and the origins by number."""

    numbers: np.ndarray
    by_number: dict[int, Origin]

    def counts(self) -> dict[Origin, int]:
        """How many elements are of each origin."""
        found = np.bincount(self.numbers.reshape(-1), minlength=256)
        return {self.by_number[number]: int(found[number]) for number in np.flatnonzero(found).tolist()}


class ComputedInput(NamedTuple):
    """Bytes of a kernel's argument that torch or the host computed, and that a launch may have read."""

    kernel: str
    argument: str
    origin: Origin
    bytes: int


class HostRead(NamedTuple):
    """The host saw words of the GPU's memory: by which call, at which line, and of which origins."""

    call: str
    line: str
    origins: tuple[Origin, ...]


@dataclass(eq=False)
class Memory:
    """One storage: the number of each byte's origin, the type and the bytes of the tensor that it was allocated for, and where
    copies of whole operands lie."""

    storage: Any  # a weak reference
    numbers: np.ndarray  # (bytes,) uint8
    dtype: torch.dtype
    full_place: Place
    operands: set[Place] = field(default_factory=set)

    @property
    def first_byte(self) -> int:
        """The first byte of the tensor."""
        return self.full_place[2]


MOST_STORAGES = 256  # storages, beyond which those that are gone are forgotten


class Provenance:
    """Over all launches of one device. `where` gives the launcher's line of the operation that goes on; a process that serves
    another's operations puts its own there."""

    def __init__(self) -> None:
        self.storages: dict[int, Memory] = {}  # by where they begin
        self.origins: dict[int, Origin] = dict(enumerate(_FIXED_ORIGINS))
        self.numbers: dict[Origin, int] = {origin: number for number, origin in self.origins.items()}
        self.inputs: dict[ComputedInput, None] = {}  # as they came
        self.reads: dict[HostRead, None] = {}
        self.offered: set[int] = set()  # where storages begin that a launch may have written
        self.steers = False  # the host has read what may tell of a result, and may choose by it
        self.steps: list[tuple[Any, ...]] = []  # of each launch of the call that goes on, what the host chose of it
        self.where = launcher_line

    # -- origins ----------------------------------------------------------------------------------------------------------
    def number(self, origin: Origin) -> int:
        """Its number. Where a range of numbers is full, the rest of that kind share its last."""
        origin_number = self.numbers.get(origin)
        if origin_number is None:
            first, last = len(_FIXED_ORIGINS), BLIND - 1
            if origin.is_computed:
                first, last = (BLIND, LOWEST_COMPUTED - 1) if origin.blind else (LOWEST_COMPUTED, 255)
            origin_number = first + sum(first <= number <= last for number in self.origins)
            if origin_number >= last:
                origin_number, origin = last, Origin(origin.kind, "other calls", blind=origin.blind)
            self.numbers[origin] = origin_number
            self.origins[origin_number] = origin
        return origin_number

    def current_number(self, kind: Kind, by: str, sources: Iterable[torch.Tensor] | None = ()) -> int:
        """The number of what is made `by` a call of torch that goes on, of `sources` (CPU); None: of what may tell of operands."""
        blind = not self.reads and sources is not None and all(map(self._is_blind, sources))
        return self.number(Origin(kind, by, self.where(), blind))

    def _is_blind(self, tensor: torch.Tensor) -> bool:
        if not self.knows(tensor):
            return True  # the host's
        numbers = self.element_origins(tensor)
        return bool(
            ((numbers == UNWRITTEN) | (numbers == CONSTANT_FILL) | ((numbers >= BLIND) & (numbers < LOWEST_COMPUTED))).all()
        )

    # -- a launch ---------------------------------------------------------------------------------------------------------
    def begin(self, regions: Iterable[Region]) -> dict[str, dict[Origin, int]]:
        """A launch that reaches `regions` begins. By argument, how many of its bytes torch or the host computed; empty where it
        has none."""
        computed_counts = {}
        for region in regions:
            there = self.memory_of(region.keep).numbers[region.low : region.high]
            if there.size and there.max() >= BLIND:
                counted = np.bincount(there, minlength=256)
                computed_counts[region.name] = {
                    self.origins[number]: int(counted[number]) for number in np.flatnonzero(counted).tolist() if number >= BLIND
                }
        return computed_counts

    @staticmethod
    def tells(computed: dict[str, dict[Origin, int]]) -> bool:
        """Whether of what `begin` gave some may tell of operands."""
        return any(not origin.blind for each in computed.values() for origin in each)

    def end(self, kernel: str, regions: Iterable[Region], computed_counts: dict[str, dict[Origin, int]]) -> None:
        """The launch of `kernel` is over; `computed` is what `begin` gave."""
        for region in regions:
            if region.changes:
                self.offered.add(region.base)
            if region.is_loaded:
                for origin, count in computed_counts.get(region.name, {}).items():
                    self.inputs[ComputedInput(kernel, region.name, origin, count)] = None

    # -- tensors ----------------------------------------------------------------------------------------------------------
    def knows(self, tensor: torch.Tensor) -> bool:
        """Whether the storage of `tensor` (CPU) is memory of the device."""
        kept = self.storages.get(tensor.untyped_storage().data_ptr())
        return kept is not None and not kept.storage.expired() and kept.numbers.size == tensor.untyped_storage().nbytes()

    def memory_of(self, tensor: torch.Tensor) -> Memory:
        """What is known of the storage of `tensor` (CPU): one that nobody told of is from before the call."""
        storage = tensor.untyped_storage()
        base, size = storage.data_ptr(), storage.nbytes()
        memory = self.storages.get(base)
        if memory is not None and not memory.storage.expired():
            if memory.numbers.size != size:  # resized: what is new is unwritten
                numbers = zeros(size, np.uint8)
                numbers[: memory.numbers.size] = memory.numbers[:size]
                memory.numbers, memory.full_place = numbers, place_of(tensor)
            return memory
        return self._begin_storage(tensor, self.number(EARLIER_MEMORY))

    def _begin_storage(self, tensor: torch.Tensor, number: int) -> Memory:
        """What is known of the storage of `tensor` (CPU) from now on: its elements are of one origin, and nobody wrote the rest."""
        storage = tensor.untyped_storage()
        if len(self.storages) >= MOST_STORAGES:
            self.storages = {at: each for at, each in self.storages.items() if not each.storage.expired()}
        kept = Memory(StorageWeakRef(storage), zeros(storage.nbytes(), np.uint8), tensor.dtype, place_of(tensor))
        self.storages[storage.data_ptr()] = kept
        if number != UNWRITTEN:
            self._set(kept, tensor, number)
        return kept

    def element_origins(self, tensor: torch.Tensor) -> np.ndarray:
        """The number of the origin of each element of `tensor` (CPU), in its shape (uint8). An element whose bytes are of several
        has the highest."""
        shape, size, first_byte, strides = extent_of(tensor)
        if not tensor.numel():
            return np.zeros(shape, np.uint8)
        numbers = self.memory_of(tensor).numbers
        if size in UNSIGNED_TYPES:
            words = np.ndarray(shape, UNSIGNED_TYPES[size], numbers, first_byte, strides)
            lowest = words.astype(np.uint8)
            if size == 1 or (words == lowest * _byte_ones(size)).all():
                return lowest
        return np.maximum.reduce([np.ndarray(shape, np.uint8, numbers, first_byte + byte, strides) for byte in range(size)])

    def put(self, tensor: torch.Tensor, numbers: int | np.ndarray) -> None:
        """The elements of `tensor` (CPU) are of the origins `numbers`, broadcast to its shape."""
        if tensor.numel():
            self._set(self.memory_of(tensor), tensor, numbers)

    @staticmethod
    def _set(memory: Memory, tensor: torch.Tensor, numbers: int | np.ndarray) -> None:
        shape, size, first_byte, strides = extent_of(tensor)
        if not prod(shape):
            return
        given = np.asarray(numbers, np.uint8)
        if size in UNSIGNED_TYPES:
            np.ndarray(shape, UNSIGNED_TYPES[size], memory.numbers, first_byte, strides)[...] = given * _byte_ones(size)
            return
        for byte in range(size):
            np.ndarray(shape, np.uint8, memory.numbers, first_byte + byte, strides)[...] = given

    def note_allocation(self, tensor: torch.Tensor, number: int) -> None:
        """`tensor` (CPU) is new memory of the device, all of one origin."""
        if tensor.numel():
            self._begin_storage(tensor, number)
        else:
            self.storages.pop(tensor.untyped_storage().data_ptr(), None)

    def operand(self, tensor: torch.Tensor) -> None:
        """`tensor` (CPU) is an operand of the call. It is copied as a whole with the gaps between its elements too."""
        self.note_allocation(tensor, OPERAND)
        _, size, first, strides = extent_of(tensor)
        reach = size + sum((count - 1) * stride for count, stride in zip(tensor.shape, strides, strict=True))
        self.memory_of(tensor).operands |= {place_of(tensor), ((reach,), (1,), first)}

    def is_whole(self, tensor: torch.Tensor) -> bool:
        """Whether `tensor` (CPU) covers all that its storage was allocated for."""
        return self.memory_of(tensor).full_place == place_of(tensor)

    def note_copy(self, source: torch.Tensor, target: torch.Tensor) -> bool:
        """`target` is a copy of `source`, element by element. Whether `source` is all of an operand, or of a copy of one: then its
        words lie in `target` at the places that they have in the operand."""
        if source.shape != target.shape or source.dtype != target.dtype or not self.at_their_places(source):
            return False
        self.memory_of(target).operands.add(place_of(target))
        return True

    def at_their_places(self, tensor: torch.Tensor) -> bool:
        """Whether `tensor` (CPU) gives all of an operand, or of a copy of one, in its order."""
        return self.knows(tensor) and place_of(tensor) in self.memory_of(tensor).operands

    def origins_of(self, tensor: torch.Tensor) -> Origins:
        """The origin of each element of `tensor` (CPU)."""
        return Origins(self.element_origins(tensor), dict(self.origins))

    def note_host_read(self, tensor: torch.Tensor, reader: str) -> None:
        """The host sees the words of `tensor` by a call."""
        found = np.unique(self.element_origins(tensor)).tolist()
        plain = (
            (UNWRITTEN, CONSTANT_FILL) if self.memory_of(tensor).dtype.is_floating_point else (UNWRITTEN, CONSTANT_FILL, OPERAND)
        )
        self.steers |= not all(number in plain or BLIND <= number < LOWEST_COMPUTED for number in found)
        self.reads[HostRead(reader, self.where(), tuple(self.origins[number] for number in found))] = None


def extent_of(tensor: torch.Tensor) -> tuple[tuple[int, ...], int, int, tuple[int, ...]]:
    """(shape, bytes of an element, first byte, bytes apart) of `tensor` in its storage."""
    size = tensor.element_size()
    return tuple(tensor.shape), size, size * tensor.storage_offset(), tuple(size * stride for stride in tensor.stride())


def place_of(tensor: torch.Tensor) -> Place:
    """Where the elements of `tensor` lie in its storage, in their order."""
    shape, size, first_byte, strides = extent_of(tensor)
    merged_axes: list[tuple[int, int]] = [(size, 1)]  # (elements, bytes apart), the innermost first: the bytes of an element
    for count, stride in zip(reversed(shape), reversed(strides), strict=True):
        if count == 1:
            continue
        inner, step = merged_axes[-1]
        if stride == inner * step:
            merged_axes[-1] = (inner * count, step)
        else:
            merged_axes.append((count, stride))
    return tuple(count for count, _ in merged_axes), tuple(stride for _, stride in merged_axes), first_byte


def _byte_ones(size: int) -> Any:
    return UNSIGNED_TYPES[size].type(int.from_bytes(b"\1" * size, "little"))


def launcher_line() -> str:
    """``file:line`` of the innermost frame that is neither the harness's nor an installed package's; empty where there is none."""
    frame = sys._getframe(1)
    while frame is not None:
        if _of_the_launcher(frame.f_code.co_filename):
            return source_line(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return ""


@lru_cache(maxsize=4096)
def _of_the_launcher(filename: str) -> bool:
    path = Path(filename)
    return not filename.startswith("<") and not path.is_relative_to(HARNESS) and not is_foreign(path)


__all__ = [
    "BLIND", "CONSTANT_FILL", "KERNEL", "LOWEST_COMPUTED", "OPERAND", "UNWRITTEN", "ComputedInput", "HostRead", "Kind", "Origin",
    "Origins", "Provenance",
]  # fmt: skip

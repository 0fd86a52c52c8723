"""The memories of the emulated GPU: global memory as the launch's own tensors, shared and tensor memory as bytes with what is
known of each.

Global memory is reached by real addresses, so pointer arithmetic goes wrong here as it does on a GPU. Shared memory has the
compiler's offsets; inside one allocation elements lie row-major, which is a bijection of where the swizzle puts them, so that
overlap, reuse and what is uninitialised show as they will.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.emulator.faults import EmulatedFault
from harness.emulator.ordering import rule_of

if TYPE_CHECKING:
    from harness.emulator.program import Operation

POISON = 0xFF  # a NaN in every float format we hold, and conspicuous as an integer
_UNSIGNED: dict[int, np.dtype] = {1: np.dtype(np.uint8), 2: np.dtype(np.uint16), 4: np.dtype(np.uint32), 8: np.dtype(np.uint64)}


@dataclass
class Hidden:
    """A write through the generic proxy by `agent` in `epoch`; `repaired` is the fence, not of the author's, that followed."""

    op: Operation
    agent: int
    epoch: int
    repaired: Operation | None = None


class Space:
    """One on-chip memory of one program: its bytes, and for each byte whether it was written since it was allocated."""

    def __init__(self, name: str, size: int) -> None:
        self.name, self.size = name, size
        self.data = np.full(size, POISON, np.uint8)  # (size,)
        self.known = np.zeros(size, np.uint8)  # (size,) 0xFF where written

        self.hiding = np.zeros(size, np.uint16)  # (size,) 1 + the generic write that no proxy fence has followed, 0 for none
        self.hidden_by: list[Hidden] = []

    def reset(self) -> None:
        """Fresh: poisoned, nothing known."""
        self.data.fill(POISON)
        self.known.fill(0)
        self.hiding.fill(0)
        self.hidden_by = []

    def unfenced(self, view: View, op: Operation, agent: int, epoch: int) -> None:
        """`view` was written through the generic proxy."""
        if len(self.hidden_by) >= 0xFFFE:
            self.hidden_by = []
            self.hiding.fill(0)
        self.hidden_by.append(Hidden(op, agent, epoch))
        self.hiding[view.extent] = len(self.hidden_by)

    def fence(self, clock: np.ndarray, op: Operation, *, written: bool) -> None:
        """A proxy fence by one who knows `clock`: the writes it knows of become visible to the async proxy. One that the program's
        author has not `written` is remembered by what it repairs."""
        if not self.hidden_by:
            return
        shown = [entry.epoch <= clock[entry.agent] for entry in self.hidden_by]
        if not written:
            for entry, now in zip(self.hidden_by, shown, strict=True):
                if now and entry.repaired is None:
                    entry.repaired = op
        elif all(shown):
            self.hiding.fill(0)
            self.hidden_by = []
        else:
            self.hiding[np.array([False, *shown])[self.hiding]] = 0

    def hidden(self, view: View) -> Hidden | None:
        """The generic write that the async proxy would miss in `view`, or would but for the compiler's fence; if any."""
        if not self.hidden_by:
            return None
        numbers = np.unique(self.hiding[view.extent])
        found = [self.hidden_by[n - 1] for n in numbers.tolist() if n]
        return next((entry for entry in found if entry.repaired is None), found[0] if found else None)

    def clean(self, view: View) -> None:
        """The async proxy wrote `view` itself."""
        if self.hidden_by:
            self.hiding[view.extent] = 0


class View:
    """A memory descriptor: `shape` elements of `dtype` in `space`, from byte `offset`, `strides` bytes apart.

    Tensor memory cuts a tensor into blocks of rows: there `pieces` is the shape that `strides` belong to, and `shape` what it
    reads as, row-major.
    """

    __slots__ = ("_array", "_known", "dtype", "high", "low", "offset", "pieces", "shape", "space", "strides")

    def __init__(
        self,
        space: Space,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: np.dtype,
        pieces: tuple[int, ...] | None = None,
    ) -> None:
        self.space, self.offset, self.shape, self.strides, self.dtype = space, offset, shape, strides, dtype
        self.pieces = pieces or shape
        self.low = offset
        self.high = offset + sum((n - 1) * s for n, s in zip(self.pieces, strides, strict=True)) + dtype.itemsize
        if self.high > space.size:
            raise EmulatedFault("illegal address", f"a descriptor reaches byte {self.high} of {space.size} of {space.name}")
        self._array: np.ndarray | None = None
        self._known: np.ndarray | None = None

    @property
    def array(self) -> np.ndarray:
        """The bits themselves, in `pieces`."""
        if self._array is None:
            self._array = np.ndarray(self.pieces, self.dtype, self.space.data, self.offset, self.strides)
        return self._array

    @property
    def known(self) -> np.ndarray:
        """What is known of each element, in `pieces`: `full` where it was written."""
        if self._known is None:
            self._known = self._of(self.space.known)
        return self._known

    def _of(self, state: np.ndarray) -> np.ndarray:
        return np.ndarray(self.pieces, _UNSIGNED[self.dtype.itemsize], state, self.offset, self.strides)

    def get(self) -> np.ndarray:
        """A copy of the elements, in `shape`."""
        return self.array.reshape(self.shape) if self.pieces != self.shape else self.array.copy()

    def put(self, values: np.ndarray) -> None:
        """Write `values` of `shape`, and know them."""
        self.array[...] = values if self.pieces == self.shape else np.reshape(values, self.pieces)
        self.known[...] = self.full

    def unknown(self) -> int:
        """How many elements were never written."""
        known = self.known
        return 0 if bool((known == self.full).all()) else int((known != self.full).sum())

    @property
    def full(self) -> int:
        return (1 << (8 * self.dtype.itemsize)) - 1

    @property
    def dense(self) -> bool:
        return self.high - self.low == self.dtype.itemsize * int(np.prod(self.shape))

    @property
    def extent(self) -> slice | np.ndarray:
        """What indexes the space's bytes that the view covers."""
        return slice(self.low, self.high) if self.dense else self.bytes()

    def bytes(self) -> np.ndarray:
        """Positions in the space of all bytes of the view, ascending."""
        if self.dense:
            return np.arange(self.low, self.high)
        marks = np.zeros(self.space.size, np.uint8)
        self._of(marks)[...] = self.full
        return np.flatnonzero(marks)

    def overlaps(self, other: View) -> bool:
        """Whether the two have a byte in common."""
        if self.space is not other.space or self.low >= other.high or other.low >= self.high:
            return False
        if self.dense and other.dense:
            return True
        marks = np.zeros(self.space.size, np.uint8)
        self._of(marks)[...] = self.full
        return bool(other._of(marks).any())

    def index(self, at: int) -> View:
        """Buffer `at` of an allocation of several."""
        return View(
            self.space,
            self.offset + at * self.strides[0],
            self.shape[1:],
            self.strides[1:],
            self.dtype,
            self.pieces[1:] if self.pieces != self.shape else None,
        )

    def subslice(self, offsets: list[int], shape: tuple[int, ...]) -> View:
        """`shape` elements from `offsets` on."""
        if self.pieces == self.shape:
            start = self.offset + sum(o * s for o, s in zip(offsets, self.strides, strict=True))
            return View(self.space, start, shape, self.strides, self.dtype)
        pieces = (*self.pieces[:-1], shape[-1])
        return View(self.space, self.offset + offsets[-1] * self.strides[-1], shape, self.strides, self.dtype, pieces)

    def transposed(self, order: list[int]) -> View:
        """The axes in another order."""
        return View(self.space, self.offset, tuple(self.shape[i] for i in order), tuple(self.strides[i] for i in order), self.dtype)

    def __str__(self) -> str:
        if self.space.name == "tensor memory":
            row = 512 * 4
            return f"tensor memory columns {self.low % row // 4}..{(self.high - 1) % row // 4}"
        return f"{self.space.name} bytes {self.low}..{self.high - 1}"


def row_major(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    strides, step = [], itemsize
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


@dataclass(eq=False)
class Region:
    """One storage that the launch was given. Bytes `low`..`high` of it are reachable through its tensors' sizes and strides;
    `allowed` says which of them are, where that is not all."""

    base: int
    raw: np.ndarray  # (bytes,) uint8
    name: str
    low: int
    high: int
    allowed: np.ndarray | None
    keep: Any
    writer: np.ndarray | None = None  # (bytes,) int32: 1 + the program that wrote an element, at its first byte

    @property
    def end(self) -> int:
        return self.base + self.raw.size


class GlobalMemory:
    """The storages behind a launch's tensor arguments; every access is held to the extent of those tensors."""

    def __init__(self) -> None:
        self.regions: list[Region] = []
        self.atomics = False  # programs may then order one another
        self.running = 0  # number of the program that runs

    def add(self, name: str, tensor: Any) -> int:
        """Make `tensor` (torch, CPU) reachable; returns the address of its first element."""
        import torch

        storage = tensor.untyped_storage()
        address = tensor.data_ptr()
        if tensor.numel() == 0 or storage.nbytes() == 0:
            return address
        base = storage.data_ptr()
        size = tensor.element_size()
        start = address - base
        shape, strides = tuple(tensor.shape), tuple(s * size for s in tensor.stride())
        high = start + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + size
        region = next((r for r in self.regions if r.base == base), None)
        fresh = region is None
        if region is None:
            raw = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
            region = Region(base, raw, name, start, high, None, tensor)
            self.regions.append(region)
            self.regions.sort(key=lambda r: r.base)
        dense = high - start == size * tensor.numel()
        if fresh and dense:
            return address
        if region.allowed is None:
            region.allowed = np.zeros(region.raw.size, np.uint8)
            if not fresh:
                region.allowed[region.low : region.high] = 1
        region.low, region.high = min(region.low, start), max(region.high, high)
        if dense:
            region.allowed[start:high] = 1
        else:
            np.ndarray(shape, np.dtype((np.void, size)), region.allowed, start, strides)[...] = np.ones(size, np.uint8).view(
                f"V{size}"
            )[0]
        return address

    def _locate(
        self, op: Operation, addresses: np.ndarray, mask: np.ndarray | None, size: int, *, write: bool, program: str
    ) -> Iterator[tuple[Region, np.ndarray, np.ndarray | None]]:
        """(region, byte offsets, mask) for each storage touched; a conviction for an address no tensor of the launch reaches."""
        if mask is not None and not mask.all():
            if not mask.any():
                return
            addresses = np.where(mask, addresses, addresses.ravel()[int(mask.ravel().argmax())])
        else:
            mask = None
        low, high = int(addresses.min()), int(addresses.max()) + size
        region = next((r for r in self.regions if r.base <= low < r.end), None)
        verb = "write" if write else "read"
        if region is None:
            raise EmulatedFault(
                "illegal address",
                f"{verb} of {size} bytes at {low:#x}, which is inside no tensor of the launch ({self._nearest(low)})",
                op.location,
                {"operation": op.brief, "program": program},
            )
        if high > region.end:
            inside = addresses < region.end
            if mask is not None:
                inside &= mask
            yield from self._locate(op, addresses, inside, size, write=write, program=program)
            yield from self._locate(op, addresses, ~inside if mask is None else ~inside & mask, size, write=write, program=program)
            return
        if size > 1 and int(np.bitwise_or.reduce(addresses, axis=None)) & (size - 1):
            raise EmulatedFault(
                "misaligned address",
                f"{verb} of {size} bytes at an address that is no multiple of {size}",
                op.location,
                {"operation": op.brief, "program": program},
            )
        offsets = addresses - region.base
        if (
            low - region.base < region.low
            or high - region.base > region.high
            or (region.allowed is not None and not region.allowed.take(offsets).all())
        ):
            bad = (offsets < region.low) | (offsets + size > region.high)
            if region.allowed is not None:
                bad |= region.allowed.take(offsets) == 0
            where = np.argwhere(bad)[0]
            first = int(offsets[tuple(where)])
            raise EmulatedFault(
                f"stray {verb}",
                f"{verb} at byte {first - region.low} of {region.name}, which its sizes and strides do "
                f"not reach (it spans {region.high - region.low} bytes); {int(bad.sum())} such elements, first at "
                f"{where.tolist()} of the tile, in program {program}",
                op.location,
                {"operation": op.brief, "program": program, "argument": region.name, "offset": first - region.low},
            )
        yield region, offsets, mask

    def _nearest(self, address: int) -> str:
        if not self.regions:
            return "it has none"
        region = min(self.regions, key=lambda r: max(r.base - address, address - r.end))
        return f"nearest: {region.name}, {address - region.base - region.low} bytes from its start"

    def load(
        self, op: Operation, addresses: np.ndarray, mask: np.ndarray | None, other: np.ndarray | None, dtype: np.dtype, program: str
    ) -> np.ndarray:
        """What lies at `addresses` (int64, any shape), `other` (None: poison, the value is undefined) where `mask` is False."""
        size = dtype.itemsize
        result: np.ndarray | None = None
        for region, offsets, inside in self._locate(op, addresses, mask, size, write=False, program=program):
            found = region.raw[: region.raw.size // size * size].view(dtype).take(offsets // size if size > 1 else offsets)
            self._own(op, region, offsets, inside, program)
            if result is None:
                if inside is None:
                    return found
                result = (
                    _undefined(addresses.shape, dtype) if other is None else np.broadcast_to(other, addresses.shape).astype(dtype)
                )
            np.copyto(result, found, where=True if inside is None else inside)
        if result is None:
            result = (
                _undefined(addresses.shape, dtype) if other is None else np.array(np.broadcast_to(other, addresses.shape), dtype)
            )
        return result

    def _own(self, op: Operation, region: Region, offsets: np.ndarray, inside: np.ndarray | None, program: str) -> None:
        """A race when another program of the launch wrote what is read: nothing orders programs, unless they use atomics."""
        if region.writer is None or self.atomics:
            return
        writer = region.writer.take(offsets)
        foreign = (writer != 0) & (writer != self.running + 1)
        if inside is not None:
            foreign &= inside
        if foreign.any():
            at = tuple(np.argwhere(foreign)[0])
            raise EmulatedFault(
                "race",
                f"program {self.running} reads byte {int(offsets[at]) - region.low} of {region.name}, which program "
                f"{int(writer[at]) - 1} of the same launch writes: nothing orders them",
                op.location,
                {"rule": rule_of("another program"), "operation": op.brief, "program": program},
            )

    def check(self, op: Operation, addresses: np.ndarray, mask: np.ndarray | None, size: int, program: str) -> None:
        """Convict what a store to `addresses` would be convicted of for where it goes."""
        for _ in self._locate(op, addresses, mask, size, write=True, program=program):
            pass

    def store(
        self, op: Operation, addresses: np.ndarray, values: np.ndarray, mask: np.ndarray | None, program: str, number: int
    ) -> None:
        """`values` to `addresses`. A race: two lanes of one store, or two programs, leave different values at one address."""
        size = values.dtype.itemsize
        words = values.view(_UNSIGNED[size])
        for region, offsets, inside in self._locate(op, addresses, mask, size, write=True, program=program):
            memory = region.raw[: region.raw.size // size * size].view(_UNSIGNED[size])
            if inside is not None:
                offsets, chosen = offsets[inside], words[inside]
            else:
                chosen = words
            places = offsets // size if size > 1 else offsets
            if region.writer is None:
                region.writer = np.zeros(region.raw.size, np.int32)
            before = region.writer.take(offsets)
            others = (before != 0) & (before != number + 1)
            if others.any() and (clash := others & (memory.take(places) != chosen)).any():
                at = tuple(np.argwhere(clash)[0])
                raise EmulatedFault(
                    "race",
                    f"programs {int(before[at]) - 1} and {number} write different values to byte "
                    f"{int(offsets[at]) - region.low} of {region.name}",
                    op.location,
                    {"operation": op.brief, "program": program},
                )
            memory[places] = chosen
            region.writer[offsets] = number + 1
            if (memory.take(places) != chosen).any():
                raise EmulatedFault(
                    "race",
                    f"lanes of one store write different values to one address of {region.name}",
                    op.location,
                    {"operation": op.brief, "program": program},
                )

    def update(
        self, op: Operation, function: Callable, addresses: np.ndarray, values: np.ndarray, mask: np.ndarray | None, program: str
    ) -> np.ndarray:
        """Atomic updates, one after another in the order of the elements; the words before each."""
        self.atomics = True
        size = values.dtype.itemsize
        found = _undefined(addresses.shape, values.dtype)
        for region, offsets, inside in self._locate(op, addresses, mask, size, write=True, program=program):
            memory = region.raw[: region.raw.size // size * size].view(values.dtype)
            for at in np.ndindex(addresses.shape):
                if inside is None or inside[at]:
                    place = slice(int(offsets[at]) // size, int(offsets[at]) // size + 1)
                    found[at] = memory[place][0]
                    memory[place] = function(memory[place].copy(), values[at].reshape(1))
        return found


def _undefined(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if dtype == np.bool_:
        return np.ones(shape, dtype)
    return np.full(np.prod(shape, dtype=int) * dtype.itemsize, POISON, np.uint8).view(dtype).reshape(shape)

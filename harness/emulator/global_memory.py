"""Global memory as the launch's own tensors, reached by real addresses, each access held to what their sizes and strides reach."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.emulator.faults import EmulatedFault
from harness.emulator.memory import POISON, UNSIGNED, zeros
from harness.emulator.ordering import rule_of

if TYPE_CHECKING:
    from harness.emulator.program import Operation


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
    authors: dict[int, Operation] = field(default_factory=dict)  # a program's last store to it

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
            region.allowed = zeros(region.raw.size, np.uint8)
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

    def named(self, address: int) -> str:
        """Where `address` is, as a person reads it."""
        region = next((r for r in self.regions if r.base <= address < r.end), None)
        return "outside every tensor" if region is None else f"byte {address - region.base - region.low} of {region.name}"

    def _nearest(self, address: int) -> str:
        if not self.regions:
            return "it has none"
        region = min(self.regions, key=lambda r: max(r.base - address, address - r.end))
        return f"nearest: {region.name}, {address - region.base - region.low} bytes from its start"

    def load(
        self, op: Operation, addresses: np.ndarray, mask: np.ndarray | None, other: np.ndarray | None, dtype: np.dtype, program: str
    ) -> np.ndarray:
        """What lies at `addresses` (int64, any shape), `other` where `mask` is False. None for zero: the compiled program clears
        the registers before it loads under a mask (`mov.u32 %r, 0x0`, on sm_80, sm_90 and sm_100)."""
        other = np.zeros((), dtype) if other is None else other
        size = dtype.itemsize
        result: np.ndarray | None = None
        for region, offsets, inside in self._locate(op, addresses, mask, size, write=False, program=program):
            found = region.raw[: region.raw.size // size * size].view(dtype).take(offsets // size if size > 1 else offsets)
            self._own(op, region, offsets, inside, program)
            if result is None:
                if inside is None:
                    return found
                result = np.broadcast_to(other, addresses.shape).astype(dtype)
            np.copyto(result, found, where=True if inside is None else inside)
        if result is None:
            result = np.array(np.broadcast_to(other, addresses.shape), dtype)
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
            said = (
                f"program {self.running} reads byte {int(offsets[at]) - region.low} of {region.name}, which program "
                f"{int(writer[at]) - 1} of the same launch writes: nothing orders them"
            )
            raise _race(op, said, region, writer[at], program)

    def check(self, op: Operation, addresses: np.ndarray, mask: np.ndarray | None, size: int, program: str) -> None:
        """Convict what a store to `addresses` would be convicted of for where it goes."""
        for _ in self._locate(op, addresses, mask, size, write=True, program=program):
            pass

    def store(
        self, op: Operation, addresses: np.ndarray, values: np.ndarray, mask: np.ndarray | None, program: str, number: int
    ) -> None:
        """`values` to `addresses`. A race: two lanes of one store, or two programs, leave different values at one address."""
        size = values.dtype.itemsize
        words = values.view(UNSIGNED[size])
        for region, offsets, inside in self._locate(op, addresses, mask, size, write=True, program=program):
            memory = region.raw[: region.raw.size // size * size].view(UNSIGNED[size])
            if inside is not None:
                offsets, chosen = offsets[inside], words[inside]
            else:
                chosen = words
            places = offsets // size if size > 1 else offsets
            if region.writer is None:
                region.writer = zeros(region.raw.size, np.int32)
            before = region.writer.take(offsets)
            others = (before != 0) & (before != number + 1)
            if others.any() and (clash := others & (memory.take(places) != chosen)).any():
                at = tuple(np.argwhere(clash)[0])
                said = (
                    f"programs {int(before[at]) - 1} and {number} write different values to byte "
                    f"{int(offsets[at]) - region.low} of {region.name}"
                )
                raise _race(op, said, region, before[at], program)
            memory[places] = chosen
            region.writer[offsets] = number + 1
            region.authors[number + 1] = op
            if (memory.take(places) != chosen).any():
                raise EmulatedFault(
                    "race",
                    f"lanes of one store write different values to one address of {region.name}",
                    op.location,
                    {"operation": op.brief, "program": program, "other operation": op.brief, "other location": op.location},
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


def _race(op: Operation, said: str, region: Region, writer: int, program: str) -> EmulatedFault:
    """A race of `op` with what another program, `writer` - 1, wrote to `region`: that store is the other end."""
    author = region.authors.get(int(writer))
    other = {} if author is None else {"other operation": author.brief, "other location": author.location}
    return EmulatedFault(
        "race", said, op.location, {"rule": rule_of("another program"), "operation": op.brief, "program": program, **other}
    )


def _undefined(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if dtype == np.bool_:
        return np.ones(shape, dtype)
    return np.full(np.prod(shape, dtype=int) * dtype.itemsize, POISON, np.uint8).view(dtype).reshape(shape)

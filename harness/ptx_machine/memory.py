"""Global and shared memory of the threads, and who touched which bytes.

Two accesses to the same bytes, one of which writes, are a race unless something orders them: a barrier that both threads took part
in, or the end of an asynchronous copy that was waited for (PTX ISA, chapter 8). Each warp counts its epochs; a barrier tells the
threads that meet there the epochs of the warps that came (`thread_order`). A shadow keeps of each unit of memory who wrote it last
and which warps have read it since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bitverdict.harness.emulator.memory.global_memory import Region
from bitverdict.harness.ptx_machine.program import ThreadStep, fault
from bitverdict.harness.ptx_machine.thread_order import WARP, Order

NO_THREAD, SEVERAL = -1, -2
ASYNC = -3  # writer of what the async proxy wrote to shared memory, in epochs beyond all of threads'
PAGE = 12  # bits of the number of a unit within its page
Observer = Callable[[str, ThreadStep, np.ndarray, np.ndarray, int], None]
"""Told of an access before it is made: "global" or "shared", the instruction, its threads, their addresses, bytes of each."""


class Shadow:
    """Of each unit of some memory: the thread that wrote it last and in which epoch of its warp; for each warp of a CTA the epoch
    in which it read since, and the lane (`SEVERAL` where several did), and that in which the async proxy did. Kept for the pages
    that were touched."""

    def __init__(self, units: int, warps: int, *, is_whole: bool = False) -> None:
        self.is_whole = is_whole  # all of it is kept: a unit is its own place
        self.slot_of_page = np.zeros((units >> PAGE) + 1, np.int32)  # from 1; 0: was not touched
        self.warps, self.pages = warps, 0
        self.steps: list[ThreadStep] = []
        self._step_numbers: dict[int, int] = {}
        self._grow(units if is_whole else 1 << PAGE)

    def _grow(self, places: int) -> None:
        fields = {
            "writer": NO_THREAD,
            "write_epoch": 0,
            "write_step": 0,
            "read_step": 0,
            "reading_cta": NO_THREAD,
            "read_epoch": 0,
            "reader": 0,  # means something where `read_epoch` is not 0
        }
        for name, empty in fields.items():
            shape = {"read_epoch": (places, self.warps + 1), "reader": (places, self.warps)}.get(name, (places,))
            grown = np.zeros(shape, np.int16 if name == "reader" else np.int32)  # which takes no memory before it is touched
            if empty:
                grown[...] = empty
            if self.pages:
                grown[: self.pages << PAGE] = getattr(self, name)[: self.pages << PAGE]
            setattr(self, name, grown)
        self.capacity = places

    writer: np.ndarray
    write_epoch: np.ndarray
    write_step: np.ndarray  # numbers of steps
    read_step: np.ndarray
    reading_cta: np.ndarray
    read_epoch: np.ndarray  # (units, warps and the async proxy); 0: not since it was written
    reader: np.ndarray  # (units, warps)

    def slots(self, units: np.ndarray) -> np.ndarray:
        """Where `units` are kept."""
        if self.is_whole:
            return units
        pages = units >> PAGE
        slots = self.slot_of_page[pages]
        if not slots.all():
            new = np.unique(pages[slots == 0])
            if self.pages + len(new) << PAGE > self.capacity:
                most = len(self.slot_of_page) << PAGE  # what is not touched costs nothing, but for writers; a copy does
                self._grow(min(max(4 * self.capacity, self.pages + len(new) << PAGE), most))
            self.slot_of_page[new] = self.pages + 1 + np.arange(len(new))
            self.pages += len(new)
            slots = self.slot_of_page[pages]
        return ((slots.astype(np.int64) - 1) << PAGE) | (units & ((1 << PAGE) - 1))

    def number(self, step: ThreadStep) -> int:
        if id(step) not in self._step_numbers:
            self._step_numbers[id(step)] = len(self.steps)
            self.steps.append(step)
        return self._step_numbers[id(step)]


@dataclass(eq=False)
class Conflict:
    """Two accesses that nothing orders: the later one of `thread`, the earlier one of `other`, at unit `unit`."""

    thread: int
    other: int
    unit: int
    other_writes: bool
    other_step: ThreadStep


class Judge:
    """Holds accesses to one memory to the order of its threads. `checks_ctas`: threads of different CTAs are ordered by nothing.
    `by_warp`: what a thread does its warp does, as one (tcgen05.ld and tcgen05.st)."""

    def __init__(
        self,
        order: Order,
        units: int,
        unit: int,
        *,
        first_thread: int = 0,
        checks_ctas: bool = False,
        is_whole: bool = False,
        by_warp: bool = False,
    ) -> None:
        self.order, self.unit, self.checks_ctas, self.by_warp = order, unit, checks_ctas, by_warp
        self.shadow = Shadow(units, order.warps, is_whole=is_whole)
        self.first_thread = first_thread  # of the batch, by its number in the launch

    def begin_batch(self, order: Order, first_thread: int) -> None:
        """Other CTAs go on here."""
        self.order, self.first_thread = order, first_thread

    def _units(self, offsets: np.ndarray, size: int) -> tuple[np.ndarray, int]:
        each = max(size // self.unit, 1)
        first = offsets // self.unit
        return (first if each == 1 else (first[:, None] + np.arange(each)).reshape(-1)), each

    def read(self, step: ThreadStep, threads: np.ndarray, offsets: np.ndarray, size: int) -> Conflict | None:
        """`threads` read `size` bytes each at `offsets`."""
        units, each = self._units(offsets, size)
        readers = threads if each == 1 else np.repeat(threads, each)
        shadow, warps = self.shadow, self.order.warps
        slots = shadow.slots(units)
        conflict = self.with_writer(readers, units, slots, is_strong=step.is_strong)
        if step.is_strong:
            return conflict
        warp, lane = readers // WARP, (readers % WARP).astype(np.int16)
        epoch = self.order.epoch[warp]
        warp %= warps
        places = slots * warps + warp  # of (unit, warp)
        read_epoch, reader = shadow.read_epoch.reshape(-1), shadow.reader.reshape(-1)
        earlier_epoch = read_epoch[places + slots]  # whose rows have the async proxy too
        clash: Any = False
        if int(earlier_epoch.max(initial=0)) > self.order.common:  # of this warp, and perhaps nothing orders the two
            clash = (earlier_epoch > self.order.known[readers, warp]) & (reader[places] != lane)
        reader[places] = lane
        clash |= reader[places] != lane
        if clash.any():
            reader[places[clash]] = SEVERAL
        read_epoch[places + slots] = epoch
        if self.checks_ctas:
            cta = (readers + self.first_thread) // self.order.threads
            before = shadow.reading_cta[slots]
            shadow.reading_cta[slots] = np.where((before == NO_THREAD) | (before == cta), cta, SEVERAL)
        shadow.read_step[slots] = shadow.number(step)
        return conflict

    def with_writer(self, threads: np.ndarray, units: np.ndarray, slots: np.ndarray, *, is_strong: bool = False) -> Conflict | None:
        """Of `threads` that use `units`, which are kept at `slots`, with who wrote them: not by strong stores if they too are
        strong."""
        shadow = self.shadow
        if not self.checks_ctas and int(shadow.write_epoch[slots].max(initial=0)) <= self.order.common:
            return None
        writers = shadow.writer[slots]
        if writers.max(initial=NO_THREAD) == NO_THREAD:
            return None
        local = writers - self.first_thread
        same_cta = local // self.order.threads == threads // self.order.threads
        by_async = writers == ASYNC
        inside = np.where(same_cta, local, threads)
        is_conflict = (writers != NO_THREAD) & same_cta & ~self.order.knows(threads, inside, shadow.write_epoch[slots])
        if self.by_warp:
            is_conflict &= inside // WARP != threads // WARP
        if by_async.any():
            is_conflict[by_async] = self.order.known[threads[by_async], -1] < shadow.write_epoch[slots[by_async]]
        if self.checks_ctas:
            is_conflict |= (writers != NO_THREAD) & ~same_cta
        if is_strong and is_conflict.any():
            is_conflict &= ~np.array([each.is_strong for each in shadow.steps])[shadow.write_step[slots]]
        if is_conflict.any() and self.order.has_clusters:
            is_conflict &= ~self._holds_allocation(slots) | (inside // self.order.cta_threads == threads // self.order.cta_threads)
        if not is_conflict.any():
            return None
        place = int(is_conflict.argmax())
        step = shadow.steps[shadow.write_step[slots[place]]]
        return Conflict(int(threads[place]) + self.first_thread, int(writers[place]), int(units[place]), True, step)

    def _holds_allocation(self, slots: np.ndarray) -> np.ndarray:
        """Where an address of tensor memory lies: tcgen05.alloc keeps the order of its word's accesses (PTX ISA 9.7.16.6.1). Triton
        lets copies of the async proxy, also a peer's behind a relaxed barrier of the cluster, overwrite it once it was read."""
        of_alloc = [step.statement.opcode.startswith("tcgen05.alloc") for step in self.shadow.steps]
        found: np.ndarray = np.array(of_alloc, bool)[self.shadow.write_step[slots]] & (self.shadow.writer[slots] >= 0)
        return found

    def _with_readers(self, threads: np.ndarray, units: np.ndarray, slots: np.ndarray) -> Conflict | None:
        shadow, warps = self.shadow, self.order.warps
        read_epoch = shadow.read_epoch[slots]  # (n, warps + 1)
        if int(read_epoch.max(initial=0)) <= self.order.common:
            if not self.checks_ctas:
                return None
            is_conflict, unknown = np.zeros(len(units), bool), np.zeros_like(read_epoch, bool)
        else:
            own, rows = threads // WARP % warps, np.arange(len(units))
            unknown = self.order.known[threads] < read_epoch  # (n, warps + 1)
            unknown[rows, own] &= (shadow.reader[slots, own] != threads % WARP) & (not self.by_warp)
            if self.order.has_clusters and unknown.any():
                cta_of_warp = np.arange(warps + 1) * WARP // self.order.cta_threads
                unknown &= ~self._holds_allocation(slots)[:, None] | (cta_of_warp == cta_of_warp[own][:, None])
            is_conflict = unknown.any(axis=1)
        if self.checks_ctas:
            reading = shadow.reading_cta[slots]
            is_conflict |= (reading != NO_THREAD) & (reading != (threads + self.first_thread) // self.order.threads)
        if not is_conflict.any():
            return None
        place = int(is_conflict.argmax())
        unit = int(units[place])
        warps_bad = np.flatnonzero(unknown[place])
        cta_first = int(threads[place]) // self.order.threads * self.order.threads
        reader_number = NO_THREAD
        if len(warps_bad) and warps_bad[0] == warps:
            reader_number = ASYNC
        elif len(warps_bad):
            lane = int(shadow.reader[slots[place], warps_bad[0]])
            first_reader = cta_first + int(warps_bad[0]) * WARP
            lane = int(first_reader == int(threads[place])) if lane == SEVERAL else lane  # not the thread that writes
            reader_number = first_reader + lane + self.first_thread
        step = shadow.steps[shadow.read_step[slots[place]]]
        return Conflict(int(threads[place]) + self.first_thread, reader_number, unit, False, step)

    def write(
        self, step: ThreadStep, threads: np.ndarray, offsets: np.ndarray, size: int, *, changes: np.ndarray | None = None
    ) -> Conflict | None:
        """`threads` write `size` bytes each at `offsets`. `changes`: where the words differ from what lies there; equal words that
        another thread wrote are no race."""
        units, each = self._units(offsets, size)
        writers = threads if each == 1 else np.repeat(threads, each)
        changing = None if changes is None else (changes if each == 1 else np.repeat(changes, each))
        selected = slice(None) if changing is None else changing
        shadow, slots = self.shadow, self.shadow.slots(units)
        conflict = self.with_writer(writers[selected], units[selected], slots[selected], is_strong=step.is_strong)
        conflict = conflict or self._with_readers(writers, units, slots)
        shadow.writer[slots] = writers + self.first_thread
        shadow.write_epoch[slots] = self.order.epoch_of(writers)
        shadow.read_epoch[slots] = 0
        if self.checks_ctas:
            shadow.reading_cta[slots] = NO_THREAD
        shadow.write_step[slots] = shadow.number(step)
        return conflict

    def unfenced_write(self, threads: np.ndarray, units: np.ndarray) -> Conflict | None:
        """Of `units` that the async proxy uses for `threads`: a generic write that no proxy fence is known to be behind. An address
        of tcgen05.alloc needs none (PTX ISA 9.7.16.6.1: same-address ordering)."""
        assert self.order.fenced is not None
        slots = self.shadow.slots(units)
        writers = self.shadow.writer[slots] - self.first_thread
        generic = np.flatnonzero(self.shadow.writer[slots] >= 0)
        warp = writers[generic] // WARP % self.order.warps
        is_conflict = self.order.fenced[threads[generic], warp] < self.shadow.write_epoch[slots[generic]]
        if is_conflict.any():
            is_conflict &= ~self._holds_allocation(slots[generic])
        if not is_conflict.any():
            return None
        place = int(generic[int(is_conflict.argmax())])
        step = self.shadow.steps[self.shadow.write_step[slots[place]]]
        return Conflict(
            int(threads[place]) + self.first_thread, int(writers[place]) + self.first_thread, int(units[place]), True, step
        )

    def land(self, step: ThreadStep, units: np.ndarray, epoch: int) -> None:
        """The async proxy has written `units`."""
        slots = self.shadow.slots(units)
        self.shadow.writer[slots], self.shadow.write_epoch[slots] = ASYNC, epoch
        self.shadow.read_epoch[slots] = 0
        self.shadow.write_step[slots] = self.shadow.number(step)

    def end_async_read(self, step: ThreadStep, units: np.ndarray, epoch: int) -> None:
        """The async proxy has read `units`: who writes there must know of its epoch."""
        slots = self.shadow.slots(units)
        self.shadow.read_epoch[slots, self.order.warps] = epoch
        self.shadow.read_step[slots] = self.shadow.number(step)


@dataclass(eq=False)
class GlobalSpace:
    """The storages that a launch was given, by real address. `judges` are kept by the address that a storage begins at."""

    regions: Sequence[Region]
    order: Order | None = None
    unit: int = 4
    checks_ctas: bool = True
    first_thread: int = 0
    last_epoch: int = 0  # of CTAs that have run
    judges: dict[int, Judge] = field(default_factory=dict)
    updated_storages: set[int] = field(default_factory=set)  # by atomics; where they begin
    observe: Observer | None = None

    def begin_batch(self, order: Order, first_thread: int) -> None:
        self.order, self.first_thread = order, first_thread
        for judge in self.judges.values():
            judge.begin_batch(order, first_thread)

    def has_stored(self, region: Region) -> bool:
        """Whether the launch has stored into `region`, or updated what lay there."""
        if region.base in self.updated_storages:
            return True
        return region.base in self.judges and bool((self.judges[region.base].shadow.writer != NO_THREAD).any())

    @property
    def written_words(self) -> int:
        """Words of 4 bytes that the launch has stored."""
        units = sum(int(np.count_nonzero(judge.shadow.writer != NO_THREAD)) for judge in self.judges.values())
        return units * self.unit // 4

    def judge(self, region: Region) -> Judge:
        if region.base not in self.judges:
            assert self.order is not None
            units = -(-region.raw.size // self.unit)
            self.judges[region.base] = Judge(
                self.order, units, self.unit, first_thread=self.first_thread, checks_ctas=self.checks_ctas
            )
        return self.judges[region.base]

    def locate(
        self, step: ThreadStep, threads: np.ndarray, addresses: np.ndarray, size: int, verb: str
    ) -> Iterator[tuple[Region, np.ndarray, Any]]:
        """(storage, offsets, which of the addresses) of accesses to `size` bytes at `addresses` (int64). A fault for one that no
        tensor of the launch reaches, or that is not aligned."""
        if self.observe is not None:
            self.observe("global", step, threads, addresses, size)
        if size > 1 and (off := addresses & (size - 1)).any():
            place = int((off != 0).argmax())
            raise fault(
                "misaligned address", f"{verb} of {size} bytes at {int(addresses[place]):#x}", step, thread=int(threads[place])
            )
        rest: Any = slice(None)
        pending_addresses = addresses
        while len(pending_addresses):
            low = int(pending_addresses[0])
            region = next((each for each in self.regions if each.base <= low < each.end), None)
            if region is None:
                raise fault(
                    "illegal address",
                    f"{verb} of {size} bytes at {low:#x}, which is inside no tensor of the launch ({self._nearest(low)})",
                    step,
                    thread=int(threads[rest][0]) + self.first_thread,
                )
            offsets = pending_addresses - region.base
            inside = (offsets >= 0) & (offsets < region.raw.size)
            everything = bool(inside.all())
            chosen = offsets if everything else offsets[inside]
            self._check(step, region, chosen, size, verb)
            which = rest if everything else (np.flatnonzero(inside) if isinstance(rest, slice) else rest[inside])
            yield region, chosen, which
            if everything:
                return
            rest = np.flatnonzero(~inside) if isinstance(rest, slice) else rest[~inside]
            pending_addresses = addresses[rest]

    def _check(self, step: ThreadStep, region: Region, offsets: np.ndarray, size: int, verb: str) -> None:
        is_conflict = (offsets < region.low) | (offsets + size > region.high)
        if region.allowed_bytes is not None:
            is_conflict |= region.allowed_bytes.take(np.minimum(offsets, region.raw.size - 1)) == 0
        if is_conflict.any():
            first = int(offsets[int(is_conflict.argmax())]) - region.low
            message = (
                f"{verb} of {size} bytes at byte {first} of {region.name}, which its sizes and strides do not reach "
                f"(it spans {region.high - region.low} bytes)"
            )
            raise fault(f"stray {verb}", message, step, argument=region.name, offset=first)

    def _nearest(self, address: int) -> str:
        if not self.regions:
            return "it has none"
        region = min(self.regions, key=lambda each: max(each.base - address, address - each.end))
        return f"nearest: {region.name}, {address - region.base - region.low} bytes from its start"

"""Several programs of a launch at once: each value has one more axis in front, a row for each program.

Programs that order nothing among one another may run in any order, also step by step together. Python and NumPy then cost what they
cost once for a whole batch. Where programs of a batch go different ways, what it has written is taken back, and those that go the
same way begin again together. What a batch cannot tell in the same words it does not tell at all: wherever two accesses meet at one
place, or anything is wrong, what all batches have written is taken back, and the launch runs again, program by program. So faults,
advice and words are always those of programs that run one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.emulator.execution.cta_state import LaunchContext
from bitverdict.harness.emulator.memory.byte_arrays import zeros
from bitverdict.harness.emulator.memory.global_memory import places_of

if TYPE_CHECKING:
    from bitverdict.harness.emulator.memory.global_memory import Region
    from bitverdict.harness.emulator.memory.global_order import GlobalOrder
    from bitverdict.harness.emulator.memory.real_shadows import ShadowWords
    from bitverdict.harness.emulator.mlir_reader import Operation

ELEMENTS = 1 << 15  # of one tensor of all programs of a batch: arrays of that size stay in the second-level cache
MOST_OPERATIONS = 1_000_000  # of one program: a loop without end is found one by one, soon after
LEAST = 4  # programs of a batch that is worth it
MOST_DIVERGENCES = 4  # for each batch of a launch: of more, its programs have little in common
SEVERAL, MOST_POINTERS = -1, 16
FEW_PROGRAMS, DIFFERING_LANES = "few programs, or large ones", "words that differ from lane to lane"


class NeedsSerialRun(Exception):
    """These programs must run one by one."""


class Divergence(Exception):
    """The programs of a batch go the ways that their `conditions` (count,) say."""

    def __init__(self, conditions: np.ndarray) -> None:
        self.conditions = conditions


@dataclass(eq=False)
class _StorageAccesses:
    """Which places of one storage, of `unit` bytes, a program has read or written since the launch began, by its number + 1: 0 for
    none, `SEVERAL` for more than one, or for a read that no store answers."""

    unit: int
    writers: np.ndarray  # (places,) int32
    read: np.ndarray | None = None  # (places,) int32
    pointers: np.ndarray | None = None  # (places,) int32: which pointers it was read by


class _Order:
    """In the place of `GlobalOrder`: no two accesses to one place may meet, unless both read, or each thread stores where it alone
    has read: through the same pointers, which differ. What is overwritten is kept."""

    def __init__(self, order: GlobalOrder) -> None:
        self.order = order
        self.touched: dict[int, _StorageAccesses] = {}  # by where the storage begins
        self.kept: list[tuple[Region, np.ndarray | slice, np.ndarray, ShadowWords | None]] = []
        self.first_kept = 0  # of this batch
        self.marks_before: list[tuple[np.ndarray, np.ndarray | slice, np.ndarray]] = []  # that this batch has changed
        self.given: list[tuple[Any, str, int]] = []  # the last pointers that something was read by, their types and numbers
        self.numbers = 0

    def _accesses_of(self, region: Region, size: int) -> _StorageAccesses:
        found = self.touched.get(region.base)
        if found is None:
            found = self.touched[region.base] = _StorageAccesses(size, zeros(region.raw.size // size + 1, np.int32))
        if found.unit != size:
            raise NeedsSerialRun("accesses of different sizes")
        return found

    def read(
        self, op: Operation, batch: Batch, region: Region, offsets: np.ndarray | slice, inside: np.ndarray | None, size: int, _: int
    ) -> None:
        """A load of what the launch may write: nothing has been written there."""
        accesses = self._accesses_of(region, size)
        places = places_of(offsets, inside, size)
        if accesses.writers[places].any():
            raise NeedsSerialRun("a read of what was written")
        if accesses.read is None or accesses.pointers is None:
            accesses.read, accesses.pointers = (zeros(accesses.writers.size, np.int32) for _ in range(2))
        number = self._number(op, batch.pointer)
        before, by = accesses.read[places].copy(), accesses.pointers[places].copy()
        self.marks_before += [(accesses.read, places, before), (accesses.pointers, places, by)]
        mine = SEVERAL if number is None else _programs(batch, offsets, inside)
        alone = (before == 0) | ((before == mine) & (by == number))
        accesses.pointers[places] = number or 0
        accesses.read[places] = np.where(alone, mine, SEVERAL)
        if not isinstance(places, slice) and number is not None and (wrong := accesses.read[places] != mine).any():
            accesses.read[places[wrong]] = SEVERAL  # two programs of this batch read there

    def _number(self, op: Operation, pointer: Any) -> int | None:
        """Which pointers `op` reads by; None where another thread than that of the element uses what it finds."""
        if pointer is None or (self.order.owners_of(op).copies & self.order.all_threads and self.order.facts.leaves_its_thread(op)):
            return None
        if (number := self._pointer_number(op, pointer)) is None:
            number = self.numbers = self.numbers + 1
            self.given = [*self.given[-MOST_POINTERS:], (pointer, op.operand_types[0], number)]
        return number

    def _pointer_number(self, op: Operation, pointer: Any) -> int | None:
        """The number of the same pointers in the same threads, where something was read by them."""
        for held, kind, number in reversed(self.given):
            if kind == op.operand_types[0] and (held is pointer or np.array_equal(held, pointer)):
                return number
        return None

    def write(
        self, op: Operation, batch: Batch, region: Region, offsets: np.ndarray | slice, inside: np.ndarray | None, words: np.ndarray
    ) -> None:
        """A store of `words`, not made yet: nobody has touched its places but the threads that store, and no two programs write
        one."""
        size = words.dtype.itemsize
        if not region.changes:
            raise NeedsSerialRun("a write that the text of the program does not show")
        accesses = self._accesses_of(region, size)
        places = places_of(offsets, inside, size)
        if accesses.writers[places].any():
            raise NeedsSerialRun("a write of what was written")
        if accesses.read is not None and (before := accesses.read[places]).any():
            self._answer(self._pointer_number(op, batch.pointer), accesses, before, places, _programs(batch, offsets, inside))
        self.kept.append((region, places, region.words(size)[places].copy(), region.takes(places, size)))
        self.marks_before.append((accesses.writers, places, np.zeros(1, np.int32)))
        if isinstance(places, slice):
            accesses.writers[places] = 1
            return
        numbers = _programs(batch, offsets, inside)
        accesses.writers[places] = numbers
        if (accesses.writers.take(places) != numbers).any():
            raise NeedsSerialRun("two programs write one place")

    @staticmethod
    def _answer(
        number: int | None, touched: _StorageAccesses, before: np.ndarray, places: np.ndarray | slice, programs: np.ndarray
    ) -> None:
        """Programs store where some have read, `before`: each by the pointers `number`, by which it alone has read there, and no
        two of which meet."""
        assert touched.pointers is not None
        alone = (before == 0) | ((before == programs) & (touched.pointers[places] == number))
        if number is None or not alone.all():
            raise NeedsSerialRun("a write of what was read")
        if not isinstance(places, slice) and not _are_distinct(places):
            raise NeedsSerialRun("two lanes write one place that was read")

    def begin_batch(self) -> None:
        """What comes is of another batch."""
        self.first_kept, self.marks_before = len(self.kept), []

    def take_back(self, first: int = 0) -> None:
        """Undo all stores, those before the `first` left as they are."""
        for region, places, words, carried in reversed(self.kept[first:]):
            region.words(words.itemsize)[places] = words
            region.carry(places, words.itemsize, carried)
        del self.kept[first:]

    def take_batch_back(self) -> None:
        """Undo what this batch has stored, and forget what it has read."""
        self.take_back(self.first_kept)
        for marks, places, before in reversed(self.marks_before):
            marks[places] = before


def _are_distinct(places: np.ndarray) -> bool:
    """Whether no two of `places` (n,) are the same."""
    if (places[1:] > places[:-1]).all():
        return True
    first = int(places.min())
    met = np.zeros(int(places.max()) - first + 1, np.bool_)
    met[places - first] = True
    return bool(np.count_nonzero(met) == places.size)


def _programs(batch: Batch, offsets: np.ndarray | slice, inside: np.ndarray | None) -> np.ndarray:
    """The program, its number + 1, of each place of an access: all its elements, the first ones in a slice, or those `inside`."""
    numbers = np.repeat(batch.marks, batch.elements)
    if isinstance(offsets, slice):
        return numbers[: (offsets.stop - offsets.start) // batch.size]
    return numbers if inside is None else numbers[inside.reshape(-1)]


class Batch:
    """The programs that run together: what the code of a batch calls ``m``."""

    place = "a batch"
    pointer: Any = None  # of the access that is made, where it differs by program
    elements = size = 1  # of it: elements of one program, and the bytes of each

    def __init__(self, launch: LaunchContext) -> None:
        self.launch, self.memory, self.grid = launch, launch.memory, launch.grid
        self.notes = launch.notes

    def start(self, numbers: np.ndarray) -> None:
        """Become the programs `numbers` (count,) of the grid."""
        x, y, _ = self.grid
        self.programs = numbers % x, numbers // x % y, numbers // (x * y)  # (count,) each
        self.marks, self.count, self.operations = numbers + 1, len(numbers), 0
        self.ways = list[bool]()  # that the programs went, at each condition which differs by program
        self.launch.begun_count = max(self.launch.begun_count, int(numbers.max()) + 1)

    def tick(self, block: int, operations: int) -> None:
        self.launch.check_time()
        self.launch.runs[block] += self.count
        self.operations += operations
        if self.operations > min(MOST_OPERATIONS, self.launch.step_limit):
            raise NeedsSerialRun("many operations, maybe without end")

    def check(self, op: Operation, condition: np.ndarray | bool) -> None:
        if not np.all(condition):
            raise NeedsSerialRun("a device assert")

    def common_condition(self, condition: np.ndarray) -> bool:
        """The condition (count,) of a branch, which all programs take alike."""
        if (first := bool(condition[0])) != bool(condition[-1]) or (condition != condition[0]).any():
            raise Divergence(condition.astype(np.bool_))
        self.ways.append(first)
        return first

    def surely(self, taint: np.ndarray | None) -> None:
        """A branch is taken by a condition whose places `taint` hang on a rounding."""
        if taint is not None and taint.any():
            raise NeedsSerialRun("a branch that depends on a rounding")

    def spread(self, value: Any, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """`value`, the same for all programs, once for each: (count, *shape)."""
        return np.broadcast_to(np.asarray(value, dtype), (self.count, *shape))

    def load(self, op: Operation, pointer: Any, mask: Any, other: Any, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        """tt.load of a tensor of `shape`, () for one element, by each program: (count, *shape)."""
        addresses, inside = self._resolve_addresses(pointer, mask, shape, dtype)
        held = np.dtype(np.uint8) if dtype == np.bool_ else dtype
        found = self.memory.load(op, addresses, inside, None if other is None else np.asarray(other, held), held, self)  # type: ignore[arg-type]
        return found != 0 if dtype == np.bool_ else found

    def load_once(self, op: Operation, pointer: Any, mask: Any, other: Any, dtype: np.dtype, single: bool) -> Any:
        """tt.load where all programs load the same; a `single` element as a Python int or a 0-d array."""
        self.pointer, addresses = None, np.atleast_1d(np.asarray(pointer, np.int64))
        inside = None if mask is None else np.atleast_1d(np.asarray(mask, np.bool_))
        held = np.dtype(np.uint8) if dtype == np.bool_ else dtype
        found = self.memory.load(op, addresses, inside, None if other is None else np.asarray(other, held), held, self)  # type: ignore[arg-type]
        found = found != 0 if dtype == np.bool_ else found
        if not single:
            return found
        return found[0] if dtype.kind in "fu" else int(found[0])

    def store(self, op: Operation, pointer: Any, value: Any, mask: Any, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        """tt.store of a tensor of `shape`, () for one element, by each program."""
        addresses, inside = self._resolve_addresses(pointer, mask, shape, dtype)
        values = np.broadcast_to(np.asarray(value, dtype), addresses.shape)
        values, carried = values.astype(np.uint8) if dtype == np.bool_ else values, self.launch.take_reals(op, addresses.shape)
        self.memory.store(op, addresses, values, inside, self, carried)  # type: ignore[arg-type]

    def _resolve_addresses(
        self, pointer: Any, mask: Any, shape: tuple[int, ...], dtype: np.dtype
    ) -> tuple[np.ndarray, np.ndarray | None]:
        full_shape = (self.count, *shape)
        self.pointer, self.elements, self.size = pointer, prod(shape), dtype.itemsize
        addresses = np.asarray(pointer, np.int64)
        addresses = addresses if addresses.shape == full_shape else np.broadcast_to(addresses, full_shape)
        if mask is None:
            return addresses, None
        inside = np.asarray(mask, np.bool_)
        return addresses, inside if inside.shape == full_shape else np.broadcast_to(inside, full_shape)


class _BatchQueue:
    """Which programs of a launch run together: at first any, then those that go the same ways, which come one behind the other."""

    def __init__(self, count: int, size: int) -> None:
        numbers = np.arange(count, dtype=np.int32)
        self.size = size
        self.batches = [numbers[first : first + size] for first in range(0, count, size)][::-1]
        self.divergences_left = MOST_DIVERGENCES * (len(self.batches) + 1)
        self.groups = defaultdict[tuple[bool, ...], list[np.ndarray]](list)  # by the ways that they go

    def part(self, numbers: np.ndarray, ways: list[bool], conditions: np.ndarray) -> None:
        """The programs `numbers` went `ways` together, and part there by their `conditions`."""
        self.divergences_left -= 1
        if self.divergences_left < 0:
            raise NeedsSerialRun("programs go many ways")
        for way in (True, False):
            group = self.groups[*ways, way]
            group.append(numbers[conditions == way])
            if sum(map(len, group)) >= self.size:
                self._join(group)

    def _join(self, group: list[np.ndarray]) -> None:
        joined = np.concatenate(group)
        self.batches.append(joined[: self.size])
        group[:] = [joined[self.size :]]

    def next_batch(self) -> np.ndarray | None:
        """(count,) programs; None where all have run."""
        while not self.batches and self.groups:
            _, group = self.groups.popitem()
            if sum(map(len, group)):
                self._join(group)
        return self.batches.pop() if self.batches else None


def run_in_batches(launch: LaunchContext, run: Callable[..., None], arguments: Iterable[Any], widest: int) -> str:
    """Run all programs of `launch` by `run(batch, *arguments)`, whose largest tensor has `widest` elements. Why they are to run one
    by one, where they are: all is as before then."""
    count, size = prod(launch.grid), ELEMENTS // widest
    if min(count, size) < LEAST:
        return FEW_PROGRAMS
    memory, order, notes = launch.memory, launch.memory.order, set(launch.notes)
    batch, watched_order, values = Batch(launch), _Order(order), tuple(arguments)
    enclosed_memory, enclosed_before = launch.enclosures.memory, launch.enclosures.memory.copy()
    memory.order = watched_order  # type: ignore[assignment]
    try:
        queue = _BatchQueue(count, size)
        while (numbers := queue.next_batch()) is not None:
            runs = list(launch.runs)
            watched_order.begin_batch()
            batch.start(numbers)
            try:
                run(batch, *values)
            except Divergence as divergence:
                if (enclosed_memory or enclosed_before) and len(watched_order.kept) > watched_order.first_kept:
                    raise NeedsSerialRun("programs go different ways behind a store of what is enclosed") from None
                watched_order.take_batch_back()
                launch.runs[:] = runs
                queue.part(numbers, batch.ways, divergence.conditions)
        return ""
    except Exception as error:  # whatever it is: programs that run one by one say it in their words
        launch.check_time()
        watched_order.take_back()
        enclosed_memory.become(enclosed_before)
        launch.begun_count = 0
        launch.runs[:] = [0] * len(launch.runs)
        order.notes.intersection_update(notes)
        return DIFFERING_LANES if str(error) == DIFFERING_LANES else f"{type(error).__name__}: {error}"
    finally:
        memory.order = order


__all__ = ["DIFFERING_LANES", "FEW_PROGRAMS", "Batch", "NeedsSerialRun", "run_in_batches"]

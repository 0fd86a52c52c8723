"""Words that a kernel only passes on: torch or the host computed them, and a launch stores them as they are.

A launcher may have torch compute a result and a kernel copy it. Then each output word was stored by a kernel, and none computed by
it. Such words keep the origin of what was copied, as they do through a copy by torch.

No value says by itself that it was copied. So a launch that takes words that torch or the host computed, and that stores equal
words, is executed again: all that it is given is as before, but for the computed words, which are drawn anew. A word that the
kernel computes from operands, or from the computed words by any arithmetic, is then no longer equal to one of them at its place.
A word that is equal each time is passed on: `c`, `c + 0 * a` and `where(always, c, a @ b)` alike. The launch is repeated until an
equal word by chance is less likely, among all pairs, than float64's resolution.

Integers by which the kernel finds addresses are left as they are. What it restores by arithmetic of its own is `restored_words`' to
find.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import ceil, log2
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from bitverdict.harness.emulator.access_types import AccessTypes
from bitverdict.harness.emulator.device_probe import DeviceProbe, LaunchRun, WordAccess
from bitverdict.harness.emulator.faults import EmulatedFault
from bitverdict.harness.emulator.memory.byte_arrays import UNSIGNED_TYPES, words_in
from bitverdict.harness.emulator.memory.provenance import (
    BLIND,
    CONSTANT_FILL,
    KERNEL,
    LOWEST_COMPUTED,
    UNWRITTEN,
    Kind,
    Origin,
    Provenance,
)
from bitverdict.harness.emulator.restored_words import find_restored, find_steered
from bitverdict.harness.emulator.tracked_words import (
    RESOLUTION,
    TURNS,
    Words,
    as_bytes,
    as_words,
    cast,
    drawn,
    entropy,
    is_integer,
    mix_hashes,
)

if TYPE_CHECKING:
    from bitverdict.harness.emulator.memory.global_memory import Region


BY_KERNEL = {size: kind.type(int.from_bytes(bytes([KERNEL]) * size, "little")) for size, kind in UNSIGNED_TYPES.items()}
"""By bytes of a word: what the origins of one that a kernel stored are, as one number."""


class OriginProbe(DeviceProbe):
    """Marks in `provenance` what a launch stores, and traces a launch that may pass words on."""

    def __init__(self, provenance: Provenance) -> None:
        self.provenance = provenance
        self.marks: dict[int, np.ndarray] = {}  # by where a region begins: (bytes,) uint8, the number of each byte's origin
        self.traced: TracedLaunch | None = None

    def begin(self, run: LaunchRun) -> None:
        known, launch = self.provenance, run.launch
        self.computed_counts = known.begin(run.regions)
        known.steps.append((launch.name, launch.grid, *map(_host_choice, run.values)))
        self.marks = {region.base: known.memory_of(region.keep).numbers for region in run.regions}
        if known.reads or known.tells(self.computed_counts):
            self.traced = TracedLaunch(known, launch.name, run.regions, run.values, launch.program)
            self.marks = {region.base: marks for region, marks in zip(run.regions, self.traced.stored_origins, strict=True)}

    def on_store(self, access: WordAccess) -> None:
        words_in(self.marks[access.region.base], access.size)[access.written_places] = BY_KERNEL[access.size]

    def end(self, run: LaunchRun) -> None:
        self.provenance.end(run.launch.name, run.regions, self.computed_counts)
        if self.traced is not None:
            self.traced.settle(run.repeat() if run.is_complete else None)


def _host_choice(value: Any) -> object:
    """What of an argument of a launch its host has chosen: a number, or a place in a tensor and its sizes."""
    if hasattr(value, "data_ptr") and hasattr(value, "stride"):
        return value.storage_offset(), tuple(value.shape), tuple(value.stride())
    return value if isinstance(value, int) else None


class TracedLaunch:
    """One launch that may pass words on: made before it runs, settled when it has."""

    def __init__(
        self, provenance: Provenance, kernel: str, regions: Sequence[Region], values: Sequence[object], program: str = ""
    ) -> None:
        self.types = AccessTypes(program)
        self.provenance, self.kernel, self.regions, self.values = provenance, kernel, regions, values
        self.held = [provenance.memory_of(region.keep) for region in regions]
        self.scalars = [place for place, value in enumerate(values) if isinstance(value, float)] if provenance.reads else []
        if self.scalars or provenance.steers or any(held.numbers.max(initial=0) >= LOWEST_COMPUTED for held in self.held):
            self.before = [region.raw.copy() for region in regions]
            self.numbers = [held.numbers.copy() for held in self.held]
        else:
            self.before = self.numbers = []
        self.stored_origins = [np.zeros(region.raw.size, np.uint8) for region in regions]  # of what this launch stores alone

    def settle(self, rerun: Callable[[Sequence[object]], object] | None) -> None:
        """The launch has run: give what it stored an origin. `again` executes it with other float arguments; None: it failed, and
        what it stored is the kernel's."""
        given_words = self.computed_words()
        for held, fresh in zip(self.held, self.stored_origins, strict=True):
            np.copyto(held.numbers, np.uint8(KERNEL), where=fresh != 0)
        if rerun is None:
            return
        if self.provenance.reads and not any(region.is_loaded for region in self.regions):
            self._constants()
            return
        if not given_words and not self.provenance.steers:
            return
        after = [region.raw.copy() for region in self.regions]
        asks: list[Callable[[list[Words]], list[Words]]] = []
        for choice in self._choices(given_words):
            asks += [partial(self._passed_words, choice, rerun=rerun), partial(find_restored, self, choice, again=rerun)]
        if self.provenance.steers:
            asks.append(partial(find_steered, self, rerun=rerun))
        for ask in asks:
            try:
                if left := self._stored_words():
                    self._mark(ask(left))
            finally:
                for region, raw in zip(self.regions, after, strict=True):
                    region.raw[:] = raw

    def _choices(self, given: list[Words]) -> list[list[Words]]:
        """`given` in each way in which the launch took its bytes: of a storage that it took in two ways once by the one, once by
        the other."""
        by_region: dict[int, list[Words]] = {}
        for each in given:
            by_region.setdefault(id(each.region), []).append(each)
        most = max((len(each) for each in by_region.values()), default=0)
        return [[each[min(number, len(each) - 1)] for each in by_region.values()] for number in range(most)]

    def _mark(self, found: list[Words]) -> None:
        """Give the words that were `found` their origins."""
        for words in found:
            assert words.region is not None
            held = self.held[self.regions.index(words.region)]
            as_bytes(held.numbers, words.first_byte, words.dtype)[words.places] = words.numbers[:, None]

    def operands(self) -> list[Words]:
        """The floats that the launch was given and that neither torch nor the host computed, constants left out."""
        return [each for each in self.loaded_words() if each.dtype.is_floating_point]

    def loaded_words(self) -> list[Words]:
        """What the launch was given, and may have loaded, that neither torch nor the host computed, constants left out."""
        words = []
        for region, held, before in zip(self.regions, self.held, self.numbers, strict=True):
            for dtype, first in self.types.types_of(region, held) if region.is_loaded else ():
                numbers = as_bytes(before, first, dtype).max(-1, initial=0)
                places = np.flatnonzero((numbers < BLIND) & (numbers != UNWRITTEN) & (numbers != CONSTANT_FILL))
                if places.size:
                    words.append(Words(region, dtype, first, places, numbers[places]))
        return words

    def computed_words(self) -> list[Words]:
        """What the launch was given that torch or the host computed; float arguments too, once the host has read memory. Blind
        words too, where others may say which of them to take: a table of all words."""
        words = []
        for region, held in zip(self.regions, self.held, strict=True):
            if not region.is_loaded or held.numbers.max(initial=0) < BLIND:
                continue
            for dtype, first in self.types.types_of(region, held):
                numbers = as_bytes(held.numbers, first, dtype).max(-1, initial=0)
                if (places := np.flatnonzero(numbers >= BLIND)).size:
                    words.append(Words(region, dtype, first, places, numbers[places]))
        if not self.scalars and all((each.numbers < LOWEST_COMPUTED).all() for each in words):
            return []
        if self.scalars:
            number = self.provenance.number(Origin(Kind.HOST, f"float argument of {self.kernel}, after a read by the host"))
            places = np.array(self.scalars, np.int64)
            words.append(Words(None, torch.float64, 0, places, np.full(places.size, number, np.uint8)))
        return words

    def _stored_words(self) -> list[Words]:
        words = []
        for region, held, fresh in zip(self.regions, self.held, self.stored_origins, strict=True):
            for dtype, first in self.types.types_of(region, held):
                of_a_kernel = BY_KERNEL[dtype.itemsize]
                mine = as_words(held.numbers, first, dtype) == of_a_kernel
                places = np.flatnonzero(mine & (as_words(fresh, first, dtype) == of_a_kernel))
                if places.size:
                    words.append(Words(region, dtype, first, places, np.full(places.size, KERNEL, np.uint8)))
        return words

    def _constants(self) -> None:
        """A launch that loads nothing, after the host has read memory: what it stores and is not zero are constants of its own."""
        number = self.provenance.number(Origin(Kind.HOST, f"constants of {self.kernel}, after a read by the host"))
        for words in self._stored_words():
            assert words.region is not None
            places = words.places[words.bits(words.region.raw) != 0]
            held = self.held[self.regions.index(words.region)]
            as_bytes(held.numbers, words.first_byte, words.dtype)[places] = number

    def _passed_words(
        self, given_words: list[Words], stored_words: list[Words], rerun: Callable[[Sequence[object]], object]
    ) -> list[Words]:
        """Which of `stored_words` are copies of `given_words`, with the origins of that."""
        stored_words = [
            item.only(bits != 0) for item, bits in zip(stored_words, self._current_bits(stored_words), strict=True)
        ]  # 0 is often equal by chance
        search = _Search(given_words, stored_words)
        search.look([self._bits(item, self.before, self.values) for item in given_words], self._current_bits(stored_words))
        generator, kept_numbers = np.random.default_rng(0), set[int]()
        integers = {number for number, item in enumerate(given_words) if is_integer(item.dtype)}
        while search.open:
            bits = self._repeat_launch(given_words, generator, rerun, search.launches, kept_numbers)
            if bits is not None:
                search.look(bits, self._current_bits(stored_words))
                continue
            if kept_numbers == integers:
                break  # what cannot be repeated is not cleared
            alone = {
                item
                for item in integers
                if self._repeat_launch(given_words, generator, rerun, 1, {*range(len(given_words))} - {item}) is None
            }
            kept_numbers = alone if alone - kept_numbers else integers  # by these the kernel finds addresses
            search.drop(kept_numbers)
        return search.matches()

    def _repeat_launch(
        self,
        passed_words: list[Words],
        generator: np.random.Generator,
        rerun: Callable[[Sequence[object]], object],
        turn: int,
        kept: set[int],
    ) -> list[np.ndarray] | None:
        """The bits of `passed_words`, all drawn but those `kept`, in one more launch; None where it faults."""
        values = list(self.values)
        bits = self._draw_words(passed_words, generator, values, turn, kept)
        try:
            rerun(values)
        except EmulatedFault:
            return None
        return bits

    def rewind(self) -> None:
        """Memory as before the launch."""
        for region, raw in zip(self.regions, self.before, strict=True):
            region.raw[:] = raw

    def _current_bits(self, words: list[Words]) -> list[np.ndarray]:
        return [each.bits(each.region.raw) for each in words if each.region is not None]

    def _bits(self, words: Words, raws: Sequence[np.ndarray], values: Sequence[object]) -> np.ndarray:
        if words.region is None:
            return np.array([values[place] for place in words.places.tolist()], np.float64).view(np.uint64)
        return words.bits(raws[self.regions.index(words.region)])

    def _draw_words(
        self, given: list[Words], generator: np.random.Generator, values: list[object], turn: int, kept_numbers: set[int]
    ) -> list[np.ndarray]:
        """Memory as before the launch, but for the words `given`, drawn where not of `kept_numbers`: their bits."""
        self.rewind()
        bit_arrays = []
        for number, words in enumerate(given):
            if number in kept_numbers:
                bit_arrays.append(self._bits(words, self.before, values))
                continue
            bits = drawn(words.dtype, words.places.size, generator, turn)
            if words.region is None:
                for place, value in zip(words.places.tolist(), bits.view(np.float64).tolist(), strict=True):
                    values[place] = value
            else:
                as_words(words.region.raw, words.first_byte, words.dtype)[words.places] = bits
            bit_arrays.append(bits)
        return bit_arrays


class _Search:
    """Stored words that were equal to a given one in each launch so far, by a hash of all the words of either."""

    def __init__(self, given_words: list[Words], stored_words: list[Words]) -> None:
        self.given, self.stored = given_words, stored_words
        self.left = [np.arange(words.places.size) for words in stored_words]  # of each the words that are left
        self.hashes = [np.zeros(words.places.size, np.uint64) for words in stored_words]
        forms = [(number, words.dtype, how) for number, words in enumerate(given_words) for how in ("cast", "same bits")]
        types = {words.dtype for words in stored_words}
        self.of = {(number, dtype, how): np.zeros(given_words[number].places.size, np.uint64)
                   for number, own, how in forms for dtype in types
                   if how == "cast" or (own is not dtype and own.itemsize == dtype.itemsize)}  # fmt: skip
        pairs = sum(words.places.size for words in given_words) * sum(words.places.size for words in stored_words)
        self.chance = RESOLUTION + log2(max(pairs, 1))
        self.launches = 0

    @property
    def open(self) -> bool:
        """Whether another launch may clear a word that is left."""
        bits = [entropy(each.dtype) for each, left in zip(self.stored, self.left, strict=True) if left.size]
        return bool(bits) and self.launches <= max(len(TURNS), ceil(self.chance / min(bits)))

    def drop(self, given: set[int]) -> None:
        """Look no longer for those of the `given`, by number."""
        self.of = {key: hashes for key, hashes in self.of.items() if key[0] not in given}
        self._sift()

    def look(self, given: list[np.ndarray], stored_bits: list[np.ndarray]) -> None:
        """Take in the bits of one launch: what it was given, and what it stored."""
        for number, dtype, how in list(self.of):
            bits = cast(given[number], self.given[number].dtype, dtype) if how == "cast" else given[number]
            if bits is None:
                del self.of[number, dtype, how]
                continue
            self.of[number, dtype, how] = mix_hashes(self.of[number, dtype, how], bits)
        for number, bits in enumerate(stored_bits):
            self.hashes[number] = mix_hashes(self.hashes[number], bits[self.left[number]])
        self.launches += 1
        self._sift()

    def _sift(self) -> None:
        for number, each in enumerate(self.stored):
            like = [hashes for (_, dtype, _), hashes in self.of.items() if dtype is each.dtype]
            equal = np.isin(self.hashes[number], np.concatenate(like)) if like else np.zeros(self.left[number].size, np.bool_)
            self.left[number], self.hashes[number] = self.left[number][equal], self.hashes[number][equal]

    def matches(self) -> list[Words]:
        """The words that are left, with the origins of those that they are equal to."""
        return [self._match_words(number, each) for number, each in enumerate(self.stored) if self.left[number].size]

    def _match_words(self, number: int, words: Words) -> Words:
        numbers = np.zeros(self.left[number].size, np.uint8)
        for (given, dtype, _), hashes in self.of.items():
            if dtype is words.dtype and hashes.size:
                order = np.argsort(hashes)
                at = order[np.minimum(np.searchsorted(hashes[order], self.hashes[number]), hashes.size - 1)]
                np.copyto(numbers, self.given[given].numbers[at], where=hashes[at] == self.hashes[number])
        return Words(words.region, words.dtype, words.first_byte, words.places[self.left[number]], numbers)


__all__ = ["OriginProbe", "TracedLaunch"]

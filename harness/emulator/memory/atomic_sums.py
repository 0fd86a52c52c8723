"""Float sums that atomics make in memory. A real GPU adds in an order of its own, so such a word is known within a bound only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.emulator.faults import NotModelled
from bitverdict.harness.emulator.memory.global_memory import in_turns
from bitverdict.harness.emulator.memory.real_shadows import value_of
from bitverdict.harness.emulator.numerics.enclosed_memory import EnclosedMemory, Enclosure
from bitverdict.harness.emulator.numerics.enclosures import array_of, keys, refuse, words_of
from bitverdict.harness.emulator.numerics.scalar_ops import widen

if TYPE_CHECKING:
    from bitverdict.harness.emulator.device_probe import WordAccess
    from bitverdict.harness.emulator.execution.cta import Cta
    from bitverdict.harness.emulator.mlir_reader import Operation
    from bitverdict.harness.emulator.mlir_types import Type
    from bitverdict.harness.emulator.numerics.real_values import TileValue

ADDS_FLOATS = 5  # RMWOp of TritonAttrDefs.td; no other of them has a form for floats, but for the exchange
UNIT = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24, "f64": 2.0**-53}
"""Half a unit in the last place of 1, by the type of the words."""


class AtomicSums:
    """How many floats a launch added to each word of a memory of `size` bytes by atomics, and the sum of their magnitudes, with
    that of the word that was there first."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._sums: dict[tuple[str, np.dtype], tuple[np.ndarray, np.ndarray]] = {}  # by element: (words,) int64 counts, float64

    def add(self, element: str, places: np.ndarray, old: np.ndarray, values: np.ndarray) -> None:
        """`values` are added to the words `old` at `places`, each place once."""
        words = self.size // old.dtype.itemsize
        count, magnitude = self._sums.setdefault((element, old.dtype), (np.zeros(words, np.int64), np.zeros(words)))
        first = np.where(count[places] == 0, np.abs(value_of(old, element)), 0.0)
        magnitude[places] += first + np.abs(value_of(values, element))
        count[places] += 1

    def bounds(
        self, raw: np.ndarray, enclosed_memory: EnclosedMemory | None = None, base: int = 0
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, int]]:
        """(places, low, high, bytes of a word) by element: which words of `raw` hold sums of two additions or more, and the keys
        between which another order of these may leave them. `raw` begins at the address `base`; what `enclosed_memory` knows there
        is for the order that was taken.

        n rounded additions in any order come within n u / (1 - n u) S of the exact sum, S the sum of the magnitudes (Higham,
        Accuracy and Stability of Numerical Algorithms, 4.2), so two orders within twice that of one another. S grows by no more
        than what is open of the operands, the width of what is enclosed and twice that error.
        """
        for (element, dtype), (count, magnitude) in self._sums.items():
            words = raw[: self.size // dtype.itemsize * dtype.itemsize].view(dtype)
            places = np.flatnonzero(count > 1)
            places = places[np.isfinite(value_of(words[places], element))]
            steps = np.minimum(count[places] * UNIT[element], 0.5)
            share, held = 2 * steps / (1 - steps), keys(words[places])
            reach, enclosure = share * magnitude[places], None
            if enclosed_memory is not None:
                enclosure = enclosed_memory.enclosure_at(base + dtype.itemsize * places, held, dtype.itemsize)
            enclosure = enclosure or Enclosure(held, held)
            low, high = (value_of(words_of(end, dtype), element) for end in (enclosure.low, enclosure.high))
            with np.errstate(divide="ignore"):
                open_reach = np.where(share < 1, (reach + share * (high - low)) / np.maximum(1 - share, 0), np.inf)
            reach = np.where(enclosure.low == enclosure.high, reach, open_reach)
            yield places, *_keys_between(element, dtype, low - reach, high + reach), dtype.itemsize


def note_sum(sums: dict[int, AtomicSums], access: WordAccess, old_words: np.ndarray, values: np.ndarray) -> None:
    """Add `values` to the sums of their storage, by where it begins, if the atomic of `access` adds floats."""
    kind = access.op.inputs[1]
    if kind is not None and access.region.base in sums and access.op.integer("atomic_rmw_op", 0) == ADDS_FLOATS:
        assert isinstance(access.places, np.ndarray)
        sums[access.region.base].add(kind.element, access.places, old_words, values)


def enclose_sum(
    m: Cta,
    op: Operation,
    old_value: TileValue,
    pointer: TileValue,
    value: TileValue,
    mask: TileValue | None,
    kind: Type,
    add: Callable,
) -> Any:
    """Behind an atomic that has added floats of `kind` by `add`: hold what is enclosed of the words there, and of those before,
    `old_value`, and give that back. A sum rises with both operands; those of one word go in one after another. NotModelled where a
    choice leads to an infinity or a NaN, or words of another type lie there."""
    enclosures, dtype = m.launch.enclosures, kind.dtype
    addend, size = enclosures.enclosure_of(value), dtype.itemsize
    if addend is None and not enclosures.memory:
        return old_value
    address = np.atleast_1d(np.asarray(pointer, np.int64))
    lanes = np.ones(address.shape, bool) if mask is None else np.broadcast_to(np.atleast_1d(mask).astype(bool), address.shape)
    if enclosures.memory.overlaps(address[lanes], size, is_integer=False):
        refuse(m, op)
    before = keys(np.atleast_1d(array_of(old_value, dtype))).reshape(-1)
    added = keys(np.atleast_1d(array_of(value, dtype)))
    addends = (added, added, added) if addend is None else (added, addend.low, addend.high)
    given = [words_of(np.broadcast_to(each, address.shape).reshape(-1), dtype) for each in addends]
    ends, place = [before, before.copy(), before.copy()], address.reshape(-1)
    for turn in in_turns(place, np.flatnonzero(lanes)):
        if enclosure := enclosures.memory.enclosure_at(place[turn], before[turn], size):
            ends[1][turn], ends[2][turn] = enclosure.low, enclosure.high
        word, low, high = (keys(add(words_of(end[turn], dtype), each[turn])) for end, each in zip(ends, given, strict=True))
        is_open = low != high
        if any((is_open & ~np.isfinite(widen(words_of(end, dtype), kind.format))).any() for end in (low, high)):
            raise NotModelled(op, "of a value whose enclosure leads to an infinity or a NaN")
        enclosures.memory.forget(place[turn], size)
        enclosures.memory.store(place[turn][is_open], word[is_open], low[is_open], high[is_open], size)
    if (ends[1] != ends[2]).any():
        enclosures.hold(old_value, Enclosure(*(end.reshape(np.shape(old_value)) for end in ends[1:])))
    return old_value


def _keys_between(element: str, dtype: np.dtype, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The keys of the least and the greatest word of type `element` whose value is in `low`..`high`; of the wider types one word
    more on each side."""
    if element in ("f32", "f64"):
        with np.errstate(over="ignore"):
            least, greatest = low.astype(dtype), high.astype(dtype)
        return keys(np.nextafter(least, dtype.type(-np.inf))), keys(np.nextafter(greatest, dtype.type(np.inf)))
    codes = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    known = codes[~np.isnan(value_of(codes, element))]
    order = np.argsort(keys(known))
    ordered, values = keys(known)[order], value_of(known, element)[order]
    return ordered[np.searchsorted(values, low, "left")], ordered[np.searchsorted(values, high, "right") - 1]

"""Float sums that atomics make in memory. A real GPU adds in an order of its own, so such a word is known within a bound only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from bitverdict.harness.emulator.memory.real_shadows import value_of
from bitverdict.harness.emulator.numerics.enclosures import keys

if TYPE_CHECKING:
    from bitverdict.harness.emulator.device_probe import WordAccess

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

    def bounds(self, raw: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, int]]:
        """(places, low, high, bytes of a word) by element: which words of `raw` hold sums of two additions or more, and the keys
        between which another order of these may leave them.

        n rounded additions in any order come within n u / (1 - n u) S of the exact sum, S the sum of the magnitudes (Higham,
        Accuracy and Stability of Numerical Algorithms, 4.2), so two orders within twice that of one another.
        """
        for (element, dtype), (count, magnitude) in self._sums.items():
            words = raw[: self.size // dtype.itemsize * dtype.itemsize].view(dtype)
            places = np.flatnonzero(count > 1)
            places = places[np.isfinite(value_of(words[places], element))]
            steps = np.minimum(count[places] * UNIT[element], 0.5)
            reach, value = 2 * steps / (1 - steps) * magnitude[places], value_of(words[places], element)
            yield places, *_keys_between(element, dtype, value - reach, value + reach), dtype.itemsize


def note_sum(sums: dict[int, AtomicSums], access: WordAccess, old_words: np.ndarray, values: np.ndarray) -> None:
    """Add `values` to the sums of their storage, by where it begins, if the atomic of `access` adds floats."""
    kind = access.op.inputs[1]
    if kind is not None and access.region.base in sums and access.op.integer("atomic_rmw_op", 0) == ADDS_FLOATS:
        assert isinstance(access.places, np.ndarray)
        sums[access.region.base].add(kind.element, access.places, old_words, values)


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

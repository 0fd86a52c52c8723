"""Float sums that atomics make in memory. A real GPU adds in an order of its own, so such a word is known within a bound only."""

from __future__ import annotations

import numpy as np

ADDS_FLOATS = 5  # RMWOp of TritonAttrDefs.td; no other of them has a form for floats, but for the exchange
UNIT = {np.dtype(np.float16): 2.0**-11, np.dtype(np.float32): 2.0**-24, np.dtype(np.float64): 2.0**-53}


class AtomicSums:
    """How many floats a launch added to each word of a memory of `size` bytes by atomics, and the sum of their magnitudes, with
    that of the word that was there first."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._sums: dict[np.dtype, tuple[np.ndarray, np.ndarray]] = {}  # by element: (words,) int64 counts, (words,) float64

    def add(self, places: np.ndarray, old: np.ndarray, values: np.ndarray) -> None:
        """`values` are added to the words `old` at `places`, each place once."""
        if old.dtype not in UNIT:
            return
        if old.dtype not in self._sums:
            words = self.size // old.dtype.itemsize
            self._sums[old.dtype] = np.zeros(words, np.int64), np.zeros(words)
        count, magnitude = self._sums[old.dtype]
        magnitude[places] += np.where(count[places] == 0, np.abs(old.astype(np.float64)), 0.0) + np.abs(values.astype(np.float64))
        count[places] += 1

    def bounds(self, raw: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """(places, low, high) by element: which words of `raw` hold sums of two additions or more, and between which words another
        order of these may leave them.

        n rounded additions in any order come within n u / (1 - n u) S of the exact sum, S the sum of the magnitudes (Higham,
        Accuracy and Stability of Numerical Algorithms, 4.2), so two orders within twice that of one another.
        """
        made = []
        for element, (count, magnitude) in self._sums.items():
            words = raw[: self.size // element.itemsize * element.itemsize].view(element)
            places = np.flatnonzero((count > 1) & np.isfinite(words))
            steps = count[places] * UNIT[element]
            reach = 2 * steps / (1 - steps) * magnitude[places]
            with np.errstate(over="ignore"):
                low, high = ((words[places].astype(np.float64) + sign * reach).astype(element) for sign in (-1, 1))
            made.append((places, np.nextafter(low, element.type(-np.inf)), np.nextafter(high, element.type(np.inf))))
        return made

"""Numbers that go along with what a reduction combines, where its sums take in other products in other places (`region_sums`)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import partial

import numpy as np

from bitverdict.harness.emulator.frontend.region_sums import LOADED_NUMBER, ByPlace, RegionSums
from bitverdict.reference.reduction_order import Combine, Parts

_STRIDE = 1 << 32


@dataclass(frozen=True)
class CombinationNumbers:
    """What is made of two numbers: `results[i]` of the two that `pairs[i]`, in rising order, is."""

    pairs: np.ndarray
    results: np.ndarray

    @classmethod
    def of_places(cls, region_sums: RegionSums) -> CombinationNumbers:
        places = {
            (left * _STRIDE + right, result)
            for lines in region_sums.values()
            for side in lines.values()
            for left, right, result, _ in (side if isinstance(side, list) else ())
        }
        return cls(*np.array(sorted(places), np.int64).T)

    @staticmethod
    def sides(places: ByPlace) -> dict[int | None, np.ndarray]:
        """The results at which a sum takes in each side."""
        results: dict[int | None, list[int]] = defaultdict(list)
        for *_, result, side in places:
            results[side].append(result)
        return {side: np.array(listed) for side, listed in results.items()}

    @property
    def combine(self) -> Combine:
        """Of nothing but numbers."""

        def combine(left: np.ndarray, right: np.ndarray) -> Parts:
            return (self.results_of(left, right),)

        combine.loaded = partial(from_memory, combine, 0)  # type: ignore[attr-defined]
        return combine

    def results_of(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """KeyError for two numbers that the compiled program does not combine."""
        pairs = left * _STRIDE + right
        found = np.minimum(np.searchsorted(self.pairs, pairs), len(self.pairs) - 1)
        if (self.pairs[found] != pairs).any():
            raise KeyError("two values that the compiled program does not combine")
        return self.results[found]


def from_memory(combine: Combine, words: int, *sides: np.ndarray) -> Parts:
    """What `combine` makes of words that lanes have loaded: the numbers behind the `words` of each of the two `sides` are those."""
    parts = list(sides)
    for place in (words, 2 * words + 1):
        parts[place] = np.full_like(parts[place], LOADED_NUMBER)
    return combine(*parts)


__all__ = ["CombinationNumbers", "from_memory"]

"""Which rows and columns of a large result are compared, and how they are taken out of an array."""

from __future__ import annotations

import math

import numpy as np


def sample(shape: tuple[int, int], tile: tuple[int, int], count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Ascending rows and columns whose crossings are at most about `count` words; all of both where that is enough."""
    if shape[0] * shape[1] <= count:
        return np.arange(shape[0]), np.arange(shape[1])
    side = max(2, math.isqrt(count))
    rows = min(shape[0], max(side, count // max(shape[1], 1)))
    return _choose_places(shape[0], tile[0], rows, rng), _choose_places(
        shape[1], tile[1], min(shape[1], max(side, count // rows)), rng
    )


def _choose_places(size: int, tile: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """`count` of `size` places: both ends of every tile first, then any."""
    if size <= count:
        return np.arange(size)
    starts = np.arange(0, size, tile)
    ends = np.unique(np.concatenate([starts, np.minimum(starts + tile, size) - 1]))
    if len(ends) > count:
        inner = rng.choice(ends[1:-1], count - 2, replace=False)
        return np.sort(np.concatenate([ends[[0, -1]], inner]))
    others = np.setdiff1d(np.arange(size), ends)
    return np.sort(np.concatenate([ends, rng.choice(others, count - len(ends), replace=False)]))


def run_of(ascending: np.ndarray) -> np.ndarray | slice:
    """Ascending places, as a slice where none is left out between them: NumPy takes a slice a hundred times as fast."""
    whole = len(ascending) > 0 and int(ascending[-1]) - int(ascending[0]) + 1 == len(ascending)
    return slice(int(ascending[0]), int(ascending[-1]) + 1) if whole else ascending

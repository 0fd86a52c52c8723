"""A list of products of differing sizes whose matrices lie behind one another: where each lies, and how tiles are numbered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Group(NamedTuple):
    """One product, and the elements of its matrices in the flat lists of all A, all B and all C."""

    m: int
    n: int
    k: int
    a: slice
    b: slice
    c: slice

    def factors(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A (m, k) and B (k, n) of this group, views into the flat lists `a` and `b`."""
        return a[self.a].reshape(self.m, self.k), b[self.b].reshape(self.k, self.n)


def groups_of(sizes: Sequence[Sequence[int]]) -> list[Group]:
    """The groups of `sizes`, (m, n, k) each: row-major matrices without gaps. ValueError for a negative size."""
    groups, ends = list[Group](), [0, 0, 0]
    for m, n, k in sizes:
        if min(m, n, k) < 0:
            raise ValueError(f"a group of {m}x{n}x{k}: no size may be negative; give an empty group the size 0")
        begins, lengths = ends, (m * k, k * n, m * n)
        ends = [begin + length for begin, length in zip(begins, lengths, strict=True)]
        groups.append(Group(m, n, k, *map(slice, begins, ends)))
    return groups


def tiles_of(sizes: Sequence[Sequence[int]], block_m: int, block_n: int) -> list[tuple[int, int, int]]:
    """(group, row, column) of every tile, in the order of their numbers: group by group, row by row of a group."""
    return [
        (number, row, column)
        for number, (m, n, k) in enumerate(sizes)
        for row in range(-(-m // block_m))
        for column in range(-(-n // block_n))
    ]

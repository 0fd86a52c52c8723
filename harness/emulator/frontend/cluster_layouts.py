"""How a layout deals a tensor out to the CTAs of a cluster.

A cluster is executed as one program on whole tensors: a value is an array in logical order, and a memory descriptor knows in which
CTA's memory each element lies. Of copies that several CTAs hold one is kept, that of the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np

_CGA = re.compile(r"CGALayout = \[((?:\[[\d, ]*\](?:, )?)*)\]")


@dataclass(frozen=True)
class Split:
    """`tile`: what one CTA holds of a tensor. `starts`: (CTA, the first coordinates of its tile) of each CTA that keeps one of its
    own, the first of those that hold the same. `copies`: how many hold each."""

    tile: tuple[int, ...]
    starts: tuple[tuple[int, tuple[int, ...]], ...]
    copies: int

    def places(self, of_tile: np.ndarray, size: int) -> np.ndarray:
        """The byte of each element, where `of_tile` has the bytes of one tile's and each CTA has `size` bytes."""
        last = [max(start[axis] for _, start in self.starts) for axis in range(len(self.tile))]
        found = np.empty([start + held for start, held in zip(last, self.tile, strict=True)], np.int64)
        for cta, start in self.starts:
            found[tuple(slice(s, s + n) for s, n in zip(start, self.tile, strict=True))] = of_tile + cta * size
        return found


@cache
def bases(layout: str) -> tuple[tuple[int, ...], ...]:
    """By each bit of a CTA's number the tiles that it moves by along each axis."""
    found = _CGA.search(layout)
    return tuple(tuple(map(int, each.split(","))) for each in re.findall(r"\[([\d, ]+)\]", found[1])) if found else ()


@cache
def split(layout: str, shape: tuple[int, ...]) -> Split:
    """How `layout` (aliases written out) deals out a tensor of `shape`; an axis more than the layout has is of buffers."""
    moves = bases(layout)
    rank = len(moves[0]) if moves else len(shape)
    outer = shape[: len(shape) - rank]
    numbers = [0]
    coordinates = [(0,) * rank]
    for bit, basis in enumerate(moves):
        if any(basis):
            numbers += [number | 1 << bit for number in numbers]
            coordinates += [tuple(c ^ b for c, b in zip(coordinate, basis, strict=True)) for coordinate in coordinates]
    counts = [1 + max(coordinate[axis] for coordinate in coordinates) for axis in range(rank)]
    tile = tuple(n // count for n, count in zip(shape[len(outer) :], counts, strict=True))
    if prod(counts) != len(coordinates) or any(n % c for n, c in zip(shape[len(outer) :], counts, strict=True)):
        raise ValueError(f"{shape} over the CTAs of {layout[:120]}")
    starts = tuple(
        (cta, (*(0 for _ in outer), *(c * n for c, n in zip(coordinate, tile, strict=True))))
        for cta, coordinate in zip(numbers, coordinates, strict=True)
    )
    return Split((*outer, *tile), starts, 1 << sum(not any(basis) for basis in moves))


def commits(layouts: Iterable[str], *, two_ctas: bool) -> int:
    """How many CTAs signal each CTA's barrier when a product of operands in `layouts` commits to all that share one of them: those
    that hold a copy of an operand of the first CTA. Of two that make one product together (`two_ctas`) the first one does."""
    moves = [bases(layout) for layout in layouts]
    count = 1 << len(moves[0]) if moves else 1
    shares = lambda cta, held: all(not cta >> bit & 1 or not any(basis) for bit, basis in enumerate(held))
    return sum(any(shares(cta, held) for held in moves) for cta in range(0, count, 2 if two_ctas else 1)) if moves else 1


__all__ = ["Split", "bases", "commits", "split"]

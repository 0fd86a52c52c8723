"""What Hypothesis draws, for all contracts: sizes around a tile, how operands lie, regimes, schedules, and the pool of
specialisations.

Triton compiles a kernel anew for every integer argument that is 1 or a multiple of 16, and for every constexpr: freely drawn
cases are a new compilation four times in five. So a run draws its *specialisations* first, a pool that covers every
configuration and type, and then many sizes, data and schedules inside each. `BITVERDICT_POOL_SEED` chooses another pool."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import strategies as st

from bitverdict.harness.contracts.inputs.regimes import REGIMES

DIVISOR = 16  # Triton specialises integers on divisibility by it
KINDS = ("16", "odd", "1")  # of a size: a multiple of 16, neither that nor 1, 1
LARGEST_SEED = 2**31 - 1
Element = TypeVar("Element")


def pool_seed() -> int:
    """Which pool of specialisations this process draws from: BITVERDICT_POOL_SEED, else 0. ValueError when it is no integer."""
    text = os.environ.get("BITVERDICT_POOL_SEED", "0")
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"BITVERDICT_POOL_SEED={text!r}: must be an integer; unset it for 0") from None


def kind_of(size: int) -> str:
    """The class Triton specialises a size in."""
    return "1" if size == 1 else "16" if size % DIVISOR == 0 else "odd"


def edges(tile: int, tiles: int) -> tuple[int, ...]:
    """0, 1 and the sizes one below, at and one above each of the first `tiles` multiples of the tile, ascending."""
    around = {0, 1, 2} | {count * tile + step for count in range(1, tiles + 1) for step in (-1, 0, 1)}
    return tuple(sorted(around))


def sizes(tile: int, tiles: int, kind: str) -> st.SearchStrategy[int]:
    """Sizes of one `kind` up to `tiles` tiles and one more element: half of them edges, the others any residue."""
    if kind == "1":
        return st.just(1)
    at_edges = [size for size in edges(tile, tiles) if kind_of(size) == kind]
    blocks = tile * tiles // DIVISOR
    if kind == "16":
        anywhere = st.integers(0, blocks).map(lambda block: block * DIVISOR)
    else:
        anywhere = st.tuples(st.integers(0, blocks - 1), st.integers(1, DIVISOR - 1)).map(
            lambda parts: parts[0] * DIVISOR + parts[1] if parts != (0, 1) else DIVISOR + 1
        )
    return st.one_of(st.sampled_from(at_edges), anywhere) if at_edges else anywhere


def within(sizes_drawn: Sequence[int], tile: Sequence[int], budget: int) -> tuple[int, ...]:
    """`sizes_drawn` made smaller, whole tiles at a time (residues stay), until the work of all tiles, masked elements included,
    is within `budget` products. One tile of each dimension always remains."""
    sizes_now = list(sizes_drawn)

    def counts() -> list[int]:
        return [max(-(-size // t), 1) for size, t in zip(sizes_now, tile, strict=True)]

    def work() -> int:
        total = 1
        for count, t in zip(counts(), tile, strict=True):
            total *= count * t
        return total

    def less(axis: int) -> int:
        """One tile fewer; 0 and 1 are classes of their own, so what would become one of them keeps its residue otherwise."""
        left = sizes_now[axis] - tile[axis]
        return left if left > 1 else DIVISOR + left

    while work() > budget:
        able = [axis for axis in range(len(sizes_now)) if counts()[axis] > 1 and less(axis) < sizes_now[axis]]
        if not able:
            break
        largest = max(able, key=lambda axis: (counts()[axis], axis))
        sizes_now[largest] = less(largest)
    return tuple(sizes_now)


def regimes() -> st.SearchStrategy[str]:
    return st.sampled_from(REGIMES)


def data_seeds() -> st.SearchStrategy[int]:
    return st.integers(0, LARGEST_SEED)


def schedules(emulated: bool) -> st.SearchStrategy[str]:
    """Both ends first (they shrink to "eager"), one in four on a GPU of two multiprocessors; hardware has no say, so all its cases
    read "eager"."""
    if not emulated:
        return st.just("eager")
    kinds = st.one_of(st.sampled_from(("eager", "latest")), st.integers(0, LARGEST_SEED).map("drawn:{}".format))
    return st.tuples(kinds, st.sampled_from(("", "", "", " on 2"))).map("".join)


def listed_schedules(emulated: bool, seed: int) -> tuple[str, ...]:
    """The schedules that required cases goes through: on two multiprocessors a launcher that asks for their number makes its
    programs take several turns."""
    return ("eager", "latest", f"drawn:{seed}", "eager on 2", "latest on 2") if emulated else ("eager",)


def cycle_value(values: Sequence[Element], position: int, stride: int = 1) -> Element:
    """The `position`-th of `values` taken in steps of `stride`, round and round: how required cases combines its dimensions."""
    return values[position * stride % len(values)]

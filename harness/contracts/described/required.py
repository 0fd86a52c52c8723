"""Which draws of a body are always judged: corners of its sizes, all pairs of its choices, and how its operands may lie."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bitverdict.harness.contracts.described.decisions import ALIKE, CHOSEN, Listed, Sizes
from bitverdict.harness.contracts.described.record import CONTIGUOUS, FAR, PADDED, Drawn, Entry

LEAST = 10  # ways in which required cases have sizes
LEAST_MIXED = 2  # of them, those in which each size has another edge
MOST_WITH_REGIMES = 24  # cases for pairs of choices and regimes; where they are more, regimes take turns
MOST_PAIRED = 64  # cases for pairs of choices; what is left of them is Hypothesis's
Drawer = Callable[[Listed], Drawn | None]
"""What the body draws where a list decides; None where it leaves the case out."""


def covering(levels: Sequence[int]) -> list[tuple[int, ...]]:
    """Rows with one number below each of `levels`, so that every two numbers of two columns stand in one row; the first is all
    zeros. Greedy: each row begins with a pair that is left, and takes what covers most others."""
    columns = range(len(levels))
    if len(levels) < 2:
        return [(number,) for level in levels for number in range(level)] or [()]
    left = {
        ((i, a), (j, b)): None
        for i, j in itertools.combinations(columns, 2)
        for a, b in itertools.product(range(levels[i]), range(levels[j]))
    }
    rows: list[tuple[int, ...]] = []
    while left:
        row = dict(next(iter(left)))
        for column in columns:
            if column not in row:
                values = [(len(rows) + step) % levels[column] for step in range(levels[column])]  # in turns where all are alike
                row[column] = max(values, key=lambda value: sum(_pair((column, value), each) in left for each in row.items()))
        for pair in itertools.combinations(sorted(row.items()), 2):
            left.pop(pair, None)
        rows.append(tuple(row[column] for column in columns))
    return rows


def _pair(one: tuple[int, int], other: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
    return (one, other) if one < other else (other, one)


def sizes_of(count: int) -> list[Sizes]:
    """Ways for `count` sizes: all alike, each at its ends with the others in their middle, and mixed."""
    alike = [Sizes(alike=number) for number in range(ALIKE)]
    corners = [Sizes(corner=size, most=most) for size in range(count) for most in (False, True)] if count > 1 else []
    mixed = max(LEAST - len(alike) - len(corners), LEAST_MIXED)
    return [*alike, *corners, *(Sizes(number=number) for number in range(ALIKE, ALIKE + mixed))]


@dataclass(frozen=True)
class Listing:
    """The required draws of one body, each with the number of its regime, and in words what could not be asked."""

    draws: list[tuple[Drawn, int]]
    laid_out: list[Drawn]
    left_out: list[str]


def listing(drawer: Drawer, regimes: int) -> Listing:
    """Those of the body behind `drawer`, whose operands are fed by so many regimes."""
    first = next((made for number, way in enumerate(sizes_of(0)) if (made := drawer(Listed(number, way))) is not None), None)
    if first is None:
        return Listing([], [], [])
    choices = [len(entry.asked) or 2 for entry in first.draws if entry.kind in CHOSEN]  # a flag asks nothing
    ways = sizes_of(sum(entry.kind == "size" for entry in first.draws))
    rows = covering([*choices, regimes])
    if len(rows) > MOST_WITH_REGIMES:
        rows = [(*row, number % regimes) for number, row in enumerate(covering(choices))]
    few = rows[:MOST_PAIRED]
    left_out = [f"{len(rows) - len(few)} of {len(rows)} rows of pairs of choices are left to draws"] if len(rows) > len(few) else []
    draws = []
    for number in range(max(len(ways), len(few))):
        row = few[number % len(few)]
        made = drawer(Listed(number, ways[number % len(ways)], row[:-1]))
        if made is not None:
            draws.append((made, row[-1]))
    laid_out, nowhere = _laid_out(drawer, ways, few)
    return Listing(draws, laid_out, left_out + nowhere)


def _laid_out(drawer: Drawer, ways: Sequence[Sizes], rows: Sequence[tuple[int, ...]]) -> tuple[list[Drawn], list[str]]:
    """Draws whose operands lie otherwise than contiguously, where the body does not say how they lie: rows padded, each operand
    far, and all far that have one shape and type. Sizes of other numbers of lines are no far case: what has none is named."""
    found: list[Drawn] = []
    nowhere: list[str] = []

    def tried(layout: str, wanted: Callable[[Drawn], list[int]]) -> bool:
        """The first draws in which all tensors that are `wanted` of a contiguous draw lie so."""
        for number, way in enumerate(ways):
            row = rows[(number + len(found)) % len(rows)][:-1]
            plain = drawer(Listed(number, way, row))
            places = wanted(plain) if plain is not None else []
            made = drawer(Listed(number, way, row, dict.fromkeys(places, layout))) if places else None
            if made is not None and all(made.draws[place].value == layout for place in places):
                found.append(made)
                return True
        return False

    first = next((made for number, way in enumerate(ways) if (made := drawer(Listed(number, way))) is not None), None)
    operands = by_default(first.draws) if first is not None else []
    if not operands:
        return [], []
    assert first is not None
    tried(PADDED, lambda made: by_default(made.draws))
    for place in operands:
        if not tried(FAR, lambda made, place=place: [place] if place in by_default(made.draws) else []):  # type: ignore[misc]
            called = first.draws[place].told()
            nowhere.append(f"no case has {called.partition('=')[0]} far apart: it never has 4 to 1,024 lines before its last axis")
    tried(FAR, lambda made: next(_alike(made.draws), []))
    return found, nowhere


def by_default(entries: Sequence[Entry]) -> list[int]:
    """Places of the tensors of two axes and more that say nothing of their strides."""
    return [
        place
        for place, entry in enumerate(entries)
        if entry.kind == "tensor" and entry.asked[1] is None and len(entry.shape or ()) > 1
    ]


def _alike(entries: Sequence[Entry]) -> Iterator[list[int]]:
    """Places of two and more of these that have one shape and type."""
    places = by_default(entries)
    kinds = dict.fromkeys((entries[place].shape, entries[place].dtype) for place in places)
    for kind in kinds:
        group = [place for place in places if (entries[place].shape, entries[place].dtype) == kind]
        if len(group) > 1:
            yield group


def asked_by_default(entries: Sequence[Entry]) -> str:
    """How tensors lie in a case that nobody asked for, in words; empty where all are contiguous or were asked for."""
    laid = [entries[place] for place in by_default(entries) if entries[place].value != CONTIGUOUS]
    said = [
        f"{_name(entry)} with {'rows more than 2^31 elements apart' if entry.value == FAR else 'padded rows'}" for entry in laid
    ]
    return " and ".join(said)


def _name(entry: Entry) -> str:
    return entry.name or entry.called or entry.kind

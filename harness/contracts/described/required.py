"""Which draws of a body are always judged: corners of its sizes, all pairs of its choices, and how its operands may lie."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bitverdict.harness.contracts.described.decisions import ALIKE_COUNT, CHOICE_KINDS, ListedDraws, Sizes
from bitverdict.harness.contracts.described.record import CONTIGUOUS, FAR_LAYOUT, PADDED_LAYOUT, DrawRecord, Entry

LEAST = 10  # ways in which required cases have sizes
LEAST_MIXED = 2  # of them, those in which each size has another edge
MOST_WITH_REGIMES = 24  # cases for pairs of choices and regimes; where they are more, regimes take turns
MOST_PAIRED = 64  # cases for pairs of choices; what is left of them is Hypothesis's
Drawer = Callable[[ListedDraws], DrawRecord | None]
"""What the body draws where a list decides; None where it leaves the case out."""


def covering_rows(levels: Sequence[int]) -> list[tuple[int, ...]]:
    """Rows with one number below each of `levels`, so that every two numbers of two columns stand in one row; the first is all
    zeros. Greedy: each row begins with a pair that is left, and takes what covers most others."""
    columns = range(len(levels))
    if len(levels) < 2:
        return [(number,) for level in levels for number in range(level)] or [()]
    open_pairs = {
        ((i, a), (j, b)): None
        for i, j in itertools.combinations(columns, 2)
        for a, b in itertools.product(range(levels[i]), range(levels[j]))
    }
    rows: list[tuple[int, ...]] = []
    while open_pairs:
        row = dict(next(iter(open_pairs)))
        for column in columns:
            if column not in row:
                values = [(len(rows) + step) % levels[column] for step in range(levels[column])]  # in turns where all are alike
                row[column] = max(values, key=lambda value: sum(_pair((column, value), each) in open_pairs for each in row.items()))
        for pair in itertools.combinations(sorted(row.items()), 2):
            open_pairs.pop(pair, None)
        rows.append(tuple(row[column] for column in columns))
    return rows


def _pair(one: tuple[int, int], other: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
    return (one, other) if one < other else (other, one)


def sizes_of(count: int) -> list[Sizes]:
    """Ways for `count` sizes: all alike, each at its ends with the others in their middle, and mixed."""
    alike = [Sizes(alike_number=number) for number in range(ALIKE_COUNT)]
    corners = [Sizes(corner=size, at_maximum=most) for size in range(count) for most in (False, True)] if count > 1 else []
    mixed = max(LEAST - len(alike) - len(corners), LEAST_MIXED)
    return [*alike, *corners, *(Sizes(number=number) for number in range(ALIKE_COUNT, ALIKE_COUNT + mixed))]


@dataclass(frozen=True)
class Listing:
    """The required draws of one body, each with the number of its regime, and in words what could not be asked."""

    draws: list[tuple[DrawRecord, int]]
    layout_draws: list[DrawRecord]
    gaps: list[str]


def listing(drawer: Drawer, regimes: int) -> Listing:
    """Those of the body behind `drawer`, whose operands are fed by so many regimes."""
    first_case = next(
        (body_draws for number, way in enumerate(sizes_of(0)) if (body_draws := drawer(ListedDraws(number, way))) is not None), None
    )
    if first_case is None:
        return Listing([], [], [])
    choices = [len(entry.asked) or 2 for entry in first_case.draws if entry.kind in CHOICE_KINDS]  # a flag asks nothing
    ways = sizes_of(sum(entry.kind == "size" for entry in first_case.draws))
    rows = covering_rows([*choices, regimes])
    if len(rows) > MOST_WITH_REGIMES:
        rows = [(*row, number % regimes) for number, row in enumerate(covering_rows(choices))]
    paired_rows = rows[:MOST_PAIRED]
    gaps = (
        [f"{len(rows) - len(paired_rows)} of {len(rows)} rows of pairs of choices are left to draws"]
        if len(rows) > len(paired_rows)
        else []
    )
    draws = []
    for number in range(max(len(ways), len(paired_rows))):
        row = paired_rows[number % len(paired_rows)]
        body_draws = drawer(ListedDraws(number, ways[number % len(ways)], row[:-1]))
        if body_draws is not None:
            draws.append((body_draws, row[-1]))
    laid_out, nowhere = _layout_draws(drawer, ways, paired_rows)
    return Listing(draws, laid_out, gaps + nowhere)


def _layout_draws(drawer: Drawer, ways: Sequence[Sizes], rows: Sequence[tuple[int, ...]]) -> tuple[list[DrawRecord], list[str]]:
    """Draws whose operands lie otherwise than contiguously, where the body does not say how they lie: rows padded, each operand
    far, and all far that have one shape and type. Sizes of other numbers of lines are no far case: what has none is named."""
    found_draws: list[DrawRecord] = []
    nowhere: list[str] = []

    def try_layout(layout: str, wanted: Callable[[DrawRecord], list[int]]) -> bool:
        """The first draws in which all tensors that are `wanted` of a contiguous draw lie so."""
        for number, way in enumerate(ways):
            row = rows[(number + len(found_draws)) % len(rows)][:-1]
            plain = drawer(ListedDraws(number, way, row))
            places = wanted(plain) if plain is not None else []
            made = drawer(ListedDraws(number, way, row, dict.fromkeys(places, layout))) if places else None
            if made is not None and all(made.draws[place].value == layout for place in places):
                found_draws.append(made)
                return True
        return False

    first_draws = next(
        (body_draws for number, way in enumerate(ways) if (body_draws := drawer(ListedDraws(number, way))) is not None), None
    )
    operands = by_default(first_draws.draws) if first_draws is not None else []
    if not operands:
        return [], []
    assert first_draws is not None
    try_layout(PADDED_LAYOUT, lambda made: by_default(made.draws))
    for place in operands:
        if not try_layout(FAR_LAYOUT, lambda made, place=place: [place] if place in by_default(made.draws) else []):  # type: ignore[misc]
            called = first_draws.draws[place].describe()
            nowhere.append(f"no case has {called.partition('=')[0]} far apart: it never has 4 to 1,024 lines before its last axis")
    try_layout(FAR_LAYOUT, lambda made: next(_groups_alike(made.draws), []))
    return found_draws, nowhere


def by_default(entries: Sequence[Entry]) -> list[int]:
    """Places of the tensors of two axes and more that say nothing of their strides."""
    return [
        place
        for place, entry in enumerate(entries)
        if entry.kind == "tensor" and entry.asked[1] is None and len(entry.shape or ()) > 1
    ]


def _groups_alike(entries: Sequence[Entry]) -> Iterator[list[int]]:
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
        f"{_name(entry)} with {'rows more than 2^31 elements apart' if entry.value == FAR_LAYOUT else 'padded rows'}"
        for entry in laid
    ]
    return " and ".join(said)


def _name(entry: Entry) -> str:
    return entry.name or entry.called or entry.kind

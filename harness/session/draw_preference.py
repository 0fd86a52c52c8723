"""Which of a few draws too many a run judges: those that may tell apart what no case before them does.

What a case may tell is read off its record, without its operands: a constant of the instruction where sums are rounded, an order
where K has more than one block, a dimension where it is longer than one, its end where a tile does not divide it. The choice
follows from the draws alone, so it is the same in a run that is repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from math import prod
from typing import Any

from bitverdict.harness.model.case import Case

TOO_MANY = 4  # draws are chosen among a quarter more
WINDOW = 64  # draws that are looked at together
EXACT = ("integers", "exact", "largest", "nan", "zeros")
"""Regimes in which few sums are rounded, or none."""
SPECIAL = (*EXACT, "planted", "subnormals")
"""Regimes that tell what becomes of values of their own."""
ONE_BLOCK = 32  # products of the longest block that is in common use
WORD_COUNTS = (1 << 6, 1 << 10, 1 << 14)  # words: a wrong constant of the instruction changes one of a hundred, or of ten thousand


def draw_count(count: int) -> int:
    """How many draws are made for `count` cases."""
    return count + count // TOO_MANY


def prefer_draws(
    draws: Sequence[Case], count: int, before: Iterable[Case], has_words: Callable[[Case], bool] = lambda case: True
) -> list[Case]:
    """`count` of `draws`, in their order: what tells most that `before`, and those chosen already, tell seldom. `has_words`:
    whether a result is expected of a case."""
    mark_counts = Counter(mark for case in before for mark in marks(case, has_words))
    surplus = max(len(draws) - count, 0)
    kept_places: list[int] = []
    for start in range(0, len(draws), WINDOW):
        window = {place: marks(draws[place], has_words) for place in range(start, min(start + WINDOW, len(draws)))}
        spared = min(surplus, -(-len(window) * surplus // max(len(draws), 1)))
        for _ in range(len(window) - spared):
            best = max(window, key=lambda place: (sum(1 / (1 + mark_counts[mark]) for mark in window[place]), -place))
            mark_counts.update(window.pop(best))
            kept_places.append(best)
        surplus -= spared
    return [draws[place] for place in sorted(kept_places)[:count]]


def marks(case: Case, has_words: Callable[[Case], bool] = lambda case: True) -> frozenset[Hashable]:
    """What the case may tell apart, each with the types that it tells it of."""
    problem, config = _fields(case.problem), _fields(case.config)
    types = tuple(str(value) for name, value in problem.items() if isinstance(value, str))
    if not has_words(case):
        return frozenset([("a refusal", types)])
    return frozenset((subject, types) for subject in _subjects(case.regime.partition("/")[0], problem, config))


def _subjects(regime: str, problem: Mapping[str, object], config: Mapping[str, object]) -> Iterator[str]:
    sizes = {name: value for name, value in problem.items() if type(value) is int and "pad" not in name and "offset" not in name}
    depth = max((value for name, value in sizes.items() if name in ("k", "columns", "n")), default=0)
    if regime not in EXACT:
        yield from ("a constant", "a narrower sum") if depth > 1 else ("a narrower store",)
        if sizes.get("k", 0) > ONE_BLOCK:
            yield "an order"
            words = prod(size for name, size in sizes.items() if name != "k")
            yield from (f"a constant in more than {few} words" for few in WORD_COUNTS if words > few)
    if regime in SPECIAL:
        yield f"values of {regime}"
    for name, size in sizes.items():
        tile = config.get(f"block_{name}", 0)
        yield from (f"movement along {name}",) if size > 1 else ()
        if isinstance(tile, int) and tile > 0:
            yield from (f"end of {name}",) if size % tile else ()
            yield from (f"tiles of {name}",) if size > tile else ()


def _fields(record: object) -> dict[str, Any]:
    """The fields of a dataclass; of a described kernel its draws by name."""
    draws = getattr(record, "draws", None)
    if draws is not None:
        return {entry.name or f"{entry.kind} {place}": entry.value for place, entry in enumerate(draws)}
    return vars(record) if is_dataclass(record) else {}

"""Which mutants are judged where there are more than anybody waits for, and in which order: operators take turns."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator

from bitverdict.harness.mutants.record import GeneratedMutant


def drawn(mutants: Iterable[GeneratedMutant], seed: int = 0) -> Iterator[GeneratedMutant]:
    """All of `mutants` in the order they are judged in: kinds take turns, and of a kind its operators, each in an order drawn from
    `seed` and its own ids. The first n are a draw of n; more operators than mutants leaves some operators out."""
    kinds: dict[str, dict[str, list[GeneratedMutant]]] = defaultdict(lambda: defaultdict(list))
    for each in mutants:
        kinds[each.kind][each.operator].append(each)
    yield from _in_turn([_in_turn([_shuffle(found, seed) for _, found in sorted(kinds[kind].items())]) for kind in sorted(kinds)])


def _shuffle(mutants: list[GeneratedMutant], seed: int) -> Iterator[GeneratedMutant]:
    ordered = sorted(mutants, key=lambda each: each.id)
    named = ordered[0].kernel.rpartition("/")[2]  # of a user's file the same, wherever it lies
    random.Random(f"{seed} {named} {ordered[0].operator}").shuffle(ordered)
    return iter(ordered)


def _in_turn(sources: list[Iterator[GeneratedMutant]]) -> Iterator[GeneratedMutant]:
    """One of each source, as long as there is one."""
    while sources:
        left = []
        for source in sources:
            if (each := next(source, None)) is not None:
                yield each
                left.append(source)
        sources = left

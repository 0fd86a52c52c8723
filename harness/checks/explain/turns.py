"""The hypotheses on the operations of a loop in the reference: one is another in each turn, in the first or the last, in each n-th
(a state that is lost between chunks), or takes what the turn before had."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bitverdict.harness.checks.explain.changed_operations import changes_of
from bitverdict.harness.checks.explain.evaluation import Change, Operation, operation_text

MAX_SINGLE_TURNS = 4  # turns that are changed one by one
CHUNKS = (2, 4, 8, 16, 32, 64, 128)
OF_A_CHUNK = ("left out",)  # kinds that are tried in the first turn, in the last, and at the beginning of each chunk

ChangedOperations = tuple[str, str, Mapping[int, Change], int]
"""Kind, sentence, changes by the number of the operation, and the number of the first operation of the site."""


def changes_of_each_site(done: list[Operation]) -> Iterator[ChangedOperations]:
    """What a person may get wrong in the operations of one site, in one turn or in each."""
    for turns in sites(done):
        if len(turns) > 1:
            yield from _in_many_turns(turns)
        if len(turns) <= MAX_SINGLE_TURNS:
            for operation in turns:
                for kind, sentence, change in changes_of(operation):
                    yield kind, sentence, {operation.number: change}, turns[0].number
        yield from _of_the_turn_before(turns)


def sites(done: list[Operation]) -> list[list[Operation]]:
    """The operations by the place in the function that asks for them, in the order of their first turn."""
    groups: dict[tuple, list[Operation]] = {}
    for operation in done:
        groups.setdefault((operation.name, operation.site), []).append(operation)
    return list(groups.values())


def _in_many_turns(turns: list[Operation]) -> Iterator[ChangedOperations]:
    changes = [list(changes_of(operation)) for operation in turns]
    if any([kind for kind, _, _ in one] != [kind for kind, _, _ in changes[0]] for one in changes):
        return
    numbers = [operation.number for operation in turns]
    for place, (kind, sentence, _) in enumerate(changes[-1]):
        by_turn = {number: one[place][2] for number, one in zip(numbers, changes, strict=True)}
        several = f", in each of {len(turns)} turns" if any(one[place][1] != sentence for one in changes[:-1]) else ""
        yield kind, sentence + several, by_turn, numbers[0]
        if len(turns) > MAX_SINGLE_TURNS and kind in OF_A_CHUNK:
            for which, name in ((0, "first"), (-1, "last")):
                changed = {numbers[which]: by_turn[numbers[which]]}
                yield kind, f"{changes[which][place][1]}, in the {name} of {len(turns)} turns alone", changed, numbers[0]
        for step in (step for step in CHUNKS if kind in OF_A_CHUNK and step < len(turns)):
            changed = {number: by_turn[number] for number in numbers[step::step]}
            yield "between chunks", f"{sentence}, at the beginning of each {step} turns", changed, numbers[0]


def _of_the_turn_before(turns: list[Operation]) -> Iterator[ChangedOperations]:
    """An argument that is the one of the turn before; zero, or its own, in the first turn."""
    for place in range(len(turns[0].arguments) if len(turns) > 2 else 0):
        given = [operation.arguments[place] for operation in turns if place < len(operation.arguments)]
        if len(given) < len(turns) or any(not _same_shape_floats(one, given[0]) for one in given):
            continue
        for begins_with_zero in (True, False):
            change = _stale(place, turns[0].number, begins_with_zero)
            said = f"takes {turns[-1].texts[place]} of the turn before in {operation_text(turns[-1])}"
            yield "stale", said, {operation.number: change(operation.number) for operation in turns}, turns[0].number


def _same_shape_floats(one: Any, other: Any) -> bool:
    return isinstance(one, np.ndarray) and one.dtype == np.float64 and np.shape(one) == np.shape(other)


def _stale(place: int, first: int, begins_with_zero: bool) -> Any:
    before: list[np.ndarray] = []

    def change_at(number: int) -> Change:
        def change(function: Any, args: tuple, kwargs: dict) -> Any:
            if number == first:
                before.clear()
            own = np.asarray(args[place])
            taken = before[-1] if before else np.zeros_like(own) if begins_with_zero else own
            before.append(own)
            return function(*(taken if at == place else one for at, one in enumerate(args)), **kwargs)

        return change

    return change_at

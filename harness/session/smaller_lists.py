"""What is simpler than a case's lists of row numbers: fewer numbers, then numbers nearer to 0. The reducer tries what is made here.

A list of n numbers becomes shorter by pieces of n/2, n/4, ... n/32 numbers, then each of its last 32 is tried alone. So one number
that matters among a thousand is found in some thirty launches, and a bug that needs all of them costs no more than twice that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract, IndexList

PIECES = 32  # a list is cut into so many pieces at most
Change = Callable[[Case], Case | None]
"""A case with one thing changed; None where that cannot be."""


def resize_lists(contract: Contract, case: Case) -> Case:
    """`case`, each list that it writes out as long as its problem says: cut at the end, or continued with zeros."""
    if not case.indices:
        return case
    due = {each.name: getattr(case.problem, each.length) for each in contract.index_lists(case)}
    indices = [(name, (*numbers, *[0] * (due[name] - len(numbers)))[: due[name]]) for name, numbers in case.indices]
    return replace(case, indices=tuple(indices))


def carry_numbers(contract: Contract, case: Case, before: Case) -> Case:
    """`case`, where a table of `before` got another number of rows: numbers in its second half, a little past it and as far below
    0 keep their distance from its end. Others stay."""
    moved = dict(case.indices)
    for each in contract.index_lists(before) if case.indices else ():
        then, now = getattr(before.problem, each.rows), getattr(case.problem, each.rows)
        if then != now and each.name in moved:
            moved[each.name] = tuple(_carry_number(number, then, now) for number in moved[each.name])
    return replace(case, indices=tuple(moved.items()))


def _carry_number(number: int, then: int, now: int) -> int:
    if then <= 2 * number <= 6 * then:
        return max(number + now - then, 0)
    return number + then - now if -3 * then <= number <= 2 - then and number < 0 else number


def shorter(contract: Contract, case: Case, *, pieces: int) -> Iterator[Change]:
    """Ways to take a piece out of every list of one length, the last piece first."""
    for length in dict.fromkeys(each.length for each in contract.index_lists(case)):
        size = -(-getattr(case.problem, length) // pieces)
        for place in range(getattr(case.problem, length) - size, -1, -size):
            yield partial(_remove_numbers, contract=contract, length=length, place=place, size=size)


def _remove_numbers(case: Case, contract: Contract, length: str, place: int, size: int) -> Case | None:
    left = getattr(case.problem, length) - size
    if left < 1:
        return None
    of = {each.name for each in contract.index_lists(case) if each.length == length}
    indices = tuple((name, numbers[:place] + numbers[place + size :] if name in of else numbers) for name, numbers in case.indices)
    return replace(case, problem=replace(case.problem, **{length: left}), indices=indices)


def plainer(contract: Contract, case: Case, *, pieces: int) -> Iterator[Change]:
    """Ways to set a piece of one list to the plainest numbers: 0; of a scatter the number of its block, so that no two race."""
    for each in contract.index_lists(case):
        count = len(dict(case.indices)[each.name])
        size = -(-count // pieces)
        for place in range(0, count, size):
            yield partial(_with_plain_numbers, of=each, place=place, size=size)


def _with_plain_numbers(case: Case, of: IndexList, place: int, size: int) -> Case | None:
    numbers = dict(case.indices)[of.name]
    plain = tuple(_plainest(of, at) for at in range(place, min(place + size, len(numbers))))
    changed = numbers[:place] + plain + numbers[place + size :]
    return with_numbers(case, of.name, changed) if changed != numbers else None


def _plainest(of: IndexList, place: int) -> int:
    return place // of.block if of.block else 0


def numbers_that_matter(contract: Contract, case: Case) -> list[tuple[IndexList, int]]:
    """The places whose number is not the plainest, of all lists; none where they are more than `PIECES`."""
    places = [
        (each, place)
        for each in contract.index_lists(case)
        for place, number in enumerate(dict(case.indices)[each.name])
        if number != _plainest(each, place)
    ]
    return places if len(places) <= PIECES else []


def simpler_numbers(case: Case, of: IndexList, place: int) -> list[int]:
    """Numbers simpler than the one at `place`, the simplest first: nearer to 0, of its own sign and of the other, the table's ends
    among them."""
    number, rows = dict(case.indices)[of.name][place], getattr(case.problem, of.rows)
    powers = {1 << power for power in range(abs(number).bit_length())}
    tried = {0, place, _plainest(of, place), rows - 1, rows, rows + 1, -1, -rows, *powers, *(-power for power in powers)}
    return sorted((one for one in tried if simplicity(one) < simplicity(number)), key=simplicity)


def simplicity(number: int) -> tuple[int, bool]:
    return abs(number), number < 0


def with_number(case: Case, of: IndexList, place: int, number: int) -> Case:
    numbers = dict(case.indices)[of.name]
    return with_numbers(case, of.name, (*numbers[:place], number, *numbers[place + 1 :]))


def with_numbers(case: Case, name: str, numbers: tuple[int, ...]) -> Case:
    return replace(case, indices=tuple((each, numbers if each == name else old) for each, old in case.indices))

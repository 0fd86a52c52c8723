"""Draws that are lists of integers: lengths, as of the sequences of a batch, and the indices of a case that was reduced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bitverdict.harness.contracts.described.options import Between, OneOfValues
from bitverdict.harness.contracts.described.record import Value

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Numbers = tuple[int, ...]
MAX_WRITTEN_INDICES = 256  # indices that a reduced case writes out
PIECES = 32  # a list is made simpler by so many pieces at most


def numbers_of(text: str) -> Numbers:
    """The list that `text` tells. ValueError for another text."""
    numbers: list[int] = []
    for run in text.split(","):
        number, _, count = run.partition("*")
        numbers += [int(number)] * int(count or 1)
    return tuple(numbers)


def simplicity(number: int) -> tuple[int, bool]:
    return abs(number), number < 0


def pieces_of(count: int) -> Iterator[range]:
    """The places of halves, quarters and so on of a list, the last first."""
    size = count
    while size > 1 and count <= PIECES * size:
        yield from (range(place, min(place + size, count)) for place in range((count - 1) // size * size, -1, -size))
        size = -(-size // 2)
    if count <= PIECES:
        yield from (range(place, place + 1) for place in reversed(range(count)))


@dataclass(frozen=True)
class Lengths:
    """`count` lengths from `low` to `high`, together no more than `total`."""

    count: int
    low: int
    high: int
    total: int

    @property
    def element_range(self) -> Between:
        """What each of them may be."""
        return Between(self.low, self.high)

    @property
    def simplest(self) -> Numbers:
        return (self.low,) * self.count

    def fits(self, value: Value) -> bool:
        return (
            isinstance(value, tuple)
            and len(value) == self.count
            and all(map(self.element_range.fits, value))
            and sum(value) <= self.total
        )

    def describe(self) -> str:
        return f"{self.count} integers from {self.low} to {self.high}, together at most {self.total}"

    def edges(self) -> list[Numbers]:
        """Mixed, all least, all alike and as long as they can be, one long, first and last, then other mixtures."""
        each = self.element_range.edges()
        mixed_lists = [
            self.within(tuple(each[(first + place * step) % len(each)] for place in range(self.count)))
            for first, step in ((2, 1), (4, 3), (7, 2), (1, 5))
        ]
        even = (min(self.high, self.total // self.count),) * self.count
        long = min(self.high, self.total - self.low * (self.count - 1))
        others = (self.low,) * (self.count - 1)
        return list(dict.fromkeys((mixed_lists[0], self.simplest, even, (long, *others), (*others, long), *mixed_lists[1:])))

    def within(self, lengths: Sequence[int]) -> Numbers:
        """`lengths`, each as much shorter as makes them `total` together."""
        more, room = sum(lengths) - self.low * self.count, self.total - self.low * self.count
        if more <= room:
            return tuple(lengths)
        return tuple(self.low + (length - self.low) * room // more for length in lengths)

    def nearest(self, value: Value) -> Numbers:
        if not isinstance(value, tuple):
            return self.simplest
        cut = [min(max(length, self.low), self.high) for length in value[: self.count]]
        return self.within((*cut, *self.simplest[len(cut) :]))

    def simpler(self, value: Numbers) -> list[Numbers]:
        """The least, pieces that are the least, the longest first, and one length nearer to the least."""
        found = [_with_number(value, place, self.low) for place in pieces_of(self.count)]
        found.append(tuple(sorted(value, reverse=True)))
        for place, length in enumerate(value):
            found += [_with_number(value, range(place, place + 1), less) for less in self.element_range.simpler(length)]
        return [lengths for lengths in dict.fromkeys(found) if lengths != value]

    def read(self, text: str) -> Numbers:
        return numbers_of(text)

    def strategy(self) -> SearchStrategy[Numbers]:
        from hypothesis import strategies as st

        anything = st.lists(self.element_range.strategy(), min_size=self.count, max_size=self.count).map(self.within)
        return st.sampled_from(self.edges()) | anything


@dataclass(frozen=True)
class Indices(OneOfValues):
    """Where indices lie, in a word; of a case that is reduced the indices themselves, of which it has `count`. `most`: what their
    type holds."""

    count: int = 0
    below: int = 1
    distinct: bool = False
    out_of_bounds: bool = False
    type_maximum: int = (1 << 31) - 1

    @property
    def plain_numbers(self) -> Numbers:
        return tuple(range(self.count)) if self.distinct else (0,) * self.count

    def fits(self, value: Value) -> bool:
        if not isinstance(value, tuple):
            return super().fits(value)
        ends = (-self.type_maximum - 1, self.type_maximum) if self.out_of_bounds else (0, self.below - 1)
        inside = all(type(number) is int and ends[0] <= number <= ends[1] for number in value)
        return inside and len(value) == self.count and not (self.distinct and len(set(value)) < self.count)

    def describe(self) -> str:
        return f"{super().describe()}, or {self.count} indices, as in 0*3,{self.below - 1}"

    def read(self, text: str) -> Value:
        return text if text in self.values else numbers_of(text)

    def simpler(self, value: Value) -> list[Value]:
        return list(self.plainer(value)) if isinstance(value, tuple) else super().simpler(value)

    def plainer(self, numbers: Sequence[int]) -> list[Numbers]:
        """`numbers` with pieces of them plain, then with those that are not plain first, and each nearer to 0: of many that are
        wrong by one it leaves that one."""
        before = tuple(numbers)
        candidates = [self._with_plain_numbers(before, place) for place in pieces_of(self.count)]
        if not self.distinct:
            candidates.append(tuple(sorted(before, key=lambda number: number == 0)))
        places = [place for place in range(self.count) if before[place] != self.plain_numbers[place]]
        for place in places if len(places) <= PIECES else ():
            candidates += [_with_number(before, range(place, place + 1), number) for number in self._nearer(before[place])]
        return [made for made in dict.fromkeys(candidates) if made != before and self.fits(made)]

    def _with_plain_numbers(self, numbers: Numbers, places: range) -> Numbers:
        """`numbers` with plain ones at `places`. Of distinct ones what stood there goes where these stood."""
        new_numbers = list(numbers)
        for place in places:
            plain = self.plain_numbers[place]
            if self.distinct and plain in new_numbers:
                new_numbers[new_numbers.index(plain)] = new_numbers[place]
            new_numbers[place] = plain
        return tuple(new_numbers)

    def _nearer(self, number: int) -> list[int]:
        powers = {1 << power for power in range(abs(number).bit_length())}
        tried = {0, self.below - 1, self.below, self.below + 1, -1, -self.below, *powers, *(-power for power in powers)}
        return sorted((one for one in tried if simplicity(one) < simplicity(number)), key=simplicity)

    def carry_to_table(self, numbers: Numbers, rows: int) -> Value:
        """`numbers`, which named rows of a table of `rows`, for one of `below`: those past an end keep their distance from it."""
        moved_numbers = [
            number + self.below - rows if number >= rows else number + rows - self.below if number <= -rows else number
            for number in numbers[: self.count]
        ]
        moved_numbers = [min(number, self.below - 1) if 0 <= was < rows else number for was, number in zip(numbers, moved_numbers)]
        unused = (
            [number for number in self.plain_numbers if number not in moved_numbers] if self.distinct else list(self.plain_numbers)
        )
        made = (*moved_numbers, *unused[: self.count - len(moved_numbers)])
        return made if self.fits(made) else self.simplest


def _with_number(numbers: Numbers, places: range, number: int) -> Numbers:
    return (*numbers[: places.start], *[number] * len(places), *numbers[places.stop :])

"""Who decides what a body draws: Hypothesis, the list of required cases, or the record of a case that is judged again. What a draw
may be stands in `described.options`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from bitverdict.harness.contracts.described.number_lists import Indices
from bitverdict.harness.contracts.described.options import Between, OneOfValues, Options
from bitverdict.harness.contracts.described.record import CONTIGUOUS, SHAPED_KINDS, SIZES, Entry, Value
from bitverdict.harness.model.usage import UsageError

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


class Source(Protocol):
    """Decides the draw at `place` of a body, of a kind, called `name` if it has one."""

    def decide(self, place: int, kind: str, name: str, options: Options) -> Value: ...


class Simplest:
    """Each draw as simple as it can be, but for those that `kept` names by their place, as near to that as they can be."""

    def __init__(self, kept: Sequence[Value] = ()) -> None:
        self.kept = kept

    def decide(self, place: int, kind: str, name: str, options: Options) -> Value:
        if place >= len(self.kept):
            return options.simplest
        return self.kept[place] if options.fits(self.kept[place]) else options.nearest(self.kept[place])


class ReducedDraws(Simplest):
    """The draws `entries` with `value` at one place. Where a table gets another number of rows, indices past its end keep their
    distance from it."""

    def __init__(self, entries: Sequence[Entry], place: int, value: Value) -> None:
        values = [entry.value for entry in entries]
        super().__init__([*values[:place], value, *values[place + 1 :]])
        self.entries = entries

    def decide(self, place: int, kind: str, name: str, options: Options) -> Value:
        value = self.kept[place] if place < len(self.kept) else None
        if isinstance(options, Indices) and isinstance(value, tuple) and self.entries[place].kind == kind:
            return options.carry_to_table(value, self.entries[place].asked[0])
        return super().decide(place, kind, name, options)


@dataclass(frozen=True)
class Sizes:
    """Which sizes a required case has: number `alike_number` of `ALIKE_COUNT`, all the same; or number `corner` at
    its least or, `at_maximum`, its most and the others in their middle; or else each another of its own edges, by `number`."""

    number: int = 0
    alike_number: int | None = None
    corner: int | None = None
    at_maximum: bool = False

    def value(self, turn: int, options: Between) -> int:
        """Of the size that is drawn as number `turn`."""
        edges = options.edges()
        if self.alike_number is not None:
            return edges[_place_of(self.alike_number, options, len(edges))]
        if self.corner is None:
            return edges[(self.number + turn * (1 + self.number % 3)) % len(edges)]
        if turn != self.corner:
            return options.middle
        return max(edges) if self.at_maximum else options.simplest


ALIKE_COUNT = 5
"""Required cases in which all sizes lie alike: above what they are drawn around, smallest, below, at, largest."""


def _place_of(number: int, options: Between, count: int) -> int:
    """Where in its `edges` required case `number` finds its size."""
    if options.around is None:
        return (count // 2, 0, 2 % count, count - 1, min(1, count - 1))[number]
    return min((1, 0, 3, 2, 4)[number], count - 1)


class ListedDraws:
    """The draws of required case number `number`: its `sizes`, of choice and flag number i value number `choices[i]`, of a tensor
    at a place in `layouts` that layout; whatever else is one of some values, in turns."""

    def __init__(
        self, number: int, sizes: Sizes | None = None, choices: Sequence[int] = (), layouts: Mapping[int, str] | None = None
    ) -> None:
        self.number, self.choices, self.layouts = number, choices, layouts or {}
        self.sizes = sizes if sizes is not None else Sizes(alike_number=0)
        self.turns = dict[str, int]()

    def decide(self, place: int, kind: str, name: str, options: Options) -> Value:
        counted = "choice" if kind in CHOICE_KINDS else kind
        turn = self.turns[counted] = self.turns.get(counted, -1) + 1
        if isinstance(options, Between):
            return self.sizes.value(turn, options)
        if isinstance(options, OneOfValues):
            if kind in CHOICE_KINDS and turn < len(self.choices):
                return options.values[self.choices[turn] % len(options.values)]
            layout = self.layouts.get(place)
            return layout if options.fits(layout) else options.common[(self.number + turn) % len(options.common)]
        edges = options.edges()
        return edges[(self.number + turn * (1 + self.number % 3)) % len(edges)]


CHOICE_KINDS = ("choice", "flag")


class ByHypothesis:
    """Each draw by Hypothesis: edges as often as anything between."""

    def __init__(self, draw: Callable[[SearchStrategy[Value]], Value]) -> None:
        self.draw = draw

    def decide(self, place: int, kind: str, name: str, options: Options) -> Value:
        return self.draw(options.strategy())


class RecordedDraws:
    """The draws of a record, again."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries

    def decide(self, place: int, kind: str, name: str, options: Options) -> Value:
        value = self.entries[place].value if place < len(self.entries) else None
        return value if options.fits(value) else options.simplest


class ReportedDraws(Simplest):
    """The draws that a line of a report tells, (name, text) each in their order; what it leaves out is as simple as it can be."""

    def __init__(self, report_fields: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        tensors = [(name, text) for name, text in report_fields if _TENSOR.fullmatch(text)]
        self.lies = [text.partition(":")[2] or CONTIGUOUS for _, text in tensors]
        self.sizes = [size for name, text in report_fields if name == SIZES for size in text.split(",")]
        self.told_sizes, self.missing_sizes = ",".join(self.sizes), 0
        self.left = [(name, text) for name, text in report_fields if name != SIZES and (name, text) not in tensors]

    def decide(self, place: int, kind: str, name: str, options: Options) -> Value:
        if kind in SHAPED_KINDS:
            text = self.lies.pop(0) if self.lies else None
        else:
            found = next((each for called in (name, kind) for each in self.left if each[0] == called), None)
            text = found[1] if found else self.sizes.pop(0) if kind == "size" and self.sizes else None
            self.missing_sizes += kind == "size" and text is None
            self.left = [each for each in self.left if each is not found]
        return options.simplest if text is None else _read(text, options, name or kind)

    def check(self) -> None:
        """UsageError for what no draw took."""
        rest = [*(name for name, _ in self.left), *([SIZES] if self.sizes else []), *(["a tensor more"] if self.lies else [])]
        if rest:
            raise UsageError(f"--case: {', '.join(rest)}: the body draws no such value; take the line of a report")
        if self.told_sizes and (more := self.missing_sizes):
            raise UsageError(f"--case: sizes={self.told_sizes}: the body draws {more} more; give all, as a report does, or none")


_TENSOR = re.compile(r"\w+\([\d,]*\)(:.*)?")


def _read(text: str, options: Options, name: str) -> Value:
    """The value that a report tells as `text`. UsageError for one that cannot be drawn."""
    try:
        value = options.read(text)
    except ValueError:
        value = None
    if not options.fits(value):
        raise UsageError(f"--case: {name}={text}: must be {options.describe()}")
    return value

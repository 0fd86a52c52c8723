"""Who decides what a body draws: Hypothesis, the list of required cases, or the record of a case that is judged again.

A draw asks for one of three things: an integer between two ends, a number between two ends, or one of some values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bitverdict.harness.contracts.described.record import CONTIGUOUS, SHAPED, SIZES, Entry, Value
from bitverdict.harness.model.usage import UsageError

DIVISOR = 16  # Triton compiles a size that is a multiple of it anew
PRIMES = (7, 13, 31, 61, 127, 251, 509, 1021, 2039, 4093)


@dataclass(frozen=True)
class Between:
    """An integer from `low` to `high`, a multiple of `multiple_of`; edges lie at the ends, around `around` and around powers of
    two."""

    low: int
    high: int
    around: int | None = None
    multiple_of: int = 1

    def fits(self, value: Value) -> bool:
        return type(value) is int and self.low <= value <= self.high and value % self.multiple_of == 0

    def told(self) -> str:
        """The values, for an error."""
        multiple = f", a multiple of {self.multiple_of}" if self.multiple_of > 1 else ""
        return f"an integer from {self.low} to {self.high}{multiple}"

    @property
    def simplest(self) -> int:
        return -(-self.low // self.multiple_of) * self.multiple_of

    @property
    def middle(self) -> int:
        """Neither end, where there is another: above `around`, or halfway."""
        beside = (self.around if self.around is not None else (self.low + self.high) // 2) // self.multiple_of + 1
        return min(max(beside * self.multiple_of, self.simplest), self.high // self.multiple_of * self.multiple_of)

    def edges(self) -> list[int]:
        """The values that are worth most: the smallest, below, at and above `around`, the largest; then others, ascending."""
        middle = [] if self.around is None else [self.around + step * self.multiple_of for step in (1, 0, -1)]
        powers = [1 << power for power in range(self.high.bit_length() + 1)]
        near = [times * DIVISOR + step for times in (1, 2, 3, 5) for step in (-1, 0, 1)]
        whole = [times * self.multiple_of for times in (3, 5, 7, *PRIMES)] if self.multiple_of > 1 else []  # no power of two
        others = sorted({*powers, *PRIMES, *near, *whole, *(power - 1 for power in powers), *(power + 1 for power in powers)})
        largest = self.high // self.multiple_of * self.multiple_of
        listed = [self.simplest, *middle, largest, *others]
        return [value for value in dict.fromkeys(listed) if self.fits(value)]

    def simpler(self, value: int) -> list[int]:
        """Values nearer to the simplest, the simplest first."""
        unit, first = self.multiple_of, self.simplest
        steps = (value - first) // unit
        ladder = [0, *(1 << power for power in range(max(steps, 0).bit_length())), steps // 2, steps - steps // 4, steps - 1]
        return [first + step * unit for step in sorted({step for step in ladder if 0 <= step < steps})]


@dataclass(frozen=True)
class OneOf:
    """One of `values`, the plainest first. The last `rare` of them are required cases' alone."""

    values: tuple[Value, ...]
    rare: int = 0

    @property
    def common(self) -> tuple[Value, ...]:
        """The values that are drawn."""
        return self.values[: len(self.values) - self.rare]

    def fits(self, value: Value) -> bool:
        return any(value == each and type(value) is type(each) for each in self.values)

    def told(self) -> str:
        """The values, for an error."""
        return f"one of {', '.join(map(str, self.values))}"

    @property
    def simplest(self) -> Value:
        return self.values[0]

    def simpler(self, value: Value) -> list[Value]:
        return list(self.values[: self.values.index(value)])


@dataclass(frozen=True)
class Real:
    """A number from `low` to `high`; edges are the ends, and 0 and 1 where they lie between."""

    low: float
    high: float

    def fits(self, value: Value) -> bool:
        return isinstance(value, float) and self.low <= value <= self.high

    def told(self) -> str:
        """The values, for an error."""
        return f"a number from {self.low} to {self.high}"

    @property
    def simplest(self) -> float:
        return min((0.0, 1.0, self.low, self.high), key=lambda value: (not self.fits(value), abs(value)))

    def edges(self) -> list[float]:
        return [value for value in dict.fromkeys((1.0, 0.0, self.low, self.high, 0.5, -1.0)) if self.fits(value)]

    def simpler(self, value: float) -> list[float]:
        return [less for less in dict.fromkeys((self.simplest, 1.0, float(round(value)))) if self.fits(less) and less != value]


Options = Between | OneOf | Real


class Source(Protocol):
    """Decides the draw at `place` of a body, of a kind, called `name` if it has one."""

    def decide(self, place: int, kind: str, name: str, options: Options) -> Value: ...


class Simplest:
    """Each draw as simple as it can be, but for those that `kept` names by their place, as near to that as they can be."""

    def __init__(self, kept: Sequence[Value] = ()) -> None:
        self.kept = kept

    def decide(self, place: int, kind: str, name: str, options: Options) -> Value:
        if place < len(self.kept) and options.fits(self.kept[place]):
            return self.kept[place]
        wanted = self.kept[place] if place < len(self.kept) else None
        if isinstance(options, Between) and type(wanted) is int:
            return max(min(wanted, options.high) // options.multiple_of * options.multiple_of, options.simplest)
        return options.simplest


@dataclass(frozen=True)
class Sizes:
    """Which sizes a required case has: number `alike` of `ALIKE`, all the same; or, of a `corner`, the size of that number at its
    least or at its `most` and the others in their middle; or else each another of its own edges, by `number`."""

    number: int = 0
    alike: int | None = None
    corner: int | None = None
    most: bool = False

    def value(self, turn: int, options: Between) -> int:
        """Of the size that is drawn as number `turn`."""
        edges = options.edges()
        if self.alike is not None:
            return edges[_place_of(self.alike, options, len(edges))]
        if self.corner is None:
            return edges[(self.number + turn * (1 + self.number % 3)) % len(edges)]
        if turn != self.corner:
            return options.middle
        return max(edges) if self.most else options.simplest


ALIKE = 5
"""Required cases in which all sizes lie alike: above what they are drawn around, smallest, below, at, largest."""


def _place_of(number: int, options: Between, count: int) -> int:
    """Where in its `edges` required case `number` finds its size."""
    if options.around is None:
        return (count // 2, 0, 2 % count, count - 1, min(1, count - 1))[number]
    return min((1, 0, 3, 2, 4)[number], count - 1)


class Listed:
    """The draws of required case number `number`: its `sizes`, of choice and flag number i value number `choices[i]`, of a tensor
    at a place in `layouts` that layout; whatever else is one of some values, in turns."""

    def __init__(
        self, number: int, sizes: Sizes | None = None, choices: Sequence[int] = (), layouts: Mapping[int, str] | None = None
    ) -> None:
        self.number, self.choices, self.layouts = number, choices, layouts or {}
        self.sizes = sizes if sizes is not None else Sizes(alike=0)
        self.turns = dict[str, int]()

    def decide(self, place: int, kind: str, name: str, options: Options) -> Value:
        counted = "choice" if kind in CHOSEN else kind
        turn = self.turns[counted] = self.turns.get(counted, -1) + 1
        if isinstance(options, Between):
            return self.sizes.value(turn, options)
        if isinstance(options, OneOf):
            if kind in CHOSEN and turn < len(self.choices):
                return options.values[self.choices[turn] % len(options.values)]
            layout = self.layouts.get(place)
            return layout if options.fits(layout) else options.common[(self.number + turn) % len(options.common)]
        edges = options.edges()
        return edges[(self.number + turn * (1 + self.number % 3)) % len(edges)]


CHOSEN = ("choice", "flag")


class ByHypothesis:
    """Each draw by Hypothesis: edges as often as anything between."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw

    def decide(self, place: int, kind: str, name: str, options: Options) -> Value:
        from hypothesis import strategies as st

        if isinstance(options, OneOf):
            return self.draw(st.sampled_from(options.common))
        if isinstance(options, Real):
            whole = st.floats(options.low, options.high, allow_nan=False, width=32)
            return self.draw(st.sampled_from(options.edges()) | whole)
        unit = options.multiple_of
        anywhere = st.integers(options.simplest // unit, options.high // unit).map(lambda times: times * unit)
        return self.draw(st.sampled_from(options.edges()) | anywhere)


class Recorded:
    """The draws of a record, again."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries

    def decide(self, place: int, kind: str, name: str, options: Options) -> Value:
        value = self.entries[place].value if place < len(self.entries) else None
        return value if options.fits(value) else options.simplest


class Told(Simplest):
    """The draws that a line of a report tells, (name, text) each in their order; what it leaves out is as simple as it can be."""

    def __init__(self, told: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        tensors = [(name, text) for name, text in told if _TENSOR.fullmatch(text)]
        self.lies = [text.partition(":")[2] or CONTIGUOUS for _, text in tensors]
        self.sizes = [size for name, text in told if name == SIZES for size in text.split(",")]
        self.left = [(name, text) for name, text in told if name != SIZES and (name, text) not in tensors]

    def decide(self, place: int, kind: str, name: str, options: Options) -> Value:
        if kind in SHAPED:
            text = self.lies.pop(0) if self.lies else None
        elif kind == "size" and not name:
            text = self.sizes.pop(0) if self.sizes else None
        else:
            found = next((each for each in self.left if each[0] == (name or kind)), None)
            text = found[1] if found else None
            self.left = [each for each in self.left if each is not found]
        return options.simplest if text is None else _read(text, options, name or kind)

    def check(self) -> None:
        """UsageError for what no draw took."""
        rest = [*(name for name, _ in self.left), *([SIZES] if self.sizes else []), *(["a tensor more"] if self.lies else [])]
        if rest:
            raise UsageError(f"--case: {', '.join(rest)}: the body draws no such value; take the line of a report")


_TENSOR = re.compile(r"\w+\([\d,]*\)(:.*)?")


def _read(text: str, options: Options, name: str) -> Value:
    """The value that a report tells as `text`. UsageError for one that cannot be drawn."""
    values = options.values if isinstance(options, OneOf) else ()
    found: Value = next((value for value in values if str(value) == text), None)
    try:
        found = int(text) if isinstance(options, Between) else float(text) if isinstance(options, Real) else found
    except ValueError:
        found = None
    if not options.fits(found):
        raise UsageError(f"--case: {name}={text}: must be {options.told()}")
    return found

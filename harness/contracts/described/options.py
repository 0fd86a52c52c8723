"""What a draw may be: an integer or a number between two ends, or one of some values. Lists are in `described.number_lists`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from bitverdict.harness.contracts.described.record import Value

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

DIVISOR = 16  # Triton compiles a size that is a multiple of it anew
PRIMES = (7, 13, 31, 61, 127, 251, 509, 1021, 2039, 4093)


class Options(Protocol):
    """The values that one draw may have. `simplest`: what a failing case is reduced towards."""

    @property
    def simplest(self) -> Value: ...

    def fits(self, value: Value) -> bool: ...

    def describe(self) -> str:
        """The values, for an error."""

    def edges(self) -> Sequence[Value]:
        """The values that are worth most, in the order in which required cases have them."""

    def nearest(self, value: Value) -> Value:
        """What fits in the place of a value that was drawn when other values were possible."""

    def simpler(self, value: Any) -> Sequence[Value]:
        """Values that are simpler than one that fits, the simplest first."""

    def read(self, text: str) -> Value:
        """The value that a report tells as `text`; ValueError for a text that tells none."""

    def strategy(self) -> SearchStrategy[Any]:
        """Hypothesis's: edges as often as anything between."""


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

    def describe(self) -> str:
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
        """The smallest, above, at and below `around`, the largest; then others, ascending."""
        middle = [] if self.around is None else [self.around + step * self.multiple_of for step in (1, 0, -1)]
        powers = [1 << power for power in range(self.high.bit_length() + 1)]
        near = [times * DIVISOR + step for times in (1, 2, 3, 5) for step in (-1, 0, 1)]
        whole = [times * self.multiple_of for times in (3, 5, 7, *PRIMES)] if self.multiple_of > 1 else []  # no power of two
        others = sorted({*powers, *PRIMES, *near, *whole, *(power - 1 for power in powers), *(power + 1 for power in powers)})
        largest = self.high // self.multiple_of * self.multiple_of
        listed = [self.simplest, *middle, largest, *others]
        return [value for value in dict.fromkeys(listed) if self.fits(value)]

    def nearest(self, value: Value) -> int:
        if type(value) is not int:
            return self.simplest
        return max(min(value, self.high) // self.multiple_of * self.multiple_of, self.simplest)

    def simpler(self, value: int) -> list[int]:
        unit, first = self.multiple_of, self.simplest
        steps = (value - first) // unit
        ladder = [0, *(1 << power for power in range(max(steps, 0).bit_length())), steps // 2, steps - steps // 4, steps - 1]
        return [first + step * unit for step in sorted({step for step in ladder if 0 <= step < steps})]

    def read(self, text: str) -> int:
        return int(text)

    def strategy(self) -> SearchStrategy[int]:
        from hypothesis import strategies as st

        unit = self.multiple_of
        anywhere = st.integers(self.simplest // unit, self.high // unit).map(lambda times: times * unit)
        return st.sampled_from(self.edges()) | anywhere


@dataclass(frozen=True)
class OneOfValues:
    """One of `values`, the plainest first. The last `rare` of them are required cases' alone."""

    values: tuple[Value, ...]
    rare: int = 0

    @property
    def common(self) -> tuple[Value, ...]:
        """The values that are drawn."""
        return self.values[: len(self.values) - self.rare]

    def fits(self, value: Value) -> bool:
        return any(value == each and type(value) is type(each) for each in self.values)

    def describe(self) -> str:
        return f"one of {', '.join(map(str, self.values))}"

    @property
    def simplest(self) -> Value:
        return self.values[0]

    def edges(self) -> Sequence[Value]:
        return self.common

    def nearest(self, value: Value) -> Value:
        return self.simplest

    def simpler(self, value: Value) -> list[Value]:
        return list(self.values[: self.values.index(value)])

    def read(self, text: str) -> Value:
        return next((value for value in self.values if str(value) == text), None)

    def strategy(self) -> SearchStrategy[Value]:
        from hypothesis import strategies as st

        return st.sampled_from(self.common)


@dataclass(frozen=True)
class Real:
    """A number from `low` to `high`; edges are the ends, and 0 and 1 where they lie between."""

    low: float
    high: float

    def fits(self, value: Value) -> bool:
        return isinstance(value, float) and self.low <= value <= self.high

    def describe(self) -> str:
        return f"a number from {self.low} to {self.high}"

    @property
    def simplest(self) -> float:
        return min((0.0, 1.0, self.low, self.high), key=lambda value: (not self.fits(value), abs(value)))

    def edges(self) -> list[float]:
        return [value for value in dict.fromkeys((1.0, 0.0, self.low, self.high, 0.5, -1.0)) if self.fits(value)]

    def nearest(self, value: Value) -> float:
        return self.simplest

    def simpler(self, value: float) -> list[float]:
        return [less for less in dict.fromkeys((self.simplest, 1.0, float(round(value)))) if self.fits(less) and less != value]

    def read(self, text: str) -> float:
        return float(text)

    def strategy(self) -> SearchStrategy[float]:
        from hypothesis import strategies as st

        return st.sampled_from(self.edges()) | st.floats(self.low, self.high, allow_nan=False, width=32)

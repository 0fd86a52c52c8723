"""Real values against the mathematics: what a launch would have given without any rounding, held to what it should have.

A real value is what the tile program computes in float64 from the same operands, with a bound of what float64 itself rounded off.
Both sides have such a bound. They agree where they are no further apart than both bounds together, as NaN with NaN, and as
infinities of one sign. An element is known where both bounds are finite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from bitverdict.harness.model.contract import ExpectedOutput

MOST_REASONS = 3  # told of why real values are not known


class RealValues(Protocol):
    """What an emulated launch computed without rounding: float64 each, of the output's shape."""

    @property
    def value(self) -> np.ndarray: ...

    @property
    def error(self) -> np.ndarray:
        """Float64's own rounding; inf where the value hangs on a rounding of the kernel's."""


@dataclass(frozen=True)
class Mathematics:
    """Of each element of an output whether its mathematics is known, and whether it is wrong, which only a known one is."""

    known_elements: np.ndarray
    wrong_elements: np.ndarray
    real: np.ndarray
    exact: np.ndarray
    tolerance: np.ndarray
    """What the two may differ by."""


def mathematics(expected: ExpectedOutput, real: RealValues | None) -> Mathematics | None:
    """`real` held to the exact values of `expected`; None where one of them is not there."""
    if real is None or expected.exact is None:
        return None
    error = np.zeros(expected.shape) if expected.exact_error is None else expected.exact_error
    value, exact = real.value, expected.exact
    with np.errstate(invalid="ignore", over="ignore"):
        allowed = real.error + error
        agree = (np.abs(value - exact) <= allowed) | (value == exact) | (np.isnan(value) & np.isnan(exact))
    known = np.isfinite(allowed)
    return Mathematics(known, known & ~agree, value, exact, allowed)


def first_values(found: Mathematics, at: tuple[int, ...]) -> dict[str, str]:
    """Both values of the element `at`, as text."""
    allowed = float(found.tolerance[at])
    return {
        "real value": f"{float(found.real[at]):.15g}",
        "exact": f"{float(found.exact[at]):.15g}" + (f" +- {allowed:.2g}" if allowed and np.isfinite(found.exact[at]) else ""),
    }


def why_unknown(hangs: Sequence[tuple[str, str]]) -> str:
    """What a launch says of values that hang on a rounding: operations and their lines, each once."""
    said = list(dict.fromkeys(f"{reason} at {line}" if line else reason for reason, line in hangs))
    more = f", and {len(said) - MOST_REASONS} more" if len(said) > MOST_REASONS else ""
    return ", ".join(said[:MOST_REASONS]) + more

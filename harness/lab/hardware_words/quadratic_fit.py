"""Coefficients of a table of quadratics, from the words that a GPU wrote for every X of every row.

A word that was truncated from sum = c0 + c1 X + c2 square(X) bounds the sum from both sides. For given c1 and c2 the bounds
leave an interval of c0, which may be empty. A least-squares fit comes within a few units of c1 and c2; every integer pair around
it is tried on all words of the row. Nothing is minimised: a row is found when no word contradicts it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitverdict.reference.special_functions.quadratic import SQUARED_BITS, Quadratic, squares

NO_BOUND = 1 << 60
MANTISSA_BITS = 23


class DoesNotFit(RuntimeError):
    """No integers of the assumed form give the words; the message names the row."""


@dataclass
class Bounds:
    """lower <= sum <= upper for each row and X, [rows, 2^low_bits] int64 each, in units of 2^-weight."""

    lower: np.ndarray
    upper: np.ndarray

    @classmethod
    def no_bounds(cls, rows: int, low_bits: int) -> Bounds:
        """What is known before any word."""
        shape = (rows, 1 << low_bits)
        return cls(np.full(shape, -NO_BOUND), np.full(shape, NO_BOUND))

    def narrow(self, index: np.ndarray, low: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> None:
        """Take in bounds [n] of the sums at (index, low), integers [n]."""
        np.maximum.at(self.lower, (index, low), lower)
        np.minimum.at(self.upper, (index, low), upper)


def truncation_bounds(words: np.ndarray, weight: int) -> tuple[np.ndarray, np.ndarray]:
    """Least and largest sum, in units of 2^-weight, that truncate to the positive fp32 words [n]; int64 each. 0 is 0 alone."""
    exponents = (words >> MANTISSA_BITS & 0xFF).astype(np.int64) - 127  # (n,)
    significands = (words & 0x7FFFFF).astype(np.int64) | 1 << MANTISSA_BITS  # (n,)
    significands[words == 0] = 0
    shift = weight + exponents - MANTISSA_BITS  # (n,) how many bits of the sum the word has lost; negative: how many it adds
    lost, added = np.maximum(shift, 0), np.minimum(np.maximum(-shift, 0), 62)
    if (significands & ((1 << added) - 1)).any():
        raise DoesNotFit(f"a word has bits below 2^-{weight}: the sum needs a larger weight")
    lower = significands >> added << lost
    return lower, lower + (1 << lost) - 1


@dataclass(frozen=True)
class Form:
    """What is assumed of a table: the fields of `Quadratic` without its rows and bias, and the units c1 and c2 are counted in."""

    name: str
    weight: int
    low_bits: int
    constant_shift: int
    linear_step: int = 1
    square_step: int = 1


def fit(form: Form, bounds: Bounds, reach: int = 12) -> Quadratic:
    """A Quadratic that keeps every bound, with one bias for all rows.

    Raises DoesNotFit where a row has no coefficients within `reach` steps of its least-squares fit, or the rows have no bias in
    common.
    """
    squared = squares()[:: 1 << (SQUARED_BITS - form.low_bits)].astype(np.int64)  # (X,)
    candidate_rows = [
        _row(form, number, squared, *pair, reach) for number, pair in enumerate(zip(bounds.lower, bounds.upper, strict=True))
    ]
    unit = 1 << form.constant_shift
    residues = np.zeros(unit, np.int64)  # how many rows allow the bias
    for candidates in candidate_rows:
        allowed = np.zeros(unit, bool)
        for _, _, least, largest in candidates:
            allowed[np.arange(least, min(largest, least + unit - 1) + 1) % unit] = True
        residues += allowed
    common = np.nonzero(residues == len(candidate_rows))[0]
    if not common.size:
        raise DoesNotFit(f"{form.name}: no bias serves all rows; {residues.max()} of {len(candidate_rows)} rows agree at most")
    bias = int(common[len(common) // 2])
    rows = [next(filter(None, (_settle(candidate, bias, unit) for candidate in candidates))) for candidates in candidate_rows]
    return Quadratic(form.name, form.weight, form.low_bits, form.constant_shift, bias, tuple(rows))


def _settle(candidate: tuple[int, int, int, int], bias: int, unit: int) -> tuple[int, int, int] | None:
    """(c0 in units, c1, c2) of a candidate, or None where its interval of c0 holds no number of the form c0 * unit + bias."""
    c1, c2, least, largest = candidate
    c0 = -((bias - least) // unit)
    return (c0, c1, c2) if c0 * unit + bias <= largest else None


def _row(
    form: Form, number: int, square_values: np.ndarray, lower: np.ndarray, upper: np.ndarray, reach: int
) -> list[tuple[int, int, int, int]]:
    """Every (c1, c2, least c0, largest c0) that keeps the row's bounds [X] each."""
    known = np.nonzero((lower > -NO_BOUND) & (upper < NO_BOUND))[0]  # (known,)
    x, square_values, lower, upper = known.astype(np.int64), square_values[known], lower[known], upper[known]
    if (lower > upper).any():
        raise DoesNotFit(f"{form.name}, row {number}: words of one X contradict each other")
    basis = np.stack([np.ones(len(x)), x.astype(np.float64), square_values.astype(np.float64)], axis=1)  # (known, 3)
    _, slope, curve = np.linalg.lstsq(basis, (lower + upper) / 2, rcond=None)[0]
    some = slice(None, None, 61)
    candidates = []
    for c2 in _around(curve, form.square_step, reach):
        below, above = lower - c2 * square_values, upper - c2 * square_values  # (known,)
        for c1 in _around(slope, form.linear_step, reach):
            if (above[some] - c1 * x[some]).min() < (below[some] - c1 * x[some]).max():
                continue
            least, largest = int((below - c1 * x).max()), int((above - c1 * x).min())
            if least <= largest:
                candidates.append((c1, c2, least, largest))
    if not candidates:
        raise DoesNotFit(
            f"{form.name}, row {number}: no c1 near {slope:.2f} and c2 near {curve:.2f} give the words of {len(x)} arguments"
        )
    return candidates


def _around(guess: float, step: int, reach: int) -> list[int]:
    """Multiples of `step`, at most `reach` steps from the guess."""
    middle = round(guess / step)
    return [step * (middle + offset) for offset in range(-reach, reach + 1)]

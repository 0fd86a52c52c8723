"""Where the words of right implementations lie: intervals of what an accumulation type may hold, one rounding at a time.

An interval is a pair (low, high) of float64 arrays. Rounding is monotone: what lies in [low, high] is rounded into
[RN(low), RN(high)]. An implementation rounds here, or it does not (a product that is contracted into a sum; a value that a compiler
folds). So one rounding that may be left out takes [low, high] to [min(low, RN(low)), max(high, RN(high))]: `Accumulation.outward`.
Nothing is lost where the ends are numbers of the type, overflow gives the infinity by itself, and so do subnormals.

float64 evaluates the ends, with an error of 2^-53 a operation, and RN may then fall on the other side of a tie. Therefore what does
not come from exact operands is first moved outward by `MARGIN` of itself: 2^-46, which pays for 64 operations of one node.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitverdict.reference.formats import FORMATS, Rounding, decode, encode

MARGIN = 2.0**-46
Ends = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Accumulation:
    """The type in which an implementation computes: its format's name, and u, the largest relative error of one rounding."""

    format: str
    unit: float
    smallest_normal: float
    largest: float

    def round(self, values: np.ndarray) -> np.ndarray:
        """float64 `values`, each rounded to nearest even in the type."""
        if self.format == "fp32":
            return values.astype(np.float32).astype(np.float64)
        if self.format == "fp64":
            return values
        if self.format == "fp16":
            return values.astype(np.float16).astype(np.float64)
        fmt = FORMATS[self.format]
        return decode(fmt, encode(fmt, values))

    def outward(self, low: np.ndarray, high: np.ndarray) -> Ends:
        """After one rounding to nearest that may be left out."""
        if self.format == "fp64":
            return low - np.abs(low) * self.unit, high + np.abs(high) * self.unit
        return np.minimum(low, self.round(low)), np.maximum(high, self.round(high))

    def flush_ends(self, low: np.ndarray, high: np.ndarray) -> Ends:
        """With zero, where what is below the smallest normal number may be taken as zero (`.ftz`)."""
        small = self.smallest_normal
        if not ((np.abs(low) < small) | (np.abs(high) < small)).any():
            return low, high
        return np.where((low > 0) & (low < small), 0.0, low), np.where((high < 0) & (high > -small), 0.0, high)


def accumulation_type(name: str) -> Accumulation:
    """By the name of its format: fp32, fp64, fp16, bf16, tf32 ... ValueError for another."""
    if name == "fp64":
        return Accumulation(name, 2.0**-53, float(np.finfo(np.float64).smallest_normal), float(np.finfo(np.float64).max))
    if name not in FORMATS:
        raise ValueError(f"no accumulation type {name!r}; there are fp64, {', '.join(FORMATS)}")
    fmt = FORMATS[name]
    return Accumulation(name, 2.0 ** -(fmt.mantissa_bits + 1), fmt.smallest_normal, fmt.largest)


def widen_ends(low: np.ndarray, high: np.ndarray, relative: np.ndarray | float, absolute: np.ndarray | float = 0.0) -> Ends:
    """[low, high] after an error of at most `relative` of the exact result and `absolute`; an infinity stays one."""
    down, up = low - (np.abs(low) * relative + absolute), high + (np.abs(high) * relative + absolute)
    if np.isfinite(np.add.reduce(down, axis=None) + np.add.reduce(up, axis=None)):
        return down, up
    return np.where(np.isinf(low), low, down), np.where(np.isinf(high), high, up)


def stored_ends(name: str, low: np.ndarray, high: np.ndarray) -> Ends:
    """The ends after a conversion to format `name` that an implementation makes, or leaves out. What overflows to the NaN of a
    format without infinity counts as an infinity: a conversion may saturate too."""
    if name == "fp64":
        return low, high
    fmt = FORMATS[name]
    with np.errstate(invalid="ignore", over="ignore"):
        down, up = (decode(fmt, encode(fmt, end, rounding=Rounding.NEAREST_EVEN)) for end in (low, high))
    down, up = (
        np.where(np.isnan(end) & ~np.isnan(given), np.copysign(np.inf, given), end) for end, given in ((down, low), (up, high))
    )
    return np.minimum(low, down), np.maximum(high, up)

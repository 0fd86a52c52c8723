"""Real values of numbers that an author wrote: constants of a kernel, and floats that its launcher passes.

An author's 1e-6 is rounded when it becomes a word; the mathematics means 1e-6. So the real value of a constant is its word's, to
within half a unit in the last place of its format: the author's number lies there. A short number means itself: a whole number, or
one of few significant bits (0.5, 1.25, an infinity). By chance a number in need of all bits looks like that once in 2^12.

A float that a launcher passes is seen before it is rounded. The launcher computed it in float64 (`1 / math.sqrt(d)`), to within a
few units of that; one that is short means itself here too. An author may also give no more digits than fp32 has
(`scale * 1.44269504`). So where real values disagree the judge asks again, with arguments known to half a unit of their format.
"""

from __future__ import annotations

import math

import numpy as np

from bitverdict.harness.emulator.numerics.real_values import LEAST, UNIT, Real, TileValue
from bitverdict.harness.emulator.numerics.scalar_ops import widen
from bitverdict.reference.formats import FORMATS

PRECISION = {None: 53, "fp32": 24, "fp16": 11, "bf16": 8, "e4m3": 4, "e5m2": 3}  # bits of a significand, the leading one included
SPARE = 12  # significant bits that a number may lack of its format's to be taken for rounded: at least half of those there are
ROUNDINGS = 4  # of float64, that a launcher makes to compute a scalar argument


def _is_short(value: float, precision: int) -> bool:
    """Whether `value` means itself in a format of `precision` bits."""
    if not math.isfinite(value) or value == 0:
        return True
    mantissa, _ = math.frexp(value)
    whole = abs(int(math.ldexp(mantissa, precision)))
    used = precision - ((whole & -whole).bit_length() - 1)
    return used <= max(precision - SPARE, precision // 2) or (value == int(value) and abs(value) < 2.0**precision)


def constant(word: TileValue, fmt: str | None) -> Real:
    """The Real of the constant `word` in the format `fmt` (None: fp64)."""
    value = np.float64(widen(np.asarray(word), fmt))
    precision, least = PRECISION.get(fmt, 2), 0.0 if fmt is None else 2.0 ** (1 - FORMATS[fmt].bias)
    if _is_short(float(value), precision) and (value == 0 or abs(value) >= least):  # a subnormal has few bits at any rate
        return Real(value)
    if fmt is None:
        return Real(value, np.float64(np.abs(value) * UNIT))
    return Real(value, _half_unit(float(value), fmt))


def _half_unit(value: float, fmt: str) -> np.float64:
    """Half a unit in the last place of `value` in the format `fmt`."""
    precision = PRECISION.get(fmt, 2)
    exponent = max(math.frexp(value)[1] - precision, 1 - FORMATS[fmt].bias - (precision - 1))
    return np.float64(math.ldexp(0.5, exponent))


def argument(value: float, fmt: str | None, *, rounded: bool = False) -> Real:
    """The Real of the float `value` that a launcher passes for a parameter of the format `fmt`; `rounded`: as of a constant."""
    if _is_short(value, PRECISION.get(fmt, 2)):
        return Real(np.float64(value))
    computed = np.float64(ROUNDINGS * UNIT * abs(value) + LEAST)
    return Real(np.float64(value), _half_unit(value, fmt) if rounded and fmt is not None else computed)


__all__ = ["argument", "constant"]

"""Error-free sums and products of float64, and rounding to odd: what every correctly rounded operation here is made of.

Rounding to odd keeps, in the last bit, that something was lost; a later rounding to two bits less or fewer then decides as it would
have on the exact value (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", 2008).
"""

from __future__ import annotations

from typing import Literal

import numpy as np

Rounding = Literal["rn", "rz", "rm", "rp"]
"""PTX's names: to nearest even, toward zero, down, up."""

_SPLIT = 2.0**27 + 1


def two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """a + b rounded, and exactly what was lost (Knuth); float64 of equal shape, while the sum is finite."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


def two_product(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """a * b rounded, and exactly what was lost (Dekker and Veltkamp); float64 of equal shape.

    Exact where |a| and |b| are below 2^996 and |a * b| is 0 or between 2^-916 and 2^1022.
    """
    product = a * b
    wide = a * _SPLIT
    a_high = wide - (wide - a)
    a_low = a - a_high
    wide = b * _SPLIT
    b_high = wide - (wide - b)
    b_low = b - b_high
    return product, a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)


def round_to_odd(total: np.ndarray, error: np.ndarray) -> np.ndarray:
    """total + error rounded to odd, where `total` is that sum rounded to nearest; float64 of equal shape."""
    inexact = (error != 0) & np.isfinite(total)  # (...)
    if not inexact.any():
        return total
    words = total.view(np.int64)
    even = inexact & (words & 1 == 0)  # (...)
    away = (error > 0) == (total > 0)  # (...) the exact sum is the larger in magnitude
    return (words + np.where(even, np.where(away, 1, -1), 0)).view(np.float64)


def step_result(nearest: np.ndarray, error: np.ndarray, rounding: Rounding) -> np.ndarray:
    """A result rounded to nearest, as another direction rounds it: one step further where the exact one lies on that side.

    `nearest` is float32 or float64, `error` has the sign of the exact result less `nearest`.
    """
    if rounding == "rn":
        return nearest
    integer = np.int32 if nearest.dtype == np.float32 else np.int64
    words = nearest.view(integer)
    negative = np.signbit(nearest) & (nearest != 0) | (nearest == 0) & (error < 0)  # (...) of the exact result
    if rounding == "rz":
        step = -(negative & (error > 0) | ~negative & (error < 0)).astype(integer)
    elif rounding == "rp":
        step = np.where(error > 0, np.where(negative, -1, 1), 0).astype(integer)
    else:
        step = np.where(error < 0, np.where(negative, 1, -1), 0).astype(integer)
    moved: np.ndarray = (words + step).view(nearest.dtype)
    from_zero = (nearest == 0) & (step != 0)  # (...) nearest gave a zero of either sign
    if from_zero.any():
        least = np.array(1, integer).view(nearest.dtype)
        moved = np.where(from_zero, np.copysign(least, error).astype(nearest.dtype), moved)
    return moved

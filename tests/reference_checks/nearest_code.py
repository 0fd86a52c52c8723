"""Encoding by a second method: search among the decoded values, and compare distances. Shares nothing with `encode`."""

from __future__ import annotations

import numpy as np

from bitverdict.reference.formats import Format, Rounding, decode


def magnitudes(fmt: Format) -> np.ndarray:
    """Every finite magnitude of `fmt` in order, then the one that would follow: where overflow begins to be reached."""
    count = (fmt.largest_code >> fmt.low_padding) + 1
    values = decode(fmt, (np.arange(count, dtype=np.uint32) << fmt.low_padding).astype(fmt.storage))  # (count,)
    step = values[-1] - values[-2] if fmt.mantissa_bits else values[-1]
    return np.append(values, values[-1] + step)  # (count + 1,)


def nearest_magnitude(fmt: Format, values: np.ndarray, rounding: Rounding) -> np.ndarray:
    """Position in `magnitudes` of the neighbour that finite `values` (elements,) go to; the last position is an overflow.

    The differences are exact where they decide: both neighbours lie within a factor of two, or the lower one is zero.
    """
    table = magnitudes(fmt)  # (count + 1,)
    size = np.abs(values.astype(np.float64))  # (elements,)
    low = np.clip(np.searchsorted(table, size, side="right") - 1, 0, table.size - 2)  # (elements,)
    below, above = size - table[low], table[low + 1] - size  # (elements,)
    odd = low % 2 == 1 if fmt.mantissa_bits else np.ones(low.shape, bool)  # (elements,) the only significand of E8M0 is odd
    inexact = below > 0  # (elements,)
    up = {
        Rounding.NEAREST_EVEN: (above < below) | ((above == below) & odd),
        Rounding.NEAREST_AWAY: above <= below,
        Rounding.TOWARD_ZERO: np.zeros(low.shape, bool),
        Rounding.TOWARD_POSITIVE: inexact & (values > 0),
        Rounding.TOWARD_NEGATIVE: inexact & (values < 0),
    }[rounding]
    past = size >= table[-1]  # (elements,)
    return np.where(past, table.size - 1, low + (up | (above <= 0)))


def around_midpoints(fmt: Format) -> np.ndarray:
    """Every code, every midpoint of neighbours (the overflow's too), each -1, 0, +1 ulp of float32 and of float64, both signs.

    Midpoints that float32 cannot hold (fp32's own) are taken with float64's neighbours alone.
    """
    table = magnitudes(fmt)  # (count + 1,)
    points = np.concatenate([table, (table[:-1] + table[1:]) / 2])  # (points,)
    with np.errstate(over="ignore"):
        narrow = points.astype(np.float32)  # (points,)
    narrow = narrow[(narrow == points) & np.isfinite(narrow)]  # (points,)
    near = [points, np.nextafter(points, 0), np.nextafter(points, np.inf)]
    near += [np.nextafter(narrow, np.float32(end)).astype(np.float64) for end in (0, 3e38)]
    both = np.concatenate(near)  # (values,)
    return np.concatenate([both, -both]) if fmt.has_sign else both[both > 0] if not fmt.subnormals else both

"""Real values across conversions: between integers and floats, and those that a reference declares to be mathematics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bitverdict.harness.emulator.numerics.real_values import UNIT, Real, Taint, TileValue, with_taint
from bitverdict.harness.emulator.numerics.scalar_ops import convert_float, widen
from bitverdict.reference.formats import FORMATS, decode, encode

if TYPE_CHECKING:
    from bitverdict.harness.emulator.execution.cta import Cta
    from bitverdict.harness.emulator.mlir_reader import Operation


def from_integer(value: TileValue, taint: Taint, bits: int, signed: bool) -> Real:
    """The integers `value` (...) of `bits` bits, exactly, or above 2^53 to within one rounding."""
    words = np.asarray(value)
    if bits == 1:
        real_value = -words.astype(np.float64) if signed else words.astype(np.float64)
    elif signed:
        real_value = words.astype(np.float64)
    else:
        real_value = words.astype(f"i{bits // 8}").view(f"u{bits // 8}").astype(np.float64)
    error = np.abs(real_value) * UNIT if bits > 53 and (np.abs(real_value) >= 2.0**53).any() else None
    return with_taint(Real(real_value, error), taint)


def round_declared(m: Cta, op: Operation, real: Real, fmt: str, arch: str) -> Real:
    """`real` rounded to the format `fmt` (nearest even), what overflows as the target `arch` converts it. Unknown where its error
    leaves open to which word."""
    rounded_value = round_to_format(real.value, fmt, arch)
    if real.error is None:
        return Real(rounded_value)
    low, high = (round_to_format(end, fmt, arch) for end in (real.value - real.error, real.value + real.error))
    sure = ((low == high) | (np.isnan(real.value) & (real.error == 0))) & np.isfinite(real.error)
    if sure.all():
        return Real(rounded_value)
    m.launch.reals.hang(op, "declared conversion")
    return Real(rounded_value, np.where(sure, 0.0, np.inf))


def round_to_format(value: TileValue, fmt: str, arch: str) -> np.ndarray:
    """float64 `value` as the nearest number of the format `fmt`, in float64."""
    array, kind = np.asarray(value, np.float64), FORMATS[fmt]
    found = decode(kind, encode(kind, array))
    if (beyond := ~np.isfinite(found)).any():  # the target's conversion of fp32 saturates, or not
        words = np.where(beyond, array, 0.0).astype(np.float32)
        found = np.where(beyond, widen(convert_float("fp32", fmt, arch)(words), fmt), found)
    return found


__all__ = ["from_integer", "round_declared", "round_to_format"]

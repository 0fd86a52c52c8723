"""Real values of what tensor cores compute: sums of products of the real values of their operands, in float64.

How an operand is converted on its way (fp32 to tf32), cut or summed is rounding: the real value knows nothing of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from bitverdict.harness.emulator.memory.real_shadows import ShadowWords, make_shadow_words
from bitverdict.harness.emulator.numerics.real_values import Real, Taint, add, matrix_product, union_of_taints, with_taint
from bitverdict.reference import packing
from bitverdict.reference.formats import FORMATS, decode


def product(a: Real | Taint, b: Real | Taint, c: Real | Taint) -> Real | Taint:
    """a (..., M, K) times b (..., K, N) on c (..., M, N), None for zeros; of integers, which are exact, their Taint."""
    if isinstance(a, Real) and isinstance(b, Real):
        made = matrix_product(a, b)
        return add(made, c) if isinstance(c, Real) else made
    rows = None if not isinstance(a, np.ndarray) else np.any(a, -1, keepdims=True)
    columns = None if not isinstance(b, np.ndarray) else np.any(b, -2, keepdims=True)
    return union_of_taints(rows, columns, None if isinstance(c, Real) else c)


def shadow_of(real: Real | Taint, element: str, shape: tuple[int, ...]) -> ShadowWords | None:
    """`real` as memory holds it beside words of the type `element`."""
    if isinstance(real, Real):
        return make_shadow_words(element, real.value, np.zeros(()) if real.error is None else real.error, shape)
    if real is None or not real.any():
        return None
    return make_shadow_words(element, np.zeros(()), np.where(real, np.inf, 0.0), shape).where(np.broadcast_to(real, shape))


def scale_operand(
    element: str, words: np.ndarray, axis: int, carried_values: Any, scale: str, scales: np.ndarray, block: int, hangs: Taint
) -> Real:
    """The operand of a block-scaled product, (M, K) or (K, N) with `axis` that of K: its elements times their scales (rows, blocks
    of `block` along K), exactly. `carried_values`: what its `words` carry where they are floats of their own; `hangs`: scales that
    hang on a rounding."""
    if element == "e2m1":
        codes = packing.unpack(words.view(np.uint8), axis)
        taint = carried_values if isinstance(carried_values, np.ndarray) else None
        real = with_taint(Real(decode(FORMATS["e2m1"], codes)), None if taint is None else np.repeat(taint, 2, axis))
    elif isinstance(carried_values, Real):
        real = carried_values
    else:
        real = with_taint(Real(decode(FORMATS[element], words.view(np.uint8))), carried_values)
    factor = decode(FORMATS[scale], scales.view(np.uint8))  # (rows, blocks)
    count = real.value.shape[axis]
    along = np.repeat(factor, block, 1)[:, :count]  # (rows, K)
    along = along if axis == 1 else along.T
    found = Real(real.value * along, None if real.error is None else real.error * along)
    if hangs is None:
        return found
    spread = np.repeat(hangs, block, 1)[:, :count]
    return with_taint(found, spread if axis == 1 else spread.T)


__all__ = ["product", "scale_operand", "shadow_of"]

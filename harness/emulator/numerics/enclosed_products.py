"""Matrix products of enclosed operands: where their words lie, whatever words the operands have.

A tensor core is not monotone: a larger product may move the alignment of all others. So the ends of the operands do not give those
of the result. Instead, with a in m_a +- r_a, b in m_b +- r_b and c in m_c +- r_c, the exact sum moves by at most
R = r_a |m_b| + |m_a| r_b + r_a r_b + r_c from that of the middles, summed over k. From each exact sum the word is no further
than the bound of the instruction's own cuts and roundings (`reference.error_bound`), which knows R as what is lost before summing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bitverdict.harness.emulator.faults import NotModelled
from bitverdict.harness.emulator.numerics.enclosures import Enclosure, keys, words_of
from bitverdict.harness.emulator.numerics.matrix_products import codes
from bitverdict.reference.error_bound import Accumulation, accumulated_sums, field_powers, raised_alignment
from bitverdict.reference.formats import FORMATS, Rounding, decode, encode

if TYPE_CHECKING:
    from bitverdict.harness.emulator.execution.cta import Cta
    from bitverdict.harness.emulator.execution.cta_state import CtaState
    from bitverdict.harness.emulator.memory.onchip import View
    from bitverdict.harness.emulator.mlir_reader import Operation

_MARGIN = 1 + 2.0**-40  # of what float64 rounds in a radius


def dot_words(
    m: Cta | CtaState, op: Operation, how: Accumulation, formats: tuple[str, str], words: np.ndarray, *operands: np.ndarray | View
) -> None:
    """Hold the enclosure of `words`, the product of operands (..., M, K) and (..., K, N) on a third (..., M, N), arrays or views
    of shared memory. NotModelled where a choice may lead out of the finite numbers."""
    enclosures, output = m.launch.enclosures, how.output
    (left, reach_a), (right, reach_b), (addend, addend_reach) = (
        _interval(enclosures.enclosure_of(value), value if isinstance(value, np.ndarray) else value.get(), fmt)
        for value, fmt in zip(operands, (*formats, output.name), strict=True)
    )
    rows, columns = np.asarray((reach_a > 0).any(-1)), np.asarray((reach_b > 0).any(-2))
    open_ = rows[..., :, None] | columns[..., None, :] | (addend_reach > 0)
    if not open_.any():
        return
    with np.errstate(invalid="ignore", over="ignore"):
        exact = np.matmul(left, right) + addend
        size = np.matmul(np.abs(left), np.abs(right)) + np.abs(addend)
        addend_reach = addend_reach + np.matmul(reach_a, np.abs(right) + reach_b) + np.matmul(np.abs(left), reach_b)
        lost = addend_reach * _MARGIN + size * 2.0**-40  # float64 sums K products, fewer than 2^12, each within 2^-52
        aligned = raised_alignment(*_fields(left, reach_a, formats[0]), *_fields(right, reach_b, formats[1]))
        sums = accumulated_sums(exact, size, left.shape[-1], accumulations=[how], alignment=aligned, operand_loss=lost)
        reach = sums.error * _MARGIN + np.abs(exact) * 2.0**-50
    if (open_ & (sums.rises | sums.falls | ~np.isfinite(reach))).any():
        raise NotModelled(op, "of values that are enclosed, whose product may leave the finite numbers")
    exact, reach = np.where(open_, exact, 0.0), np.where(open_, reach, 0.0)
    inward = (exact - reach, Rounding.TOWARD_POSITIVE), (exact + reach, Rounding.TOWARD_NEGATIVE)
    low, high = (keys(encode(output, end, rounding=way).view(words.dtype)) for end, way in inward)
    word, zero = keys(words), (low <= 0) & (high >= -1)  # a zero has either sign
    low, high = np.where(zero, np.minimum(low, -1), low), np.where(zero, np.maximum(high, 0), high)
    enclosures.hold(words, Enclosure(np.where(open_, np.minimum(low, word), word), np.where(open_, np.maximum(high, word), word)))


def _interval(known: Enclosure | None, words: np.ndarray, fmt: str) -> tuple[np.ndarray, np.ndarray]:
    """Middles and radii, of the numbers that the units take of `words`."""
    if known is None:
        middle = decode(FORMATS[fmt], codes(words, fmt))
        return middle, np.zeros(middle.shape)
    low, high = (decode(FORMATS[fmt], codes(words_of(end, words.dtype), fmt)) for end in (known.low, known.high))
    middle = low / 2 + high / 2
    return middle, np.maximum(high - middle, middle - low) * _MARGIN


def _fields(middle: np.ndarray, reach: np.ndarray, fmt: str) -> tuple[np.ndarray, np.ndarray]:
    """Numbers and the powers of their exponent fields, of operands `middle` +- `reach`; 0 for one that may be subnormal."""
    smallest = FORMATS[fmt].smallest_normal
    powers = field_powers(np.abs(middle) + reach, smallest)
    return np.where(np.abs(middle) - reach < smallest, 0.0, powers), powers

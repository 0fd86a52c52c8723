"""`definition.block_step` in float64, many elements at a time.

Equal to the definition because float64 holds every quantity of it exactly. A product has at most 48 significant bits. A cut term is
an integer below 2^(F + 2) times 2^(E - F). F is at most 25 and a block has at most 64 products, so the sum of 65 terms stays below
2^53 such units, and no order of adding rounds it. `round_sum` is then the only rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitverdict.reference.formats import Format, Rounding
from bitverdict.reference.tensor_core.record import ExponentFloor, Instruction

NO_EXPONENT = -8192  # of a zero: below every exponent that a term can have, alone or added to another operand's
LOWEST_EXPONENT = -900  # all terms zero: any unit will do, and 2^-this must stay finite
LOWEST_OF_FLOAT32 = -100
ZERO_ACCUMULATOR_EXPONENT = -126
_MASK = np.int64(0x7FF)


def exponents(values: np.ndarray, smallest: int, of_zero: int = NO_EXPONENT) -> np.ndarray:
    """The exponent field's meaning for float64 `values`: floor(log2 |v|), not below `smallest`; int16 of the same shape."""
    found = ((values.view(np.int64) >> 52) & _MASK).astype(np.int16) - np.int16(1023)  # (...)
    np.maximum(found, np.int16(smallest), out=found)
    found[values == 0] = of_zero
    return found


def power_of_two(exponent: np.ndarray) -> np.ndarray:
    """2.0 ** exponent, exactly, for integers in -1022..1023."""
    return ((exponent.astype(np.int64) + 1023) << 52).view(np.float64)


@dataclass(frozen=True)
class Scratch:
    """Room for the terms of one step, so that no step allocates: (block, ...) products and the sums of their exponents.

    The products may be float32 where that holds each of them, before and after it is cut (`terms.fits_float32`).
    """

    products: np.ndarray
    pairs: np.ndarray

    @classmethod
    def allocate(cls, block: int, shape: tuple[int, ...], narrow: bool) -> Scratch:
        """Room for `block` terms of each of `shape`."""
        return cls(np.empty((block, *shape), np.float32 if narrow else np.float64), np.empty((block, *shape), np.int16))


def fused_sum(
    a: np.ndarray,
    a_exponents: np.ndarray,
    b: np.ndarray,
    b_exponents: np.ndarray,
    c: np.ndarray,
    rule: Instruction,
    scratch: Scratch,
) -> np.ndarray:
    """Equal to the definition's exact sum because E is the same maximum, and `cut_and_add` loses nothing.

    The result is sum_k a[k] b[k] + c with every term truncated at 2^(E - F), in float64. A zero product has exponent `NO_EXPONENT`,
    below all others, which is to take no part. `a`, `b`: (block, ...) finite, of the dtype of `scratch.products`, that broadcast to
    `c` (...), finite float64; the exponents are int16 of the shapes of `a` and `b`.
    """
    np.add(a_exponents, b_exponents, out=scratch.pairs)
    np.multiply(a, b, out=scratch.products)
    largest = np.maximum(scratch.pairs.max(axis=0), accumulator_exponents(c, rule))  # (...)
    return cut_and_add(scratch.products, largest, c, rule.fraction_bits)


def cut_and_add(terms: np.ndarray, largest: np.ndarray, c: np.ndarray, fraction_bits: int) -> np.ndarray:
    """Equal to the definition's cut and sum because the unit is a power of two: dividing by it, `trunc` and multiplying are exact.

    Sum over axis 0 of `terms` (block, ...) and `c` (...), each truncated toward zero at 2^(largest - fraction_bits). float32 terms
    are those that `terms.fits_float32` proved exact, before the cut and after it. Overwrites `terms`.
    """
    unit = largest.astype(np.int64) - fraction_bits  # (...)
    inverse = power_of_two(-unit)  # (...)
    if terms.dtype == np.float32:  # below 2^-100 there is only c, and float32 could not hold the inverse
        np.multiply(terms, power_of_two(fraction_bits - np.maximum(largest, LOWEST_OF_FLOAT32)).astype(np.float32), out=terms)
    else:
        np.multiply(terms, inverse, out=terms)
    np.trunc(terms, out=terms)
    total: np.ndarray = terms.sum(axis=0, dtype=np.float64)  # (...)
    total += np.trunc(c * inverse)
    total *= power_of_two(unit)
    return total


def accumulator_exponents(c: np.ndarray, rule: Instruction) -> np.ndarray:
    """c's own exponent, raised to the floor of the chosen rule; int16 (...)."""
    floor = rule.choices.exponent_floor
    of_zero = ZERO_ACCUMULATOR_EXPONENT if floor is ExponentFloor.ZERO_ACCUMULATOR else NO_EXPONENT
    found = exponents(c, rule.output.smallest_exponent, of_zero)  # (...)
    result: np.ndarray = np.maximum(found, np.int16(lowest_alignment(rule)), out=found)
    return result


def lowest_alignment(rule: Instruction) -> int:
    """What E is held up at, whatever the terms."""
    return rule.floor if rule.choices.exponent_floor is ExponentFloor.PROBED else LOWEST_EXPONENT


def round_sum(total: np.ndarray, output: Format, fraction_bits: int, rounding: Rounding) -> np.ndarray:
    """Equal to the definition's `round_result` because clearing low bits of a float64 truncates, and a cast or `rint` ties to even.

    `total` (float64) is rounded once to `output`, keeping `fraction_bits`. A zero is +0. Truncation too overflows to infinity: at
    2^(largest exponent + 1), never to the largest finite number.
    """
    if rounding is Rounding.TOWARD_ZERO:
        rounded_total = (total.view(np.int64) & np.int64(-1 << (52 - fraction_bits))).view(np.float64)  # (...)
        tiny = np.abs(total) < output.smallest_normal  # (...)
        if tiny.any():
            unit = output.smallest_normal * 2.0**-fraction_bits
            rounded_total = np.where(tiny, np.trunc(total / unit) * unit, rounded_total)  # (...)
    elif output.name == "fp16" and fraction_bits == output.mantissa_bits:
        with np.errstate(over="ignore", under="ignore"):
            return total.astype(np.float16).astype(np.float64) + 0.0
    else:
        largest = exponents(total, output.smallest_exponent, output.smallest_exponent)  # (...)
        places = largest.astype(np.int64) - fraction_bits  # (...)
        rounded_total = np.rint(total * power_of_two(-places)) * power_of_two(places)  # (...)
    limit = 2.0 ** (output.bias + 1)
    beyond = np.abs(rounded_total) >= limit  # (...)
    if beyond.any():
        rounded_total = np.where(beyond, np.copysign(np.inf, rounded_total), rounded_total)  # (...)
    return rounded_total + 0.0

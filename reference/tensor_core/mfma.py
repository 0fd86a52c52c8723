"""One block of AMD's MFMA, many elements at a time; `mfma_definition` in float64.

Equal to the definition because float64 holds every quantity exactly. A cut product is an integer below 2^26 units, and a block
has at most 16. The sum of products meets c at no more than 32 bits below the larger exponent: below 2^39 units. A rounding is a
division by a power of two, `floor` and a multiplication, or a cast to float32. Sums of PAIRWISE are float32's own.
"""

from __future__ import annotations

import numpy as np

from bitverdict.reference.tensor_core.fused_sum import exponents, power_of_two
from bitverdict.reference.tensor_core.record import Instruction, Step

LOWEST_EXPONENT = -126  # of fp32, which a zero c has [MS]
OVERFLOW = 2.0**128  # where a single product is infinite [MS]
LOWEST_UNIT = -900  # all products zero: any unit will do


def products_first(rule: Instruction, products: np.ndarray, pairs: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Equal to the definition because each line of it is one exact operation here.

    PRODUCTS_FIRST and EVEN_AND_ODD: `products` (block, ...) float64, finite; `pairs` their exponents, int16, very low of a
    zero; `c` (...) float64, finite. Returns float64 (...) that are fp32 numbers or infinite; a negative one that vanishes is -0.
    """
    bits, sum_bits = rule.fraction_bits, rule.sum_fraction_bits or 0
    if rule.step is Step.EVEN_AND_ODD:
        (even, e_even), (odd, e_odd) = (_cut_sum(products[side::2], pairs[side::2], bits) for side in (0, 1))  # each (...)
        meets = np.maximum(e_even, e_odd)  # (...)
        total = round_down(even, meets - bits) + round_down(odd, meets - bits)  # (...)
    else:
        total, meets = _cut_sum(products, pairs, bits)  # (...), (...)
    of_c = exponents(c, LOWEST_EXPONENT, LOWEST_EXPONENT).astype(np.int64)  # (...)
    highest = np.maximum(meets, of_c)  # (...)
    kept = round_down(c, highest - bits)  # (...)
    if rule.step is Step.EVEN_AND_ODD:
        kept = np.where(of_c < highest - bits - 1, 0.0, kept)  # (...)
    exact = round_down(total, highest - sum_bits - 1) + kept + 0.0  # (...) a sum that is zero is +0
    last = exponents(exact, LOWEST_EXPONENT, LOWEST_EXPONENT).astype(np.int64) - sum_bits  # (...)
    with np.errstate(over="ignore", under="ignore"):
        return round_down(exact, last).astype(np.float32).astype(np.float64)


def _cut_sum(products: np.ndarray, pairs: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """The sum over axis 0 of `products`, each cut toward zero at 2^(E - bits), and E, int64; E is low where all are zero."""
    highest = np.maximum(pairs.max(axis=0), LOWEST_UNIT).astype(np.int64)  # (...)
    unit = highest - bits  # (...)
    return np.trunc(products * power_of_two(-unit)).sum(axis=0) * power_of_two(unit), highest


def round_down(values: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Equal to rounding down because scaling by a power of two is exact: the multiple of 2^place at or below."""
    place = np.maximum(place, LOWEST_UNIT)  # (...)
    result: np.ndarray = np.floor(values * power_of_two(-place)) * power_of_two(place)
    return result


def product_overflow(products: np.ndarray) -> np.ndarray | None:
    """Per element the infinity or NaN of products that are infinite by themselves, 0 elsewhere; None when none is."""
    beyond = np.abs(products) >= OVERFLOW  # (block, ...)
    if not beyond.any():
        return None
    with np.errstate(invalid="ignore"):
        result: np.ndarray = np.where(beyond, np.copysign(np.inf, products), 0.0).sum(axis=0)  # (...)
        return result


def pairwise(rule: Instruction, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Equal to the definition because float32's multiplication and addition round once, to nearest even.

    PAIRWISE: `a`, `b` (block, ...) that broadcast to (block, ...), `c` (...), all float64, infinities and NaN among them.
    Returns float64 (...) that are fp32 numbers.
    """
    tree = rule.tree or 1
    with np.errstate(all="ignore"):
        products = _flush_subnormals(a.astype(np.float32) * b.astype(np.float32))  # (block, ...)
        total = np.where(np.abs(c) < 2.0**LOWEST_EXPONENT, 0.0, c).astype(np.float32)  # (...) a zero c is +0
        for start in range(0, rule.block, tree):
            level = [products[k] for k in range(start, start + tree)]  # each (...)
            while len(level) > 1:
                level = [_flush_subnormals(one + other) for one, other in zip(level[::2], level[1::2], strict=True)]
            total = _flush_subnormals(total + level[0])  # (...)
    return total.astype(np.float64)


def _flush_subnormals(values: np.ndarray) -> np.ndarray:
    """float32 with each subnormal replaced by the zero of its sign."""
    return np.where(np.abs(values) < np.float32(2.0**LOWEST_EXPONENT), np.copysign(np.float32(0), values), values)

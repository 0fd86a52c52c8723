"""`definition.grouped_step` in float64: the step of mxf4 and mxf4nvf4, many elements at a time.

Equal to the definition because float64 holds every sum exactly. A group has one pair of scales, so its products are multiples of
one power of two: 12 bits hold a sum of 16 under e8m0, and 20 bits under ue4m3, whose scales have 4 bits each. The cut lies at most
F + 4 = 39 below R or C, and no group exceeds 2^(R + 6): all that is added afterwards is below 2^53 units of the lowest cut.

R is the largest exponent of a non-zero scaled product, S the largest exponent of a pair of scales whose group has one, C the
exponent of c. Few hardware words rest on this step. Where its sources differ the side is chosen in `Choices`.
"""

from __future__ import annotations

import numpy as np

from bitverdict.reference.tensor_core.fused_sum import (
    LOWEST_EXPONENT,
    NO_EXPONENT,
    accumulator_exponents,
    cut_and_add,
    power_of_two,
)
from bitverdict.reference.tensor_core.record import Instruction, ScaledGroups, ScaledWindow, ZeroTerms

HEADROOM = 4  # the cut lies below the largest product by F + 4 = 39 [SF]
SUBNORMAL_CUT = -174  # below this a group of a lower scale is left out of a subnormal result (e8m0) [SF]
SUBNORMAL_RESULT = 2.0**-126


def grouped_sum(products: np.ndarray, pairs: np.ndarray, scale_pairs: np.ndarray, c: np.ndarray, rule: Instruction) -> np.ndarray:
    """Equal to the definition's sum because the file's proof holds for every side of `Choices`.

    The sum, in float64, of c (...) and the cut groups of `products` (64, ...), scales applied, all finite.
    `pairs`, `scale_pairs` (64, ...): exponents of the scaled products and the part that the scales brought, int16.
    """
    fraction = rule.fraction_bits
    c_exponent = accumulator_exponents(c, rule).astype(np.int64)  # (...)
    sixteen = _groups(products, 16).sum(axis=1)  # (4, ...) exact: one pair of scales a group
    scale_pair = scale_pairs[::16].astype(np.int64)  # (4, ...)
    group_highest = _groups(pairs, 16).max(axis=1).astype(np.int64)  # (4, ...)
    scale_highest = np.where(group_highest > LOWEST_EXPONENT, scale_pair, NO_EXPONENT).max(axis=0)  # (...) S
    if rule.choices.scaled_window is ScaledWindow.BY_SCALE:
        drop_mask = rule.choices.zero_terms is ZeroTerms.LEFT_OUT
        leading = scale_highest if drop_mask else scale_pair.max(axis=0)  # (...)
        return cut_and_add(sixteen, np.maximum(leading, c_exponent), c, fraction)

    highest = group_highest.max(axis=0)  # (...) R
    c_leads = c_exponent >= highest  # (...)
    window = np.maximum(np.maximum(highest, c_exponent) - HEADROOM, scale_highest)  # (...)
    unit = np.where(c_leads, c_exponent, window) - fraction  # (...)
    if rule.scale == "ue4m3":
        if rule.choices.scaled_groups is ScaledGroups.OF_SIXTEEN:
            return cut_and_add(sixteen, unit + fraction, c, fraction)
        four = _groups(products, 4).sum(axis=1)  # (16, ...)
        small = cut_and_add(four, unit + fraction, c, fraction)  # (...)
        return np.where(c_leads, cut_and_add(sixteen, unit + fraction, c, fraction), small)

    below_c = ~c_leads & (group_highest <= c_exponent)  # (4, ...)
    units = np.where(below_c, np.maximum(unit, c_exponent - fraction), unit)  # (4, ...)
    cut = np.trunc(sixteen * power_of_two(-units)) * power_of_two(units)  # (4, ...)
    kept_c = np.trunc(c * power_of_two(-unit)) * power_of_two(unit)  # (...)
    total: np.ndarray = cut.sum(axis=0) + kept_c  # (...)
    subnormal = np.abs(total) < SUBNORMAL_RESULT  # (...)
    if subnormal.any():
        drop_mask = subnormal & (scale_pair < scale_highest) & (np.abs(cut) < 2.0**SUBNORMAL_CUT)  # (4, ...)
        total = np.where(drop_mask, 0.0, cut).sum(axis=0) + kept_c  # (...)
    return total


def _groups(of_products: np.ndarray, size: int) -> np.ndarray:
    return of_products.reshape(-1, size, *of_products.shape[1:])  # (64 / size, size, ...)

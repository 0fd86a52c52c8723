"""What a tensor core computes for one element of D = A B + C, by definition: exact rationals, one sentence of the rule a line.

The papers' letters, and where an `Instruction` has them:

    n    products in one block                        `block`
    E    exponent that a block is aligned at          the largest exponent field among its terms
    F    fraction bits that are kept below E          `fraction_bits`
    RZ   toward zero, RN to nearest, ties to even     `rounding`, keeping `output_fraction_bits`

`element` is the whole of it. `block_step` is one block of every kind but mxf4 and mxf4nvf4, whose block is `grouped_step`.
A block scale is part of its operand (`factors`). Integers are `integer_element`.

This is the form to read beside the sources (docs/arithmetic.md, "The block step" and "Block scaling (tcgen05)";
reference/SOURCES.md). It is slow. Every other way to compute words in this package is a fast form, and tests hold each to this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import inf, nan
from typing import cast

import numpy as np

from bitverdict.reference.formats import FORMATS, Format, Rounding, decode
from bitverdict.reference.tensor_core.record import (
    Accumulator,
    ExponentFloor,
    InfiniteAccumulator,
    Instruction,
    ScaledGroups,
    ScaledWindow,
    ZeroTerms,
)

Number = Fraction | float
"""A finite value is a Fraction; a float is an infinity or NaN."""

ZERO_EXPONENT = -126  # of a zero that takes part in E, where a choice says that it does [MS]
ABSENT = -(1 << 14)  # exponent of what is not there: below every other
HEADROOM = 4  # mxf4, mxf4nvf4: exponents that the cut lies below the largest product's, less F: R - 39 = R - 35 - 4 [SF]
LEFT_OUT_BELOW = Fraction(2) ** -174  # mxf4, mxf4nvf4 with e8m0: groups of a lower scale in a subnormal result [SF]


@dataclass(frozen=True)
class Factor:
    """One operand of a product: its value, scale included, and the exponent field of its code, to which the scale's is added."""

    value: Number
    exponent: int
    scale_exponent: int = 0  # the part of `exponent` that the block scale brought


def element(rule: Instruction, a: Sequence[Factor], b: Sequence[Factor], c: Number) -> Number:
    """D of one element: K as one chain of blocks, in the order of `rule.steps`; each result, rounded, is the next block's c.

    ValueError for an infinite c where `InfiniteAccumulator.REFUSED` says that the model does not know it.
    """
    if (
        rule.sums_groups_exactly
        and isinstance(c, float)
        and c == c
        and rule.choices.infinite_accumulator is InfiniteAccumulator.REFUSED
    ):
        raise ValueError(f"{rule.name}: c is infinite, which this model does not know; choose InfiniteAccumulator.PASSES")
    padding = [Factor(Fraction(0), ZERO_EXPONENT)] * (-len(a) % rule.span)
    a, b = [*a, *padding], [*b, *padding]
    step = grouped_step if rule.sums_groups_exactly else block_step
    for start in range(0, len(a), rule.span):
        total = c if rule.accumulator is Accumulator.IN_SUM else Fraction(0)
        for taken in rule.steps:
            total = step(rule, [(a[start + k], b[start + k]) for k in taken], total)
        c = total if rule.accumulator is Accumulator.IN_SUM else ieee_add(rule.output, total, c)
    return c


def block_step(rule: Instruction, pairs: Sequence[tuple[Factor, Factor]], c: Number) -> Number:
    """One block: multiply exactly, align, cut, add exactly, round once."""
    products = [times(x.value, y.value) for x, y in pairs]
    if (special := special_sum([*products, c])) is not None:
        return special
    terms = cast(list[Fraction], [*products, c])
    largest = max(*product_exponents(rule, pairs), accumulator_exponent(rule, c))  # E
    exact = sum((cut(term, largest - rule.fraction_bits) for term in terms), Fraction(0))
    return round_result(rule.output, exact, rule.output_fraction_bits, rule.rounding)


def grouped_step(rule: Instruction, pairs: Sequence[tuple[Factor, Factor]], c: Number) -> Number:
    """One block of mxf4 or mxf4nvf4: small groups of products are added exactly, and the groups are cut.

    A group of 16 has one pair of scales. R is the largest exponent of a scaled product that is not zero, S the largest exponent of
    a pair of scales whose group has one, C the exponent of c.
    """
    products = [times(x.value, y.value) for x, y in pairs]
    if (special := special_sum([*products, c])) is not None:
        return special
    terms, start = cast(list[Fraction], products), cast(Fraction, c)
    groups = [sum(terms[k : k + 16], Fraction(0)) for k in range(0, len(terms), 16)]
    highest = product_exponents(rule, pairs)
    of_group = [max(highest[k : k + 16]) for k in range(0, len(terms), 16)]
    scale = [x.scale_exponent + y.scale_exponent for x, y in pairs[::16]]  # of a group
    r, c_exponent = max(of_group), accumulator_exponent(rule, c)  # R, C
    s = max(number if there != ABSENT else ABSENT for number, there in zip(scale, of_group, strict=True))  # S

    if rule.choices.scaled_window is ScaledWindow.BY_SCALE:
        of_all = [*scale, s] if rule.choices.zero_terms is ZeroTerms.TAKE_PART else [s]
        place = max(*of_all, c_exponent) - rule.fraction_bits
        exact = sum((cut(term, place) for term in (*groups, start)), Fraction(0))
        return round_result(rule.output, exact, rule.output_fraction_bits, rule.rounding)

    c_leads = c_exponent >= r
    place = (c_exponent if c_leads else max(r - HEADROOM, c_exponent - HEADROOM, s)) - rule.fraction_bits
    if rule.scale == "ue4m3":
        if not c_leads and rule.choices.scaled_groups is ScaledGroups.OF_FOUR:
            groups = [sum(terms[k : k + 4], Fraction(0)) for k in range(0, len(terms), 4)]
        cut_groups = [cut(group, place) for group in groups]
    else:  # e8m0: a group that c exceeds is cut where c would be cut alone
        behind_c = [not c_leads and number <= c_exponent for number in of_group]
        places = [max(place, c_exponent - rule.fraction_bits) if behind else place for behind in behind_c]
        cut_groups = [cut(group, number) for group, number in zip(groups, places, strict=True)]
        if abs(sum(cut_groups, cut(start, place))) < Fraction(2) ** rule.output.smallest_exponent:
            cut_groups = [number for number, of in zip(cut_groups, scale, strict=True) if of >= s or abs(number) >= LEFT_OUT_BELOW]
    exact = sum(cut_groups, cut(start, place))
    return round_result(rule.output, exact, rule.output_fraction_bits, rule.rounding)


def integer_element(rule: Instruction, a: Sequence[int], b: Sequence[int], c: int) -> int:
    """D of one element of integers: the exact sum, clamped where the instruction saturates, else modulo 2^32."""
    exact = sum(x * y for x, y in zip(a, b, strict=True)) + c
    if rule.saturates:
        return min(max(exact, -(1 << 31)), (1 << 31) - 1)
    return (exact + (1 << 31)) % (1 << 32) - (1 << 31)


def cut(term: Fraction, place: int) -> Fraction:
    """`term` without its bits below 2^place: toward zero, for either sign."""
    unit = power(place)
    return int(term / unit) * unit


def product_exponents(rule: Instruction, pairs: Sequence[tuple[Factor, Factor]]) -> list[int]:
    """What each product brings to E. A zero brings nothing, or its exponent where a choice says so (`ZeroTerms`)."""
    left_out = rule.choices.zero_terms is ZeroTerms.LEFT_OUT
    return [ABSENT if left_out and not (x.value and y.value) else x.exponent + y.exponent for x, y in pairs]


def accumulator_exponent(rule: Instruction, c: Number) -> int:
    """What c brings to E: its exponent field, not below what E is held up at (`ExponentFloor`). A zero c brings that alone."""
    c_exponent = max(exponent_of(Fraction(c)), rule.output.smallest_exponent) if c else ABSENT
    match rule.choices.exponent_floor:
        case ExponentFloor.PROBED:
            return max(c_exponent, rule.floor)
        case ExponentFloor.ZERO_ACCUMULATOR:
            return max(c_exponent, ZERO_EXPONENT)
    return c_exponent


def round_result(output: Format, exact: Fraction, fraction_bits: int, rounding: Rounding) -> Number:
    """`exact` rounded once, subnormals included; what reaches 2^(largest exponent + 1) is infinite, truncated or not."""
    if exact:
        unit = power(max(exponent_of(exact), output.smallest_exponent) - fraction_bits)
        exact = (int(exact / unit) if rounding is Rounding.TOWARD_ZERO else round(exact / unit)) * unit  # round() ties to even
    if abs(exact) >= power(output.bias + 1):
        return inf if exact > 0 else -inf
    return exact


def ieee_add(output: Format, x: Number, y: Number) -> Number:
    """An ordinary addition in the format of D, to nearest."""
    if (special := special_sum([x, y])) is not None:
        return special
    return round_result(output, Fraction(x) + Fraction(y), output.mantissa_bits, Rounding.NEAREST_EVEN)


def times(x: Number, y: Number) -> Number:
    """x y, exact; NaN for NaN and for zero times infinity."""
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        return x * y
    if x != x or y != y or not x or not y:
        return nan
    return inf if (x > 0) == (y > 0) else -inf


def special_sum(values: Sequence[Number]) -> float | None:
    """The sum where a term is NaN or infinite; None where all are finite. Beside an infinity nothing finite overflows."""
    found = {value for value in values if isinstance(value, float)}
    if not found:
        return None
    return nan if any(value != value for value in found) or len(found) > 1 else found.pop()


def exponent_of(value: Fraction) -> int:
    """floor(log2 |value|), of a value that is not zero."""
    above, below = abs(value.numerator), value.denominator
    exponent = above.bit_length() - below.bit_length()
    return exponent if above << max(-exponent, 0) >= below << max(exponent, 0) else exponent - 1


@lru_cache(maxsize=4096)
def power(exponent: int) -> Fraction:
    """2^exponent."""
    return Fraction(2) ** exponent


def factors(rule: Instruction, name: str, codes: np.ndarray, scales: np.ndarray | None = None) -> list[Factor]:
    """The operand `codes` (K,) of format `name`, each `rule.scale_block` of them under one code of `scales` (blocks,).

    The exponent field of a subnormal, of an element or of a scale, is that of the smallest normal number.
    """
    smallest = FORMATS[rule.widened or name].smallest_exponent
    per, of_scales = 1, [(1.0, 0)] * len(codes)
    if scales is not None and rule.scale is not None and rule.scale_block is not None:
        fmt = FORMATS[rule.scale]
        per, of_scales = rule.scale_block, [(scale, fmt.smallest_exponent) for scale in decode(fmt, np.asarray(scales)).tolist()]
    decoded = decode(FORMATS[name], np.asarray(codes)).tolist()
    return [factor(value, smallest, *of_scales[k // per]) for k, value in enumerate(decoded)]


@lru_cache(maxsize=1 << 16)  # most operands have few codes
def factor(decoded: float, smallest: int, scale_decoded: float, smallest_scale: int) -> Factor:
    """The operand of value `decoded` under a scale of value `scale_decoded`, each with the smallest exponent of its format."""
    value, scale = exact_value(decoded), exact_value(scale_decoded)
    scale_exponent = max(exponent_of(scale), smallest_scale) if isinstance(scale, Fraction) and scale else 0  # of zero, NaN: 0
    scaled = times(value, scale)
    finite = isinstance(value, Fraction) and isinstance(scaled, Fraction) and scaled
    exponent = max(exponent_of(Fraction(value)), smallest) if finite else ZERO_EXPONENT
    return Factor(scaled, exponent + scale_exponent, scale_exponent)


def exact_value(decoded: float) -> Number:
    return Fraction(decoded) if abs(decoded) < inf else decoded

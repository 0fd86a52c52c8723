"""What a tensor core computes for one element of D = A B + C, by definition: exact rationals, one sentence of the rule a line.

The papers' letters, and where an `Instruction` has them:

    n    products in one block                        `block`
    E    exponent that a block is aligned at          the largest exponent field among its terms
    F    fraction bits that are kept below E          `fraction_bits`
    RZ   toward zero, RN to nearest, ties to even     `rounding`, keeping `output_fraction_bits`

This is the form to read beside the sources (docs/arithmetic.md, "The block step"; reference/SOURCES.md). It is slow: every other
file of this package is a fast form, and tests hold each of them to this one. Groups of mxf4 and mxf4nvf4 are in `grouped_sum`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf, nan

import numpy as np

from bitverdict.reference.formats import FORMATS, Format, Rounding, decode
from bitverdict.reference.tensor_core.record import Accumulator, ExponentFloor, Instruction, ZeroTerms

Number = Fraction | float
"""A finite value is a Fraction; a float is an infinity or NaN."""

ZERO_EXPONENT = -126  # of a zero that takes part in E, where a choice says that it does


@dataclass(frozen=True)
class Factor:
    """One operand of a product: its value, and the exponent field of its code. A scale adds its own exponent to the field."""

    value: Number
    exponent: int


def element(rule: Instruction, a: Sequence[Factor], b: Sequence[Factor], c: Number) -> Number:
    """D of one element: K as one chain of blocks, in the order of `rule.steps`; each result, rounded, is the next block's c."""
    padding = [Factor(Fraction(0), ZERO_EXPONENT)] * (-len(a) % rule.span)
    a, b = [*a, *padding], [*b, *padding]
    for start in range(0, len(a), rule.span):
        total = c if rule.accumulator is Accumulator.IN_SUM else Fraction(0)
        for taken in rule.steps:
            total = block_step(rule, [(a[start + k], b[start + k]) for k in taken], total)
        c = total if rule.accumulator is Accumulator.IN_SUM else ieee_add(rule.output, total, c)
    return c


def block_step(rule: Instruction, pairs: Sequence[tuple[Factor, Factor]], c: Number) -> Number:
    """One block: multiply exactly, align, cut, add exactly, round once."""
    terms: list[tuple[Number, int]] = [(times(x.value, y.value), x.exponent + y.exponent) for x, y in pairs]
    terms.append((c, accumulator_exponent(rule, c)))
    if (special := special_sum([value for value, _ in terms])) is not None:
        return special
    finite = [(Fraction(value), exponent) for value, exponent in terms]
    largest = max([exponent for value, exponent in finite if value or takes_part(rule, value)] + floor(rule), default=0)  # E
    unit = Fraction(2) ** (largest - rule.fraction_bits)
    exact = sum((int(value / unit) * unit for value, _ in finite), Fraction(0))  # int() cuts toward zero, for either sign
    return rounded(rule.output, exact, rule.output_fraction_bits, rule.rounding)


def takes_part(rule: Instruction, value: Fraction) -> bool:
    """Whether a term that is zero can raise E (`ZeroTerms`)."""
    return not value and rule.choices.zero_terms is ZeroTerms.TAKE_PART


def accumulator_exponent(rule: Instruction, c: Number) -> int:
    """c's exponent field: that of the smallest normal number for a subnormal."""
    if not isinstance(c, Fraction) or not c:
        return ZERO_EXPONENT
    return max(exponent_of(c), rule.output.smallest_exponent)


def floor(rule: Instruction) -> list[int]:
    """What E is held up at (`ExponentFloor`)."""
    match rule.choices.exponent_floor:
        case ExponentFloor.PROBED:
            return [rule.floor]
        case ExponentFloor.ZERO_ACCUMULATOR:
            return [ZERO_EXPONENT]
    return []


def rounded(output: Format, exact: Fraction, fraction_bits: int, rounding: Rounding) -> Number:
    """`exact` rounded once, subnormals included; what reaches 2^(largest exponent + 1) is infinite, truncated or not."""
    if exact:
        unit = Fraction(2) ** (max(exponent_of(exact), output.smallest_exponent) - fraction_bits)
        exact = (int(exact / unit) if rounding is Rounding.TOWARD_ZERO else round(exact / unit)) * unit  # round() ties to even
    if abs(exact) >= Fraction(2) ** (output.bias + 1):
        return inf if exact > 0 else -inf
    return exact


def ieee_add(output: Format, x: Number, y: Number) -> Number:
    """An ordinary addition in the format of D, to nearest."""
    if (special := special_sum([x, y])) is not None:
        return special
    return rounded(output, Fraction(x) + Fraction(y), output.mantissa_bits, Rounding.NEAREST_EVEN)


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
    exponent = abs(value).numerator.bit_length() - value.denominator.bit_length()
    return exponent if abs(value) >= Fraction(2) ** exponent else exponent - 1


def factors(rule: Instruction, name: str, codes: np.ndarray) -> list[Factor]:
    """The operand `codes` (K,) of format `name`; the exponent field of a subnormal is that of the smallest normal number."""
    smallest = FORMATS[rule.widened or name].smallest_exponent
    found = []
    for decoded in decode(FORMATS[name], np.asarray(codes)).tolist():
        value: Number = Fraction(decoded) if abs(decoded) < inf else decoded
        exponent = max(exponent_of(value), smallest) if isinstance(value, Fraction) and value else ZERO_EXPONENT
        found.append(Factor(value, exponent))
    return found

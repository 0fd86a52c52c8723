"""What AMD's MFMA computes for one element of D = A B + C, by definition: exact rationals, one sentence of the rule a line.

`definition` has the letters and the small functions. The rules are MMA-Sim's ([MS] of reference/SOURCES.md), in our words: no word
of such a chip stands behind them. docs/amd_arithmetic.md says what they mean. A NaN operand gives NaN, and so do infinities that
disagree.

A zero result is +0, or the float -0.0 where a negative one vanished. The sign of a zero operand is not followed: it decides nothing
but the sign of a zero that MULTIPLY_ADD returns, which is IEEE's.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import copysign, floor, inf

from bitverdict.reference.formats import FORMATS, Rounding
from bitverdict.reference.tensor_core.definition import ABSENT, Factor, Number, cut, exponent_of, round_result, special_sum, times
from bitverdict.reference.tensor_core.record import Instruction, Step

FP32 = FORMATS["fp32"]


def element(rule: Instruction, a: Sequence[Factor], b: Sequence[Factor], c: Number) -> Number:
    """D of one element: blocks of `rule.block` in ascending k, each result the next block's c."""
    padding = [Factor(Fraction(0), FP32.smallest_exponent)] * (-len(a) % rule.block)
    a, b = [*a, *padding], [*b, *padding]
    step = {Step.PAIRWISE: pairwise_step, Step.MULTIPLY_ADD: multiply_add_step}.get(rule.step, products_first_step)
    for start in range(0, len(a), rule.block):
        block = slice(start, start + rule.block)
        c = step(rule, list(zip(a[block], b[block], strict=True)), c or Fraction(0))
    return c


def products_first_step(rule: Instruction, pairs: Sequence[tuple[Factor, Factor]], c: Number) -> Number:
    """Cut the products and add them, meet c, cut down, round twice. A product of 2^128 or more is infinite by itself."""
    products = [infinite_from(times(x.value, y.value), 2.0**128) for x, y in pairs]
    if (special := special_sum([*products, c])) is not None:
        return special
    terms, start, bits, sum_bits = (
        [Fraction(part) for part in products],
        Fraction(c),
        rule.fraction_bits,
        rule.sum_fraction_bits or 0,
    )
    highest = [x.exponent + y.exponent if term else ABSENT for (x, y), term in zip(pairs, terms, strict=True)]
    even_and_odd = rule.step is Step.EVEN_AND_ODD
    sums, tops = [], []
    for side in (slice(0, None, 2), slice(1, None, 2)) if even_and_odd else (slice(None),):
        tops.append(max(highest[side]))  # E of these products
        sums.append(sum((cut(term, tops[-1] - bits) for term in terms[side]), Fraction(0)))
    meets = max(tops)
    if even_and_odd:
        sums = [round_down(part, meets - bits) for part in sums]
    of_c = max(exponent_of(start), FP32.smallest_exponent) if start else FP32.smallest_exponent
    top = max(meets, of_c)
    if even_and_odd and of_c < top - bits - 1:
        start = Fraction(0)
    total = round_down(sum(sums, Fraction(0)), top - sum_bits - 1) + round_down(start, top - bits)
    if not total:
        return total
    kept = round_down(total, max(exponent_of(total), FP32.smallest_exponent) - sum_bits)
    return with_sign(round_result(FP32, kept, FP32.mantissa_bits, Rounding.NEAREST_EVEN), kept)


def pairwise_step(rule: Instruction, pairs: Sequence[tuple[Factor, Factor]], c: Number) -> Number:
    """fp32 operations, each rounded to nearest and flushed: a tree of `rule.tree` products, added to c, and the next tree."""
    smallest = [FORMATS[name].smallest_normal for name in (rule.a, rule.b)]
    flushed_pairs = [
        [Fraction(0) if abs(float(f.value)) < least else f.value for f, least in zip(pair, smallest, strict=True)] for pair in pairs
    ]
    c = Fraction(0) if abs(float(c)) < FP32.smallest_normal else c
    for start in range(0, rule.block, rule.tree or 1):
        level = [flush_result(times(x, y)) for x, y in flushed_pairs[start : start + (rule.tree or 1)]]
        while len(level) > 1:
            level = [flush_result(plus(one, other)) for one, other in zip(level[::2], level[1::2], strict=True)]
        c = flush_result(plus(c, level[0]))
    return c


def multiply_add_step(rule: Instruction, pairs: Sequence[tuple[Factor, Factor]], c: Number) -> Number:
    """One fused multiply-add of fp32, to nearest, subnormals kept."""
    ((x, y),) = pairs
    product = times(x.value, y.value)
    if (special := special_sum([product, c])) is not None:
        return special
    exact = Fraction(product) + Fraction(c)
    return with_sign(round_result(FP32, exact, FP32.mantissa_bits, Rounding.NEAREST_EVEN), exact)


def round_down(term: Fraction, place: int) -> Fraction:
    """`term` without its bits below 2^place: toward negative infinity."""
    unit = Fraction(2) ** place
    return floor(term / unit) * unit


def plus(x: Number, y: Number) -> Number:
    special = special_sum([each for each in (x, y) if each])
    return Fraction(x) + Fraction(y) if special is None else special


def flush_result(exact: Number) -> Number:
    """`exact` as an fp32 operation returns it: rounded to nearest, and zero where that is subnormal."""
    if special_sum([exact] if exact else []) is not None:
        return exact
    found = round_result(FP32, Fraction(exact), FP32.mantissa_bits, Rounding.NEAREST_EVEN)
    return Fraction(0) if abs(float(found)) < FP32.smallest_normal else found


def infinite_from(value: Number, limit: float) -> Number:
    return copysign(inf, value) if abs(float(value)) >= limit else value


def with_sign(value: Number, exact: Fraction) -> Number:
    """`value`, or -0.0 where a negative one vanished."""
    return -0.0 if not value and exact < 0 else value

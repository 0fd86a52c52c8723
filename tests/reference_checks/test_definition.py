"""Contract under test: the fast forms of each instruction give the words of the definition, and so do a few cases worked by
hand."""

from __future__ import annotations

from fractions import Fraction
from math import inf, isnan

import numpy as np
import pytest

from bitverdict.reference.formats import FORMATS, decode, encode
from bitverdict.reference.tensor_core import INSTRUCTIONS, Instruction, elements, instruction
from bitverdict.reference.tensor_core.definition import Factor, Number, block_step, element, factors

FLOATS = [rule for rule in INSTRUCTIONS if rule.d != "int32" and rule.scale is None]
HOPPER = instruction("sm_90", "wgmma", "fp16", "fp16", "fp32")
AMPERE = instruction("sm_80", "mma.sync", "fp16", "fp16", "fp32")


def factor(value: float) -> Factor:
    code = encode(FORMATS["fp16"], np.array([value]))
    return factors(HOPPER, "fp16", code)[0]


def by_definition(rule: Instruction, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> list[Number]:
    """Values of P elements; `a`, `b` (P, K) codes, `c` (P,)."""
    starts = decode(rule.output, c).tolist()
    return [
        element(rule, factors(rule, rule.a, a[row]), factors(rule, rule.b, b[row]), Fraction(start) if abs(start) < inf else start)
        for row, start in enumerate(starts)
    ]


def equal(words: np.ndarray, rule: Instruction, values: list[Number]) -> None:
    for got, expected in zip(decode(rule.output, words).tolist(), values, strict=True):
        assert (isnan(got) and expected != expected) or got == expected, (rule.name, got, expected)


@pytest.mark.parametrize("rule", FLOATS, ids=lambda rule: rule.name.replace(" ", "_"))
def test_elements_are_what_the_definition_says(rule: Instruction) -> None:
    """All codes, specials and subnormals among them: a span and a half, so that a chain has a padded end."""
    draw = np.random.default_rng(7)
    k = rule.span + rule.span // 2
    for of_codes in (1.0, 0.3):  # of all codes, and of the part around 1
        sides = []
        for name in (rule.a, rule.b):
            fmt = FORMATS[name]
            codes = draw.integers(0, 1 << fmt.width, (24, k)).astype(fmt.storage)
            near = encode(fmt, draw.normal(size=(24, k)))
            sides.append(np.where(draw.random((24, k)) < of_codes, codes, near).astype(fmt.storage))
        c = encode(rule.output, draw.normal(size=24) * 2.0 ** draw.integers(-8, 9, 24))
        equal(elements(rule, sides[0], sides[1], c), rule, by_definition(rule, sides[0], sides[1], c))


def test_one_bit_of_alignment_by_hand() -> None:
    """1 - 1 + 2^-25: kept below E = 0 by F = 25, dropped by F = 24."""
    pairs = [(factor(1.0), factor(1.0)), (factor(-1.0), factor(1.0)), (factor(2.0**-13), factor(2.0**-12))]
    assert block_step(HOPPER, pairs, Fraction(0)) == Fraction(2) ** -25
    assert block_step(AMPERE, pairs, Fraction(0)) == 0


def test_truncation_by_hand() -> None:
    pairs = [(factor(1.0), factor(1.0)), (factor(2.0**-12), factor(1.5 * 2.0**-12))]
    assert block_step(HOPPER, pairs, Fraction(0)) == 1


@pytest.mark.parametrize(
    ("values", "c", "expected"),
    [((inf, 1.0), Fraction(0), inf), ((inf, 0.0), Fraction(0), None), ((inf, 1.0), -inf, None), ((65504.0, 65504.0), inf, inf)],
)
def test_specials_by_hand(values: tuple[float, float], c: Number, expected: float | None) -> None:
    got = block_step(HOPPER, [(factor(values[0]), factor(values[1]))], c)
    assert got != got if expected is None else got == expected

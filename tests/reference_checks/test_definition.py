"""Contract under test: the fast forms of each instruction give the words of the definition, and so do a few cases worked by
hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from fractions import Fraction
from math import inf, isnan
from pathlib import Path

import numpy as np
import pytest

from bitverdict.reference.formats import FORMATS, Overflow, decode, encode
from bitverdict.reference.tensor_core import (
    INSTRUCTIONS,
    Choices,
    InfiniteAccumulator,
    Instruction,
    chain,
    definition,
    elements,
    fused_sum,
    grouped_sum,
    instruction,
    scaled_elements,
)
from bitverdict.reference.tensor_core.definition import Factor, Number, block_step
from bitverdict.reference.tensor_core.product import _integers
from tests.faults.mutants import Mutant, mutant_module
from tests.faults.reference_modules import DEFINITION
from tests.reference_checks import settling_operands

FLOATS = [rule for rule in INSTRUCTIONS if rule.d != "int32" and rule.scale is None]
SCALED = [rule for rule in INSTRUCTIONS if rule.scale is not None]
INTEGERS = [rule for rule in INSTRUCTIONS if rule.d == "int32"]
HOPPER = instruction("sm_90", "wgmma", "fp16", "fp16", "fp32")
AMPERE = instruction("sm_80", "mma.sync", "fp16", "fp16", "fp32")
MXFP4 = instruction("sm_100", "tcgen05", "e2m1", "e2m1", "fp32", scale="e8m0", kind="mxf4")
NVFP4 = instruction("sm_100", "tcgen05", "e2m1", "e2m1", "fp32", scale="ue4m3")
EMULATED = instruction("sm_90", "mma.sync", "e4m3", "e4m3", "fp32")
HALF = instruction("sm_90", "wgmma", "fp16", "fp16", "fp16")
BY_NAME = {"ids": lambda rule: rule.name.replace(" ", "_")}
ROWS, MANY = 6, 24


def factor(value: float) -> Factor:
    code = encode(FORMATS["fp16"], np.array([value]))
    return definition.factors(HOPPER, "fp16", code)[0]


def by_definition(
    rule: Instruction, a: np.ndarray, b: np.ndarray, c: np.ndarray, scales: tuple[np.ndarray, np.ndarray] | None = None
) -> list[Number]:
    """Values of P elements; `a`, `b` (P, K) codes, `c` (P,), `scales` (P, blocks) of each side."""
    found = []
    for row, start in enumerate(decode(rule.output, c).tolist()):
        sides = [
            definition.factors(rule, name, codes[row], of[row] if of is not None else None)
            for name, codes, of in zip((rule.a, rule.b), (a, b), scales or (None, None), strict=True)
        ]
        found.append(definition.element(rule, *sides, definition.exact_value(start)))
    return found


def differing(words: np.ndarray, rule: Instruction, values: list[Number]) -> list[tuple[int, float, Number]]:
    """The rows in which `words` are not `values`: row, value of the word, what it should be."""
    got = decode(rule.output, words).tolist()
    return [
        (row, one, other)
        for row, (one, other) in enumerate(zip(got, values, strict=True))
        if not ((isnan(one) and other != other) or one == other)
    ]


def drawn(rule: Instruction, seed: int, rows: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """a, b (P, K), c (P,): all codes, specials among them; codes around 1 beside some of all; finite codes of far apart exponents;
    a few powers of two where something is cut or tied, and around the smallest numbers. K ends inside a span."""
    draw = np.random.default_rng(seed)
    k = rule.span + rule.span // 2
    for of_all, reach in ((1.0, 1), (0.3, 1), (0.0, 60)):
        sides = []
        for name in (rule.a, rule.b):
            fmt = FORMATS[name]
            codes = draw.integers(0, 1 << fmt.width, (rows, k)).astype(fmt.storage)
            spread = reach if fmt.exponent_bits == 8 else min(reach, 8)
            values = draw.normal(size=(rows, k)) * 2.0 ** draw.integers(-spread, spread, (rows, k))
            near = encode(fmt, values, overflow=Overflow.SATURATE)
            sides.append(np.where(draw.random((rows, k)) < of_all, codes, near).astype(fmt.storage))
        values = draw.normal(size=rows) * 2.0 ** draw.integers(-8 * reach, 8 * reach, rows) * (draw.random(rows) < 0.9)
        yield sides[0], sides[1], encode(rule.output, values)
    for menu in (settling_operands.powers, settling_operands.tiny):
        yield menu(draw, rule, rows)


def drawn_scaled(
    rule: Instruction, seed: int, rows: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """a, scale_a, b, scale_b, c: scales of all codes; scales around 1; a group that cancels or is zero under a large scale."""
    draw = np.random.default_rng(seed)
    k, per, of_scale = rule.span + rule.span // 2, rule.scale_block or 1, FORMATS[rule.scale or ""]
    top = 1 << of_scale.width
    for regime in ("all", "near", "cancelling", "zero", "tiny"):
        a, b = (draw.integers(0, 1 << FORMATS[name].width, (rows, k)).astype(np.uint8) for name in (rule.a, rule.b))
        low, high = {"all": (0, top), "tiny": (0, 1 + top // 8)}.get(regime, (3 * top // 8, 5 * top // 8))
        scales = [draw.integers(low, high, (rows, -(-k // per))).astype(np.uint8) for _ in range(2)]
        if regime in ("cancelling", "zero"):
            half = per // 2
            b[:, half:per] = b[:, :half]
            a[:, half:per] = a[:, :half] ^ (1 << (FORMATS[rule.a].width - 1))  # the opposite sign
            a[:, :per] *= regime == "cancelling"
            for side in scales:
                side[:, 0] = 5 * top // 8
        spread = 140 if regime == "tiny" else 40
        values = draw.normal(size=rows) * 2.0 ** draw.integers(-spread, spread, rows) * (draw.random(rows) < 0.8)
        yield a, scales[0], b, scales[1], encode(rule.output, values)
    for subnormal in (False, True) if rule.sums_groups_exactly else ():
        yield met_by_c(rule, draw, 4 * rows, subnormal=subnormal)


def met_by_c(
    rule: Instruction, draw: np.random.Generator, rows: int, *, subnormal: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """One group of a few products whose sum c cancels, beside groups that only their small scales keep from c: the result shows
    where those were cut. `subnormal`: no c, and a first group of a few units of the smallest number."""
    k, per, of_scale = rule.span, rule.scale_block or 1, FORMATS[rule.scale or ""]
    there = draw.random((rows, k)) < 3 / 16
    a, b = (draw.integers(0, 1 << FORMATS[name].width, (rows, k)).astype(np.uint8) for name in (rule.a, rule.b))
    a *= there
    top, lowest = (16, -18) if rule.scale == "ue4m3" else (0, -45)  # exponents of a pair of scales
    first = draw.integers(-147, -128, rows) if subnormal else np.full(rows, top)
    scales = np.repeat(first[:, None], k // per, axis=1)  # (R, blocks)
    scales[:, 1:] += draw.integers(lowest - top, -19, (rows, k // per - 1))
    halves = scales // 2, scales - scales // 2
    scale_a, scale_b = (encode(of_scale, np.ldexp(1.0, half), overflow=Overflow.SATURATE).astype(np.uint8) for half in halves)
    alone = np.where(np.arange(k) < 16, a, 0).astype(np.uint8)
    c = scaled_elements(rule, alone, scale_a, b, scale_b) ^ np.uint32(0x80000000)
    return a, scale_a, b, scale_b, np.where(np.isnan(decode(rule.output, c)) | subnormal, 0, c).astype(np.uint32)


def wrong(rule: Instruction, rows: int = ROWS, seed: int = 7) -> Iterator[tuple[int, float, Number]]:
    """Where the fast form differs from the definition, over all that is drawn for `rule`."""
    if rule.scale is None:
        for a, b, c in drawn(rule, seed, rows):
            yield from differing(elements(rule, a, b, c), rule, by_definition(rule, a, b, c))
        return
    for a, scale_a, b, scale_b, c in drawn_scaled(rule, seed, rows):
        fast = scaled_elements(rule, a, scale_a, b, scale_b, c)
        yield from differing(fast, rule, by_definition(rule, a, b, c, (scale_a, scale_b)))


@pytest.mark.parametrize("rule", FLOATS, **BY_NAME)
def test_elements_are_what_the_definition_says(rule: Instruction) -> None:
    assert list(wrong(rule)) == []


@pytest.mark.parametrize("rule", SCALED, **BY_NAME)
def test_scaled_elements_are_what_the_definition_says(rule: Instruction) -> None:
    assert list(wrong(rule)) == []


CHOICES = [Choices(**{field.name: side}) for field in fields(Choices)[:4] for side in type(getattr(Choices(), field.name))]


@pytest.mark.share(2)
@pytest.mark.parametrize("rule", [HOPPER, AMPERE, SCALED[0], MXFP4, NVFP4], **BY_NAME)
def test_each_choice_has_one_meaning_in_both_forms(rule: Instruction) -> None:
    for choices in CHOICES if rule.sums_groups_exactly else CHOICES[:5]:  # the floors and zero terms
        assert list(wrong(replace(rule, choices=choices), MANY)) == [], choices


def test_a_refused_accumulator_is_refused_by_both_forms() -> None:
    rule = replace(MXFP4, choices=Choices(infinite_accumulator=InfiniteAccumulator.REFUSED))
    zeros, ones = np.zeros((1, 64), np.uint8), np.full((1, 2), 127, np.uint8)
    with pytest.raises(ValueError, match="infinite"):
        by_definition(rule, zeros, zeros, np.array([0x7F800000], np.uint32), (ones, ones))
    with pytest.raises(ValueError, match="infinite"):
        scaled_elements(rule, zeros, ones, zeros, ones, np.array([0x7F800000], np.uint32))


@pytest.mark.parametrize("saturates", [False, True])
@pytest.mark.parametrize("rule", INTEGERS, **BY_NAME)
def test_integers_are_what_the_definition_says(rule: Instruction, saturates: bool) -> None:
    rule, draw = replace(rule, saturates=saturates), np.random.default_rng(3)
    a, b = draw.integers(-128, 128, (2, ROWS, 200)).astype(np.int8)
    c = draw.integers(-(1 << 31), 1 << 31, ROWS).astype(np.int32)
    c[:4] = (1 << 31) - 1, -(1 << 31), 0, 1
    expected = [definition.integer_element(rule, *(side[row].tolist() for side in (a, b)), int(c[row])) for row in range(ROWS)]
    assert elements(rule, a, b, c).tolist() == expected
    assert definition.integer_element(rule, [127], [127], (1 << 31) - 1) == ((1 << 31) - 1 if saturates else -(1 << 31) + 16128)


@pytest.mark.share(3)
@pytest.mark.parametrize("mutant", DEFINITION, ids=lambda mutant: mutant.name)
def test_another_definition_is_noticed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    with mutant_module(mutant) as changed:
        monkeypatch.setitem(globals(), "definition", changed)
        assert any(True for rule in (HOPPER, EMULATED, MXFP4, NVFP4, HALF, AMPERE) for _ in wrong(rule, MANY))


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


PACKAGE = Path(definition.__file__).parent
FAST = ("fused_sum", "grouped_sum", "chain", "terms", "block_scaled", "product", "mfma")
NOT_FAST = {
    "analogues",
    "cdna",  # numbers of AMD's architectures
    "product_query",
    "definition",
    "mfma_definition",
    "evidence",
    "export",
    "record",
    "constructors",
    "lookup",
    "sides",
    "upcast",
    "__init__",
}
PROVEN = (
    fused_sum.fused_sum, fused_sum.cut_and_add, fused_sum.round_sum, grouped_sum.grouped_sum, chain._mostly_exact,
    chain._exact_product, chain._ieee_add, _integers,
)  # fmt: skip


def test_each_fast_form_says_why_it_is_the_definition() -> None:
    """Every module of the package is a fast form, or named as none; the files of architectures hold numbers only."""
    assert {path.stem for path in PACKAGE.glob("*.py") if not path.stem.startswith(("sm_", "gfx"))} == {*FAST, *NOT_FAST}
    for name in FAST:
        assert "\n\nEqual to the definition because " in (PACKAGE / f"{name}.py").read_text().split('"""')[1], name
    for form in PROVEN:
        assert (form.__doc__ or "").startswith("Equal to the definition"), form

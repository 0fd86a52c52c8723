"""Contract under test: AMD's MFMA has the words of its definition, and those of MMA-Sim.

Both are models. Nothing here says what a chip of AMD's computes."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import copysign, inf, isnan

import numpy as np
import pytest

from benchmarks.mma_sim import MENUS, operands
from benchmarks.mma_sim_names import Counterpart
from bitverdict.reference.formats import FORMATS, decode, encode
from bitverdict.reference.tensor_core import Instruction, definition, elements, instruction, mfma_definition, product
from bitverdict.reference.tensor_core.definition import Number
from bitverdict.reference.tensor_core.lookup import MFMA
from tests.faults.mutants import Mutant, mutant_module
from tests.faults.reference_modules import MFMA_DEFINITION

FLOATS = [rule for rule in MFMA if rule.d == "fp32"]
HALF = instruction("gfx942", "mfma", "fp16", "fp16", "fp32")
BYTES = instruction("gfx942", "mfma", "e5m2fnuz", "e5m2fnuz", "fp32")
FLUSHED = instruction("gfx90a", "mfma", "bf16", "bf16", "fp32")
WIDE = instruction("gfx942", "mfma", "bf16", "bf16", "fp32")
CHAIN = instruction("gfx942", "mfma", "fp32", "fp32", "fp32")


def name_of(each: Instruction | Counterpart) -> str:
    return each.name.replace(" ", "_")


def expected_word(rule: Instruction, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> int:
    """By definition, one element: `a`, `b` (K,) codes, `c` () code."""
    left, right = (definition.factors(rule, name, side) for name, side in ((rule.a, a), (rule.b, b)))
    found: Number = mfma_definition.element(rule, left, right, definition.exact_value(float(decode(FORMATS["fp32"], c))))
    if found != found:
        return FORMATS["fp32"].nan_code or 0
    return int(np.float32(found).view(np.uint32))


def wrong(rule: Instruction, rows: int) -> Iterator[tuple[int, str, str]]:
    """Rows where the fast form is not the definition: row, its word, the definition's."""
    a, b, c = operands(rule, max(2 * rule.block, 4), rows, np.random.default_rng(5))
    yield from differing(rule, a, b, c)


def differing(rule: Instruction, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Iterator[tuple[int, str, str]]:
    """The same of given `a`, `b` (P, K), `c` (P,)."""
    for row, got in enumerate(elements(rule, a, b, c).tolist()):
        wanted = expected_word(rule, a[row], b[row], c[row])
        if got != wanted and not (rule is CHAIN and not (got | wanted) << 1 & 0xFFFFFFFF):  # the sign of a zero
            yield row, hex(got), hex(wanted)


@pytest.mark.parametrize("rule", FLOATS, ids=name_of)
def test_each_mfma_has_the_words_of_its_definition(rule: Instruction) -> None:
    assert list(wrong(rule, 3 * len(MENUS))) == []


Corner = tuple[Instruction, list[tuple[float, float]], float]
CORNERS: list[Corner] = [
    (WIDE, [(1.0, 1.0), (-(2.0**-12), 2.0**-13)], -1.0),  # a product is cut toward zero
    (WIDE, [(1.0, 1.0)], -(2.0**-30)),  # c is cut down
    (WIDE, [(-(2.0**-12), 2.0**-13), (-(2.0**-20), 2.0**-20)], 1.0),  # the sum of products is cut down
    (WIDE, [(-(2.0**-4), 2.0**-5), (2.0**-12, 2.0**-13), (2.0**-16, 2.0**-16)], 1.0),  # 32 bits below where c stands
    (WIDE, [(2.0**-12, 2.0**-12), (2.0**-16, 2.0**-16)], 1.0),  # the total keeps 31
    (WIDE, [(2.0**100, 2.0**28), (-(2.0**100), 2.0**27)], 0.0),  # a product is infinite by itself
    (BYTES, [(1.0, 1.0)], -(2.0**-30)),  # a c far below is left out
    (BYTES, [(2.0**15, 2.0**5), (-(2.0**-5), 1.0)], -(2.0**20)),  # even and odd k are cut apart, and down where they meet
    (FLUSHED, [(2.0**-130, 2.0**10)], 0.0),  # a subnormal operand
    (FLUSHED, [(2.0**-100, 2.0**-26)], 2.0**-130),  # a subnormal c
    (FLUSHED, [(2.0**-100, 2.0**-30)], 0.0),  # a subnormal result
    (FLUSHED, [(1.0, 1.0), (2.0**-12, 2.0**-12), (-1.0, 1.0)], 0.0),  # neighbours are added first
]


def codes_of(rule: Instruction, pairs: list[tuple[float, float]], c: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """a, b (1, K), c (1,) codes."""
    a, b = (encode(FORMATS[name], np.array([[pair[side] for pair in pairs]])) for side, name in ((0, rule.a), (1, rule.b)))
    return a, b, encode(FORMATS["fp32"], np.array([c]))


@pytest.mark.parametrize(("rule", "pairs", "c"), CORNERS)
def test_each_corner_of_mfma_is_as_its_definition_says(rule: Instruction, pairs: list[tuple[float, float]], c: float) -> None:
    assert list(differing(rule, *codes_of(rule, pairs, c))) == []


@pytest.mark.parametrize("mutant", MFMA_DEFINITION, ids=lambda mutant: mutant.name)
def test_another_definition_of_mfma_is_noticed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    with mutant_module(mutant) as changed:
        monkeypatch.setitem(globals(), "mfma_definition", changed)
        assert any(True for rule, pairs, c in CORNERS for _ in differing(rule, *codes_of(rule, pairs, c)))


@pytest.mark.parametrize("rule", [HALF, BYTES, FLUSHED, CHAIN], ids=name_of)
def test_a_product_of_matrices_has_the_words_of_its_elements(rule: Instruction) -> None:
    """Tiles, padding and the shortcut where nothing is rounded."""
    draw = np.random.default_rng(2)
    for whole in (False, True):
        values = [draw.integers(-3, 4, shape) if whole else draw.normal(size=shape) for shape in ((9, 40), (40, 7), (9, 7))]
        a, b, c = (
            encode(FORMATS[name], each.astype(np.float64)) for name, each in zip((rule.a, rule.b, "fp32"), values, strict=True)
        )
        rows, columns = (each.ravel() for each in np.indices((9, 7)))
        paired = elements(rule, a[rows], np.ascontiguousarray(b.T[columns]), c[rows, columns])
        assert np.array_equal(product(rule, a, b, c).ravel(), paired)


def by_hand(rule: Instruction, pairs: list[tuple[float, float]], c: float) -> float:
    return float(decode(FORMATS["fp32"], elements(rule, *codes_of(rule, pairs, c)))[0])


def test_c_is_cut_down_where_products_lead() -> None:
    """E = 0, so c loses what is below 2^-24: half a unit downward for a negative one, which the last rounding keeps."""
    assert by_hand(HALF, [(1.0, 1.0)], -(2.0**-30)) == 1 - 2.0**-24
    assert by_hand(HALF, [(1.0, 1.0)], 2.0**-30) == 1.0


def test_the_total_keeps_31_bits_before_it_is_rounded() -> None:
    """c = 1 and half a unit of it: a tie, that 2^-31 decides and 2^-32 does not."""
    tie = (2.0**-12, 2.0**-12)
    assert by_hand(HALF, [tie, (2.0**-15, 2.0**-16)], 1.0) == 1 + 2.0**-23
    assert by_hand(HALF, [tie, (2.0**-16, 2.0**-16)], 1.0) == 1


def test_a_negative_result_that_vanishes_is_minus_zero() -> None:
    assert copysign(1, by_hand(WIDE, [(-(2.0**-120), 2.0**-60)], 0.0)) == -1
    assert copysign(1, by_hand(WIDE, [(-1.0, 0.0)], -0.0)) == 1


def test_a_product_of_two_to_the_128_is_infinite_at_once() -> None:
    pairs = [(2.0**100, 2.0**28), (-(2.0**100), 2.0**27)]
    assert by_hand(WIDE, pairs, 0.0) == inf
    assert isnan(by_hand(WIDE, pairs, -inf))


def test_gfx90a_takes_subnormals_as_zero() -> None:
    assert by_hand(instruction("gfx90a", "mfma", "fp16", "fp16", "fp32"), [(2.0**-15, 1.0)], 0.0) == 0
    assert by_hand(HALF, [(2.0**-15, 1.0)], 0.0) == 2.0**-15


def test_a_nan_in_c_stays_one_beside_large_fp8_products() -> None:
    """MMA-Sim drops it (`Counterpart.intended`)."""
    assert isnan(by_hand(BYTES, [(2.0**15, 2.0**15)], np.nan)) and Fraction(by_hand(BYTES, [(2.0**15, 2.0**15)], 1.0)) == 2**30

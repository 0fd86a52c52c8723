"""Contract under test: `bitverdict.reference.tensor_core` computes the block step, its chains and its special values, by every path
alike.

Three layers: words worked by hand, an independent prototype in Python integers on drawn rows, and agreement of the fast paths.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bitverdict.reference.formats import FORMATS, FP16, Overflow, decode, encode
from bitverdict.reference.tensor_core import (
    INSTRUCTIONS,
    Choices,
    ExponentFloor,
    Instruction,
    ZeroTerms,
    elements,
    instruction,
    product,
    stacked_products,
)
from bitverdict.reference.tensor_core.chain import _exact_product
from bitverdict.reference.tensor_core.terms import fits_float32, operand

DENSE = [rule for rule in INSTRUCTIONS if rule.scale is None and rule.d != "int32"]
FP32_NAN, FP16_NAN = 0x7FFFFFFF, 0x7FFF
HOPPER = instruction("sm_90", "wgmma", "fp16", "fp16", "fp32")
HOPPER_BF16 = instruction("sm_90", "wgmma", "bf16", "bf16", "fp32")
HOPPER_HALF = instruction("sm_90", "wgmma", "fp16", "fp16", "fp16")
HOPPER_FP8 = instruction("sm_90", "wgmma", "e4m3", "e4m3", "fp32")


def word(rule: Instruction, a: list[float], b: list[float], c: float = 0.0) -> int:
    """The word of one inner product of values."""
    codes = [encode(FORMATS[name], np.array([values])) for name, values in ((rule.a, a), (rule.b, b))]
    return int(elements(rule, codes[0], codes[1], encode(rule.output, np.array([c])))[0])


def value(rule: Instruction, a: list[float], b: list[float], c: float = 0.0) -> float:
    return float(decode(rule.output, np.array([word(rule, a, b, c)], rule.output.storage))[0])


# ------------------------------------------------------------------------------------------------------------- by hand
def test_a_term_below_the_cut_is_lost_even_where_it_is_the_whole_result() -> None:
    """1 - 1 + 2^-26: the last term lies below 2^(0 - 25). On sm_80 2^-25 is lost too, F being 24."""
    assert value(HOPPER, [1, -1, 2.0**-13], [1, 1, 2.0**-12]) == 2.0**-25
    assert value(HOPPER, [1, -1, 2.0**-13], [1, 1, 2.0**-13]) == 0
    assert value(instruction("sm_80", "mma.sync", "fp16", "fp16", "fp32"), [1, -1, 2.0**-13], [1, 1, 2.0**-12]) == 0


def test_the_cut_is_toward_zero_for_both_signs() -> None:
    for sign in (1, -1):
        assert value(HOPPER, [1, sign * 1.5 * 2.0**-13], [1, 2.0**-12], -1) == sign * 2.0**-25


def test_the_result_is_truncated_not_rounded() -> None:
    assert value(HOPPER, [1, 2.0**-12, 2.0**-13], [1, 2.0**-12, 2.0**-12]) == 1  # 1 + 1.5 * 2^-24: nearest would be 1 + 2^-23


def test_fp8_on_hopper_keeps_thirteen_bits_of_c_and_of_the_result() -> None:
    assert value(HOPPER_FP8, [0.0], [0.0], 1 + 2.0**-13) == 1 + 2.0**-13
    assert value(HOPPER_FP8, [0.0], [0.0], 1 + 2.0**-14) == 1
    assert word(HOPPER_FP8, [1.75, 0.0625], [1.75, 0.0625], 100.0) & 0x3FF == 0


def test_an_fp16_result_is_rounded_to_nearest_from_the_sum_itself() -> None:
    """1 + 2^-11 is a tie; 2^-25 above it decides, although an fp32 in between would keep only 2^-23."""
    assert value(HOPPER_HALF, [1, 2.0**-5, 2.0**-13], [1, 2.0**-6, 2.0**-12]) == 1 + 2.0**-10
    assert value(HOPPER_HALF, [1, 2.0**-5], [1, 2.0**-6]) == 1


def test_sm_80_splits_sixteen_products_and_hopper_does_not() -> None:
    a, b = [1.0] + [0.0] * 7 + [-1.0] + [0.0] * 7, [1.0] * 16  # the blocks of sm_80 are the two halves
    ampere = instruction("sm_80", "mma.sync", "fp16", "fp16", "fp32")
    c = 2.0**24  # 2^24 + 1 needs 25 bits: truncated after the first half
    assert value(ampere, a, b, c) == 2.0**24 - 1
    assert value(HOPPER, a, b, c) == 2.0**24


def test_subnormal_operands_are_aligned_by_the_smallest_normal_exponent() -> None:
    """A product of two subnormals has exponent -28, though it is 2^-48: it cuts at 2^-53, and not lower."""
    tiny = 2.0**-24
    assert value(HOPPER, [tiny], [tiny]) == 2.0**-48


@pytest.mark.parametrize("rule", DENSE, ids=lambda rule: rule.name)
def test_special_values_follow_the_table(rule: Instruction) -> None:
    nan = FP32_NAN if rule.d == "fp32" else FP16_NAN
    infinity = int(rule.output.infinity_code or 0)
    a_format = FORMATS[rule.a]
    assert word(rule, [0.0], [1.0], np.nan) == nan
    assert word(rule, [1.0], [1.0], np.inf) == infinity
    assert word(rule, [1.0], [1.0], -np.inf) == infinity | rule.output.sign_bit
    assert word(rule, [0.0], [-1.0], -0.0) == 0
    assert word(rule, [1.0, -1.0], [1.0, 1.0]) == 0
    if a_format.nan_code is not None:
        assert word(rule, [np.nan], [0.0]) == nan
    if a_format.infinity_code is not None:
        assert word(rule, [np.inf], [0.0]) == nan
        assert word(rule, [np.inf], [-1.0]) == infinity | rule.output.sign_bit
        assert word(rule, [np.inf], [1.0], -np.inf) == nan
        assert word(rule, [np.inf, -np.inf], [1.0, 1.0]) == nan


def test_truncated_overflow_is_infinite_and_no_step_overflows_inside() -> None:
    huge = 2.0**100
    assert word(HOPPER_BF16, [huge], [-huge]) == 0xFF800000
    assert value(HOPPER_BF16, [huge, -huge], [huge, huge], 3.0) == 0  # c lies below the cut at 2^175
    assert word(HOPPER_BF16, [np.inf, -huge], [1.0, huge]) == 0x7F800000  # no finite sum makes an infinity against one
    largest = np.float32(3.4028235e38)
    assert word(HOPPER_BF16, [2.0**60], [2.0**20], float(largest)) == 0x7F7FFFFF  # truncated, below 2^128


def test_a_result_that_vanishes_is_positive_zero() -> None:
    assert word(HOPPER_BF16, [-(2.0**-100)], [2.0**-100]) == 0
    assert word(HOPPER_HALF, [-(2.0**-14)], [2.0**-14]) == 0


def test_tf32_drops_thirteen_bits_before_anything_else() -> None:
    rule = instruction("sm_90", "wgmma", "tf32", "tf32", "fp32")
    one = np.array([[0x3F800000]], np.uint32)
    assert elements(rule, np.array([[0x3F801FFF]], np.uint32), one)[0] == 0x3F800000
    assert elements(rule, np.array([[0x7F800001]], np.uint32), one)[0] == 0x7F800000


def test_emulated_fp8_takes_register_halves_and_adds_c_last() -> None:
    rule = instruction("sm_90", "mma.sync", "e4m3", "e4m3", "fp32")
    assert rule.steps[0][:4] == (0, 1, 4, 5) and rule.steps[1][:4] == (2, 3, 6, 7)
    a, b = [256.0, 2.0**-9, -256.0], [256.0, 2.0**-9, 256.0]  # k0 and k1 meet first: 2^-18 is cut at 2^-9, k2 comes later
    assert value(rule, a, b) == 0
    assert value(rule, [256.0, -256.0, 2.0**-9], [256.0, 256.0, 2.0**-9]) == 2.0**-18
    assert value(rule, [1.0], [1.0], 2.0**-24) == 1.0  # one IEEE addition, a tie to even
    assert value(rule, [1.0], [1.0], 1.5 * 2.0**-24) == 1 + 2.0**-23


def test_integers_wrap_or_saturate() -> None:
    rule = instruction("sm_90", "wgmma", "int8", "int8", "int32")
    a, b = np.full((1, 64), 127, np.int8), np.full((64, 1), 127, np.int8)
    c = np.array([[2**31 - 1]], np.int32)
    assert product(rule, a, b, c)[0, 0] == -(2**31) + 64 * 127 * 127 - 1
    assert product(replace(rule, saturates=True), a, b, c)[0, 0] == 2**31 - 1


def test_an_unknown_instruction_is_refused_with_what_there_is() -> None:
    with pytest.raises(ValueError, match=r"sm_80 mma\.sync"):
        instruction("sm_80", "wgmma", "fp16", "fp16", "fp32")
    with pytest.raises(ValueError, match="fp16 x fp16 -> fp32"):
        instruction("sm_80", "mma.sync", "e4m3", "e4m3", "fp32")
    with pytest.raises(ValueError, match="K first"):
        product(HOPPER, np.zeros((2, 3), np.uint16), np.zeros((2, 3), np.uint16))


def drawn(rule: Instruction, rows: int, k: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Finite codes of all exponents in one half of the rows, near 1 in the other; c likewise."""
    rng = np.random.default_rng(seed)
    sides = []
    for name, shape in ((rule.a, (rows, k)), (rule.b, (rows, k)), (rule.d, (rows,))):
        fmt = FORMATS[name]
        anywhere = rng.integers(0, 1 << fmt.width, shape).astype(fmt.storage)
        reach = 60 if fmt.exponent_bits == 8 else 8
        spread = rng.standard_normal(shape) * 2.0 ** rng.integers(-reach, reach // 2, shape)
        near = encode(fmt, spread, overflow=Overflow.SATURATE)
        finite = np.isfinite(decode(fmt, anywhere)) & (np.abs(decode(fmt, anywhere)) < 2.0**50)
        pick = rng.random((rows,) + (1,) * (len(shape) - 1)) < 0.5
        sides.append(np.where(finite & pick, anywhere, near).astype(fmt.storage))
    return sides[0], sides[1], sides[2]


# ---------------------------------------------------------------------------------------------------- paths of one model
REGIMES = {
    "wide": lambda rng, shape: rng.standard_normal(shape) * 2.0 ** rng.integers(-12, 10, shape),
    "narrow": lambda rng, shape: rng.uniform(1, 2, shape) * rng.choice([-1, 1], shape),
    "positive": lambda rng, shape: rng.uniform(1, 2, shape),
    "integers": lambda rng, shape: rng.integers(-7, 8, shape).astype(np.float64),
    "zeros": lambda rng, shape: rng.standard_normal(shape) * (rng.random(shape) < 0.1),
    "special": lambda rng, shape: np.where(rng.random(shape) < 0.01, np.inf, rng.standard_normal(shape)),
}


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize(
    "rule", [HOPPER, HOPPER_HALF, HOPPER_FP8, DENSE[0], instruction("sm_100", "mma.sync", "e5m2", "e5m2", "fp32")],
    ids=lambda rule: rule.name,
)  # fmt: skip
def test_a_whole_product_is_its_elements(rule: Instruction, regime: str) -> None:
    """`product` may prove that nothing is cut and multiply matrices; `elements` never does."""
    rng = np.random.default_rng(5)
    m, n, k = 37, 141, 100
    a = encode(FORMATS[rule.a], REGIMES[regime](rng, (m, k)), overflow=Overflow.SATURATE)
    b = encode(FORMATS[rule.b], REGIMES[regime](rng, (k, n)), overflow=Overflow.SATURATE)
    c = encode(rule.output, REGIMES[regime](rng, (m, n)))
    row, column = np.divmod(np.arange(m * n), n)
    found = elements(rule, a[row], b.T[column], c.ravel())
    assert (product(rule, a, b, c).ravel() == found).all()
    small = 3, 47  # three products of all rows with a third of the columns each
    stacked = stacked_products(
        rule, np.broadcast_to(a, (3, m, k)), b.T.reshape(*small, k), np.ascontiguousarray(c.reshape(m, *small).swapaxes(0, 1))
    )
    assert (stacked.swapaxes(0, 1).ravel() == found).all()


def test_the_proof_is_taken_for_integers_and_not_where_a_bit_may_be_cut() -> None:
    def proven(values: np.ndarray, c: float = 0.0) -> bool:
        codes = encode(FP16, values)
        sides = operand(HOPPER, "fp16", codes.T), operand(HOPPER, "fp16", codes.T)
        return _exact_product(HOPPER, *sides, np.full((len(values), len(values)), c)) is not None

    whole = np.full((4, 64), 3.0)
    assert proven(whole)
    assert proven(whole, c=2.0**23 - 1000)
    assert not proven(whole, c=2.0**24)  # sums of 25 bits would be truncated
    assert not proven(whole, c=2.0**-15)
    assert not proven(np.full((4, 64), 1 + 2.0**-10))
    assert not proven(np.full((4, 64), np.inf))


@pytest.mark.parametrize(("lowest", "proven"), [(-149, True), (-150, False)])
def test_the_proof_holds_down_to_the_smallest_number_of_fp32(lowest: int, proven: bool) -> None:
    codes = encode(FORMATS["bf16"], np.full((16, 2), 2.0**-60)), encode(FORMATS["bf16"], np.full((16, 2), 2.0 ** (lowest + 60)))
    sides = [operand(HOPPER_BF16, "bf16", each) for each in codes]
    found = _exact_product(HOPPER_BF16, *sides, np.zeros((2, 2)))
    assert (found is not None) == proven
    assert found is None or (found == 2.0 ** (lowest + 4)).all()


@pytest.mark.parametrize(
    ("smallest", "largest", "bits", "fits"), [(-50, 40, 12, True), (-51, 40, 12, False), (-50, 41, 12, False), (-50, 40, 13, False)]
)
def test_products_are_formed_in_float32_up_to_its_ends(smallest: int, largest: int, bits: int, fits: bool) -> None:
    """12 bits each, between 2^-50 and 2^40: 24 bits, between 2^-100 and 2^80."""
    assert fits_float32(np.array([0.0, 2.0**smallest, -(2.0**largest)]), bits) == fits


def test_ragged_k_is_padded_with_terms_that_take_no_part() -> None:
    a, b, c = drawn(HOPPER, 50, 21, seed=3)
    wider = [np.pad(side, ((0, 0), (0, 11))) for side in (a, b)]
    assert (elements(HOPPER, a, b, c) == elements(HOPPER, *wider, c)).all()
    assert (elements(HOPPER, a[:, :0], b[:, :0], c) == c).all()


# --------------------------------------------------------------------------------------------------- named choices
def test_the_exponent_floor_is_a_switch_and_decides_the_smallest_sums() -> None:
    """2^-149 - 2^-160: a floor of -133 cuts at 2^-158 and loses the second term; without one the result is truncated to zero."""
    a, b = [2.0**-75, -(2.0**-80)], [2.0**-74, 2.0**-80]
    assert word(HOPPER_BF16, a, b) == 1
    none = replace(HOPPER_BF16, choices=Choices(exponent_floor=ExponentFloor.NONE))
    assert word(none, a, b) == 0
    zero = replace(HOPPER_BF16, choices=Choices(exponent_floor=ExponentFloor.ZERO_ACCUMULATOR))
    near = [2.0**-75, -(2.0**-77)], [2.0**-74, 2.0**-76]  # 2^-149 - 2^-153: above the cut of -133, below that of -126
    assert word(HOPPER_BF16, *near) == 0
    assert word(zero, *near) == 1


def test_zero_terms_are_a_switch_that_decides_if_a_zero_pushes_c_out() -> None:
    a, b = [0.0], [2.0**127]
    assert value(HOPPER_BF16, a, b, 2.0**-100) == 2.0**-100
    taking_part = replace(HOPPER_BF16, choices=Choices(zero_terms=ZeroTerms.TAKE_PART))
    assert value(taking_part, a, b, 2.0**-100) == 0

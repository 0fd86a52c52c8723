"""Contract under test: block scales enter the sum exactly, before it; the compiler's upcast rounds first.

Each public disagreement is a switch, and the test prints a row that would settle it.
Hardware words for scaled kinds are few (`test_hardware_words`): the rule is held by hand here, and by `test_definition`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.mma_sim_names import THEIR_GROUPED_FLOOR
from bitverdict.reference.exact_gemm import exact_gemm, scale_values
from bitverdict.reference.formats import BF16, E2M1, E4M3, E8M0, FORMATS, FP32, UE4M3, decode, encode
from bitverdict.reference.tensor_core import (
    Choices,
    ExponentFloor,
    InfiniteAccumulator,
    Instruction,
    ScaledGroups,
    ScaledWindow,
    ScaleModel,
    ZeroTerms,
    instruction,
    scaled_elements,
    scaled_product,
    upcast,
    upcast_operand,
    upcast_product,
)

MXFP8 = instruction("sm_100", "tcgen05", "e4m3", "e4m3", "fp32", scale="e8m0")
MXFP4 = instruction("sm_100", "tcgen05", "e2m1", "e2m1", "fp32", scale="e8m0", kind="mxf4")
NVFP4 = instruction("sm_100", "tcgen05", "e2m1", "e2m1", "fp32", scale="ue4m3")
KINDS = [MXFP8, MXFP4, NVFP4, instruction("sm_100", "tcgen05", "e2m3", "e4m3", "fp32", scale="e8m0")]
Row = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def drawn(rule: Instruction, rows: int, seed: int, *, reach: int = 12) -> Row:
    """a, scale_a, b, scale_b, c for K of two instructions; scales within 2^±reach, c about the size of a product."""
    rng = np.random.default_rng(seed)
    k = 2 * rule.block
    blocks = k // (rule.scale_block or k)
    a, b = (rng.integers(0, 1 << FORMATS[name].width, (rows, k)).astype(np.uint8) for name in (rule.a, rule.b))
    a, b = (np.where(np.isnan(decode(FORMATS[name], side)), 0, side).astype(np.uint8) for name, side in ((rule.a, a), (rule.b, b)))
    scale = FORMATS[rule.scale or ""]
    high = 0x7F if scale is UE4M3 else 127 + reach
    scales = [rng.integers(0 if scale is UE4M3 else 127 - reach, high, (rows, blocks)).astype(np.uint8) for _ in range(2)]
    c = encode(FP32, rng.standard_normal(rows) * 2.0 ** rng.integers(-20, 20, rows))
    return a, scales[0], b, scales[1], c


def one(
    rule: Instruction, products: dict[int, tuple[float, float]], scales_a: list[float], scales_b: list[float], c: float = 0
) -> float:
    """Value of a single row: {k: (a, b)}, the rest zero."""
    a, b = np.zeros((1, rule.block)), np.zeros((1, rule.block))
    for k, (left, right) in products.items():
        a[0, k], b[0, k] = left, right
    scale = FORMATS[rule.scale or ""]
    codes = [encode(FORMATS[name], side) for name, side in ((rule.a, a), (rule.b, b))]
    scales = [encode(scale, np.array([side])) for side in (scales_a, scales_b)]
    found = scaled_elements(rule, codes[0], scales[0], codes[1], scales[1], encode(FP32, np.array([c])))
    return float(decode(FP32, found)[0])


# ------------------------------------------------------------------------------------------------------------- by hand
def test_a_scale_is_part_of_the_operand_and_does_not_multiply_the_sum() -> None:
    """The products meet c aligned at their scaled exponents: 2^-26 beside 1 is cut, however it came about."""
    assert one(MXFP8, {0: (1, 1)}, [2.0**-13], [2.0**-12], c=1) == 1
    assert one(MXFP8, {0: (1, 1)}, [2.0**-13], [2.0**-12]) == 2.0**-25
    assert one(MXFP8, {0: (1, 1), 1: (-1, 1), 2: (2.0**-6, 2.0**-6)}, [2.0**100], [2.0**-100]) == 2.0**-12


def test_e8m0_reaches_its_ends() -> None:
    assert one(MXFP8, {0: (1, 1)}, [2.0**-127], [2.0**127]) == 1
    assert one(MXFP8, {0: (1, 2.0**-6)}, [2.0**-127], [1]) == 2.0**-133
    assert one(MXFP8, {0: (2, 1)}, [2.0**127], [1]) == np.inf


def test_a_nan_scale_makes_nan_even_of_zeros() -> None:
    for rule in (MXFP8, MXFP4, NVFP4):
        a, scale_a, b, scale_b, c = drawn(rule, 1, 0)
        scale_a = np.full_like(scale_a, 0xFF if rule.scale == "e8m0" else 0x7F)
        assert scaled_elements(rule, np.zeros_like(a), scale_a, b, scale_b, c)[0] == 0x7FFFFFFF


def test_bit_seven_of_a_ue4m3_scale_is_ignored_and_its_subnormals_count() -> None:
    a, scale_a, b, scale_b, c = drawn(NVFP4, 40, 1)
    assert (scaled_elements(NVFP4, a, scale_a | 0x80, b, scale_b, c) == scaled_elements(NVFP4, a, scale_a, b, scale_b, c)).all()
    assert one(NVFP4, {0: (1, 1)}, [2.0**-9] + [1.0] * 3, [1.0] * 4) == 2.0**-9


def test_nvfp4_sums_a_wide_range_that_fp8_would_cut() -> None:
    """F is about 35: 36 bits below the largest product survive."""
    products = {0: (6.0, 6.0), 16: (-6.0, 6.0), 32: (0.5, 0.5)}
    assert one(NVFP4, products, [448.0, 448.0, 2.0**-9, 1.0], [1.0] * 4) == 0.25 * 2.0**-9


# ----------------------------------------------------------------------------------------------------- other ways round
@pytest.mark.parametrize("rule", KINDS, ids=lambda rule: rule.name)
def test_where_nothing_is_cut_the_exact_sum_is_truncated_once(rule: Instruction) -> None:
    a, scale_a, b, scale_b = (side[:, : side.shape[1] // 2] for side in drawn(rule, 300, 2, reach=1)[:4])  # one instruction
    scale = FORMATS[rule.scale or ""]
    if scale is UE4M3:
        scale_a, scale_b = scale_a % 8 + 0x38, scale_b % 8 + 0x38  # within one binade
    sides = [
        scale_values(decode(FORMATS[name], codes), decode(scale, scales), rule.scale_block or 1)
        for name, codes, scales in ((rule.a, a, scale_a), (rule.b, b, scale_b))
    ]
    if rule is MXFP8:
        sides = [np.where(np.abs(side) < 2.0**-3, 0.0, side) for side in sides]
        a, b = (np.where(side == 0, 0, codes).astype(np.uint8) for side, codes in zip(sides, (a, b), strict=True))
    exact = np.diagonal(exact_gemm(sides[0], sides[1].T).value).copy()  # (R,)
    truncated = (exact.view(np.int64) & np.int64(-1 << 29)).view(np.float64)  # (R,)
    close = decode(FP32, scaled_elements(rule, a, scale_a, b, scale_b))  # (R,)
    assert (close == truncated).all()


@pytest.mark.parametrize("rule", KINDS, ids=lambda rule: rule.name)
def test_a_whole_scaled_product_is_its_elements(rule: Instruction) -> None:
    a, scale_a, b, scale_b, _ = drawn(rule, 20, 3)
    row, column = np.divmod(np.arange(400), 20)
    c = encode(FP32, np.random.default_rng(4).standard_normal(400))
    whole = scaled_product(rule, a, scale_a, b.T, scale_b, c.reshape(20, 20))
    assert (whole.ravel() == scaled_elements(rule, a[row], scale_a[row], b[column], scale_b[column], c)).all()


# --------------------------------------------------------------------------------------------------- named choices
def cancelling(rule: Instruction, rows: int, seed: int) -> Row:
    """A large scale block that cancels to zero beside small ones; c between."""
    rng = np.random.default_rng(seed)
    a, scale_a, b, scale_b, _ = drawn(rule, rows, seed)
    half = (rule.scale_block or 32) // 2
    b[:, half : 2 * half] = b[:, :half]
    a[:, half : 2 * half] = a[:, :half] ^ 8  # the opposite sign
    largest, least = (0x7E, 1) if rule.scale == "ue4m3" else (160, 127)
    scale_a[:, 0], scale_b[:, 0] = largest, largest - rng.integers(0, 8, rows)
    scale_a[:, 1:], scale_b[:, 1:] = (least + rng.integers(0, 12, scale_a[:, 1:].shape) for _ in range(2))
    middle = rng.integers(-24, 24, rows) if rule.scale == "ue4m3" else rng.integers(0, 70, rows)
    return a, scale_a, b, scale_b, encode(FP32, rng.standard_normal(rows) * 2.0**middle)


DISAGREEMENTS = {
    "1, the exponent floor": (MXFP8, Choices(exponent_floor=ExponentFloor.PROBED), lambda: _tiny(MXFP8)),
    "2, zero terms": (MXFP8, Choices(exponent_floor=ExponentFloor.NONE, zero_terms=ZeroTerms.TAKE_PART), lambda: _zeros(MXFP8)),
    "3, groups of nvfp4": (
        NVFP4,
        Choices(exponent_floor=ExponentFloor.NONE, scaled_groups=ScaledGroups.OF_SIXTEEN),
        lambda: cancelling(NVFP4, 4000, 6),
    ),
    "4, the window of mxf4": (MXFP4, Choices(scaled_window=ScaledWindow.BY_SCALE), lambda: _tiny_groups(MXFP4)),
    "4, before MMA-Sim 2.1": (
        MXFP4,
        Choices(ExponentFloor.NONE, zero_terms=ZeroTerms.TAKE_PART, scaled_window=ScaledWindow.BY_SCALE),
        lambda: _scaled_zeros(MXFP4),
    ),
}


def _tiny(rule: Instruction) -> Row:
    a, scale_a, b, scale_b, c = drawn(rule, 2000, 8)
    return a, np.full_like(scale_a, 53), b, np.full_like(scale_b, 54), np.zeros_like(c)


def _zeros(rule: Instruction) -> Row:
    a, scale_a, b, scale_b, c = drawn(rule, 100, 9)
    return np.zeros_like(a), np.full_like(scale_a, 250), b, np.full_like(scale_b, 250), c


def _tiny_groups(rule: Instruction) -> Row:
    """2^-149 in the first group; -(4 + 2^-2) 2^-176 and 4 2^-176 in groups of a lower scale: is -2^-178 cut or kept?"""
    a, scale_a, b, scale_b, c = (np.zeros_like(side) for side in drawn(rule, 1, 13))
    for k, left, right in ((0, 4, 2), (32, 12, 4), (33, 9, 1), (48, 4, 4)):  # 2 x 1, -2 x 2, -0.5 x 0.5, 2 x 2
        a[0, k], b[0, k] = left, right
    for scale in (scale_a, scale_b):
        scale[0] = 127
    scale_a[0, :2] = 127 - 75, 127 - 88
    scale_b[0, :2] = 127 - 75, 127 - 88
    return a, scale_a, b, scale_b, c


def _scaled_zeros(rule: Instruction) -> Row:
    """A scale block of zeros under a large scale: it counts for one side, and not for the other."""
    a, scale_a, b, scale_b, c = drawn(rule, 100, 7)
    a[:, : rule.scale_block] = 0
    scale_a[:, 0] = scale_b[:, 0] = 150
    return a, scale_a, b, scale_b, c


@pytest.mark.parametrize("number", DISAGREEMENTS)
def test_each_disagreement_is_a_switch_and_a_pair_would_settle_it(number: str) -> None:
    rule, choices, rows = DISAGREEMENTS[number]
    a, scale_a, b, scale_b, c = rows()
    ours = scaled_elements(rule, a, scale_a, b, scale_b, c)
    floor = THEIR_GROUPED_FLOOR if rule.sums_groups_exactly else rule.exponent_floor
    theirs = scaled_elements(replace(rule, choices=choices, exponent_floor=floor), a, scale_a, b, scale_b, c)
    differ = np.nonzero(ours != theirs)[0]
    assert differ.size, "the switch changes nothing"
    i = differ[0]
    names = ("a", "b", "scale_a", "scale_b")
    row = "; ".join(f"{name}={side[i].tobytes().hex()}" for name, side in zip(names, (a, b, scale_a, scale_b), strict=True))
    print(f"\ndisagreement {number}, {rule.name}: {differ.size} of {ours.size} rows differ")
    print(f"{row}; c={c[i]:#x} gives {ours[i]:#x} here, {theirs[i]:#x} otherwise")


def test_the_fifth_disagreement_is_a_refusal() -> None:
    a, scale_a, b, scale_b, _ = drawn(MXFP4, 1, 10)
    infinite = np.array([0x7F800000], np.uint32)
    assert scaled_elements(MXFP4, a, scale_a, b, scale_b, infinite)[0] == 0x7F800000
    refusing = replace(MXFP4, choices=Choices(infinite_accumulator=InfiniteAccumulator.REFUSED))
    with pytest.raises(ValueError, match="infinite"):
        scaled_elements(refusing, a, scale_a, b, scale_b, infinite)


def test_scales_of_another_shape_are_refused() -> None:
    a, scale_a, b, scale_b, c = drawn(MXFP8, 2, 11)
    with pytest.raises(ValueError, match="needs"):
        scaled_elements(MXFP8, a, scale_a[:, :1], b, scale_b, c)


# ------------------------------------------------------------------------------------------------- the compiler's upcast
@pytest.mark.parametrize(("element", "scale"), [("e2m1", "e8m0"), ("e2m1", "ue4m3"), ("e4m3", "e8m0"), ("e5m2", "e8m0")])
@pytest.mark.parametrize("model", ScaleModel)
def test_what_is_looked_up_is_what_the_upcast_defines(element: str, scale: str, model: ScaleModel) -> None:
    """Under every scale code; the last block of a row is cut."""
    codes = np.tile(np.arange(1 << FORMATS[element].width, dtype=np.uint8), 1 << 11)[: 1040 * 3].reshape(3, 1040)  # (3, 1040)
    rows = 1 + upcast.LOOKED_UP // codes.size
    codes = np.tile(codes, (rows, 1))  # (3 rows, 1040)
    scales = np.arange(codes.shape[0] * 33).reshape(-1, 33).astype(np.uint8)  # (3 rows, 33)
    found = upcast_operand(element, codes, scale, scales, 32, model)
    assert found.dtype == np.uint16 and codes.size > upcast.LOOKED_UP
    np.testing.assert_array_equal(found, upcast.upcast_by_definition(element, codes, scale, scales, 32, model))


def test_the_upcast_in_bf16_differs_from_the_scaled_product() -> None:
    big, one_code = encode(E4M3, np.array([[448.0]])), encode(E4M3, np.array([[1.0]]))
    top, least, middle = (np.array([[code]], np.uint8) for code in (254, 0, 127))
    assert upcast_operand("e4m3", big, "e8m0", top, 32)[0, 0] == BF16.infinity_code  # 448 * 2^127
    assert decode(BF16, upcast_operand("e4m3", one_code, "e8m0", least, 32))[0, 0] == 2.0**-127
    assert decode(BF16, upcast_operand("e4m3", one_code, "e8m0", least, 32, ScaleModel.BARE_SHIFT))[0, 0] == 0
    assert decode(BF16, upcast_operand("e4m3", one_code, "e8m0", least, 32, ScaleModel.ZERO_START))[0, 0] == 0
    assert decode(BF16, upcast_operand("e4m3", one_code, "e8m0", least, 32, ScaleModel.CUT))[0, 0] == 2.0**-127
    assert decode(BF16, upcast_operand("e4m3", one_code, "e8m0", least, 32, ScaleModel.CUT_ZERO_START))[0, 0] == 0
    last = upcast_operand("e4m3", one_code, "e8m0", np.array([[255]], np.uint8), 32, ScaleModel.ZERO_START)
    assert np.isnan(decode(BF16, last))[0, 0]
    assert np.isnan(decode(BF16, upcast_operand("e4m3", one_code, "e8m0", np.array([[255]], np.uint8), 32)))[0, 0]
    tiny = encode(E4M3, np.array([[9 * 2.0**-9]]))  # 1.001b * 2^-6, times 2^-127: two bits are left of it
    assert decode(BF16, upcast_operand("e4m3", tiny, "e8m0", least, 32))[0, 0] == 2.0**-133
    result = upcast_product("e4m3", one_code, middle, "e4m3", big, middle)
    assert decode(FP32, result)[0, 0] == 448


def test_the_upcast_keeps_the_sign_of_an_e4m3_scale() -> None:
    codes = encode(E2M1, np.array([[1.5]]))
    minus_two = encode(E4M3, np.array([[-2.0]]))
    assert decode(BF16, upcast_operand("e2m1", codes, "e4m3", minus_two, 16))[0, 0] == -3
    with pytest.raises(ValueError, match="no upcast model"):
        upcast_operand("e2m1", codes, "fp16", minus_two, 16)


def test_moderate_scales_upcast_exactly() -> None:
    a, scale_a, _, _, _ = drawn(MXFP8, 30, 12)
    exact = scale_values(decode(E4M3, a), decode(E8M0, scale_a), 32)
    assert (decode(BF16, upcast_operand("e4m3", a, "e8m0", scale_a, 32)) == exact).all()

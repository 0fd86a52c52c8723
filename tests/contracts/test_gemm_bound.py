"""Contract under test: the bound of a product fails no right kernel, whatever it does to its operands, and fails wrong ones."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from bitverdict.harness.contracts.inputs import regimes
from bitverdict.harness.contracts.inputs.narrowed_inputs import narrowing_effect
from bitverdict.harness.contracts.oracle.allowed_results import hides_a_product
from bitverdict.harness.contracts.oracle.gemm_bound import bounded_product, instructions, launched_instructions
from bitverdict.harness.judge.compare import compare
from bitverdict.harness.model.verdict import Outcome
from bitverdict.reference.formats import BF16, E4M3, FORMATS, FP32, TF32, Overflow, Rounding, decode, encode
from bitverdict.reference.tensor_core import instruction, product
from tests.faults.mutants import mutant_function
from tests.faults.product_faults import MUTANTS, Kernel, faultless, no_fault_in

M, N = 9, 11
ARCHS = {"sm_80": "mma.sync", "sm_90": "wgmma", "sm_100": "tcgen05"}
PASSES = (Outcome.PASS, Outcome.INCONCLUSIVE)


def asked(dtype: str, k: int, out: str = "", m: int = M, n: int = N) -> SimpleNamespace:
    return SimpleNamespace(m=m, n=n, k=k, dtype=dtype, out=out or dtype, activation="")


def drawn(dtype: str, k: int, regime: str, data_seed: int) -> tuple[np.ndarray, np.ndarray]:
    return tuple(
        regimes.draw(dtype, shape, regime, regimes.generator(data_seed, name)) for name, shape in (("a", (M, k)), ("b", (k, N)))
    )


def test_a_part_that_an_atomic_flushes_is_allowed_where_atomics_add() -> None:
    """2^-64 times 2^-63 is subnormal in fp32: an atomic of global memory counts it as zero, a store keeps it."""
    a, b = (encode(BF16, np.array([[power]])) for power in (2.0**-64, 2.0**-63))
    for atomics, count in ((0, 1), (4, 1), (4, 0)):
        expected = bounded_product(asked("bf16", 1, "fp32", 1, 1), a, b, "sm_90", atomics=atomics)
        got = np.array([[0 if count == 0 else 0x00400000]], np.uint32)
        assert compare(expected, got).outcome in PASSES
    with_stores = bounded_product(asked("bf16", 1, "fp32", 1, 1), a, b, "sm_90")
    assert compare(with_stores, np.zeros((1, 1), np.uint32)).outcome is Outcome.OUTSIDE_BOUND


def by_tf32(a: np.ndarray, b: np.ndarray, arch: str) -> np.ndarray:
    """Words of a product whose fp32 operands go to the tf32 instruction as they are: hardware drops their low bits."""
    kept = np.uint32(0xFFFFE000)
    return product(instruction(arch, ARCHS[arch], "tf32", "tf32", "fp32"), a & kept, b & kept)


def nearest_tf32(codes: np.ndarray) -> np.ndarray:
    """cvt.rna.tf32.f32."""
    return encode(TF32, decode(FP32, codes), rounding=Rounding.NEAREST_AWAY).astype(np.uint32)


def cut_to_bf16(codes: np.ndarray) -> np.ndarray:
    return encode(FP32, decode(BF16, encode(BF16, decode(FP32, codes), rounding=Rounding.TOWARD_ZERO)))


# --------------------------------------------------------------------------------------------------- fp32 through tf32
@pytest.mark.parametrize("regime", regimes.REGIMES)
@pytest.mark.parametrize("arch", ARCHS)
def test_fp32_cut_or_rounded_to_tf32_passes_in_every_regime(arch: str, regime: str) -> None:
    for data_seed in range(6):
        a, b = drawn("fp32", 13, regime, data_seed)
        due = bounded_product(asked("fp32", 13), a, b, arch)
        for left, right in ((a, b), (nearest_tf32(a), nearest_tf32(b)), (nearest_tf32(a), b)):
            found = compare(due, by_tf32(left, right, arch))
            assert found.outcome in PASSES, (data_seed, found.message)


@pytest.mark.parametrize("arch", ARCHS)
def test_fp32_cut_to_bf16_or_without_its_last_k_fails(arch: str) -> None:
    a, b = drawn("fp32", 13, "normal", 3)
    due = bounded_product(asked("fp32", 13), a, b, arch)
    assert compare(due, by_tf32(a, b, arch)).outcome is Outcome.PASS
    assert compare(due, by_tf32(cut_to_bf16(a), cut_to_bf16(b), arch)).outcome is Outcome.OUTSIDE_BOUND
    assert compare(due, by_tf32(a[:, :-1], b[:-1], arch)).outcome is Outcome.OUTSIDE_BOUND


def test_what_tf32_holds_loses_nothing() -> None:
    a, b = drawn("fp32", 64, "integers", 1)
    due = bounded_product(asked("fp32", 64), a, b, "sm_90")
    assert due.bound is not None and not due.bound.any()
    words = by_tf32(a, b, "sm_90")
    assert compare(due, words).outcome is Outcome.PASS
    assert compare(due, words + (words != 0)).outcome is Outcome.OUTSIDE_BOUND  # one place more


TINY, LARGEST, INFINITE, ONE = 2.0**-140, FP32.largest, np.inf, 1.0
HOLLOW = np.uint32(0x7F800001)  # a NaN by its low bits alone: tf32 makes it an infinity


@pytest.mark.parametrize(
    ("a", "b", "inconclusive"),
    [
        ([INFINITE, ONE], [TINY, ONE], True),  # infinity, or infinity times zero
        ([INFINITE, ONE], [ONE, TINY], False),
        ([LARGEST, ONE], [2.0**-20, ONE], True),  # rounds to infinity
        ([LARGEST, ONE], [np.nan, ONE], False),  # NaN in any case
        ([2.0**127, ONE], [2.0**-20, ONE], False),
        ([np.nan, ONE], [TINY, ONE], False),
    ],
)
def test_only_what_narrowing_makes_another_kind_is_inconclusive(a: list, b: list, inconclusive: bool) -> None:
    words = [encode(FP32, np.array(side)) for side in (a, b)]
    due = bounded_product(asked("fp32", 2, m=1, n=1), words[0][None], words[1][:, None], "sm_90")
    assert due.inconclusive is not None and bool(due.inconclusive[0, 0]) is inconclusive


def test_a_nan_by_its_low_bits_alone_is_inconclusive() -> None:
    one = encode(FP32, np.array([[ONE]]))
    for word, inconclusive in ((HOLLOW, True), (np.uint32(FP32.nan_code), False)):
        due = bounded_product(asked("fp32", 1, m=1, n=1), np.array([[word]]), one, "sm_90")
        assert due.inconclusive is not None and bool(due.inconclusive[0, 0]) is inconclusive


def test_narrowing_is_never_less_than_what_is_lost() -> None:
    a, b = drawn("fp32", 40, "wide", 2)
    a, b = (np.where(np.isfinite(decode(FP32, side)), side, 0).astype(np.uint32) for side in (a, b))
    found = narrowing_effect(a, b)
    whole = decode(FP32, a) @ decode(FP32, b)
    for left, right in ((a & ~np.uint32(0x1FFF), b & ~np.uint32(0x1FFF)), (nearest_tf32(a), nearest_tf32(b))):
        moved = np.abs(decode(TF32, left) @ decode(TF32, right) - whole)
        assert (moved <= found.loss * (1 + 1e-12)).all()
    assert not narrowing_effect(a & ~np.uint32(0x1FFF), b & ~np.uint32(0x1FFF)).loss.any()
    assert FORMATS["tf32"].low_padding == 13


# ------------------------------------------------------------------------------------------- sums that no instruction rounds
def exact_factors(dtype: str, k: int, data_seed: int, m: int = 17, n: int = 18) -> tuple[np.ndarray, np.ndarray]:
    a = regimes.factor(dtype, (m, k), "exact", data_seed, "a", side="a", k_axis=1)
    return a, regimes.factor(dtype, (k, n), "exact", data_seed, "b", side="b", k_axis=0)


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "e4m3", "e5m2"])
def test_exact_factors_have_one_right_word_an_element(dtype: str) -> None:
    fmt = FORMATS[dtype]
    for data_seed, k in enumerate((1, 2, 3, 17, 64, 100, 640, 8192, 20000)):
        a, b = exact_factors(dtype, k, data_seed)
        for arch in (*ARCHS, "sm_89"):
            due = bounded_product(asked(dtype, k, m=17, n=18), a, b, arch)
            assert np.array_equal(due.low, due.high) and not due.inconclusive.any(), (arch, k)
        sums = decode(fmt, a) @ decode(fmt, b)
        rounded = decode(fmt, encode(fmt, sums)) != sums
        assert rounded.mean() > 0.1 or dtype == "fp32" or k == 2, f"the store of {rounded.mean():.0%} rounds at K = {k}"


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_exact_sums_end_on_ties_of_the_output(dtype: str) -> None:
    fmt = FORMATS[dtype]
    for k in (64, 640, 8192):
        a, b = exact_factors(dtype, k, 5)
        sums = decode(fmt, a) @ decode(fmt, b)
        even, away = (decode(fmt, encode(fmt, sums, rounding=way)) for way in (Rounding.NEAREST_EVEN, Rounding.NEAREST_AWAY))
        assert (even != away).mean() > 0.02


def test_the_two_factors_of_an_exact_case_belong_together() -> None:
    a, b = exact_factors("fp16", 640, 3)
    assert np.array_equal(regimes.factor("fp16", (18, 640), "exact", 3, "w", side="b", k_axis=1).T, b)
    magnitude = np.abs(decode(FORMATS["fp16"], a)) @ np.abs(decode(FORMATS["fp16"], b))
    own, other = (
        np.abs(decode(FORMATS["fp16"], a) @ decode(FORMATS["fp16"], side)) / magnitude
        for side in (b, exact_factors("fp16", 640, 4)[1])
    )
    assert np.median(own) < 0.01 < np.median(other), "the products of a pair cancel only with the factor of the same case"
    assert not np.array_equal(a, exact_factors("fp16", 640, 4)[0])
    normal = regimes.factor("fp16", (17, 9), "normal", 3, "a", side="a", k_axis=1)
    assert np.array_equal(normal, regimes.draw("fp16", (17, 9), "normal", regimes.generator(3, "a")))
    assert regimes.factor("int8", (3, 4), "exact", 1, "a", side="a", k_axis=1).dtype == np.int8
    assert regimes.factor("fp16", (0, 4), "exact", 1, "a", side="a", k_axis=1).shape == (0, 4)


@pytest.mark.parametrize("dtype", ["e4m3", "e5m2"])
def test_fp8_sums_of_four_rows_lie_on_ties_or_one_unit_beside(dtype: str) -> None:
    fmt, unit = FORMATS[dtype], 2.0**-6
    for k in (64, 640):
        a, b = exact_factors(dtype, k, 7)
        sums = np.abs(decode(fmt, a) @ decode(fmt, b))[:4]  # (4, N)
        kinds = {-unit: 0, 0.0: 0, unit: 0}
        for out in (fmt, BF16):
            down, up = (decode(out, encode(out, sums, rounding=way)) for way in (Rounding.TOWARD_ZERO, Rounding.TOWARD_POSITIVE))
            for near in kinds:
                on = sums - near == (down + up) / 2  # (4, N)
                early = decode(out, encode(out, sums - near, overflow=Overflow.SATURATE))
                kinds[near] += int((on & ((near == 0) | (early != decode(out, encode(out, sums))))).sum())
        assert min(kinds.values()) >= 4 and sum(kinds.values()) >= 30, kinds


def test_sparse_rows_have_the_first_and_the_last_k_always() -> None:
    for k in (640, 641):
        a = decode(FORMATS["e4m3"], exact_factors("e4m3", k, 2)[0])
        assert (a[:, 0] != 0).all() and (a[:, -1] != 0).all()
        assert ((a != 0).sum(axis=1) <= 64).all() and (a != 0).any(axis=0).mean() > 0.5


@pytest.mark.parametrize("k", [64, 640, 8192])
@pytest.mark.parametrize(
    ("dtype", "out"),
    [*((dtype, dtype) for dtype in ("fp16", "bf16", "fp32", "e4m3", "e5m2")), *(("e4m3", out) for out in ("fp16", "bf16", "fp32"))],
)
def test_each_fault_of_a_product_fails_at_any_depth(dtype: str, out: str, k: int) -> None:
    """numerics: one product dropped in one element, ties stored away and operands cut to bf16 among them."""
    kernel = Kernel("sm_90", dtype, out)
    a, b = exact_factors(dtype, k, 1)
    due = bounded_product(asked(dtype, k, out, m=17, n=18), a, b, "sm_90")
    assert compare(due, faultless(kernel, a, b)).outcome is Outcome.PASS
    mutants = [mutant for mutant in MUTANTS if not no_fault_in(kernel, mutant, k)]
    assert len(mutants) >= 7
    for mutant in mutants:
        assert compare(due, mutant_function(mutant)(kernel, a, b)).outcome in mutant.expected, mutant.name


# ----------------------------------------------------------------------------------------------------- what is inconclusive
def test_a_case_that_hides_every_product_is_inconclusive_and_no_pass() -> None:
    """fp8 on sm_90 keeps 13 bits: at K = 2048 the bound is larger than any product, and a dropped one would pass."""
    kernel, k = Kernel("sm_90", "e4m3"), 2048
    a, b = drawn("e4m3", k, "normal", 1)
    due = bounded_product(asked("e4m3", k), a, b, "sm_90")
    for words in (faultless(kernel, a, b), mutant_function(MUTANTS[0])(kernel, a, b)):
        assert compare(due, words).outcome is Outcome.INCONCLUSIVE
    wide = bounded_product(asked("e4m3", k), a, b, "sm_100")
    assert compare(wide, faultless(Kernel("sm_100", "e4m3"), a, b)).outcome is Outcome.PASS


@pytest.mark.parametrize("regime", ["wide", "planted", "subnormals"])
def test_an_element_of_which_one_word_is_possible_is_decided(regime: str) -> None:
    for data_seed in range(3):
        a, b = drawn("fp16", 640, regime, data_seed)
        due = bounded_product(asked("fp16", 640), a, b, "sm_90")
        assert due.inconclusive.mean() < 0.01 and (due.low == due.high).mean() > 0.6
        words = faultless(Kernel("sm_90", "fp16"), a, b)
        assert compare(due, words).outcome is Outcome.PASS
        finite = np.where((words & 0x7FFF) == 0x7C00, words - 1, words)  # the largest number for an infinity
        assert compare(due, finite).outcome is Outcome.OUTSIDE_BOUND


def test_a_product_is_hidden_from_its_own_size_on() -> None:
    rng = np.random.default_rng(2)
    left, others = rng.standard_normal((7, 30)), rng.standard_normal((30, 5))
    left[2, 3] = np.inf
    largest = np.abs(np.where(np.isfinite(left), left, 0)[:, :, None] * others[None]).max(axis=1)  # (7, 5)
    for share in (0.2, 0.9, 0.999, 1.0, 1.001, 2.0, 50.0):
        hidden = hides_a_product(largest * share, left, others, np.ones((7, 5), bool))
        assert (hidden == (share >= 1)).all(), share
    assert not hides_a_product(largest * 9, left, others, np.zeros((7, 5), bool)).any()


# --------------------------------------------------------------------------------------------------- what was launched
def test_the_instructions_that_were_launched_decide_the_bound() -> None:
    """fp8 on sm_90 goes through wgmma with 13 bits, or is widened to fp16 for mma.sync with 25."""
    a, b = drawn("e4m3", 512, "normal", 4)
    asked_for = asked("e4m3", 512, out="fp32")
    unknown, coarse, fine = (
        bounded_product(asked_for, a, b, "sm_90", launched_kinds=frozenset(launched))
        for launched in ((), {("wgmma", "", "e4m3", "e4m3", "fp32")}, {("mma.sync", "", "fp16", "fp16", "fp32")})
    )
    assert np.array_equal(unknown.bound, coarse.bound) and (fine.bound < coarse.bound / 1000).all()
    exact = decode(E4M3, a) @ decode(E4M3, b)
    near = encode(FP32, exact * (1 + 1e-3))  # what wgmma may give, and fp16 may not
    assert compare(fine, near).outcome is Outcome.OUTSIDE_BOUND
    assert compare(fine, encode(FP32, exact)).outcome is Outcome.PASS
    assert compare(coarse, near).outcome is not Outcome.OUTSIDE_BOUND


def test_fp32_by_multiply_adds_alone_may_lose_nothing_of_an_operand() -> None:
    a, b = drawn("fp32", 40, "normal", 4)
    whole = decode(FP32, a) @ decode(FP32, b)
    for launched, outcome in (("fma", Outcome.OUTSIDE_BOUND), ("wgmma", Outcome.PASS)):
        operand = "fp32" if launched == "fma" else "tf32"
        due = bounded_product(
            asked("fp32", 40), a, b, "sm_90", launched_kinds=frozenset({(launched, "", operand, operand, "fp32")})
        )
        assert compare(due, encode(FP32, whole)).outcome is Outcome.PASS
        assert compare(due, by_tf32(a, b, "sm_90")).outcome is outcome


def test_fp32_in_bf16_parts_may_lose_what_low_times_low_is() -> None:
    """bf16x3: each operand is a high and a low part in bf16, and the product of the low parts is left out."""
    rng, k = np.random.default_rng(1), 4
    values = [rng.integers(1024, 2048, shape).astype(float) for shape in ((M, k), (k, N))]  # tf32 holds them, bf16 does not
    a, b = (encode(FP32, side) for side in values)
    high = [decode(BF16, encode(BF16, side)) for side in values]
    low = [decode(BF16, encode(BF16, whole - part)) for whole, part in zip(values, high, strict=True)]
    three = encode(FP32, high[0] @ high[1] + high[0] @ low[1] + low[0] @ high[1])
    one = encode(FP32, high[0] @ high[1])
    for operand, outcome in (("bf16", Outcome.PASS), ("tf32", Outcome.OUTSIDE_BOUND)):
        launched = frozenset({("wgmma", "", operand, operand, "fp32")})
        due = bounded_product(asked("fp32", k), a, b, "sm_90", launched_kinds=launched)
        assert compare(due, three).outcome is outcome
        assert compare(due, one).outcome is Outcome.OUTSIDE_BOUND


@pytest.mark.parametrize(
    ("dtype", "launched", "found"),
    [
        ("fp16", [["wgmma", "", "fp16", "fp16", "fp32"]], {("wgmma", "fp16")}),
        ("fp16", [["mma.sync", "", "tf32", "tf32", "fp32"]], {("mma.sync", "tf32")}),  # fp16 read as fp32
        ("fp16", [["mma.sync", "", "fp16", "fp16", "fp16"]], "all"),  # sums in fp16 are nobody's right
        ("fp16", [["fma", "", "fp32", "fp32", "fp32"]], set()),
        ("fp16", [], "all"),
        ("fp32", [["mma.sync", "", "tf32", "tf32", "fp32"]], {("mma.sync", "tf32")}),
        ("fp32", [["mma.sync", "", "fp16", "fp16", "fp32"]], "all"),  # which does not hold fp32
        ("e4m3", [["fma", "", "fp32", "fp32", "fp32"], ["wgmma", "", "e4m3", "e4m3", "fp32"]], {("wgmma", "e4m3")}),
    ],
)
def test_only_instructions_that_hold_the_operands_count(dtype: str, launched: list, found: set | str) -> None:
    rules = instructions("sm_90", dtype, launched_instructions({"instructions": launched}))
    everything = {(rule.family, rule.a) for rule in instructions("sm_90", dtype)}
    assert {(rule.family, rule.a) for rule in rules} == (everything if found == "all" else found)
    assert len(everything) > 1 and all(rule.d == "fp32" for rule in rules)


def test_a_kind_names_the_instructions_that_a_bound_is_over() -> None:
    kind = launched_instructions({"instructions": [["tcgen05", "f16", "", "", ""]]})
    assert {rule.kind for rule in instructions("sm_100", "bf16", kind)} == {"f16"}

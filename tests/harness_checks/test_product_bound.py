"""Contract under test: the bound of a product fails no right kernel, whatever it does to its operands, and fails wrong ones."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from harness import operands as regimes
from harness.comparison import compare
from harness.narrowed_operands import narrowed
from harness.product_bound import bounded_product
from harness.verdict import Outcome
from reference.formats import BF16, FORMATS, FP32, TF32, Rounding, decode, encode
from reference.tensor_core import instruction, product

M, N = 9, 11
ARCHS = {"sm_80": "mma.sync", "sm_90": "wgmma", "sm_100": "tcgen05"}
PASSES = (Outcome.RIGHT, Outcome.UNDECIDED)


def asked(dtype: str, k: int, out: str = "", m: int = M, n: int = N) -> SimpleNamespace:
    return SimpleNamespace(m=m, n=n, k=k, dtype=dtype, out=out or dtype, activation="")


def drawn(dtype: str, k: int, regime: str, data_seed: int) -> tuple[np.ndarray, np.ndarray]:
    return tuple(
        regimes.draw(dtype, shape, regime, regimes.generator(data_seed, name)) for name, shape in (("a", (M, k)), ("b", (k, N)))
    )


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
    assert compare(due, by_tf32(a, b, arch)).outcome is Outcome.RIGHT
    assert compare(due, by_tf32(cut_to_bf16(a), cut_to_bf16(b), arch)).outcome is Outcome.OUTSIDE_BOUND
    assert compare(due, by_tf32(a[:, :-1], b[:-1], arch)).outcome is Outcome.OUTSIDE_BOUND


def test_what_tf32_holds_loses_nothing_and_its_sums_are_held_exactly() -> None:
    a, b = drawn("fp32", 64, "integers", 1)
    due = bounded_product(asked("fp32", 64), a, b, "sm_90")
    assert due.bound is not None and not due.bound.any()
    words = by_tf32(a, b, "sm_90")
    assert compare(due, words).outcome is Outcome.RIGHT
    assert compare(due, words + (words != 0)).outcome is Outcome.OUTSIDE_BOUND  # one place more


TINY, LARGEST, INFINITE, ONE = 2.0**-140, FP32.largest, np.inf, 1.0
HOLLOW = np.uint32(0x7F800001)  # a NaN by its low bits alone: tf32 makes it an infinity


@pytest.mark.parametrize(
    ("a", "b", "undecided"),
    [
        ([INFINITE, ONE], [TINY, ONE], True),  # infinity, or infinity times zero
        ([INFINITE, ONE], [ONE, TINY], False),
        ([LARGEST, ONE], [2.0**-20, ONE], True),  # rounds to infinity
        ([LARGEST, ONE], [np.nan, ONE], False),  # NaN in any case
        ([2.0**127, ONE], [2.0**-20, ONE], False),
        ([np.nan, ONE], [TINY, ONE], False),
    ],
)
def test_only_what_narrowing_makes_another_kind_is_undecided(a: list, b: list, undecided: bool) -> None:
    words = [encode(FP32, np.array(side)) for side in (a, b)]
    due = bounded_product(asked("fp32", 2, m=1, n=1), words[0][None], words[1][:, None], "sm_90")
    assert due.undecided is not None and bool(due.undecided[0, 0]) is undecided


def test_a_nan_by_its_low_bits_alone_decides_nothing_and_a_whole_one_does() -> None:
    one = encode(FP32, np.array([[ONE]]))
    for word, undecided in ((HOLLOW, True), (np.uint32(FP32.nan_code), False)):
        due = bounded_product(asked("fp32", 1, m=1, n=1), np.array([[word]]), one, "sm_90")
        assert due.undecided is not None and bool(due.undecided[0, 0]) is undecided


def test_narrowing_is_summed_exactly_and_never_less_than_what_is_lost() -> None:
    a, b = drawn("fp32", 40, "wide", 2)
    a, b = (np.where(np.isfinite(decode(FP32, side)), side, 0).astype(np.uint32) for side in (a, b))
    found = narrowed(a, b)
    whole = decode(FP32, a) @ decode(FP32, b)
    for left, right in ((a & ~np.uint32(0x1FFF), b & ~np.uint32(0x1FFF)), (nearest_tf32(a), nearest_tf32(b))):
        moved = np.abs(decode(TF32, left) @ decode(TF32, right) - whole)
        assert (moved <= found.loss * (1 + 1e-12)).all()
    assert not narrowed(a & ~np.uint32(0x1FFF), b & ~np.uint32(0x1FFF)).loss.any()
    assert FORMATS["tf32"].low_padding == 13

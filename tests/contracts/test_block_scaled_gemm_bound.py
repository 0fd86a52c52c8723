"""Contract under test: launchers of a block-scaled product: every regime decides, right words pass, wrong ones fail."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bitverdict.harness.contracts.inputs import block_scaled_inputs
from bitverdict.harness.contracts.inputs.block_scaled_inputs import REGIMES, Side
from bitverdict.harness.contracts.oracle.block_scaled_gemm_bound import bounded_scaled_product, instructions
from bitverdict.harness.contracts.oracle.dot_scaled_lowering import result_words, scaled_plan
from bitverdict.harness.judge.compare import compare
from bitverdict.harness.model.verdict import Outcome
from bitverdict.kernels.scaled_operands import FORMATS
from bitverdict.reference import formats
from bitverdict.reference.formats import decode

M, N, K = 36, 28, 256
LAUNCHED = {"sm_90": ("wgmma", "", "bf16", "bf16", "fp32")}


def drawn(name: str, regime: str, data_seed: int = 1) -> tuple[Side, Side]:
    f = FORMATS[name]
    return tuple(  # type: ignore[return-value]
        block_scaled_inputs.draw(regime, element, f.scale, f.block_size, rows, K, data_seed, side)
        for side, element, rows in (("a", f.a, M), ("b", f.b, N))
    )


def due(name: str, out: str, a: Side, b: Side, arch: str = "sm_100"):
    f = FORMATS[name]
    one = LAUNCHED.get(arch, ("tcgen05", "", f.a, f.b, "fp32"))
    return bounded_scaled_product(f, out, a, b, arch, frozenset({one}))


def words(name: str, out: str, a: Side, b: Side, arch: str = "sm_100") -> np.ndarray:
    f = FORMATS[name]
    found = result_words(scaled_plan(arch, f.a, f.b, f.scale, f.block_size), out, arch, a.codes, a.scales, b.codes, b.scales)
    return found.view(f"u{found.dtype.itemsize}")


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("name", FORMATS)
def test_the_plans_words_pass_and_a_dropped_k_fails_in_every_regime(name: str, regime: str) -> None:
    if regime == "ends" and FORMATS[name].scale == "e8m0":
        regime = "wide"  # as launchers are asked it
    a, b = drawn(name, regime)
    for arch in ("sm_90", "sm_100"):
        found = due(name, "fp32", a, b, arch)
        assert compare(found, words(name, "fp32", a, b, arch)).outcome is Outcome.PASS, arch
        assert found.inconclusive.mean() < 0.1
        short = replace(a, codes=np.where(np.arange(K) == K - 1, 0, a.codes).astype(a.codes.dtype))
        assert compare(found, words(name, "fp32", short, b, arch)).outcome is Outcome.OUTSIDE_BOUND, arch


@pytest.mark.parametrize(("regime", "most"), [("layer", 0.0), ("ends", 0.6)])
def test_fp16_results_of_nvfp4_are_representable_and_decided(regime: str, most: float) -> None:
    a, b = drawn("nvfp4", regime)
    found = due("nvfp4", "fp16", a, b)
    assert not found.inconclusive.any()
    assert 1 - np.isfinite(decode(formats.FP16, words("nvfp4", "fp16", a, b))).mean() <= most
    assert compare(found, words("nvfp4", "fp16", a, b)).outcome is Outcome.PASS


def test_ends_of_ue4m3_are_still_the_ends_and_free_in_one_line_of_four() -> None:
    a, b = drawn("nvfp4", "ends")
    ends = {0, 1, 2, 3, 0x7B, 0x7C, 0x7D, 0x7E}
    assert set(np.unique(a.scales)) == set(np.unique(b.scales)) == ends
    kept = np.arange(M) % 4 != 3
    large = [side.scales[np.arange(len(side.scales)) % 4 != 3] > 3 for side in (a, b)]
    assert all((side == side[0]).all() for side in large) and (large[0][0] ^ large[1][0]).all()
    assert 0 < (a.scales[~kept] > 3).mean() < 1


@pytest.mark.parametrize("name", [name for name, f in FORMATS.items() if f.scale == "e8m0"])
@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_ends_of_e8m0_are_finite_where_a_large_scale_meets_a_small(name: str, arch: str) -> None:
    """A case of 16 blocks told nothing apart: each word was infinite, NaN or zero."""
    a, b = drawn(name, "ends")
    found = decode(formats.FP32, words(name, "fp32", a, b, arch))
    opposed = [np.arange(side) % 4 != 3 for side in found.shape]
    assert np.isfinite(found[np.ix_(*opposed)]).all()
    assert (found[np.ix_(*opposed)] != 0).mean() > 0.9
    assert {0, 1, 2, 3, 0xFB, 0xFC, 0xFD, 0xFE} <= set(np.unique(a.scales))


@pytest.mark.parametrize("name", FORMATS)
def test_scales_of_integers_differ_and_every_sum_stays_exact(name: str) -> None:
    """With all scales one, a kernel that reads another block's scales gave the right words."""
    f = FORMATS[name]
    a, b = drawn(name, "integers")
    assert {float(value) for value in np.unique(decode(formats.FORMATS[f.scale], a.scales))} == {0.5, 1.0, 2.0}
    found = due(name, "fp32", a, b)
    assert not found.bound.any() and np.array_equal(found.low, found.high)
    moved = replace(a, scales=np.roll(a.scales, 1, axis=1))
    assert compare(found, words(name, "fp32", a, b)).outcome is Outcome.PASS
    assert compare(found, words(name, "fp32", moved, b)).outcome is Outcome.OUTSIDE_BOUND


def test_where_no_widening_was_launched_all_of_it_is_decided() -> None:
    """Bit 7 of a ue4m3 scale: tcgen05 ignores it, the compiler's widening takes it for a sign."""
    f, (a, b) = FORMATS["nvfp4"], drawn("nvfp4", "normal")
    signed = replace(a, scales=(a.scales | 0x80).astype(np.uint8))
    assert due("nvfp4", "fp32", signed, b, "sm_90").inconclusive.all()
    scaled = due("nvfp4", "fp32", signed, b)
    assert not scaled.inconclusive.any() and compare(scaled, words("nvfp4", "fp32", a, b)).outcome is Outcome.PASS
    assert bounded_scaled_product(f, "fp32", signed, b, "sm_100").inconclusive.all(), "unknown: it may have been either"


def test_instructions_of_a_scaled_product_are_scaled_or_hold_its_operands() -> None:
    every = instructions(FORMATS["nvfp4"], "sm_100")
    assert {rule.kind for rule in every} == {"mxf4nvf4", "f16", "tf32", "mma.sync"}
    assert {rule.a for rule in instructions(FORMATS["mxfp4"], "sm_90")} == {"bf16", "tf32"}
    one = instructions(FORMATS["mxfp8"], "sm_100", frozenset({("tcgen05", "mxf8f6f4", "", "", "")}))
    assert [(rule.kind, rule.a, rule.b) for rule in one] == [("mxf8f6f4", "e4m3", "e4m3")]

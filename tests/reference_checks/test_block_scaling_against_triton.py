"""Contract under test: `triton.tools.mxfp` says the same as this reference, except where it is wrong, and those points are pinned.

Triton 3.9's MXFP4Tensor breaks ties by taking 1e-6 off some distances, so values within about 1e-6 of a tie go wrong; and from
2^27 on all its fp32 distances are equal, so that a huge value becomes zero. Its MXScaleTensor takes `floor` of an fp32 `log2`. A
test that pins a fault fails when Triton repairs it: then delete it, and the exception it grants elsewhere.
"""

from __future__ import annotations

import numpy as np
import torch
from triton.tools.mxfp import MXFP4Tensor, MXScaleTensor

from bitverdict.reference.block_scaling import MXFP4, dequantize, quantize
from bitverdict.reference.formats import BF16, E2M1, E8M0, FP16, Rounding, decode, encode
from tests.reference_checks.nearest_code import around_midpoints

PINNED = "Triton has repaired this: delete the pin and the exception it grants"


def triton_elements(values: np.ndarray) -> np.ndarray:
    return MXFP4Tensor(torch.from_numpy(values.astype(np.float32))).data.numpy()


def triton_scales(values: np.ndarray) -> np.ndarray:
    return MXScaleTensor(torch.from_numpy(values.astype(np.float32))).data.numpy()


def test_every_e2m1_code_decodes_as_in_triton() -> None:
    tensor = MXFP4Tensor(size=(16,))
    tensor.data = torch.arange(16, dtype=torch.uint8)
    assert tensor.to(torch.float32).tolist() == decode(E2M1, np.arange(16, dtype=np.uint8)).tolist()


def test_every_e8m0_code_decodes_as_in_triton() -> None:
    codes = np.arange(256, dtype=np.uint8)
    tensor = MXScaleTensor(size=(256,))
    tensor.data = torch.from_numpy(codes)
    theirs = tensor.to(torch.float32).numpy().astype(np.float64)
    assert np.array_equal(theirs, decode(E8M0, codes), equal_nan=True)


def test_e2m1_agrees_for_every_fp16_and_bf16_below_the_pinned_size() -> None:
    for source in (FP16, BF16):
        values = decode(source, np.arange(1 << 16, dtype=np.uint16))
        values = values[np.isfinite(values) & (np.abs(values) < 2.0**27)]
        assert np.array_equal(triton_elements(values), encode(E2M1, values.astype(np.float32)))


def test_e2m1_of_infinities_agrees() -> None:
    values = np.array([np.inf, -np.inf])
    assert triton_elements(values).tolist() == encode(E2M1, values).tolist() == [0x7, 0xF]


def test_triton_turns_values_from_2_to_the_27_into_zero() -> None:
    values = np.array([1e10, -1e30], np.float32)
    assert encode(E2M1, values).tolist() == [0x7, 0xF]
    assert triton_elements(values).tolist() == [0x0, 0x8], PINNED


def test_triton_rounds_values_just_beside_a_tie_as_if_they_were_ties() -> None:
    beside = np.array([0.2500001, 0.7499999, 3.4999998], np.float32)
    assert decode(E2M1, encode(E2M1, beside)).tolist() == [0.5, 0.5, 3.0]
    assert decode(E2M1, triton_elements(beside)).tolist() == [0.0, 1.0, 4.0], PINNED


def test_triton_differs_around_midpoints_only_as_pinned() -> None:
    values = around_midpoints(E2M1)
    values = values[values == values.astype(np.float32)]
    ours, theirs = encode(E2M1, values), triton_elements(values)
    midpoints = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    near = np.abs(np.abs(values)[:, None] - midpoints).min(axis=1)
    differ = ours != theirs
    assert differ.any(), PINNED
    assert (near[differ] > 0).all() and (near[differ] < 1e-6).all()


def test_triton_keeps_the_sign_of_a_nan_where_ptx_makes_it_positive() -> None:
    """PTX makes it the largest positive."""
    values = np.array([0x7FC00000, 0xFFC00000], np.uint32).view(np.float32)
    assert encode(E2M1, values).tolist() == [0x7, 0x7]
    assert triton_elements(values).tolist() == [0x7, 0xF], PINNED


def test_scales_agree_for_every_bf16_value() -> None:
    values = decode(BF16, np.arange(1 << 16, dtype=np.uint16)).astype(np.float32)
    assert np.array_equal(triton_scales(values), encode(E8M0, values, rounding=Rounding.TOWARD_ZERO))


def test_triton_doubles_the_scale_of_values_just_below_a_power_of_two() -> None:
    values = np.nextafter(np.array([8, 128, 2.0**100], np.float32), np.float32(0))
    assert encode(E8M0, values, rounding=Rounding.TOWARD_ZERO).tolist() == [127 + 2, 127 + 6, 127 + 99]
    assert triton_scales(values).tolist() == [127 + 3, 127 + 7, 127 + 100], PINNED


def test_a_whole_mxfp4_block_agrees_with_triton_where_no_pin_applies() -> None:
    values = np.random.default_rng(21).standard_normal((64, 32)).astype(np.float32)
    got = quantize(MXFP4, values)
    largest = np.abs(values).max(axis=1)
    assert np.array_equal(got.scales[:, 0], triton_scales(largest) - 2)
    scale = decode(E8M0, got.scales).astype(np.float32)
    assert np.array_equal(got.elements, triton_elements(values / scale))
    theirs = MXFP4Tensor(size=values.shape)
    theirs.data = torch.from_numpy(got.elements)
    assert np.array_equal(dequantize(MXFP4, got.elements, got.scales), theirs.to(torch.float32).numpy() * scale)

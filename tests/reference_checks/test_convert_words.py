"""Contract under test: `convert` gives the words that the conversion instructions of an H200 gave, recorded in
`tests/hardware_words/h200_own_cvt.npz`: ties and their neighbours in fp32, all words of fp16, all codes of the fp8 formats.

A conversion wrong in one rule must be seen in the same words: truncation for rounding, infinity for saturation.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bitverdict.reference.formats import FORMATS, Overflow, Rounding, convert, decode, encode

WORDS = np.load(Path(__file__).parent.parent / "hardware_words" / "h200_own_cvt.npz")
META = json.loads(str(WORDS["meta"]))
FP32, FP16, FP8 = WORDS["source"], np.arange(1 << 16, dtype=np.uint16), np.arange(256, dtype=np.uint8)
RECORDED = {
    "cvt_rn_f16_f32": ("fp32", "fp16", FP32),
    "cvt_rn_bf16_f32": ("fp32", "bf16", FP32),
    "cvt_rn_satfinite_e4m3x2_f32": ("fp32", "e4m3", FP32),
    "cvt_rn_satfinite_e5m2x2_f32": ("fp32", "e5m2", FP32),
    "cvt_rn_satfinite_e4m3x2_f16x2": ("fp16", "e4m3", FP16),
    "cvt_rn_satfinite_e5m2x2_f16x2": ("fp16", "e5m2", FP16),
    "cvt_rn_f16x2_e4m3x2": ("e4m3", "fp16", FP8),
    "cvt_rn_f16x2_e5m2x2": ("e5m2", "fp16", FP8),
}


@pytest.mark.parametrize("instruction", RECORDED)
def test_convert_gives_the_recorded_words(instruction: str) -> None:
    source, destination, codes = RECORDED[instruction]
    expected = convert(FORMATS[source], FORMATS[destination], codes, META["arch"])
    differ = np.flatnonzero(expected != WORDS[instruction])
    assert not differ.size, [(hex(int(codes[i])), hex(int(WORDS[instruction][i])), hex(int(expected[i]))) for i in differ[:8]]


ROUNDINGS = [("cvt_rz_f16_f32", Rounding.TOWARD_ZERO), ("cvt_rn_f16_f32", Rounding.NEAREST_EVEN)]


@pytest.mark.parametrize(("instruction", "rounding"), ROUNDINGS)
def test_encode_rounds_as_the_instruction_named_so(instruction: str, rounding: Rounding) -> None:
    values = decode(FORMATS["fp32"], FP32)
    finite = np.abs(values) < 65504  # beyond, .rz saturates at the largest number: the rule of overflow, not of rounding
    assert np.array_equal(encode(FORMATS["fp16"], values[finite], rounding=rounding), WORDS[instruction][finite])


WRONG = [{"rounding": Rounding.TOWARD_ZERO}, {"overflow": Overflow.NAN}, {"rounding": Rounding.NEAREST_AWAY}]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_the_words_tell_a_wrong_rule(wrong: dict) -> None:
    rule = {"rounding": Rounding.NEAREST_EVEN, "overflow": Overflow.SATURATE} | wrong
    codes = encode(FORMATS["e4m3"], decode(FORMATS["fp32"], FP32), **rule)
    assert (codes != WORDS["cvt_rn_satfinite_e4m3x2_f32"]).sum() > 20


def test_the_tensor_core_drops_bits_of_tf32_and_the_conversion_rounds() -> None:
    values = decode(FORMATS["fp32"], FP32)
    normal = np.isfinite(values) & (np.abs(values) < 3e38)
    for instruction, rounding in (("cvt_rna_tf32_f32", Rounding.NEAREST_AWAY), ("cvt_rn_tf32_f32", Rounding.NEAREST_EVEN)):
        expected = encode(FORMATS["tf32"], values[normal], rounding=rounding)
        assert np.array_equal(expected >> 13, WORDS[instruction][normal] >> 13)
    dropped = encode(FORMATS["tf32"], values[normal], rounding=Rounding.TOWARD_ZERO)
    assert (dropped >> 13 != WORDS["cvt_rna_tf32_f32"][normal] >> 13).sum() > 20

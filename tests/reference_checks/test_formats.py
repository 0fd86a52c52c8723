"""Contract under test: a code of each format means what the OCP and PTX tables say, exactly, in float64.

Checked by hand-copied tables, by exhaustion, and against ml_dtypes on every code it has a format for.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from bitverdict.reference.formats import (
    BF16,
    E2M1,
    E2M3,
    E3M2,
    E4M3,
    E4M3FNUZ,
    E5M2,
    E5M2FNUZ,
    E8M0,
    FORMATS,
    FP16,
    FP32,
    TF32,
    UE4M3,
    Format,
    Specials,
    decode,
)
from bitverdict.reference.formats.decode import decode_by_definition

ML_DTYPES = {
    "e2m1": ml_dtypes.float4_e2m1fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "e8m0": ml_dtypes.float8_e8m0fnu,
    "fp16": np.float16,
    "bf16": ml_dtypes.bfloat16,
}

# OCP Microscaling Formats 1.0, section 5.3, and OCP OFP8 1.0, table 1: largest, smallest normal, smallest, and the special codes.
ENDS = [
    (E2M1, 6.0, 1.0, 0.5),
    (E2M3, 7.5, 1.0, 0.125),
    (E3M2, 28.0, 0.25, 0.0625),
    (E4M3, 448.0, 2.0**-6, 2.0**-9),
    (E5M2, 57344.0, 2.0**-14, 2.0**-16),
    (E4M3FNUZ, 240.0, 2.0**-7, 2.0**-10),
    (E5M2FNUZ, 57344.0, 2.0**-15, 2.0**-17),
    (E8M0, 2.0**127, 2.0**-127, 2.0**-127),
    (UE4M3, 448.0, 2.0**-6, 2.0**-9),
    (FP16, 65504.0, 2.0**-14, 2.0**-24),
    (BF16, (2 - 2.0**-7) * 2.0**127, 2.0**-126, 2.0**-133),
    (TF32, (2 - 2.0**-10) * 2.0**127, 2.0**-126, 2.0**-136),
    (FP32, (2 - 2.0**-23) * 2.0**127, 2.0**-126, 2.0**-149),
]

HAND = {
    "e2m1": {0x0: 0, 0x1: 0.5, 0x2: 1, 0x3: 1.5, 0x4: 2, 0x5: 3, 0x6: 4, 0x7: 6, 0x9: -0.5, 0xF: -6},
    "e2m3": {0x01: 0.125, 0x07: 0.875, 0x08: 1, 0x0F: 1.875, 0x10: 2, 0x18: 4, 0x1F: 7.5, 0x3F: -7.5},
    "e3m2": {0x01: 0.0625, 0x03: 0.1875, 0x04: 0.25, 0x0C: 1, 0x1C: 16, 0x1F: 28, 0x3F: -28},
    "e4m3": {0x01: 2.0**-9, 0x07: 7 * 2.0**-9, 0x08: 2.0**-6, 0x38: 1, 0x78: 256, 0x7E: 448, 0x7F: np.nan, 0xFF: np.nan},
    "e5m2": {0x01: 2.0**-16, 0x03: 3 * 2.0**-16, 0x3C: 1, 0x7B: 57344, 0x7C: np.inf, 0xFC: -np.inf, 0x7D: np.nan, 0x7E: np.nan},
    "e4m3fnuz": {0x00: 0, 0x01: 2.0**-10, 0x08: 2.0**-7, 0x40: 1, 0x7F: 240, 0x80: np.nan, 0xFF: -240},
    "e5m2fnuz": {0x00: 0, 0x01: 2.0**-17, 0x04: 2.0**-15, 0x40: 1, 0x7F: 57344, 0x80: np.nan, 0xFF: -57344},
    "e8m0": {0x00: 2.0**-127, 0x01: 2.0**-126, 0x7F: 1, 0x80: 2, 0xFE: 2.0**127, 0xFF: np.nan},
    "ue4m3": {0x00: 0, 0x01: 2.0**-9, 0x38: 1, 0x7E: 448, 0x7F: np.nan, 0x80: 0, 0xB8: 1, 0xFF: np.nan},
    "fp16": {0x0001: 2.0**-24, 0x3C00: 1, 0x7BFF: 65504, 0x7C00: np.inf, 0x7C01: np.nan, 0xC000: -2},
    "bf16": {0x0001: 2.0**-133, 0x3F80: 1, 0x7F80: np.inf, 0x7FFF: np.nan, 0xC000: -2},
    "tf32": {0x3F800000: 1, 0x3F801FFF: 1, 0x3F802000: 1 + 2.0**-10, 0x7F800000: np.inf, 0x7F800001: np.inf, 0x7F802000: np.nan},
    "fp32": {0x00000001: 2.0**-149, 0x3F800001: 1 + 2.0**-23, 0x7F800000: np.inf, 0x7F800001: np.nan, 0x80000000: -0.0},
}


def all_codes(fmt: Format) -> np.ndarray:
    """Every code of a format of at most 16 bits, ignored high bits set and clear."""
    return np.arange(1 << (fmt.width + fmt.ignored_high_bits)).astype(fmt.storage)


def same(got: np.ndarray, expected: np.ndarray) -> bool:
    """Equal as float64 words, any NaN equal to any."""
    nan = np.isnan(expected)
    return bool(np.array_equal(np.isnan(got), nan) and np.array_equal(got[~nan].view(np.uint64), expected[~nan].view(np.uint64)))


@pytest.mark.parametrize("name", HAND)
def test_codes_mean_what_the_published_tables_say(name: str) -> None:
    fmt = FORMATS[name]
    codes = np.array(list(HAND[name]), fmt.storage)
    assert same(decode(fmt, codes), np.array(list(HAND[name].values()), np.float64))


@pytest.mark.parametrize(("fmt", "largest", "smallest_normal", "smallest"), ENDS, ids=lambda end: getattr(end, "name", ""))
def test_a_format_ends_where_its_specification_says(fmt: Format, largest: float, smallest_normal: float, smallest: float) -> None:
    assert (fmt.largest, fmt.smallest_normal, fmt.smallest) == (largest, smallest_normal, smallest)
    assert decode(fmt, np.array(fmt.largest_code, fmt.storage)) == largest


def test_every_format_is_registered_under_its_own_name() -> None:
    assert {name: fmt.name for name, fmt in FORMATS.items()} == {name: name for name in HAND}


@pytest.mark.parametrize("name", ML_DTYPES)
def test_every_code_decodes_as_ml_dtypes_decodes_it(name: str) -> None:
    codes = all_codes(FORMATS[name])
    with np.errstate(invalid="ignore"):  # ml_dtypes' own cast of signalling NaNs
        theirs = codes.view(ML_DTYPES[name]).astype(np.float64)
    assert same(decode(FORMATS[name], codes), theirs)


def test_ue4m3_is_e4m3_without_its_sign_bit() -> None:
    codes = all_codes(UE4M3)
    assert same(decode(UE4M3, codes), decode(E4M3, codes & 0x7F))


@pytest.mark.parametrize("fmt", [FP32, TF32], ids=lambda fmt: fmt.name)
def test_a_container_word_decodes_by_the_definition_too(fmt: Format) -> None:
    top = np.arange(1 << 16, dtype=np.uint32) << 16
    words = np.concatenate([top, top | 0x0001, top | 0x1FFF, top | 0x2000, top | 0xFFFF])  # every exponent, both signs
    assert same(decode(fmt, words), decode_by_definition(fmt, words))


@pytest.mark.parametrize("name", FORMATS)
def test_positive_codes_are_in_the_order_of_their_values(name: str) -> None:
    fmt = FORMATS[name]
    step = 1 << max(fmt.low_padding, fmt.width - 16)
    values = decode(fmt, np.arange(0, fmt.largest_code + 1, step).astype(fmt.storage))
    assert (np.diff(values) > 0).all() and np.isfinite(values).all()


@pytest.mark.parametrize("name", FORMATS)
def test_special_codes_are_special(name: str) -> None:
    fmt = FORMATS[name]
    assert (fmt.nan_code is None) == (fmt.specials is Specials.FINITE_ONLY)
    if fmt.nan_code is not None:
        assert np.isnan(decode(fmt, np.array(fmt.nan_code, fmt.storage)))
    if fmt.infinity_code is not None:
        assert decode(fmt, np.array(fmt.infinity_code, fmt.storage)) == np.inf


@pytest.mark.parametrize("shape", [(), (0,), (3, 5), (2, 0, 4)])
def test_the_shape_of_the_codes_is_kept(shape: tuple[int, ...]) -> None:
    for fmt in (E2M1, FP16, TF32):
        assert np.shape(decode(fmt, np.zeros(shape, fmt.storage))) == shape


def test_a_packed_byte_is_refused_as_a_code_of_four_bits() -> None:
    with pytest.raises(ValueError, match=r"0x21 is no code of e2m1 \(4 bits\); unpack"):
        decode(E2M1, np.array([0x21], np.uint8))


def test_signed_integers_are_refused_as_codes() -> None:
    with pytest.raises(ValueError, match="unsigned"):
        decode(E4M3, np.array([-1], np.int8))

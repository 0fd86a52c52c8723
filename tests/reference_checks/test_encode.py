"""Contract under test: `encode` rounds each value once, as named, to the code that an exhaustive search finds.

Every code, every midpoint and their neighbours, for all formats, roundings and overflows; all fp16 and bf16 inputs; ml_dtypes as a
third voice, with the points where ml_dtypes 0.6 itself is wrong pinned.
"""

from __future__ import annotations

import numpy as np
import pytest

from bitverdict.reference.formats import (
    BF16,
    E2M1,
    E4M3,
    E5M2,
    E8M0,
    FORMATS,
    FP16,
    FP32,
    TF32,
    UE4M3,
    Format,
    Overflow,
    Rounding,
    Specials,
    decode,
    encode,
)
from tests.faults import reference_modules as corpus
from tests.faults.mutants import Mutant, mutant_module
from tests.reference_checks.nearest_code import around_midpoints, magnitudes, nearest_magnitude
from tests.reference_checks.test_formats import ML_DTYPES

SMALL = [fmt for fmt in FORMATS.values() if fmt.width <= 8]
SEARCHED = [fmt for fmt in FORMATS.values() if fmt is not FP32]


def expected_codes(fmt: Format, values: np.ndarray, rounding: Rounding, overflow: Overflow) -> np.ndarray:
    """By search, for finite values that an unsigned format can hold: the code, or what the overflow makes of it."""
    position = nearest_magnitude(fmt, values, rounding)  # (elements,)
    count = magnitudes(fmt).size - 1
    negative = np.signbit(values) & fmt.has_sign  # (elements,)
    if fmt.specials is Specials.NAN_NEGATIVE_ZERO:
        negative &= position != 0
    toward = {Rounding.TOWARD_ZERO: True, Rounding.TOWARD_POSITIVE: negative, Rounding.TOWARD_NEGATIVE: ~negative}
    stops = toward.get(rounding, False) if overflow is Overflow.INFINITY else overflow is Overflow.SATURATE
    infinity = fmt.infinity_code if overflow is Overflow.INFINITY else None
    beyond = infinity if infinity is not None else fmt.nan_code if fmt.nan_code is not None else fmt.largest_code
    magnitude = np.where(position == count, np.where(stops, fmt.largest_code, beyond), position << fmt.low_padding)  # (elements,)
    nan = magnitude == (fmt.nan_code if fmt.nan_code is not None else -1)  # (elements,)
    return np.where(nan, magnitude, magnitude | np.where(negative, fmt.sign_bit, 0)).astype(fmt.storage)


def mismatches(encoder, fmt: Format, rounding: Rounding = Rounding.NEAREST_EVEN, overflow: Overflow = Overflow.INFINITY) -> int:
    """How many of the values around all midpoints `encoder` and the search disagree on, through float64 and float32."""
    values = around_midpoints(fmt)
    expected = expected_codes(fmt, values, rounding, overflow)
    wrong = np.count_nonzero(encoder(fmt, values, rounding=rounding, overflow=overflow) != expected)
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    held = narrow == values
    got = encoder(fmt, narrow[held], rounding=rounding, overflow=overflow)
    return wrong + np.count_nonzero(got != expected[held])


@pytest.mark.share(3)
@pytest.mark.parametrize("rounding", Rounding, ids=lambda rounding: rounding.name)
@pytest.mark.parametrize("fmt", SEARCHED, ids=lambda fmt: fmt.name)
def test_around_every_midpoint_the_code_is_the_one_a_search_finds(fmt: Format, rounding: Rounding) -> None:
    assert mismatches(encode, fmt, rounding) == 0


@pytest.mark.parametrize("overflow", Overflow, ids=lambda overflow: overflow.name)
@pytest.mark.parametrize("fmt", [fmt for fmt in SEARCHED if fmt is not TF32], ids=lambda fmt: fmt.name)
def test_each_overflow_ends_as_named(fmt: Format, overflow: Overflow) -> None:
    if overflow is Overflow.NAN and fmt.nan_code is None:
        with pytest.raises(ValueError, match=f"{fmt.name} has no NaN"):
            encode(fmt, np.zeros(1), overflow=overflow)
        return
    for rounding in (Rounding.NEAREST_EVEN, Rounding.TOWARD_ZERO):
        values = np.array([fmt.largest, fmt.largest * 1.5, fmt.largest * 4, 2.0**200, 1.7e308])
        values = np.concatenate([values, -values]) if fmt.has_sign else values
        expected = expected_codes(fmt, values, rounding, overflow)
        assert encode(fmt, values, rounding=rounding, overflow=overflow).tolist() == expected.tolist()


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=lambda fmt: fmt.name)
def test_every_finite_code_survives_the_round_trip(fmt: Format) -> None:
    step = 1 << max(fmt.low_padding, fmt.width - 16)
    codes = np.arange(0, 1 << fmt.width, step).astype(fmt.storage)
    values = decode(fmt, codes)
    kept = np.isfinite(values)
    for rounding in Rounding:
        assert np.array_equal(encode(fmt, values[kept], rounding=rounding), codes[kept])


@pytest.mark.parametrize("fmt", SEARCHED, ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("source", [FP16, BF16], ids=lambda fmt: fmt.name)
def test_every_input_of_sixteen_bits_gets_the_code_a_search_finds(source: Format, fmt: Format) -> None:
    values = decode(source, np.arange(1 << 16, dtype=np.uint16))
    values = values[np.isfinite(values)]
    if not fmt.has_sign:
        values = values[(values > 0) | ((values == 0) & fmt.subnormals)]
    for rounding in (Rounding.NEAREST_EVEN, Rounding.TOWARD_ZERO):
        expected = expected_codes(fmt, values, rounding, Overflow.SATURATE)
        for dtype in (np.float64, np.float32):
            assert np.array_equal(encode(fmt, values.astype(dtype), rounding=rounding, overflow=Overflow.SATURATE), expected)


@pytest.mark.parametrize("name", ML_DTYPES)
@pytest.mark.parametrize("source", [FP16, BF16], ids=lambda fmt: fmt.name)
def test_every_input_of_sixteen_bits_encodes_as_in_ml_dtypes(source: Format, name: str) -> None:
    fmt = FORMATS[name]
    values = decode(source, np.arange(1 << 16, dtype=np.uint16)).astype(np.float32)
    got = encode(fmt, values)
    with np.errstate(over="ignore", invalid="ignore"):
        theirs = values.astype(ML_DTYPES[name]).view(fmt.storage)
    compared = ~np.isnan(values) if fmt.nan_code is None else np.ones(values.shape, bool)  # NaN without a NaN: pinned below
    if fmt is E8M0:
        compared &= ~((values > 2.0**-127) & (values < 2.0**-126))  # wrong in ml_dtypes: pinned below
    both_nan = np.isnan(decode(fmt, got)) & np.isnan(decode(fmt, theirs))
    assert np.array_equal(got[compared & ~both_nan], theirs[compared & ~both_nan])
    assert np.array_equal(both_nan[compared], np.isnan(decode(fmt, got))[compared])


@pytest.mark.parametrize("name", ML_DTYPES)
def test_random_float32_words_encode_as_in_ml_dtypes(name: str) -> None:
    fmt = FORMATS[name]
    words = np.random.default_rng(11).integers(0, 1 << 32, 1 << 18, dtype=np.uint32)
    values = np.concatenate([words.view(np.float32), decode(FP32, words % (1 << 28) + 0x38000000).astype(np.float32)])
    values = values[np.isfinite(values) & ~((np.abs(values) < 2.0**-126) & (fmt is E8M0))]
    with np.errstate(over="ignore"):
        theirs = values.astype(ML_DTYPES[name]).view(fmt.storage)
    got = encode(fmt, values)
    differ = (got != theirs) & ~(np.isnan(decode(fmt, got)) & np.isnan(decode(fmt, theirs)))
    assert not differ.any()


def test_fp32_codes_are_those_of_numpy_at_midpoints_and_at_both_ends() -> None:
    rng = np.random.default_rng(5)
    near_ends = np.concatenate([np.arange(64), 0x800000 + np.arange(-32, 32), 0x7F7FFFFF - np.arange(64)])
    words = np.concatenate([rng.integers(0, 0x7F7FFFFF, 1 << 16), near_ends])
    low = decode(FP32, words.astype(np.uint32))
    middle = (low + decode(FP32, (words - (words > 0)).astype(np.uint32))) / 2
    values = np.concatenate([low, middle, np.nextafter(middle, 0), np.nextafter(middle, np.inf), [FP32.largest * (1 + 2.0**-25)]])
    values = np.concatenate([values, -values, [0.0, -0.0, 1e-60, 5e-324, 1.7e308, np.inf, -np.inf]])
    with np.errstate(over="ignore"):
        assert np.array_equal(encode(FP32, values), values.astype(np.float32).view(np.uint32))


def test_ml_dtypes_rounds_e8m0_wrongly_below_its_second_code() -> None:
    value = np.array([1.2 * 2.0**-127])  # nearer to 2^-127 (code 0) than to 2^-126 (code 1)
    assert encode(E8M0, value).tolist() == [0]
    assert value.astype(ML_DTYPES["e8m0"]).view(np.uint8).tolist() == [1], "repaired in ml_dtypes: drop the exception above"


def test_ml_dtypes_makes_a_nan_minus_zero_where_ptx_makes_it_the_largest() -> None:
    for name, largest, theirs in (("e2m1", 0x7, 0x8), ("e2m3", 0x1F, 0x20), ("e3m2", 0x1F, 0x20)):
        assert encode(FORMATS[name], np.array([np.nan])).tolist() == [largest]
        assert np.array([np.nan]).astype(ML_DTYPES[name]).view(np.uint8).tolist() == [theirs], "changed: compare NaN too"


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_nan_becomes_the_canonical_one_and_infinity_what_the_overflow_says(dtype: type) -> None:
    signalling = np.array([0x7F800001, 0xFFC00000], np.uint32).view(np.float32)
    with np.errstate(invalid="ignore"):
        nan = signalling.astype(dtype)
    canonical = {"e4m3": 0x7F, "e5m2": 0x7F, "e8m0": 0xFF, "ue4m3": 0x7F, "fp16": 0x7FFF, "bf16": 0x7FFF, "fp32": 0x7FFFFFFF}
    for name, code in (canonical | {"tf32": 0x7FFFE000}).items():
        for overflow in Overflow:
            assert encode(FORMATS[name], nan, overflow=overflow).tolist() == [code, code]
    infinities = np.array([np.inf, -np.inf], dtype)
    assert encode(E5M2, infinities).tolist() == [0x7C, 0xFC]
    assert encode(E5M2, infinities, overflow=Overflow.SATURATE).tolist() == [0x7B, 0xFB]
    assert encode(E5M2, infinities, overflow=Overflow.NAN).tolist() == [0x7C, 0xFC]
    assert encode(E4M3, infinities).tolist() == [0x7F, 0x7F]
    assert encode(E4M3, infinities, overflow=Overflow.SATURATE).tolist() == [0x7E, 0xFE]
    assert encode(E2M1, infinities).tolist() == [0x7, 0xF]
    assert encode(FP16, infinities, rounding=Rounding.TOWARD_ZERO).tolist() == [0x7C00, 0xFC00]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_an_unsigned_format_has_no_code_for_a_negative_value(dtype: type) -> None:
    values = np.array([-1.0, -1e-30, -np.inf, -0.0, 0.0], dtype)
    assert encode(UE4M3, values, overflow=Overflow.SATURATE).tolist() == [0x7F, 0x7F, 0x7F, 0, 0]
    assert encode(E8M0, values).tolist() == [0xFF] * 5


def test_the_sign_of_zero_is_kept_also_where_a_value_rounds_to_it() -> None:
    for fmt in (E2M1, E4M3, E5M2, FP16, BF16, TF32, FP32):
        assert encode(fmt, np.array([0.0, -0.0, 1e-300, -1e-300])).tolist() == [0, fmt.sign_bit] * 2


def test_integers_and_narrow_floats_are_encoded_from_their_exact_values() -> None:
    assert encode(FP32, np.array([2**24 + 1, -(2**24) - 3], np.int32)).tolist() == [0x4B800000, 0xCB800002]
    assert encode(FP16, np.array([65519, 65520], np.int64)).tolist() == [0x7BFF, 0x7C00]
    assert encode(E4M3, np.array([1.0], np.float16)).tolist() == [0x38]
    with pytest.raises(ValueError, match="2\\^53"):
        encode(FP32, np.array([2**53 + 1]))
    with pytest.raises(ValueError, match="cannot encode complex"):
        encode(FP32, np.array([1j]))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_layout_of_the_input_does_not_matter(dtype: type) -> None:
    values = np.linspace(-7, 7, 40_000).astype(dtype).reshape(200, 200)
    for fmt in (E2M1, FP16):
        assert np.array_equal(encode(fmt, values.T[::2, ::-1]), encode(fmt, values).T[::2, ::-1])
        assert encode(fmt, values[:0]).shape == (0, 200) and encode(fmt, values[0, 0]).shape == ()


@pytest.mark.parametrize("mutant", corpus.ENCODE, ids=lambda mutant: mutant.name)
def test_a_wrong_encoder_is_caught_around_the_midpoints(mutant: Mutant) -> None:
    with mutant_module(mutant) as changed:
        assert sum(mismatches(changed.encode, fmt) for fmt in (E2M1, E4M3, FP16)) > 0

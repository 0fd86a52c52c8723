"""Contract under test: `convert` is the target's own conversion: which rounding, which overflow, which NaN, by architecture.

The chain of instructions itself is held to the compiler in test_convert_compiled.py; here, what the chain makes of the bits.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from bitverdict.reference.formats import BF16, E4M3, E5M2, FORMATS, FP16, FP32, conversion, convert, decode
from tests.faults import reference_modules as corpus
from tests.faults.mutants import Mutant, mutant_module
from tests.reference_checks.nearest_code import around_midpoints

ARCHITECTURES = ("sm_80", "sm_89", "sm_90", "sm_100")
SIXTEEN = np.arange(1 << 16, dtype=np.uint16)
EIGHT = np.arange(1 << 8, dtype=np.uint8)


def fp32_words() -> np.ndarray:
    """Words that decide: around all midpoints of the narrower formats, random ones, both ends, NaNs."""
    near = np.concatenate([around_midpoints(fmt) for fmt in (E4M3, E5M2, FP16, BF16)])
    with np.errstate(over="ignore"):
        near = near.astype(np.float32).view(np.uint32)
    random = np.random.default_rng(3).integers(0, 1 << 32, 1 << 15, dtype=np.uint32)
    special = np.array([0, 0x80000000, 0x7F800000, 0xFF800000, 0x7F800001, 0xFFFFFFFF, 0x7FC00000, 1, 0x80000001], np.uint32)
    return np.concatenate([near, random, special])


WORDS = fp32_words()


def by_ml_dtypes(words: np.ndarray, dtype: type, *, saturate: bool) -> np.ndarray:
    """What ml_dtypes makes of fp32 words, held at the largest finite value if asked, every NaN canonical."""
    values = words.view(np.float32)
    info = ml_dtypes.finfo(dtype)
    if saturate:
        values = np.clip(values, np.float32(info.min), np.float32(info.max))
    with np.errstate(over="ignore", invalid="ignore"):
        codes = values.astype(dtype).view(np.uint8 if np.dtype(dtype).itemsize == 1 else np.uint16)
    return np.where(np.isnan(values), (1 << (8 * codes.itemsize - 1)) - 1, codes)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(("name", "dtype"), [("fp16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_fp32_rounds_to_nearest_even_with_nan_7fff(arch: str, name: str, dtype: type) -> None:
    assert np.array_equal(convert("fp32", name, WORDS, arch), by_ml_dtypes(WORDS, dtype, saturate=False))


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(("name", "dtype"), [("e4m3", ml_dtypes.float8_e4m3fn), ("e5m2", ml_dtypes.float8_e5m2)])
def test_fp32_saturates_to_fp8_with_nan_7f(arch: str, name: str, dtype: type) -> None:
    if arch == "sm_80" and name == "e4m3":
        with pytest.raises(ValueError, match="sm_80 has no e4m3"):
            convert(FP32, E4M3, WORDS, arch)
        return
    assert np.array_equal(convert(FP32, name, WORDS, arch), by_ml_dtypes(WORDS, dtype, saturate=True))


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("source", [FP16, BF16], ids=lambda fmt: fmt.name)
def test_sixteen_bits_saturate_to_fp8_as_their_exact_values_do(arch: str, source) -> None:
    words = decode(source, SIXTEEN).astype(np.float32).view(np.uint32)
    for name in ("e4m3", "e5m2"):
        if (arch, name) == ("sm_80", "e4m3"):
            continue  # refused: above
        got = convert(source, name, SIXTEEN, arch)
        expected = convert("fp32", name, words, "sm_90")
        if (arch, name, source) == ("sm_80", "e5m2", FP16):  # written out in logic: a NaN keeps its sign
            expected = np.where(SIXTEEN > 0xFC00, 0xFF, expected)
        assert np.array_equal(got, expected)


def test_the_sm_80_e5m2_sequence_is_right_though_it_rounds_on_an_fp16_word() -> None:
    """Triton's instructions, replayed one by one on the fp16 words (16-bit lanes)."""
    values = WORDS.view(np.float32)
    odd = WORDS | ((WORDS + np.uint32(0xFFFF)) & np.uint32(0x10000))  # add.u32, lop3 0xf8
    with np.errstate(over="ignore", invalid="ignore"):
        cut = odd.view(np.float32)
        half = cut.astype(np.float16)
        too_far = np.abs(half.astype(np.float64)) > np.abs(cut.astype(np.float64))
    half = np.where(too_far, np.nextafter(half, np.float16(0)), half).view(np.uint16)  # cvt.rz.f16x2.f32
    half = np.where(np.isnan(values), 0x7FFF, half)
    size = np.minimum(half & 0x7FFF, 0x7B00)  # min.f16x2: the number where the other is NaN
    rounded = size + 0x7F + ((size >> 8) & 1)
    rounded = rounded | np.where((half & 0x7FFF) > 0x7C00, 0x3C00, 0)  # set.nan.f16x2.f16x2 writes 1.0
    expected = (rounded | (half & 0x8000)) >> 8
    assert np.array_equal(convert("fp32", "e5m2", WORDS, "sm_80"), expected)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_fp8_widens_to_fp16_and_fp32_exactly(arch: str) -> None:
    for source in (E4M3, E5M2):
        if (arch, source) == ("sm_80", E4M3):
            continue  # refused: above
        for name in ("fp16", "fp32"):
            widened = convert(source, name, EIGHT, arch)
            assert np.array_equal(decode(FORMATS[name], widened), decode(source, EIGHT), equal_nan=True)
    if arch != "sm_80":
        assert set(convert("e4m3", "fp16", np.array([0x7F, 0xFF], np.uint8), arch)) == {0x7FFF}
    nan = convert("e5m2", "fp16", np.array([0x7D, 0xFE], np.uint8), arch).tolist()
    assert nan == ([0x7D00, 0xFE00] if arch == "sm_80" else [0x7FFF, 0x7FFF])


@pytest.mark.parametrize("arch", ARCHITECTURES[1:])
def test_e4m3_to_bf16_is_exact(arch: str) -> None:
    assert np.array_equal(decode(BF16, convert("e4m3", "bf16", EIGHT, arch)), decode(E4M3, EIGHT), equal_nan=True)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_e5m2_to_bf16_loses_infinity_and_nan(arch: str) -> None:
    """Triton multiplies the bits by 2^112 and never looks at the largest exponent."""
    got = decode(BF16, convert("e5m2", "bf16", EIGHT, arch))
    finite = np.isfinite(decode(E5M2, EIGHT))
    assert np.array_equal(got[finite].view(np.uint64), decode(E5M2, EIGHT[finite]).view(np.uint64))
    assert got[[0x7C, 0x7D, 0x7E, 0x7F, 0xFC]].tolist() == [65536, 81920, 98304, 114688, -65536]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_bf16_to_fp32_moves_the_bits(arch: str) -> None:
    assert np.array_equal(convert("bf16", "fp32", SIXTEEN, arch), SIXTEEN.astype(np.uint32) << 16)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_fp16_to_fp32_is_exact_with_a_canonical_nan(arch: str) -> None:
    got = convert("fp16", "fp32", SIXTEEN, arch)
    expected = SIXTEEN.view(np.float16).astype(np.float32).view(np.uint32)
    assert np.array_equal(got, np.where(np.isnan(SIXTEEN.view(np.float16)), 0x7FFFFFFF, expected))


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_fp16_and_bf16_round_into_each_other_once(arch: str) -> None:
    for source, name in ((FP16, "bf16"), (BF16, "fp16")):
        words = decode(source, SIXTEEN).astype(np.float32).view(np.uint32)
        assert np.array_equal(convert(source, name, SIXTEEN, arch), convert("fp32", name, words, arch))


def test_int32_to_bf16_is_rounded_twice_before_sm_90() -> None:
    """2^25 + 2^17 + 1 is past the tie between two bf16 numbers; through fp32 it becomes the tie itself."""
    value = np.array([2**25 + 2**17 + 1], np.int32)
    assert convert("int32", "bf16", value, "sm_80").tolist() == [0x4C00]
    assert convert("int32", "bf16", value, "sm_90").tolist() == [0x4C01]


def test_floats_become_integers_toward_zero_through_sixteen_bits() -> None:
    values = np.array([1.9, -1.9, 300.0, -40000.0, 1e10, -1e10, np.nan, np.inf], np.float32).view(np.uint32)
    assert convert("fp32", "int8", values, "sm_90").tolist() == [1, -1, 44, 0, -1, 0, 0, -1]
    assert convert("fp32", "uint8", values, "sm_90").tolist() == [1, 0, 44, 0, 255, 0, 0, 255]
    assert convert("fp32", "int32", values, "sm_90").tolist() == [1, -1, 300, -40000, 2**31 - 1, -(2**31), 0, 2**31 - 1]
    every = convert("fp16", "int32", SIXTEEN, "sm_80")
    finite = np.isfinite(SIXTEEN.view(np.float16))
    assert np.array_equal(every[finite], np.trunc(SIXTEEN.view(np.float16)[finite].astype(np.float64)))


def test_integers_become_floats_to_nearest_even_and_infinity() -> None:
    values = np.array([2**24 + 1, -65519, 65520, 127], np.int32)
    assert convert("int32", "fp16", values, "sm_80").tolist() == [0x7C00, 0xFBFF, 0x7C00, 0x57F0]
    assert convert("int32", "fp32", values, "sm_80").view(np.float32).tolist() == [2**24, -65519, 65520, 127]
    every = np.arange(256).astype(np.int8)
    for arch in ARCHITECTURES:
        for fmt in (FP32, FP16, BF16):
            assert np.array_equal(decode(fmt, convert("int8", fmt, every, arch)), np.asarray(every, np.float64))
    assert np.array_equal(convert("int8", "int32", every, "sm_90"), every.astype(np.int32))
    assert convert("int32", "int8", np.array([300, -129], np.int32), "sm_90").tolist() == [44, 127]


def test_small_formats_saturate_and_have_no_nan_on_sm_100() -> None:
    words = np.array([6.0, 100.0, -np.inf, np.nan, 2.5], np.float32).view(np.uint32)
    assert convert("fp32", "e2m1", words, "sm_100").tolist() == [0x7, 0x7, 0xF, 0x7, 0x4]
    codes = np.arange(16, dtype=np.uint8)
    assert np.array_equal(decode(FP16, convert("e2m1", "fp16", codes, "sm_100")), decode(FORMATS["e2m1"], codes))


@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_the_shape_and_the_storage_are_kept(shape: tuple[int, ...]) -> None:
    for source, name in (("fp32", "e4m3"), ("e4m3", "fp16"), ("fp16", "fp16"), ("fp32", "int8"), ("bf16", "fp32")):
        got = convert(source, name, np.zeros(shape, FORMATS[source].storage), "sm_90")
        assert got.shape == shape and got.dtype == (np.int8 if name == "int8" else FORMATS[name].storage)


@pytest.mark.parametrize(
    ("source", "name", "codes", "arch", "message"),
    [
        ("e4m3", "e5m2", EIGHT, "sm_90", "sm_90 has no conversion from e4m3 to e5m2"),
        ("fp32", "tf32", WORDS, "sm_90", "cvt.rna.tf32 is encode with NEAREST_AWAY"),
        ("fp32", "fp16", WORDS.view(np.int32), "sm_90", "codes of fp32 are uint32, got int32"),
        ("fp32", "fp16", WORDS, "hopper", "give sm_80 or later"),
        ("fp32", "fp4", WORDS, "sm_90", "no conversion instruction is known for 'fp4'"),
    ],
)
def test_what_a_target_does_not_have_is_refused_with_the_reason(source, name, codes, arch, message) -> None:
    with pytest.raises(ValueError, match=message):
        convert(source, name, codes, arch)


@pytest.mark.parametrize("mutant", corpus.CONVERT, ids=lambda mutant: mutant.name)
def test_a_wrong_conversion_is_caught(mutant: Mutant) -> None:
    with mutant_module(mutant) as changed:
        e4m3 = by_ml_dtypes(WORDS, ml_dtypes.float8_e4m3fn, saturate=True)
        right = np.array_equal(changed.convert("fp32", "e4m3", WORDS, "sm_90"), e4m3)
        assert not (right and changed.convert("e5m2", "bf16", EIGHT, "sm_90")[0x3C] == 0x3F80)


def test_a_conversion_names_its_instructions() -> None:
    assert [step.instruction for step in conversion("fp16", "bf16", "sm_80")] == ["cvt.f32.f16", "cvt.rn.bf16.f32"]

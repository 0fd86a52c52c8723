"""Contract under test: OCP's conversion to block-scaled formats, case by case, and the exact value of a scaled element.

The cases are worked by hand or by Fraction, element by element, apart from the vectorised code.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from bitverdict.reference.block_scaling import BLOCK_FORMATS, MXFP4, NVFP4, BlockFormat, dequantize, quantize, shared_scale
from bitverdict.reference.formats import UE4M3, decode
from tests.faults import reference_modules as corpus
from tests.faults.mutants import Mutant, mutant_module

MX = [block_format for block_format in BLOCK_FORMATS.values() if not block_format.tensor_scale]
by_name = pytest.mark.parametrize("block_format", BLOCK_FORMATS.values(), ids=lambda block_format: block_format.name)
mx_by_name = pytest.mark.parametrize("block_format", MX, ids=lambda block_format: block_format.name)


def test_block_formats_are_those_of_the_tables() -> None:
    """OCP MX 1.0, section 5; PTX ISA for NVFP4. The last is emax_elem of OCP section 6.3."""
    table = {
        (block_format.element.name, block_format.scale.name, block_format.block_size, block_format.largest_exponent)
        for block_format in BLOCK_FORMATS.values()
    }
    assert table == {
        ("e2m1", "e8m0", 32, 2),
        ("e2m3", "e8m0", 32, 2),
        ("e3m2", "e8m0", 32, 4),
        ("e4m3", "e8m0", 32, 8),
        ("e5m2", "e8m0", 32, 15),
        ("e2m1", "ue4m3", 16, 2),
    }


def nearest_code(block_format: BlockFormat, exact: Fraction) -> int:
    """The element code nearest to an exact quotient, ties to the even code, saturating: by trying all of them."""
    fmt = block_format.element
    values = decode(fmt, np.arange(fmt.largest_code + 1, dtype=np.uint8))
    distances = [(abs(abs(exact) - Fraction(value)), code % 2, code) for code, value in enumerate(values)]
    return min(distances)[2] | (fmt.sign_bit if exact < 0 else 0)


def floor_log2(value: Fraction) -> int:
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    return exponent if Fraction(2) ** exponent <= value else exponent - 1


@mx_by_name
def test_mx_blocks_are_quantized_as_exact_arithmetic_does(block_format: BlockFormat) -> None:
    rng = np.random.default_rng(8)
    values = rng.standard_normal((6, 70)) * 2.0 ** rng.integers(-30, 30, (6, 1))
    got = quantize(block_format, values)
    for row, start in [(row, start) for row in range(6) for start in (0, 32, 64)]:
        block = [Fraction(value) for value in values[row, start : start + 32]]
        exponent = floor_log2(max(map(abs, block))) - block_format.largest_exponent
        assert got.scales[row, start // 32] == exponent + 127
        expected = [nearest_code(block_format, value / Fraction(2) ** exponent) for value in block]
        assert got.elements[row, start : start + 32].tolist() == expected


def test_nvfp4_blocks_are_quantized_as_exact_arithmetic_does() -> None:
    rng = np.random.default_rng(9)
    values = (rng.standard_normal((5, 40)) * 2.0 ** rng.integers(-12, 12, (5, 1))).astype(np.float32)
    scale_values = [Fraction(value) for value in decode(UE4M3, np.arange(0x7F, dtype=np.uint8))]
    for tensor_scale in (None, 1.0, float(np.float32(0.1))):
        got = quantize(NVFP4, values, tensor_scale=tensor_scale)
        factor = Fraction(got.tensor_scale)
        for row, start in [(row, start) for row in range(5) for start in (0, 16, 32)]:
            block = [Fraction(float(value)) for value in values[row, start : start + 16]]
            quotient = max(map(abs, block)) / 6 / factor
            code = min((abs(quotient - value), code % 2, code) for code, value in enumerate(scale_values))[2]
            assert got.scales[row, start // 16] == code
            if code:
                expected = [nearest_code(NVFP4, value / scale_values[code] / factor) for value in block]
                assert got.elements[row, start : start + 16].tolist() == expected
            else:
                assert not (got.elements[row, start : start + 16] & 0x7).any()


def test_nvfp4_factor_lets_the_largest_value_meet_the_largest_code() -> None:
    values = np.array([448.0 * 6.0 * 0.5, 1.0], np.float32)
    got = quantize(NVFP4, values)
    assert (got.tensor_scale, got.scales.tolist(), got.elements[0]) == (0.5, [0x7E], 0x7)
    assert dequantize(NVFP4, got.elements, got.scales, tensor_scale=got.tensor_scale)[0] == values[0]
    assert quantize(NVFP4, np.zeros(16, np.float32)).tensor_scale == 1.0
    assert quantize(NVFP4, np.array([1e-45], np.float32)).tensor_scale == 2.0**-149


def test_a_block_with_nan_or_infinity_is_nan_and_spares_its_neighbours() -> None:
    for block_format in BLOCK_FORMATS.values():
        size = block_format.block_size
        for special in (np.nan, np.inf, -np.inf):
            values = np.ones(3 * size, np.float32)
            values[size] = special
            got = quantize(block_format, values)
            assert got.scales[1] == block_format.scale.nan_code
            meant = dequantize(block_format, got.elements, got.scales, tensor_scale=got.tensor_scale)
            assert np.isnan(meant).tolist() == [False] * size + [True] * size + [False] * size


@by_name
def test_a_block_of_zeros_has_the_smallest_scale_and_keeps_its_signs(block_format: BlockFormat) -> None:
    got = quantize(block_format, np.array([0.0, -0.0, 0.0], np.float32))
    assert got.scales.tolist() == [0]
    assert got.elements.tolist() == [0, block_format.element.sign_bit, 0]
    assert not dequantize(block_format, got.elements, got.scales).any()


@mx_by_name
def test_at_both_ends_of_the_scale_the_exponent_is_held(block_format: BlockFormat) -> None:
    emax = block_format.largest_exponent
    cases = [  # largest value of the block, scale code
        (2.0 ** (127 + emax), 254),
        (np.nextafter(2.0 ** (127 + emax), 0), 253),
        (2.0 ** (128 + emax), 254),  # beyond: saturates
        (2.0 ** (-127 + emax), 0),
        (2.0 ** (-128 + emax), 0),  # below: rounds toward zero among the elements
        (2.0 ** (-126 + emax), 1),
        (np.nextafter(2.0 ** (-126 + emax), 0), 0),
        (5e-324, 0),
    ]
    for largest, code in cases:
        got = quantize(block_format, np.array([largest, 0.0]))
        assert got.scales.tolist() == [code], largest
    element = block_format.element
    beyond = quantize(block_format, np.array([2.0**400, -(2.0**400)]))
    assert beyond.elements.tolist() == [element.largest_code, element.largest_code | element.sign_bit]


def wrong_scales(scale_of) -> int:
    """Scale codes that miss the exact floor of log2, at powers of two and their fp32 neighbours, and at fp32 subnormals."""
    powers = (2.0 ** np.arange(-126, 128)).astype(np.float32)
    largest = np.concatenate([powers, np.nextafter(powers, np.float32(0)), np.nextafter(powers, np.float32(3e38)), [1e-45, 1e-40]])
    exact = [min(max(floor_log2(Fraction(float(value))) - 2 + 127, 0), 254) for value in largest]
    return int(np.count_nonzero(scale_of(MXFP4, largest) != np.array(exact)))


def test_the_floor_of_log2_is_exact_at_every_power_of_two() -> None:
    assert wrong_scales(shared_scale) == 0


@pytest.mark.parametrize("mutant", corpus.BLOCK_SCALING, ids=lambda mutant: mutant.name)
def test_another_shared_scale_is_caught(mutant: Mutant) -> None:
    with mutant_module(mutant) as changed:
        assert wrong_scales(changed.shared_scale) > 0


@by_name
def test_any_axis_and_a_short_last_block_are_as_the_transpose(block_format: BlockFormat) -> None:
    values = np.random.default_rng(2).standard_normal((3, 45, 2)).astype(np.float32)
    got = quantize(block_format, values, axis=1)
    last = quantize(block_format, np.moveaxis(values, 1, -1))
    assert np.array_equal(np.moveaxis(got.elements, 1, -1), last.elements)
    assert np.array_equal(np.moveaxis(got.scales, 1, -1), last.scales)
    assert got.scales.shape == (3, -(-45 // block_format.block_size), 2)
    meant = dequantize(block_format, got.elements, got.scales, axis=1, tensor_scale=got.tensor_scale)
    assert np.array_equal(
        np.moveaxis(meant, 1, -1), dequantize(block_format, last.elements, last.scales, tensor_scale=last.tensor_scale)
    )


@by_name
def test_every_element_under_every_scale_has_its_exact_value(block_format: BlockFormat) -> None:
    elements = np.arange(1 << block_format.element.width, dtype=np.uint8)
    scales = np.arange(1 << (block_format.scale.width + block_format.scale.ignored_high_bits), dtype=np.uint8)
    grid = np.repeat(elements[:, None], block_format.block_size * scales.size, axis=1)  # (elements, scales * block)
    meant = dequantize(block_format, grid, np.repeat(scales[None], elements.size, axis=0))[:, :: block_format.block_size]
    factors, values = decode(block_format.scale, scales), decode(block_format.element, elements)
    for row, column in np.random.default_rng(1).integers(0, [elements.size, scales.size], (400, 2)):
        value, factor = values[row], factors[column]
        if np.isnan(value) or np.isnan(factor):
            assert np.isnan(meant[row, column])
        elif np.isinf(value):
            assert meant[row, column] == (value if factor else np.nan) or (factor == 0 and np.isnan(meant[row, column]))
        else:
            assert Fraction(meant[row, column]) == Fraction(value) * Fraction(factor)


@mx_by_name
def test_quantized_values_quantize_to_themselves(block_format: BlockFormat) -> None:
    values = np.random.default_rng(7).standard_normal((20, 64)) * 100
    once = quantize(block_format, values)
    meant = dequantize(block_format, once.elements, once.scales)
    again = quantize(block_format, meant)
    assert np.array_equal(dequantize(block_format, again.elements, again.scales), meant)


@mx_by_name
def test_half_a_unit_bounds_the_error_of_what_does_not_saturate(block_format: BlockFormat) -> None:
    values = np.random.default_rng(12).standard_normal((50, 32))
    got = quantize(block_format, values)
    error = np.abs(dequantize(block_format, got.elements, got.scales) - values)
    unit = np.ldexp(1.0, got.scales.astype(int) - 127 + block_format.largest_exponent - block_format.element.mantissa_bits)
    held = np.abs(values) <= np.ldexp(block_format.element.largest, got.scales.astype(int) - 127)
    assert (error[held] <= np.broadcast_to(unit / 2, values.shape)[held]).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: quantize(MXFP4, np.ones(3), tensor_scale=2.0), "mxfp4 has no tensor scale; multiply the values"),
        (lambda: quantize(NVFP4, np.ones(3), tensor_scale=0.0), "positive finite fp32, got 0.0"),
        (lambda: quantize(NVFP4, np.ones(3), tensor_scale=0.1), "positive finite fp32, got 0.1"),
        (lambda: quantize(NVFP4, np.array([0.1])), "quantized from fp32 values"),
        (lambda: dequantize(MXFP4, np.zeros(33, np.uint8), np.zeros(1, np.uint8)), r"take scales \(2,\), got \(1,\)"),
        (lambda: dequantize(MXFP4, np.zeros(3, np.uint8), np.zeros(1, np.uint8), tensor_scale=2.0), "mxfp4 has no tensor scale"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_rule(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_sizes_of_zero_are_quantized_to_nothing() -> None:
    for shape, scales in [((0, 5), (0, 1)), ((2, 0), (2, 0))]:
        for block_format in (MXFP4, NVFP4):
            got = quantize(block_format, np.zeros(shape, np.float32))
            assert (got.elements.shape, got.scales.shape) == (shape, scales)

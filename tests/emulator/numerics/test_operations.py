"""Contract under test: each operation of a tile program computes on the emulated GPU what its lowering computes, word for word;
what rounds in an order or a way that is not known is refused by name."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

from bitverdict.harness.emulator import EmulatedFault, emulated
from bitverdict.harness.emulator.numerics.scalar_ops import fma
from tests.support import structure_kernels
from tests.support import tile_kernels as kernels
from tests.support.ptx_threads import DeviceMemory, Threads


def test_exact_reductions_and_scans_are_those_of_torch():
    a = torch.randint(-9, 9, (16, 32), dtype=torch.int32, generator=torch.Generator().manual_seed(3))
    largest, where, total, running = (torch.zeros(16, dtype=torch.int32) for _ in range(4))
    with emulated("sm_90"):
        kernels.reductions[(1,)](a, largest, where, total, running, ROWS=16, COLUMNS=32)
    assert torch.equal(largest, a.max(1)[0]) and torch.equal(where, a.argmax(1).int())
    assert torch.equal(total, a.sum(1).int()) and torch.equal(running, a.sum(1).cumsum(0).int())


def test_a_sum_of_floats_has_the_order_of_its_layout():
    """One element a thread: lanes 16 to 1, then nothing. Elsewhere: test_reduction_order.py."""
    values, total = torch.randn(32, generator=torch.Generator().manual_seed(1)), torch.zeros(1)
    with emulated("sm_90"):
        kernels.float_sum[(1,)](values, total, BLOCK=32)
    due = values.numpy()
    while due.size > 1:
        due = due[: due.size // 2] + due[due.size // 2 :]
    assert total.numpy() == due


@pytest.mark.parametrize("schedule", ["eager", "latest", "drawn:1"])
def test_atomics_of_all_programs_add_up(schedule):
    counter, largest, flag = torch.zeros(4, dtype=torch.int32), torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    with emulated("sm_80", schedule):
        kernels.atomics[(5,)](counter, largest, flag, BLOCK=32)
    assert counter.tolist() == [40] * 4 and largest.item() == 4
    assert flag.item() == {"eager": 1, "latest": 5}.get(schedule, flag.item()) and 1 <= flag.item() <= 5


@pytest.mark.parametrize("schedule", ["eager", "latest", "drawn:1"])
def test_reading_what_another_program_writes_is_a_race(schedule):
    with emulated("sm_80", schedule), pytest.raises(EmulatedFault, match="race"):
        kernels.neighbour[(3,)](torch.zeros(96), BLOCK=32)


def test_division_and_root_with_rounding_are_correctly_rounded():
    a, b = (torch.randn(256, generator=torch.Generator().manual_seed(i)) for i in range(2))
    quotient, root = torch.empty(256), torch.empty(256)
    with emulated("sm_90"):
        kernels.rounded[(1,)](a, b, quotient, root, BLOCK=256)
    exact = a.numpy().astype(np.longdouble)
    np.testing.assert_array_equal(quotient.numpy(), (exact / b.numpy()).astype(np.float32))
    np.testing.assert_array_equal(root.numpy(), np.sqrt(np.abs(exact)).astype(np.float32))


def test_floats_become_integers_toward_zero_through_the_instruction():
    """The width of the instruction decides what is out of range."""
    a = torch.tensor([300.0, -300.7, 1e6, -1e10, float("nan"), 2.9, -2.9, float("inf")] * 4)
    small, large = torch.empty(32, dtype=torch.int8), torch.empty(32, dtype=torch.int32)
    with emulated("sm_90"):
        kernels.to_integers[(1,)](a, small, large, BLOCK=32)
    assert large[:8].tolist() == [300, -300, 1000000, -(2**31), 0, 2, -2, 2**31 - 1]
    assert small[:8].tolist() == [44, -44, -1, 0, 0, 2, -2, -1]


def test_the_bits_of_a_single_float_are_a_word_and_of_a_word_a_float():
    codes = [0, 0x3F800000 - 1, -(2**31), 0x7F7FFFFF, 5]
    words, floats = torch.tensor(codes, dtype=torch.int32), torch.tensor([1.0, -2.5, 0.0, 2.0**126, 3.0])
    due = (2 * floats).view(torch.int32) - 1
    with emulated("sm_90"):
        kernels.scalars[(1,)](words, floats, torch.tensor([1, 1, 1, 1, 0], dtype=torch.int32), COUNT=5)
    assert torch.equal(words, due)
    assert floats.view(torch.int32).tolist() == [*(code + 1 for code in codes[:4]), -7], "masked out: what was given instead"


def test_fma_rounds_once_where_two_roundings_would_differ():
    generator = np.random.default_rng(5)
    # a * b lies on a tie of fp32 (its bit 2^-24 is set, none below) and c is a hair beside it, too small for a float64 sum
    odd = generator.integers(0, 1023, 1024) * 2 + 1
    a, b = (1 + odd / 4096).astype(np.float32), np.full(1024, 1 + 1 / 4096, np.float32)
    c = (generator.choice([-1, 1], 1024) * 2.0 ** generator.integers(-90, -60, 1024)).astype(np.float32)
    got = fma(a, b, c)
    assert (got != (a.astype(np.float64) * b + c).astype(np.float32)).sum() > 100  # the plain way is wrong
    for i in range(1024):
        numerator = (4096 + int(odd[i])) * 4097 * 2**86 + int(float(c[i]) * 2.0**110)  # in units of 2^-110, exact
        assert got[i] == _nearest(numerator, 110), (a[i], b[i], c[i])


def _nearest(numerator: int, scale: int) -> np.float32:
    """numerator / 2^scale rounded to nearest even with 24 bits."""
    sign, magnitude = (-1 if numerator < 0 else 1), abs(numerator)
    drop = max(magnitude.bit_length() - 24, 0)
    kept, rest = magnitude >> drop, magnitude & ((1 << drop) - 1)
    half = 1 << (drop - 1) if drop else 1
    kept += rest > half or (rest == half and kept & 1 and drop > 0)
    return np.float32(sign * kept * 2.0 ** (drop - scale))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e5m2])
def test_rounding_toward_zero_takes_the_word_below_and_never_an_infinity(dtype):
    """Exact for fp16 and bf16 in `test_exact_operations.py`; here e5m2 too, between the two words beside each value."""
    a = torch.randn(256, generator=torch.Generator().manual_seed(8)) * 2.0 ** torch.randint(-18, 18, (256,))
    a[:6] = torch.tensor([1e38, -1e38, float("inf"), -float("inf"), 1e-30, -1e-30])
    near, zero = a.to(dtype), torch.zeros(256, dtype=dtype)
    with emulated("sm_90"):
        kernels.narrowed[(1,)](a, zero, BLOCK=256, ROUNDING="rtz")
    below = torch.where(near.double().abs() > a.double().abs(), _words(near) - 1, _words(near))
    assert torch.equal(_words(zero), below) and not torch.equal(below, _words(near))
    assert zero.isinf().nonzero().flatten().tolist() == [2, 3]


def _words(values: torch.Tensor) -> torch.Tensor:
    return values.view(torch.uint8 if values.itemsize == 1 else torch.int16).int()


def test_a_rounding_that_the_compiler_lacks_is_refused_before_a_run():
    a, out = torch.full((32,), 1.0 + 2**-8 + 2**-9), torch.zeros(32, dtype=torch.float8_e4m3fn)
    with emulated("sm_90"), pytest.raises(EmulatedFault, match=r"not modelled: .*rounding 0 from f32 to f8E4M3FN"):
        kernels.narrowed[(1,)](a, out, BLOCK=32, ROUNDING="rtz")
    assert not out.float().any()


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_a_conversion_that_no_target_has_is_refused_as_the_compiler_does(arch: str) -> None:
    """e5m2 into memory of e4m3: a type that the author mistook is the kernel's fault, and not the harness's error."""
    stored, out = torch.ones(32, dtype=torch.float8_e5m2), torch.zeros(32, dtype=torch.float8_e4m3fn)
    with emulated(arch), pytest.raises(EmulatedFault, match=f"refused: {arch} has no conversion from e5m2 to e4m3"):
        kernels.copied[(1,)](stored, out, BLOCK=32)
    with emulated(arch):
        kernels.copied[(1,)](torch.ones(32), out, BLOCK=32)
    assert out.float().eq(1).all()


def test_an_int8_mma_sync_clamps_after_each_instruction_of_32_products():
    """The compiler writes it with .satfinite: what has been clamped is lost, and what follows is subtracted from the end."""
    a = torch.full((32, 64), -128, dtype=torch.int8)
    b = torch.full((64, 32), -128, dtype=torch.int8)
    b[32:] = 127
    c, out = torch.full((32, 32), 2**31 - 101, dtype=torch.int32), torch.empty(32, 32, dtype=torch.int32)
    with emulated("sm_80") as device:
        kernels.integer_product[(1,)](a, b, c, out, SIZE=32, K=64)
    assert device.launches[-1].instructions == {"mma.sync"}
    assert (out == 2**31 - 1 - 32 * 128 * 127).all()


def test_a_product_of_doubles_is_fused_into_its_sum():
    """Of 53 bits each, so that a product that was rounded before its sum would show."""
    a, b = (torch.randn(32, dtype=torch.float64, generator=torch.Generator().manual_seed(i)) for i in (1, 2))
    fused, apart = (torch.zeros(3, 32, dtype=torch.float64) for _ in range(2))
    with emulated("sm_90"):
        structure_kernels.products_of_doubles[(1,)](a, b, fused, N=32, enable_fp_fusion=True)
        structure_kernels.products_of_doubles[(1,)](a, b, apart, N=32, enable_fp_fusion=False)
    for i in range(32):
        x, y, z, total = float(a[i]), Fraction(float(b[i])), float(a[i]), 0.0
        for _ in range(5):
            z, total = z + 1, float(Fraction(z) * y + Fraction(total))
        assert fused[:, i].tolist() == [float(Fraction(x) * y + Fraction(x)), float(y - Fraction(x) * y), total]
    assert torch.equal(apart[0], a * b + a) and torch.equal(apart[1], b - a * b) and not torch.equal(fused, apart)


def test_the_remainder_of_doubles_is_what_its_ptx_leaves():
    """By a quotient that is rounded and a product that is not: it may lie outside the divisor."""
    draw = np.random.default_rng(3)
    a, b = (draw.standard_normal(128) * 2.0 ** draw.integers(-60, 60, 128) for _ in range(2))
    a[:4], b[:4] = (1.5, np.inf, -2.0, 7.0), (np.inf, 2.0, 0.0, -2.0)
    got, due = np.zeros(128), np.zeros(128)
    with emulated("sm_90"):
        kernel = structure_kernels.left_over[(1,)](*map(torch.from_numpy, (a, b, got)), N=128)
    arrays = a, b, due
    Threads(kernel.asm["ptx"], [each.__array_interface__["data"][0] for each in arrays], DeviceMemory(*arrays)).run()
    np.testing.assert_array_equal(got, due)
    assert (np.abs(got) > np.abs(b)).any() and got[3] == 1 and got[0] == 1.5

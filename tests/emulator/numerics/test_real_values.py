"""Contract under test: a real value is what the same program computes without rounding, to within its error, or it is unknown."""

from __future__ import annotations

import math
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from bitverdict.harness.emulator import LaunchOptions, emulated
from bitverdict.harness.emulator import device as emulated_device
from bitverdict.harness.emulator.frontend import kept_translations
from bitverdict.harness.emulator.frontend.contraction import Contraction, Fate
from bitverdict.harness.emulator.memory.real_memory import RealValues
from bitverdict.harness.emulator.numerics import real_constants
from bitverdict.harness.emulator.numerics import real_values as arithmetic
from bitverdict.harness.emulator.numerics.real_functions import FUNCTIONS
from bitverdict.harness.emulator.numerics.real_values import Real
from bitverdict.reference.formats import FORMATS, decode, encode
from tests.support import real_kernels as kernels

ROW = 64


def reals(batches: bool = True, declared: frozenset[str] = frozenset(), arch: str = "sm_90") -> Any:
    return emulated(arch, options=LaunchOptions(real_values=declared, batches=batches))


def drawn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def hold(found: RealValues | None, expected: Any, most: float = 1e-12) -> None:
    """`expected`, NumPy's to within 20 of its roundings, is what `found` says to within its errors, and these are small."""
    assert found is not None
    expected = np.asarray(expected, np.float64)
    assert (found.error <= most * np.maximum(1, np.abs(expected))).all(), found.error.max()
    off = np.abs(found.value - expected) - found.error - 20 * 2.0**-53 * np.abs(expected)
    assert (off <= 0).all(), (found.value.ravel()[off.argmax()], expected.ravel()[off.argmax()])


def test_rms_norm_is_its_mathematics_in_batches_and_one_by_one() -> None:
    x, w = drawn(8, 200, dtype=torch.float16), drawn(200, dtype=torch.float16, seed=1)
    wide, scale = x.double().numpy(), w.double().numpy()
    expected = wide / np.sqrt((wide * wide).mean(1, keepdims=True) + 0.1) * scale
    for batches in (True, False):
        out = torch.empty_like(x)
        with reals(batches) as device:
            kernels.rms_norm[(8,)](x, w, out, 200, 0.1, BLOCK=256)
            assert bool(device.launches[-1].serial_reason) is not batches
            hold(device.real_values(out), expected)
            assert not device.hangs
        assert np.abs(out.double().numpy() - expected).max() > 1e-4  # the words round


@pytest.mark.share(4)
def test_functions_are_float64s() -> None:
    x, y, out = drawn(ROW).abs() + 0.1, drawn(ROW, seed=1), torch.empty(12, ROW)
    with reals() as device:
        kernels.functions[(1,)](x, y, out, N=ROW)
        found = device.real_values(out)
        assert not device.hangs
    a, b = x.double().numpy(), y.double().numpy()
    c = b / 3
    expected = [
        np.exp(c), np.exp2(c), np.log(a) + np.log2(a), np.sin(c) * np.cos(b), [math.erf(each) for each in c],
        1 / np.sqrt(a) - np.sqrt(a), np.tanh(c), a * c + b + np.abs(b) + a,
        np.maximum(c, b) * np.minimum(a, c) + np.clip(b, -0.5, 0.25),
        np.floor(c) + np.ceil(b), a**c, np.log1p(a) / (1 + np.exp(-b)),
    ]  # fmt: skip
    hold(found, np.array(expected))


def test_what_surely_decides_alike_is_exact_and_all_else_hangs() -> None:
    x, out, indices = drawn(ROW), torch.empty(5, ROW), torch.empty(2, ROW, dtype=torch.int32)
    x[:5] = torch.tensor([0.0, 6.0, -9.0, 4.5, 7.0])
    with reals() as device:
        kernels.decisions[(1,)](x, out, indices, N=ROW)
        found, places = device.real_values(out), device.real_values(indices)
        assert {reason for reason, _ in device.hangs} == {"comparison", "float to integer", "bit cast"}
        assert all("real_kernels.py:" in line for _, line in device.hangs)
    assert found is not None and places is not None
    a, unknown = x.double().numpy(), ~np.isfinite(found.error)
    hold(RealValues(found.value[[0, 2, 3]], found.error[[0, 2, 3]]),
         [np.where(a > 0, a / 3, a / 6), np.where((a > 3) & (np.arange(ROW) < 8), a, 0), a])  # fmt: skip
    rounded = np.array([Fraction(each).numerator % 3 != 0 for each in a])  # a third of the others is exact
    assert unknown[1][rounded].all() and unknown[4][rounded].all() and not unknown[[1, 4], 0].any()
    assert not places.error[0].any()
    assert (np.isinf(places.error[1]) == (a != 0) & (a == np.rint(a))).all()  # 7 / 3 * 3 may lie below 7


def test_whole_words_that_change_places_are_known_others_rounded() -> None:
    x, out = drawn(16), torch.empty(3, 16)
    with reals() as device:
        kernels.bits[(1,)](x, out, N=16)
        found = device.real_values(out)
        assert [reason for reason, _ in device.hangs] == ["bits of a float that were changed"]
    a = x.double().numpy()
    assert found is not None and np.isinf(found.error[1]).all()
    hold(RealValues(found.value[::2], found.error[::2]), [np.sort(a), np.copysign(2.0 ** np.floor(np.log2(np.abs(a))), a)])


def test_folds_follow_the_programs_own_combinations() -> None:
    x, out, indices = drawn(ROW), torch.zeros(5, ROW), torch.zeros(2, dtype=torch.int32)
    with reals() as device:
        kernels.folds[(1,)](x, out, indices, N=ROW)
        found, places = device.real_values(out), device.real_values(indices)
        assert not device.hangs
    assert found is not None and places is not None
    wide = x.double().numpy()
    a = wide / 3
    lasts = [a.sum(), a.max(), a.min(), np.prod(1 + a / 64), a.mean(), a.var()]
    hold(found, [np.cumsum(a), np.cumsum(a[::-1])[::-1], np.cumprod(1 + a / 64), np.maximum.accumulate(a),
                 [*lasts, *[0] * (ROW - len(lasts))]])  # fmt: skip
    assert not places.error.any() and indices.tolist() == [int(a.argmax()), int(wide.argmin())]


def test_two_that_are_equal_but_for_their_errors_hang_the_argmax() -> None:
    x, out, indices = drawn(ROW), torch.zeros(5, ROW), torch.zeros(2, dtype=torch.int32)
    x[3] = x[9] = 7.0
    with reals() as device:
        kernels.folds[(1,)](x, out, indices, N=ROW)
        places = device.real_values(indices)
        assert places is not None and places.error.tolist() == [np.inf, 0.0]
        assert [reason for reason, _ in device.hangs] == ["comparison"]


def test_shapes_loops_calls_and_branches_hand_real_values_on() -> None:
    x, out = drawn(8, 16), torch.empty(8, 16)
    with reals() as device:
        kernels.shapes[(1,)](x, out, N=8, M=16, steps=3)
        found = device.real_values(out)
        assert not device.hangs
    a = x.double().numpy() / 3
    again = a.reshape(8, 8, 2)[:, :, ::-1].reshape(8, 16)
    picked = np.roll(2 * again, -1, 1)
    expected = 4 * picked - a + 0.7 * a.sum() * a.sum(0) + a.sum(1)[:, None] * a.sum() / 0.7
    assert found is not None and (np.abs(found.value - expected) <= found.error + 1e-14).all()
    assert 1e-9 < found.error.max() < 1e-5  # 0.7 was rounded to fp32


def test_an_operation_without_a_rule_is_unknown_by_its_name() -> None:
    x, out = drawn(ROW), torch.empty(2, ROW)
    with reals() as device:
        kernels.unknown_operation[(1,)](x, out, N=ROW)
        found = device.real_values(out)
        assert [reason for reason, _ in device.hangs] == ["tt.elementwise_inline_asm"]
    assert found is not None and np.isinf(found.error[0]).all()
    a = x.double().numpy()
    hold(RealValues(found.value[1], found.error[1]), np.exp2(a) * a + 3)


@pytest.mark.parametrize("mutant", ["", "dropped", "mask", "doubled", "scale"])
def test_one_wrong_element_in_4000_shows_in_the_real_value(mutant: str) -> None:
    """And not in the words: they are fp16, and its error is a thousandth of the mean."""
    x, out = drawn(5, 3999, dtype=torch.float16) + 8, torch.zeros(4, dtype=torch.float16)
    with reals() as device:
        kernels.row_sums[(4,)](x, out, 3999, BLOCK=4096, MUTANT=mutant)
        found = device.real_values(out)
    assert found is not None
    off = np.abs(found.value - x.double().numpy()[:4].mean(1))
    assert (off > 1e6 * found.error).all() if mutant else (off <= found.error + 1e-14).all()


def test_a_branch_that_hangs_loses_all_that_the_launch_may_write() -> None:
    x, out = drawn(ROW), torch.empty(ROW)
    with reals() as device:
        kernels.branches[(1,)](x, out, N=ROW)
        found, given = device.real_values(out), device.real_values(x)
        assert {reason for reason, _ in device.hangs} == {"comparison", "branch"}
    assert found is not None and np.isinf(found.error).all() and given is not None and not given.error.any()


def test_a_declared_conversion_is_mathematics_and_another_is_rounding() -> None:
    x, out = drawn(ROW), torch.empty(ROW)
    x[:4] = torch.tensor([1.0625, 1e6, torch.inf, torch.nan])  # midway between two numbers of e4m3; what saturates
    a = x.double().numpy()
    with reals() as device:
        kernels.quantised[(1,)](x, out, N=ROW)
        found = device.real_values(out)
        assert found is not None and found.value[2] == np.inf and np.isnan(found.value[3])
        hold(RealValues(found.value[4:], found.error[4:]), 3 * a[4:])
    with reals(declared=frozenset({"e4m3"})) as device:
        kernels.quantised[(1,)](x, out, N=ROW)
        found = device.real_values(out)
        assert [reason for reason, _ in device.hangs] == ["declared conversion"]
    assert found is not None and np.isinf(found.error[0])
    hold(RealValues(found.value[4:], found.error[4:]), 3 * decode(FORMATS["e4m3"], encode(FORMATS["e4m3"], a))[4:])
    assert (found.value[1:3] == 3 * 448).all() and np.isnan(found.value[3]) and found.error[1:4].max() < 1e-12


def test_a_constant_means_what_its_author_wrote() -> None:
    """0.1 lies within half a unit of its word; short and whole numbers are themselves; a launcher's number is seen as it is."""
    assert real_constants.constant(np.float32(0.5), "fp32") == (0.5, None)
    assert real_constants.constant(np.float32(1e5), "fp32") == (1e5, None)
    assert real_constants.constant(np.uint16(0x4248), "bf16") == (50.0, None)
    for written in (0.1, 1e-6, 1 / math.sqrt(96), 1.44269504, 1e-42):
        value, error = real_constants.constant(np.float32(written), "fp32")
        assert abs(value - written) <= error <= max(2.0**-24 * value, 2.0**-150)
        value, error = real_constants.argument(written, "fp32")
        assert value == written and error < 1e-15 * written
    wrong = real_constants.constant(np.float32(0.1), "fp32")
    assert abs(wrong.value - 0.1000001) > 10 * wrong.error


def test_infinities_and_nan_are_known_where_operands_decide_them() -> None:
    inf, nan = np.inf, np.nan
    with np.errstate(all="ignore"):
        x = Real(np.array([inf, -inf, 0.0, 2.0, nan]), np.zeros(5))
        y = Real(np.full(5, -inf))
        assert arithmetic.add(x, y).error.tolist() == [0.0] * 5
        assert np.isnan(arithmetic.add(x, y).value[[0, 4]]).all()
        assert FUNCTIONS["exp"](y).value.max() == 0 and FUNCTIONS["exp"](y).error.max() <= arithmetic.LEAST
        near_zero = Real(np.zeros(5), np.array([1e-20, 0.0, inf, nan, 1e-20]))
        assert np.isfinite(arithmetic.multiply(y, near_zero).error).tolist() == [False, True, False, False, False]
        assert np.isfinite(arithmetic.divide(x, near_zero).error).tolist() == [False, True, False, False, False]
        assert np.isfinite(FUNCTIONS["log"](near_zero).error).tolist() == [False, True, False, False, False]
        assert np.isfinite(arithmetic.square_root(near_zero).error).tolist() == [False, True, False, False, False]
        product = arithmetic.matrix_product(Real(np.array([[inf, 1.0], [1.0, 2.0]])), Real(np.array([[1.0, 0.0], [0.0, 1.0]])))
        assert np.isnan(product.value[0, 1]) and product.value[0, 0] == inf and product.value[1, 1] == 2
        assert product.error is None or np.isfinite(product.error).all()


def test_what_float64_holds_is_exact() -> None:
    """Whole numbers stay so through sums, products and quotients, and a zero times anything is one: what compares them is sure."""
    draw = np.random.default_rng(0)
    halves = Real(draw.integers(-2048, 2048, (40, 30)) / 2)
    words = Real(draw.standard_normal((40, 30)).astype(np.float32).astype(np.float64))
    for found in (
        arithmetic.add(halves, halves), arithmetic.multiply(words, words), arithmetic.divide(words, Real(np.full((), 4.0))),
        arithmetic.sum_along(halves, 1), arithmetic.matrix_product(halves, Real(halves.value.T)),
    ):  # fmt: skip
        assert found.error is None
    assert arithmetic.grid(np.append(np.zeros(64), 0.1)) == 0
    assert arithmetic.add(words, Real(words.value * 2.0**-40)).error.any()
    assert arithmetic.sum_along(words, 1).error.all()
    assert arithmetic.multiply(Real(np.zeros(3)), Real(np.full(3, 1 / 3), np.full(3, 1e-17))).error.tolist() == [0.0] * 3
    assert FUNCTIONS["exp"](Real(np.array([-np.inf, -800.0]))).error.tolist() == [0.0, arithmetic.LEAST]


def test_errors_bound_what_moving_the_operands_does() -> None:
    """Each function at the ends of its operands' errors stays inside the error of its result."""
    draw = np.random.default_rng(0)
    assert FUNCTIONS["exp"](Real(np.float64(1))).error >= 4 * np.spacing(2.0)
    for name, run in FUNCTIONS.items():
        count = {"pow": 2, "fmod": 2, "copysign": 2, "hypot": 2, "fma": 3, "fdividef": 2}.get(name, 1)
        count = 2 if name in ("add", "sub", "mul", "div", "fmax", "fmin") else count
        values = draw.uniform(0.05, 0.95, (count, 500)) + (1 if name == "acosh" else 0)
        errors = values * 10.0 ** draw.uniform(-14, -2, (count, 500))
        with np.errstate(all="ignore"):
            whole = run(*(Real(v, e) for v, e in zip(values, errors)))
            for _ in range(8):
                moved = run(*(Real(v + e * draw.uniform(-1, 1, 500)) for v, e in zip(values, errors)))
                off = np.abs(moved.value - whole.value) * (1 - 2.0**-50) - 2.0**-52 - (0.0 if moved.error is None else moved.error)
                assert (off <= (0.0 if whole.error is None else whole.error)).all(), name
        assert whole.error is None or np.isfinite(whole.error).mean() > 0.9, name


def test_a_sum_that_is_enclosed_has_one_real_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a sum takes its product in unrounded is rounding."""
    monkeypatch.setattr(Contraction, "fate", lambda self, line: Fate())
    monkeypatch.setattr(Contraction, "registers", {})
    monkeypatch.setattr(emulated_device, "_translations", {})
    monkeypatch.setenv("BITVERDICT_TRANSLATIONS", "off")
    x, y, out = drawn(ROW), drawn(ROW, seed=1), torch.empty(ROW)
    with reals() as device:
        kernels.product_and_sum[(1,)](x, y, out, N=ROW)
        assert device.enclosure(out) is not None and not device.hangs
        hold(device.real_values(out), x.double().numpy() * y.double().numpy() + y.double().numpy())


def test_a_program_with_real_values_goes_to_disk() -> None:
    x, out, indices = drawn(ROW), torch.zeros(5, ROW), torch.zeros(2, dtype=torch.int32)
    with reals() as device:
        kernels.folds[(1,)](x, out, indices, N=ROW)
        launch = device.launches[-1]
        ready = device.translate(launch.program.encode(), SimpleNamespace(**launch.metadata))
    entry = kept_translations.serialize(ready)
    assert entry is not None and kept_translations.read(entry) is not None

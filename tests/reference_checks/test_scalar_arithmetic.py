"""Contract under test: fp32 and fp64 instructions round the exact result once, in each of four directions, and flush as recorded.

The exact result is a Python fraction; a root is compared by its square. Mutants are results rounded twice.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from bitverdict.reference.scalar_arithmetic import fp32, fp64
from bitverdict.reference.scalar_arithmetic.exact import round_to_odd, step_result, two_product, two_sum
from tests.faults import reference_modules as corpus
from tests.faults.mutants import Mutant, mutant_module

ROUNDINGS = ("rn", "rz", "rm", "rp")
FORMATS = {np.float32: (24, -149, 128), np.float64: (53, -1074, 1024)}  # significant bits, least exponent, first exponent too large
COUNT = 250


def rounded(value: Fraction, dtype: type, rounding: str, unbounded: bool = False) -> Fraction | float:
    """The definition: the multiple of the last place that the direction names."""
    bits, least, limit = FORMATS[dtype]
    if value == 0:
        return value
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > size  # 2^exponent <= size < 2^(exponent + 1)
    place = Fraction(2) ** (exponent + 1 - bits if unbounded else max(exponent + 1 - bits, least))
    down = math.floor(value / place) * place
    if rounding == "rz":
        found = down if value > 0 or down == value else down + place
    elif rounding == "rm":
        found = down
    elif rounding == "rp":
        found = -(math.floor(-value / place) * place)
    else:
        rest = (value - down) / place
        odd = (down / place).numerator & 1
        found = down + place if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and odd) else down
    if abs(found) >= Fraction(2) ** limit:
        largest = (Fraction(2) ** bits - 1) * Fraction(2) ** (limit - bits)
        to_infinity = rounding == "rn" or (rounding == "rp" and found > 0) or (rounding == "rm" and found < 0)
        size = math.inf if to_infinity else float(largest)
        return size if found > 0 else -size
    return found


def flushed(value: Fraction, rounding: str) -> Fraction | float:
    """fp32 with `.ftz`: zero when the result is below 2^-126 with an unbounded exponent."""
    wide = rounded(value, np.float32, rounding, unbounded=True)
    return 0.0 if abs(wide) < Fraction(2) ** -126 else rounded(value, np.float32, rounding)


def drawn(dtype: type, data_seed: int, exponents: tuple[int, int]) -> np.ndarray:
    """Numbers of both signs; a third have a short significand, so that ties and exact results come up."""
    rng = np.random.default_rng(data_seed)
    bits = FORMATS[dtype][0] - 1
    fraction = rng.integers(0, 1 << bits, COUNT) & np.where(rng.random(COUNT) < 0.33, -1 << (bits - 5), -1)
    words = rng.integers(0, 2, COUNT) << (31 if dtype is np.float32 else 63) | rng.integers(*exponents, COUNT) << bits | fraction
    return words.astype(np.uint32 if dtype is np.float32 else np.uint64).view(dtype)


BIASED = {
    np.float32: [(100, 150), (0, 4), (55, 75), (0, 255), (190, 254)],
    np.float64: [(1000, 1046), (0, 4), (480, 560), (0, 2047), (1530, 2046), (380, 640)],
}
GRID = [(dtype, exponents) for dtype, found in BIASED.items() for exponents in found]


def same(got: np.ndarray, wanted: list[Fraction | float], what: str) -> None:
    for number, (one, other) in enumerate(zip(got.tolist(), wanted, strict=True)):
        assert one == other or (isinstance(other, Fraction) and Fraction(one) == other), (what, number, one)


@pytest.mark.parametrize(("dtype", "exponents"), GRID)
def test_sums_products_and_quotients_round_the_exact_value(dtype: type, exponents: tuple[int, int]) -> None:
    a, b = drawn(dtype, 1, exponents), drawn(dtype, 2, exponents)
    near = a * (1 + np.random.default_rng(3).integers(-4, 5, COUNT) * 2.0**-20)
    b = np.where(np.arange(COUNT) % 3, b, np.where(np.isfinite(near), -near, 1)).astype(dtype)
    b[b == 0] = 1
    pairs = [(Fraction(x), Fraction(y)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    module = fp32 if dtype is np.float32 else fp64
    results = (
        (module.add, [x + y for x, y in pairs]),
        (module.multiply, [x * y for x, y in pairs]),
        (module.divide, [x / y for x, y in pairs]),
    )
    for rounding in ROUNDINGS:
        for function, values in results:
            same(function(a, b, rounding), [rounded(v, dtype, rounding) for v in values], f"{function.__name__} {rounding}")


@pytest.mark.parametrize(("dtype", "exponents"), GRID)
def test_a_fused_multiply_add_rounds_once(dtype: type, exponents: tuple[int, int]) -> None:
    a, b, c = (drawn(dtype, data_seed, exponents) for data_seed in (4, 5, 6))
    with np.errstate(all="ignore"):
        c = np.where(np.arange(COUNT) % 2, c, -(a * b)).astype(dtype)
    c = np.where(np.isfinite(c), c, 1).astype(dtype)
    triples = zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    values = [Fraction(x) * Fraction(y) + Fraction(z) for x, y, z in triples]
    module = fp32 if dtype is np.float32 else fp64
    for rounding in ROUNDINGS:
        same(module.fma(a, b, c, rounding), [rounded(v, dtype, rounding) for v in values], rounding)


@pytest.mark.parametrize(("dtype", "exponents"), GRID)
def test_a_root_lies_on_its_side_of_the_exact_one(dtype: type, exponents: tuple[int, int]) -> None:
    a = np.abs(drawn(dtype, 7, exponents))
    module = fp32 if dtype is np.float32 else fp64
    down, up, nearest = (module.sqrt(a, rounding) for rounding in ("rm", "rp", "rn"))
    assert (module.sqrt(a, "rz") == down).all()
    for x, below, above, near in zip(*(each.tolist() for each in (a, down, up, nearest)), strict=True):
        assert Fraction(below) ** 2 <= Fraction(x) <= Fraction(above) ** 2
        assert above == below or float(np.nextafter(dtype(below), dtype(np.inf))) == above
        middle = (Fraction(below) + Fraction(above)) / 2
        assert near == (above if Fraction(x) > middle**2 else below)


def test_flushed_results_are_those_of_an_unbounded_exponent() -> None:
    rng = np.random.default_rng(8)
    a = (rng.integers(1 << 23, 1 << 24, COUNT) * 2.0**-86).astype(np.float32)  # 2^-63 to 2^-62
    near = (2.0**-126 * (1 + rng.integers(-12, 8, COUNT) * 2.0**-26)) / a.astype(np.float64)
    b = near.astype(np.float32)
    signs = np.where(rng.random(COUNT) < 0.5, -1, 1).astype(np.float32)
    values = [Fraction(x) * Fraction(y) for x, y in zip((a * signs).tolist(), b.tolist(), strict=True)]
    zero = np.zeros_like(a)
    for rounding in ROUNDINGS:
        wanted = [flushed(v, rounding) for v in values]
        assert 0 < wanted.count(0.0) < COUNT
        same(fp32.multiply(a * signs, b, rounding, flush=True), wanted, rounding)
        same(fp32.fma(a * signs, b, zero, rounding, flush=True), wanted, rounding)
        same(fp32.divide(a * signs, 1 / b, rounding, flush=True), [flushed(Fraction(x) / Fraction(y), rounding) for x, y in zip(
            (a * signs).tolist(), (1 / b).tolist(), strict=True)], rounding)  # fmt: skip


def test_flushing_makes_zeros_of_subnormal_operands() -> None:
    tiny, one = np.float32([2.0**-127, -(2.0**-149)]), np.float32([2.0**100, 2.0**100])
    assert fp32.multiply(tiny, one, flush=True).view(np.uint32).tolist() == [0, 0x80000000]
    assert fp32.add(tiny, tiny, flush=True).view(np.uint32).tolist() == [0, 0x80000000]
    assert fp32.multiply(tiny, one).tolist() == [2.0**-27, -(2.0**-49)]
    assert fp32.sqrt(tiny, flush=True).view(np.uint32).tolist() == [0, 0x80000000]
    assert fp32.divide(one, tiny, flush=True).tolist() == [np.inf, -np.inf]


def test_specials_are_those_of_ieee_754_and_nan_is_ptx_s() -> None:
    inf, nan, largest = np.inf, np.nan, float(np.finfo(np.float64).max)
    rows = [
        (inf, 0.0, 1.0, nan), (inf, 1.0, -inf, nan), (nan, 1.0, 1.0, nan), (largest, 2.0, -inf, -inf), (-1.0, inf, 1.0, -inf),
        (largest, 2.0, -largest, largest), (0.0, 1.0, -0.0, 0.0), (-0.0, 1.0, -0.0, -0.0), (1.0, 1.0, -1.0, 0.0),
        (2.0**-1074, 2.0**-1074, 0.0, 0.0), (2.0**-1074, 0.5, 2.0**-1074, 2.0**-1073), (largest, largest, -1.0, inf),
    ]  # fmt: skip
    for a, b, c, wanted in rows:
        (got,) = fp64.fma(np.array([a]), np.array([b]), np.array([c])).tolist()
        assert (math.isnan(got) and math.isnan(wanted)) or (got, math.copysign(1, got)) == (wanted, math.copysign(1, wanted))
    undefined = np.float32([inf, 0.0, nan]), np.float32([-inf, np.nan, 1.0])
    for function in (fp32.add, fp32.multiply, fp32.divide):
        for rounding in ROUNDINGS:
            words = function(*undefined, rounding).view(np.uint32)[1:]
            assert (words == 0x7FFFFFFF).all(), function
    assert fp32.sqrt(np.float32([-1.0])).view(np.uint32)[0] == 0x7FFFFFFF
    assert fp32.divide(np.float32([1.0]), np.float32([-0.0]), "rz").tolist() == [-np.inf]


def test_an_exact_zero_is_negative_only_where_sums_round_down() -> None:
    for module, dtype in ((fp32, np.float32), (fp64, np.float64)):
        one, zero = np.array([1], dtype), np.array([0], dtype)
        for rounding in ROUNDINGS:
            down = rounding == "rm"
            assert np.signbit(module.add(one, -one, rounding))[0] == down
            assert np.signbit(module.fma(one, one, -one, rounding))[0] == down
            assert not np.signbit(module.add(zero, zero, rounding))[0]
            assert np.signbit(module.add(-zero, -zero, rounding))[0]


def test_error_free_sums_and_products_lose_nothing() -> None:
    a, b = drawn(np.float64, 9, (1000, 1040)), drawn(np.float64, 10, (1000, 1040))
    for function, values in (
        (two_sum, [Fraction(x) + Fraction(y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]),
        (two_product, [Fraction(x) * Fraction(y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]),
    ):
        total, lost = function(a, b)
        assert [Fraction(x) + Fraction(y) for x, y in zip(total.tolist(), lost.tolist(), strict=True)] == values


def test_rounding_to_odd_keeps_that_something_was_lost() -> None:
    one, tiny = np.array([1.0, 1.0, 1.0]), np.array([2.0**-60, -(2.0**-60), 0.0])
    assert round_to_odd(one, tiny).tolist() == [1 + 2.0**-52, 1 - 2.0**-53, 1.0]


def test_a_step_from_a_rounded_zero_has_the_sign_of_what_was_lost() -> None:
    zero, lost = np.array([0.0, -0.0]), np.array([1e-320, -1e-320])
    assert step_result(zero, lost, "rp").tolist() == [5e-324, 0.0]
    assert step_result(zero, lost, "rm").tolist() == [0.0, -5e-324]
    assert np.signbit(step_result(zero, lost, "rz")).tolist() == [False, True]


@pytest.mark.parametrize("mutant", corpus.SCALAR, ids=lambda mutant: mutant.name)
def test_another_arithmetic_is_noticed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    with mutant_module(mutant) as changed:
        if mutant.kernel.endswith("exact.py"):
            for user in (fp32, fp64):
                monkeypatch.setattr(user, "round_to_odd", changed.round_to_odd)
        else:
            monkeypatch.setattr(fp64, "fma", changed.fma)
        with pytest.raises(AssertionError):
            for dtype, exponents in GRID:
                test_a_fused_multiply_add_rounds_once(dtype, exponents)
            test_a_tie_of_subnormals_is_broken_by_what_lies_below()
            test_double_rounding_would_be_wrong()


def test_a_tie_of_subnormals_is_broken_by_what_lies_below() -> None:
    """1.5 * 2^-1074 is a tie and goes to the even 2; anything below it makes it 1."""
    least = 2.0**-1074
    a = np.array([1.5 * 2.0**-537] * 3)
    b = np.array([2.0**-537] * 3)
    c = np.array([0.0, least, -least])
    assert (fp64.fma(a, b, c) / least).tolist() == [2.0, 2.0, 0.0]
    a, b = np.array([2.0**-537 * (1 + 2.0**-51)]), np.array([1.5 * 2.0**-537 * (1 - 2.0**-51)])  # 1.5 (1 - 2^-102), in these units
    assert (fp64.fma(a, b, np.array([0.0])) / least).tolist() == [1.0]


def test_double_rounding_would_be_wrong() -> None:
    a, b, c = (np.array([value], np.float32) for value in (2.0**-24 * (1 + 2.0**-23), 1 - 2.0**-23, 1 + 2.0**-23))
    assert fp32.fma(a, b, c).tolist() == [1 + 2.0**-23]

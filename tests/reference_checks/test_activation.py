"""Contract under test: leaky_relu adds one, then scales what is negative by fp32's 0.01, each step rounded in fp32."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from bitverdict.reference.activation import leaky_relu, leaky_relu_value
from bitverdict.reference.formats import FP32, decode, encode
from tests.faults import reference_modules as corpus
from tests.faults.mutants import Mutant, mutant_module
from tests.support.tutorial_facts import holds

NAN = 0x7FFFFFFF
BY_HAND = {
    0x00000000: 0x3F800000,  # 0 -> 1
    0x80000000: 0x3F800000,
    0xBF800000: 0x00000000,  # -1 -> +0, which is not negative
    0xC0000000: 0xBC23D70A,  # -2 -> -0.01 as fp32
    0x00000001: 0x3F800000,  # the smallest number is lost in the addition
    0x7F800000: 0x7F800000,
    0xFF800000: 0xFF800000,
    0x7F800001: NAN,  # any NaN, signalling or not, of either sign
    0xFFC00000: NAN,
}


def drawn() -> np.ndarray:
    rng = np.random.default_rng(0)
    near = np.float32(-1) + rng.standard_normal(2000).astype(np.float32) * np.float32(1e-6)
    return np.concatenate([rng.integers(0, 1 << 32, 4000).astype(np.uint32), near.astype(np.float32).view(np.uint32)])


@holds("activation", slope=0.01)
def test_words_by_hand() -> None:
    got = leaky_relu(np.array(list(BY_HAND), np.uint32))
    assert [f"{word:08x}" for word in got] == [f"{word:08x}" for word in BY_HAND.values()]


def test_each_step_is_rounded_once_by_an_encoder_of_its_own() -> None:
    words = drawn()
    values = decode(FP32, words)
    finite = np.isfinite(values) & (np.abs(values) < 2.0**100) & (np.abs(values) > 2.0**-20)
    slope = Fraction(float(decode(FP32, encode(FP32, np.array([0.01])))[0]))
    for word, value in zip(words[finite][:800], values[finite][:800], strict=True):
        shifted = _rounded(Fraction(float(value)) + 1)
        expected = shifted if shifted >= 0 else _rounded(Fraction(float(shifted)) * slope)
        assert decode(FP32, leaky_relu(np.array([word], np.uint32)))[0] == expected


def _rounded(exact: Fraction) -> float:
    """An exact value to fp32, nearest even: to odd in float64 first, so that only one rounding counts."""
    near = float(exact)
    if Fraction(near) != exact and not int(np.float64(near).view(np.int64)) & 1:
        near = float(np.nextafter(near, np.inf if exact > Fraction(near) else -np.inf))
    return float(decode(FP32, encode(FP32, np.array([near])))[0])


def test_the_value_is_what_the_words_round() -> None:
    values = np.array([-3.0, -1.0, -0.5, 0.0, 2.0])
    assert (leaky_relu_value(values) == [-2 * float(np.float32(0.01)), 0, 0.5, 1, 3]).all()


@pytest.mark.parametrize("mutant", corpus.ACTIVATION, ids=lambda mutant: mutant.name)
def test_another_rule_is_seen(mutant: Mutant) -> None:
    words = np.concatenate([drawn(), np.array(list(BY_HAND), np.uint32)])
    with mutant_module(mutant) as other:
        got = other.leaky_relu(words)
    assert (got != leaky_relu(words)).any()


def test_other_dtypes_are_refused() -> None:
    with pytest.raises(ValueError, match="uint32"):
        leaky_relu(np.zeros(3, np.float32))

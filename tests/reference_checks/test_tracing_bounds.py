"""Contract under test: whatever fp32 may do with a reference lies in its intervals, and float64 is as near as its error says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

from bitverdict.reference.formats import FORMATS, encode
from bitverdict.reference.tracing import TracedOutput, trace
from tests.reference_checks.other_namespaces import PRECISION, Exact, Fp32, Number

SHAPES: dict[str, list[tuple[int, ...]]] = {}
REFERENCES: dict[str, Callable[..., Any]] = {}


def of(*shapes: tuple[int, ...]) -> Callable[[Callable], Callable]:
    def put(function: Callable) -> Callable:
        REFERENCES[function.__name__], SHAPES[function.__name__] = function, list(shapes)
        return function

    return put


@of((4, 13))
def softmax(xp: Any, x: Any) -> Any:
    powers = xp.exp(x - xp.max(x, axis=1, keepdims=True))
    return powers / xp.sum(powers, axis=1, keepdims=True)


@of((4, 13))
def scaled_softmax(xp: Any, x: Any) -> Any:
    powers = xp.exp((x - xp.max(x, axis=1, keepdims=True)) * 3.7)
    return powers / xp.sum(powers, axis=1, keepdims=True)


@of((4, 13), (13,))
def rms_norm(xp: Any, x: Any, w: Any) -> Any:
    return x / xp.sqrt(xp.mean(x * x, axis=1, keepdims=True) + 1e-6) * w


@of((4, 13), (13,), (13,))
def layer_norm(xp: Any, x: Any, w: Any, b: Any) -> Any:
    apart = x - xp.mean(x, axis=1, keepdims=True)
    return apart / xp.sqrt(xp.var(x, axis=1, keepdims=True) + 1e-5) * w + b


@of((5, 9), (5, 9))
def swiglu(xp: Any, a: Any, b: Any) -> Any:
    return a / (1 + xp.exp(-a)) * b


@of((5, 9))
def gelu(xp: Any, x: Any) -> Any:
    return x * 0.5 * (1 + xp.erf(x * 0.7071067811865476))


@of((5, 9))
def gelu_by_tanh(xp: Any, x: Any) -> Any:
    return 0.5 * x * (1 + xp.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))


@of((4, 13))
def log_sum_exp(xp: Any, x: Any) -> Any:
    largest = xp.max(x, axis=1, keepdims=True)
    return xp.log(xp.sum(xp.exp(x - largest), axis=1, keepdims=True)) + largest


@of((3, 8), (3, 4))
def rope(xp: Any, x: Any, angle: Any) -> Any:
    c, s = xp.cos(angle), xp.sin(angle)
    left, right = x[:, :4], x[:, 4:]
    return xp.concat([left * c - right * s, right * c + left * s], axis=1)


@of((4, 6), (5, 6), (5, 3))
def attention(xp: Any, q: Any, k: Any, v: Any) -> Any:
    scores = xp.matmul(q, xp.matrix_transpose(k)) * 0.408248290463863
    powers = xp.exp(scores - xp.max(scores, axis=1, keepdims=True))
    return xp.matmul(powers / xp.sum(powers, axis=1, keepdims=True), v)


@of((4, 13), (4, 13), (13,))
def layer_norm_backward(xp: Any, x: Any, dy: Any, w: Any) -> Any:
    inverse = 1 / xp.sqrt(xp.var(x, axis=1, keepdims=True) + 1e-5)
    hat = (x - xp.mean(x, axis=1, keepdims=True)) * inverse
    g = dy * w
    return (g - xp.mean(g, axis=1, keepdims=True) - hat * xp.mean(g * hat, axis=1, keepdims=True)) * inverse


@of((5, 9), (5, 9), (5, 9), (5, 9))
def products_and_sums(xp: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    return a * b + c * d - (a - d) * (b * c) * 1.1 + b


@of((5, 9), (5, 9))
def choices(xp: Any, a: Any, b: Any) -> Any:
    return xp.where(a > b, xp.abs(a) * 0.3, xp.maximum(b, 0.25) / 3)


SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 3.4e38, 1e-45, 1e-38, 88.8, -104.0]
REGIMES: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "integers": lambda rng, shape: rng.integers(-3, 4, shape).astype(float),
    "wide": lambda rng, shape: rng.standard_normal(shape) * 2.0 ** rng.integers(-12, 9, shape),
    "large": lambda rng, shape: rng.standard_normal(shape) * 200,
    "huge": lambda rng, shape: rng.standard_normal(shape) * 2.0 ** rng.integers(60, 127, shape),
    "tiny": lambda rng, shape: rng.standard_normal(shape) * 2.0 ** rng.integers(-140, -60, shape),
    "special": lambda rng, shape: rng.choice(SPECIAL, shape),
}  # fmt: skip


def operands(name: str, regime: str, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    with np.errstate(over="ignore"):
        return [REGIMES[regime](rng, shape).astype(np.float32) for shape in SHAPES[name]]


def traced(name: str, given: list[np.ndarray]) -> TracedOutput:
    (output,) = trace(REFERENCES[name], [("fp32", each.view(np.uint32)) for each in given])
    return output


def keys(words: np.ndarray) -> np.ndarray:
    """Integers in the order of the values, both zeros one."""
    signed = words.view(f"i{words.itemsize}").astype(np.int64)
    return np.where(signed < 0, -(signed & np.iinfo(f"i{words.itemsize}").max), signed)


def outside(output: TracedOutput, found: np.ndarray, format: str) -> np.ndarray:
    """Which of `found` (float32) no implementation may store in `format`."""
    low, high, _, open_ = output.interval(format)
    fmt = FORMATS[format]
    got = encode(fmt, found)
    nan = np.isnan(found)
    wrong = np.where(nan, low != fmt.nan_code, (keys(got) < keys(low)) | (keys(got) > keys(high)) | (low == fmt.nan_code))
    return wrong & ~open_


def evaluated(name: str, given: list[np.ndarray], seed: int) -> np.ndarray:
    xp = Fp32(seed)
    with np.errstate(all="ignore"):
        return REFERENCES[name](xp, *(Number(xp, each) for each in given)).value


@pytest.mark.parametrize("name", REFERENCES)
def test_words_of_drawn_fp32_evaluations_lie_in_the_interval(name: str) -> None:
    for regime in REGIMES:
        for seed in range(2):
            given = operands(name, regime, seed)
            output = traced(name, given)
            for drawn in range(4):
                found = evaluated(name, given, 100 * seed + drawn)
                for format in ("fp32", "fp16", "bf16"):
                    wrong = outside(output, found, format)
                    assert not wrong.any(), f"{regime} {seed} {drawn} {format}: {found[wrong][:3]}"


@pytest.mark.parametrize("name", REFERENCES)
def test_the_running_error_holds_the_mathematics(name: str) -> None:
    with mpmath.workprec(PRECISION):
        for regime in ("normal", "integers", "wide", "large"):
            given = operands(name, regime, 7)
            output = traced(name, given)
            exact = REFERENCES[name](Exact(), *(Exact.array(each.astype(np.float64)) for each in given))
            off = np.abs(Exact.array(output.value) - exact)
            known = ~output.unknown
            assert known.mean() > 0.8
            assert (off[known] <= output.error[known]).all(), regime


def inside(function: Callable[..., Any], given: list[np.ndarray], found: np.ndarray, **how: Any) -> bool:
    (output,) = trace(function, [("fp32", np.asarray(each, np.float32).view(np.uint32)) for each in given], **how)
    assert not output.interval("fp32")[3].any()
    return not outside(output, np.asarray(found, np.float32), "fp32").any()


def test_a_product_is_one_in_any_order() -> None:
    a, b, c = np.random.default_rng(0).standard_normal((3, 500)).astype(np.float32)
    for found in (a * b * c, a * (b * c), (a * c) * b):
        assert inside(lambda xp, a, b, c: a * b * c, [a, b, c], found)
    assert not inside(lambda xp, a, b, c: a * b * c, [a, b, c], a * b * c * np.float32(1 + 2.0**-21))


def test_a_sum_is_one_in_any_order_and_may_overflow_in_another() -> None:
    a, b, c = np.random.default_rng(1).standard_normal((3, 500)).astype(np.float32)
    for found in (a - b + c, a + (c - b), (a + c) - b):
        assert inside(lambda xp, a, b, c: a - b + c, [a, b, c], found)
    assert not inside(lambda xp, a, b, c: a - b + c, [a, b, c], a - b + c + np.float32(2.0**-20))
    large = [np.float32([3e38])] * 2 + [np.float32([-3e38])]
    assert inside(lambda xp, a, b, c: a + c + b, large, np.float32([np.inf])) and inside(
        lambda xp, a, b, c: a + c + b, large, large[0]
    )


def test_a_part_of_a_product_may_overflow_or_vanish_in_another_order() -> None:
    given = [np.float32([1e30]), np.float32([1e-30]), np.float32([1e20])]
    assert inside(lambda xp, a, b, c: a * b * c, given, np.float32([np.inf]))
    given = [np.float32([1e-30]), np.float32([1e30]), np.float32([1e-16])]
    assert inside(lambda xp, a, b, c: a * b * c, given, np.float32([1e-30]) * np.float32([1e-16]) * np.float32([1e30]))


def test_a_reciprocal_may_be_flushed_to_zero() -> None:
    divide = lambda xp, a, b: a / b
    assert inside(divide, [np.float32([1e30]), np.float32([1e38])], np.float32([0]))
    assert not inside(divide, [np.float32([1e30]), np.float32([1e37])], np.float32([0]))


def test_a_sum_is_as_wide_as_its_terms() -> None:
    x = np.float32([[1.001, 2.003]])
    narrow = np.float32([1.0 + 2.0])
    assert inside(lambda xp, x: xp.sum(xp.kept_in(x, "bf16"), axis=1), [x], narrow)
    assert not inside(lambda xp, x: xp.sum(x, axis=1), [x], narrow)


def test_a_wave_is_as_wide_as_its_argument() -> None:
    x = np.float32([1.001])
    assert inside(lambda xp, x: xp.sin(xp.kept_in(x, "bf16")), [x], np.sin(np.float32([1.0])))
    assert not inside(lambda xp, x: xp.sin(x), [x], np.sin(np.float32([1.0])))


def test_a_quotient_and_a_product_are_as_wide_as_their_operands() -> None:
    x = np.float32([1.001, -1.001])
    for function in (
        lambda xp, x: xp.kept_in(x, "bf16") / 3,
        lambda xp, x: 3 / xp.kept_in(x, "bf16"),
        lambda xp, x: xp.kept_in(x, "bf16") * -3,
    ):
        for y in (x, np.float32([1, -1])):
            assert inside(function, [x], function(_Rounded, y))


class _Rounded:
    @staticmethod
    def kept_in(x: np.ndarray, format: str) -> np.ndarray:
        return x


def test_a_quotient_may_be_by_a_rounded_reciprocal() -> None:
    a, b = np.random.default_rng(2).uniform(1, 2, (2, 2000)).astype(np.float32)
    assert inside(lambda xp, a, b: a / b, [a, b], a * (np.float32(1) / b))
    assert not inside(lambda xp, a, b: a / b, [a, b], a / b * np.float32(1 + 2.0**-19))

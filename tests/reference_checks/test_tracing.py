"""Contract under test: a traced reference has NumPy's values, and the words of fp32 implementations lie in its intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bitverdict.reference.formats import FORMATS, encode
from bitverdict.reference.tracing import Untraceable, declared_formats, trace


def drawn(*shape: int, seed: int = 0) -> tuple[str, np.ndarray]:
    return "fp16", np.random.default_rng(seed).standard_normal(shape).astype(np.float16).view(np.uint16)


def values(operand: tuple[str, np.ndarray]) -> np.ndarray:
    return operand[1].view(np.float16).astype(np.float64)


def keys(words: np.ndarray) -> np.ndarray:
    """Integers in the order of the values."""
    signed = words.view(f"i{words.itemsize}").astype(np.int64)
    return np.where(signed < 0, -(signed & np.iinfo(f"i{words.itemsize}").max), signed)


def inside(output: Any, found: np.ndarray, format: str) -> bool:
    """Whether all of `found` (float32) lie in the interval once stored."""
    low, high, _, open_ = output.interval(format)
    got = keys(encode(FORMATS[format], found))
    return bool(np.all(((keys(low) <= got) & (got <= keys(high))) | open_))


def in_a_drawn_order(rng: np.random.Generator, terms: np.ndarray) -> np.ndarray:
    """fp32 sums along the last axis, in a drawn order, by a drawn tree."""
    parts = [terms[..., place].astype(np.float32) for place in rng.permutation(terms.shape[-1])]
    while len(parts) > 1:
        step = int(rng.integers(2, 6))
        merged = []
        for start in range(0, len(parts), step):
            total = parts[start]
            for part in parts[start + 1 : start + step]:
                total = (total + part).astype(np.float32)
            merged.append(total)
        parts = merged
    return parts[0]


def rms_norm(xp: Any, x: Any, w: Any) -> Any:
    return x / xp.sqrt(xp.mean(x * x, axis=1, keepdims=True) + 1e-6) * w


def softmax(xp: Any, x: Any) -> Any:
    powers = xp.exp(x - xp.max(x, axis=1, keepdims=True))
    return powers / xp.sum(powers, axis=1, keepdims=True)


def test_rms_norm_has_numpys_values_and_holds_fp32_words() -> None:
    x, w = drawn(9, 70), drawn(70, seed=1)
    (output,) = trace(rms_norm, (x, w))
    a, b = values(x), values(w)
    expected = a / np.sqrt((a * a).mean(axis=1, keepdims=True) + 1e-6) * b
    np.testing.assert_allclose(output.value, expected, rtol=1e-14)
    assert not output.unknown.any()
    rng = np.random.default_rng(2)
    for _ in range(5):
        narrow = a.astype(np.float32)
        total = in_a_drawn_order(rng, narrow * narrow)[:, None]
        root = (np.float32(1) / np.sqrt(total * np.float32(1 / 70) + np.float32(1e-6))).astype(np.float32)
        assert inside(output, narrow * root * b.astype(np.float32), "fp16")
        assert inside(output, narrow * (root * b.astype(np.float32)), "fp32")


def test_softmax_holds_one_that_rescales_and_one_that_folds_the_log() -> None:
    x = drawn(9, 64, seed=3)
    (output,) = trace(softmax, (x,))
    a = (values(x)).astype(np.float32)
    folded = np.exp2(a * np.float32(np.log2(np.e)) - a.max(axis=1, keepdims=True) * np.float32(np.log2(np.e)))
    assert inside(output, folded / folded.sum(axis=1, keepdims=True), "fp32")
    largest, total = a[:, :8].max(axis=1), np.exp(a[:, :8] - a[:, :8].max(axis=1, keepdims=True)).sum(axis=1)
    for start in range(8, 64, 8):
        block = a[:, start : start + 8]
        now = np.maximum(largest, block.max(axis=1))
        total = total * np.exp(largest - now) + np.exp(block - now[:, None]).sum(axis=1)
        largest = now
    assert inside(output, np.exp(a - largest[:, None]) / total[:, None], "fp32")


def test_a_dropped_element_shows_in_the_mathematics_and_in_the_words() -> None:
    x, w = drawn(9, 70), drawn(70, seed=1)
    (output,) = trace(rms_norm, (x, w))
    a = values(x)
    wrong = a / np.sqrt((a[:, :-1] ** 2).sum(axis=1, keepdims=True) / 70 + 1e-6) * values(w)
    assert (np.abs(wrong - output.value) > 2 * output.error).all(axis=1).any()
    assert not inside(output, wrong.astype(np.float32), "fp32")


def test_unknown_names_and_control_flow_are_named() -> None:
    for function, name in (
        (lambda xp, x: xp.linalg.svd(x), "linalg.svd"),
        (lambda xp, x: x if x[0, 0] > 0 else -x, "control flow on an array"),
        (lambda xp, x: xp.nonzero(x), "nonzero"),
    ):
        with pytest.raises(Untraceable) as raised:
            trace(function, (drawn(2, 2),))
        assert raised.value.operator == name


def test_round_to_is_mathematics_and_is_declared() -> None:
    x = drawn(5, 40)
    (output,) = trace(lambda xp, x: xp.round_to(x * 3, "e4m3"), (x,))
    assert output.round_to_formats == {"e4m3"} == declared_formats(lambda xp, x: xp.round_to(x, "e4m3"), (x,))
    np.testing.assert_array_equal(output.interval("e4m3")[0], encode(FORMATS["e4m3"], values(x) * 3))

"""Reference under test: results of a chip that takes subnormals as zero lie in the bound for it, and in no tighter one."""

from __future__ import annotations

import numpy as np
import pytest

from bitverdict.reference.formats import FP16, FP32, decode, encode
from bitverdict.reference.mfma_bound import mfma_bound, subnormal_loss
from tests.support.tutorial_facts import holds

SHAPES = [(128, 256, 32), (128, 16, 32), (64, 128, 128), (128, 128, 512), (64, 64, 1024)]
"""(m, n, k) of the tutorial's test; its two cubes with fewer rows and columns, and their whole K."""


def half(shape: tuple[int, int], scale: float, seed: int) -> np.ndarray:
    return decode(FP16, encode(FP16, np.random.default_rng(seed).standard_normal(shape) * scale))


def multiplied(left: np.ndarray, right: np.ndarray, *, flush: bool, order: np.ndarray) -> np.ndarray:
    """fp16 values of a product as such a chip may compute it: one addition in fp32 for each k of `order`."""
    sides = [np.where(np.abs(side) >= FP16.smallest_normal, side, 0.0) if flush else side for side in (left, right)]
    total = np.zeros((left.shape[0], right.shape[1]), np.float32)  # (M, N)
    for k in order:
        total = (total + np.multiply.outer(sides[0][:, k], sides[1][k])).astype(np.float32)  # (M, N)
        total = np.where(np.abs(total) >= FP32.smallest_normal, total, np.float32(0)) if flush else total
    return decode(FP16, encode(FP16, total.astype(np.float64)))


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
@pytest.mark.parametrize("scale", [1.0, 2.0**-10])
def test_right_results_lie_in_the_bound_in_any_order(m: int, n: int, k: int, scale: float) -> None:
    left, right = half((m, k), scale, 1), half((k, n), 1.0, 2)
    exact, bound = mfma_bound(left, right, FP16, FP16, flushes_subnormals=True)
    for order in (np.arange(k), np.arange(k)[::-1], np.random.default_rng(3).permutation(k)):
        for flush in (True, False):
            assert (np.abs(multiplied(left, right, flush=flush, order=order) - exact) <= bound).all()


def test_a_flushed_result_lies_outside_of_the_bound_without_subnormals() -> None:
    left, right = half((64, 32), 2.0**-14, 1), half((32, 64), 1.0, 2)
    got = multiplied(left, right, flush=True, order=np.arange(32))
    exact, whole = mfma_bound(left, right, FP16, FP32, flushes_subnormals=False)
    assert (np.abs(got - exact) > whole).mean() > 0.9
    assert (np.abs(got - exact) <= mfma_bound(left, right, FP16, FP16, flushes_subnormals=True)[1]).all()


def test_what_is_flushed_is_the_products_with_a_subnormal_factor() -> None:
    tiny, one = FP16.smallest_normal, 1.0
    left = np.array([[tiny / 2, one, -tiny / 4]])  # (1, 3)
    right = np.array([[2.0], [tiny / 2], [tiny / 2]])  # (3, 1)
    due = tiny + tiny / 2 + tiny * tiny / 8
    assert (
        subnormal_loss(left, right, FP16)[0, 0] == pytest.approx(due, rel=1e-12) and subnormal_loss(left, right, FP16)[0, 0] >= due
    )
    assert subnormal_loss(np.array([[1.0]]), np.array([[2.0]]), FP16)[0, 0] < 1e-14


@holds("tolerance on HIP", rtol=[0, 0.01])
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_the_tutorial_s_tolerance_is_wider_than_the_bound(m: int, n: int, k: int) -> None:
    """allclose(atol=1e-2, rtol=1e-2) on HIP, for its operands; and it would pass more dropped products. Of a deep K the bound for
    any order is wider at small results: there it lets more pass, and says why."""
    left, right = half((m, k), 1.0, 1), half((k, n), 1.0, 2)
    exact, bound = mfma_bound(left, right, FP16, FP16, flushes_subnormals=True)
    allowed = 1e-2 + 1e-2 * np.abs(exact)  # (M, N)
    assert (bound < allowed).mean() > (0.999 if k <= 128 else 0.85) and np.median(allowed / bound) > 3
    dropped = multiplied(left, right, flush=True, order=np.arange(k - 1))
    seen = (np.abs(dropped - exact) > bound).mean()
    assert seen > (np.abs(dropped - exact) > allowed).mean()


def test_a_dropped_product_of_the_reference_is_outside() -> None:
    left, right = half((32, 64), 1.0, 1), half((64, 32), 1.0, 2)
    exact, bound = mfma_bound(left, right, FP16, FP16, flushes_subnormals=True)
    assert (np.abs(multiplied(left, right, flush=True, order=np.arange(63)) - exact) > bound).mean() > 0.5

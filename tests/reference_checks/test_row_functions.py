"""Contract under test: the plans of functions on rows lie as near to what contracts hold any launcher to as their steps allow.

The bounds count roundings: u = 2^-24 for each operation that rounds once, and what the PTX ISA says of the others (9.7.3):
ex2.approx 2 ulp, rsqrt.approx 2^-22.9, div.full 2 ulp; the exponent is rounded twice before ex2."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from bitverdict.harness.contracts.oracle import row_mathematics
from bitverdict.reference import row_functions as rows
from bitverdict.reference.row_functions import RowSum
from tests.faults import reference_modules as corpus
from tests.faults.mutants import Mutant, mutant_module

U = 2.0**-24
ORDERS = [RowSum(512, 4, 4, 90), RowSum(512, 4, 4, 100), RowSum(512, 1, 8, 80), RowSum(1024, 16, 1, 100)]


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def words(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float32).view(np.uint32)


def real(found: np.ndarray) -> np.ndarray:
    return found.view(np.float32).astype(np.float64)


def levels(order: RowSum) -> int:
    return order.block.bit_length() - 1


def exponential(argument: np.ndarray) -> np.ndarray:
    """Relative error of tl.exp: that of the argument, twice rounded, and 2 ulp."""
    return 3 * U * np.abs(argument) + 4 * U


def exceeded(module, order: RowSum) -> dict[str, float]:
    """By function: the largest error in units of its bound, of second order left out by 1 %."""
    x, w, dy = drawn(7, 300), drawn(300, seed=1), drawn(7, 300, seed=2)
    found = {}
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        below = wide - wide.max(axis=1, keepdims=True)
        least = np.abs(below).max(axis=1, keepdims=True)
        due = row_mathematics.softmax(np, wide)
        error = (exponential(below) + exponential(least) + levels(order) * U + 5 * U) * due
        found["softmax"] = np.max(np.abs(real(module.softmax(words(x), order)) - due) / error)

        y, r = module.rms_norm(words(x), words(w), 2.0**-20, order)
        due, _, dx_value, dw_value = row_mathematics.rms_norm_with_gradients(
            np, wide, w.astype(np.float64), dy.astype(np.float64), eps=2.0**-20
        )
        root = (levels(order) + 5) * U / 2 + 2.0**-22.9
        found["rms_norm"] = np.max(np.abs(real(y) - due) / ((root + 2 * U) * np.abs(due)))

        dx, dw = module.rms_norm_backward(words(x), words(w), r, words(dy), order, 2)
        scale = 1 / np.sqrt((wide * wide).mean(axis=1, keepdims=True))
        given = np.abs(dy * w[None, :]).astype(np.float64)
        size = scale * (given + np.abs(wide) * scale**2 * (given * np.abs(wide)).mean(axis=1, keepdims=True))
        found["dx"] = np.max(np.abs(real(dx) - dx_value) / ((3 * root + (levels(order) + 8) * U) * size))
        size = np.abs(dy * x * scale).sum(axis=0)
        found["dw"] = np.max(np.abs(real(dw) - dw_value) / ((root + (len(x) + 4) * U) * size))

        due = row_mathematics.swiglu(np, wide, dy.astype(np.float64))
        found["swiglu"] = np.max(
            np.abs(real(module.swiglu(words(x), words(dy))) - due) / ((exponential(wide) + 6 * U) * np.abs(due))
        )

        angles = np.random.default_rng(4).random((7, 20))
        q, cos, sin = drawn(7, 3, 40, seed=5), np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        due = row_mathematics.rope(np, *(each.astype(np.float64) for each in (q, cos, sin)))
        size = np.abs(q.astype(np.float64)) + np.abs(np.roll(q, 20, axis=2).astype(np.float64))
        found["rope"] = np.max(np.abs(real(module.rope(words(q), words(cos), words(sin))) - due) / (2 * U * size))

        due = row_mathematics.dropout(np, wide, key=9, p=0.3)
        found["dropout"] = np.max(np.abs(real(module.dropout(words(x), 9, 0.3)) - due) / (2 * U * np.abs(due) + (due == 0)))

        targets = np.random.default_rng(6).integers(0, 300, 7)
        order = dataclasses.replace(order, block=128)  # three blocks
        for share in (0.0, 0.1):
            value, _, gradient = row_mathematics.cross_entropy_with_gradient(
                np, wide, targets, np.ones(7), smoothing=share, ignore_index=-100
            )
            loss, lse = module.cross_entropy(words(x), targets, share, -100, order)
            size = 1 + np.abs(np.log(np.exp(wide).sum(axis=1))) + 2 * np.abs(wide).max(axis=1)
            error = exponential(least[:, 0]) + (levels(order) + 8) * U * size
            found[f"cross_entropy, {share}"] = np.max(np.abs(real(loss) - value) / error)
            dx = module.cross_entropy_backward(words(x), targets, lse, words(np.ones(7)), share, -100)
            powers = np.abs(gradient) + 1.0 * (np.arange(300) == targets[:, None]) + share / 300
            far = exponential(np.abs(wide).max() + size[:, None]) + error[:, None]
            found[f"its gradient, {share}"] = np.max(np.abs(real(dx) - gradient) / (far * powers))
            if any(module.cross_entropy(words(x), targets, share, int(targets[3]), order)[0][targets == targets[3]]):
                found["ignored"] = np.inf
    return {name: float(error) for name, error in found.items() if not error <= 1.01}


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_each_plan_lies_within_what_its_steps_round(order: RowSum) -> None:
    assert exceeded(rows, order) == {}


def test_the_order_of_the_sum_decides_words() -> None:
    x = words(drawn(7, 300))
    found = [rows.softmax(x, order) for order in ORDERS]
    assert all((found[0] != other).any() for other in found[1:])


@pytest.mark.parametrize("mutant", corpus.ROW_FUNCTIONS, ids=lambda mutant: mutant.name)
def test_another_plan_is_refused(mutant: Mutant) -> None:
    with mutant_module(mutant) as changed:
        assert exceeded(changed, changed.RowSum(512, 4, 4, 90))

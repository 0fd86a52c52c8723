"""Contract under test: a reduction that is one call of NumPy's gives the words of the tree that combines two by two, with zeros of
both signs, NaNs and words that wrap."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bitverdict.harness.emulator.frontend.lowerings import reductions
from bitverdict.harness.emulator.frontend.lowerings.floats import extremum
from bitverdict.harness.emulator.numerics.scalar_ops import binary
from bitverdict.reference.reduction_order import ReductionOrder

SPECIAL = np.array([0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, np.nan, 3e-42, -3e-42], np.float32)
EXTREMES = {
    (ufunc, keep): extremum("fp32", keep_nan=keep, largest=largest)
    for ufunc, keep, largest in (
        (np.fmax, False, True), (np.fmin, False, False), (np.maximum, True, True), (np.minimum, True, False),
    )
}  # fmt: skip


def combination(function: Callable, whole: Callable | None) -> Any:
    """A function of generated code that combines two arrays, with what it has for a whole one."""

    def combine(a: np.ndarray, b: np.ndarray) -> tuple:
        return (function(a, b),)

    if whole is not None:
        combine.whole = whole  # type: ignore[attr-defined]
    return combine


def drawn(seed: int) -> np.ndarray:
    """(rows, 16) float32, mostly of few special values, so that ties and NaNs meet."""
    draw = np.random.default_rng(seed)
    return draw.choice(SPECIAL[: int(draw.integers(1, len(SPECIAL) + 1))], (200, 16))


def words_of(found: tuple) -> np.ndarray:
    return np.asarray(found[0]).view(np.uint32)


@pytest.mark.parametrize("which", EXTREMES, ids=lambda which: which[0].__name__)
@pytest.mark.parametrize("axis", [0, 1])
def test_extremes_have_the_words_of_the_tree(which: tuple, axis: int) -> None:
    with np.errstate(all="ignore"):
        for seed in range(30):
            given, tree = drawn(seed), combination(EXTREMES[which], None)
            once = combination(EXTREMES[which], partial(reductions._extreme, which[0]))
            alone = [words_of(reductions._reduce_exactly(each, (given,), axis, False)) for each in (tree, once)]
            assert np.array_equal(alone[0], alone[1])


def test_a_zero_of_the_wrong_sign_is_seen() -> None:
    """NumPy alone, which leaves the sign of zero open, or a NaN that keeps its word, gives other words."""
    given = np.array([[-0.0, 0.0], [0.0, -0.0], [-1.0, -2.0]], np.float32)
    rows = [reductions._extreme(np.fmax, row[None], 1) for row in given]
    assert rows[0] is None and rows[1] is None and rows[2] is not None
    odd = np.full((1, 2), np.uint32(0x7FC00001).view(np.float32))
    found = reductions._extreme(np.maximum, odd, 1)
    assert found is not None and words_of((found,)).tolist() == [[0x7FFFFFFF]]


@pytest.mark.parametrize("name", reductions._INTEGERS)
def test_integers_wrap_as_in_the_tree(name: str) -> None:
    ufunc = reductions._INTEGERS[name]
    for dtype in (np.int8, np.int16, np.int32, np.int64):
        limits = np.iinfo(dtype)
        given = np.random.default_rng(7).integers(limits.min, limits.max, (40, 16), dtype, endpoint=True)
        with np.errstate(all="ignore"):
            tree = reductions._reduce_exactly(combination(ufunc, None), (given,), 1, False)
            once = reductions._reduce_exactly(combination(ufunc, partial(reductions._fold_axis, ufunc)), (given,), 1, False)
        assert tree[0].dtype == once[0].dtype == dtype and np.array_equal(tree[0], once[0])


def test_a_sum_that_keeps_its_nans_ends_in_the_same_words() -> None:
    order, add = ReductionOrder((0, 1), (3, 2), ()), binary(np.add, "fp32")
    with np.errstate(all="ignore"):
        for seed in range(30):
            given = drawn(seed)
            found = [
                words_of(reductions._reduce(combination(add, whole), (given,), 1, order, None, False))
                for whole in (None, reductions._add_arrays)
            ]
            assert np.array_equal(found[0], found[1])


def test_what_combines_an_element_with_itself_goes_by_the_tree() -> None:
    kind = SimpleNamespace(element="i32")
    assert reductions._of_whole_arrays(SimpleNamespace(name="arith.addi", operands=["%a", "%b"], outputs=[kind])) is not None  # type: ignore[arg-type]
    assert reductions._of_whole_arrays(SimpleNamespace(name="arith.addi", operands=["%a", "%a"], outputs=[kind])) is None  # type: ignore[arg-type]
    assert reductions._of_whole_arrays(SimpleNamespace(name="arith.subi", operands=["%a", "%b"], outputs=[kind])) is None  # type: ignore[arg-type]

"""Contract under test: the public strategies draw what they promise, reach its edges, and shrink to one plain failure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, find, given, seed, settings
from hypothesis import strategies as st

import bitverdict as bv
from bitverdict import strategies
from bitverdict.harness.model.usage import UsageError

QUIET = settings(database=None, deadline=None, max_examples=400, suppress_health_check=list(HealthCheck))


def drawn(strategy: st.SearchStrategy, count: int = 400) -> list:
    met: list = []

    @seed(0)
    @settings(QUIET, max_examples=count)
    @given(strategy)
    def collect(value: Any) -> None:
        met.append(value)

    collect()
    return met


def smallest(strategy: st.SearchStrategy, fails: Callable[[Any], bool]) -> Any:
    return find(strategy, fails, settings=settings(QUIET, max_examples=2000))


def test_sizes_are_multiples_inside_and_at_the_edges_of_the_tile() -> None:
    met = set(drawn(strategies.sizes(1, 300, around=64)))
    assert min(met) == 1 and max(met) == 300 and {63, 64, 65, 127, 128, 129, 299} <= met
    assert all(8 <= size <= 90 and size % 8 == 0 for size in drawn(strategies.sizes(3, 90, multiple_of=8)))
    assert set(drawn(strategies.sizes(5, 5), 5)) == {5}
    assert smallest(strategies.sizes(1, 100), lambda n: 41 <= n <= 79) in (41, 47), "the smallest, or the smallest edge"


def test_shapes_have_a_size_a_dimension_and_shrink_each() -> None:
    met = drawn(strategies.shapes(40, 300, around=(8, 64)))
    assert {len(shape) for shape in met} == {2} and max(m for m, _ in met) == 40 and 65 in {n for _, n in met}
    shrunk = smallest(strategies.shapes(40, 300), lambda shape: shape[1] > 64)
    assert shrunk[0] == 1 and shrunk[1] in (65, 287), "the smallest, or the smallest edge"


def test_offsets_lie_inside_or_on_every_side_of_the_end() -> None:
    assert set(drawn(strategies.offsets(64, block=16, unit=8))) == set(range(0, 49, 8))
    met = drawn(strategies.offsets(64, block=16, unit=8, out_of_bounds=True))
    assert all(offset % 8 == 0 for offset in met) and {-24, -16, -8, 0, 48, 56, 64, 80} <= set(met)
    assert min(drawn(strategies.offsets(64, block=16, unit=8, out_of_bounds=True, negative=False))) == 0
    assert smallest(strategies.offsets(64, block=16, unit=8, out_of_bounds=True), lambda first: first + 16 > 64) == 56
    assert smallest(strategies.offsets(64, block=16, unit=8, out_of_bounds=True), lambda first: first < 0) == -8


@pytest.mark.share(4)
def test_row_indices_reach_both_sides_of_the_table() -> None:
    assert len(drawn(strategies.row_indices(2, count=8), 1)[0]) == 8
    met = drawn(strategies.row_indices(9, count=8, out_of_bounds=True))
    assert all(numbers.dtype == np.int32 and numbers.shape == (8,) for numbers in met)
    assert {-(2**31), -1, 0, 8, 9, 2**31 - 1} <= {int(number) for numbers in met for number in numbers}
    assert any(((numbers >= 0) & (numbers < 9)).all() for numbers in met)
    assert {len(numbers) for numbers in drawn(strategies.row_indices(9, count=(1, 5)))} == {1, 2, 3, 4, 5}
    assert all(((numbers >= 0) & (numbers < 9)).all() for numbers in drawn(strategies.row_indices(9)))
    assert min(int(numbers.min()) for numbers in drawn(strategies.row_indices(9, count=8, out_of_bounds=True, negative=False))) == 0


@pytest.mark.parametrize("count", [3, 9])
@pytest.mark.parametrize("out_of_bounds", [False, True])
def test_distinct_row_indices_name_each_row_once(count: int, out_of_bounds: bool) -> None:
    met = drawn(strategies.row_indices(9, count=count, out_of_bounds=out_of_bounds, distinct=True), 100)
    assert all(len(set(numbers.tolist())) == count for numbers in met)
    assert out_of_bounds == any(((numbers < 0) | (numbers >= 9)).any() for numbers in met)


@pytest.mark.parametrize(
    ("bad", "named"),
    [(lambda numbers: (numbers >= 9).any(), 9), (lambda numbers: (numbers < 0).any(), -1), (lambda numbers: 7 in numbers, 7)],
)
def test_row_indices_shrink_to_one_bad_index(bad: Callable[[np.ndarray], bool], named: int) -> None:
    shrunk = smallest(strategies.row_indices(9, count=8, out_of_bounds=True), bad).tolist()
    assert sorted(shrunk, key=abs) == [0] * 7 + [named]
    assert smallest(strategies.row_indices(9, count=(1, 64), out_of_bounds=True), bad).tolist() == [named]


def test_a_gather_that_checks_one_row_too_many_is_found_by_one_index() -> None:
    """The right twin passes all that is drawn."""
    table = np.arange(1, 1 + 9 * 4).reshape(9, 4)

    def gathered(numbers: np.ndarray, last: int) -> np.ndarray:
        padded = np.concatenate([table, np.full((1, 4), -1)])  # what lies behind the table
        inside = (numbers >= 0) & (numbers <= last)
        return np.where(inside[:, None], padded[np.where(inside, numbers, 0)], 0)

    from bitverdict.reference.gather_scatter import gather

    rows = strategies.row_indices(9, count=8, out_of_bounds=True)
    assert all((gathered(numbers, 8) == gather(table, numbers, 0, 4)).all() for numbers in drawn(rows))
    shrunk = smallest(rows, lambda numbers: (gathered(numbers, 9) != gather(table, numbers, 0, 4)).any())
    assert sorted(shrunk.tolist()) == [0] * 7 + [9]


@pytest.mark.parametrize(
    ("dtype", "made"),
    [
        ("fp16", torch.float16),
        (torch.bfloat16, torch.bfloat16),
        ("e4m3", torch.float8_e4m3fn),
        ("int8", torch.int8),
        ("e2m1", torch.uint8),
    ],
)
def test_tensors_have_their_type_and_shape_and_a_regime_s_values(dtype: Any, made: torch.dtype) -> None:
    met = drawn(strategies.tensors(dtype, strategies.shapes(5, 40)), 40)
    assert {tensor.dtype for tensor in met} == {made} and max(tensor.shape[1] for tensor in met) == 40
    if dtype == "fp16":
        assert any(tensor.isnan().any() for tensor in met) and any(tensor.isfinite().all() for tensor in met)
        whole = drawn(strategies.tensors(dtype, (4, 4), regimes=("integers",)), 10)
        assert all((tensor == tensor.round()).all() and tensor.abs().max() <= 2 for tensor in whole)


REFUSED = [
    (lambda: strategies.sizes(9, 3), "sizes(9, 3"),
    (lambda: strategies.sizes(9, 15, multiple_of=16), "a multiple of"),
    (lambda: strategies.shapes(), "needs the largest of each dimension"),
    (lambda: strategies.shapes(3, 4, around=(1, 2, 3)), "one tile or one for each"),
    (lambda: strategies.offsets(8, block=9), "block must be from 1 to length"),
    (lambda: strategies.offsets(8, negative=True), "negative only with out_of_bounds"),
    (lambda: strategies.row_indices(3, count=4, distinct=True), "no more than rows where they are distinct"),
    (lambda: strategies.tensors("fp99", (1,)), "dtype 'fp99': unknown"),
    (lambda: strategies.tensors("fp16", (1,), regimes=("norml",)), "did you mean 'normal'?"),
    (lambda: strategies.tensors("fp16", (1,), regimes=()), "must name at least one"),
]


@pytest.mark.parametrize(("asked", "said"), REFUSED)
def test_what_cannot_be_drawn_is_told_by_value_and_rule(asked: Callable[[], object], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        asked()


def test_the_module_is_a_public_name_that_is_imported_when_asked_for() -> None:
    assert bv.strategies is strategies and "strategies" in bv.__all__
    assert set(strategies.__all__) <= set(dir(strategies))

"""Operands of a large product between a gather and a scatter, and the smaller problem that chosen places and columns of it are.

    out[scatter[i], :] = X[gather[i], :] W          i < L; as many rows of `out` as row numbers

Both lists are permutations but for a few numbers outside. Such a gathered row is zeros, such a scattered row is written nowhere.
As many rows of `out` are named by none, and keep what they held. So each place i stands for one row of `out` (`landing_rows`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from bitverdict.harness.contracts.inputs import regimes
from bitverdict.harness.model.case import Case, Operand

GATHERED_OUTSIDE, SCATTERED_OUTSIDE = 97, 89  # of so many row numbers one lies outside

Draw = Callable[[str, tuple[int, int], int, str], np.ndarray]


def sample(shape: tuple[int, int], tile: tuple[int, int], count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Ascending rows and columns whose crossings are at most about `count` words; all of both where that is enough."""
    if shape[0] * shape[1] <= count:
        return np.arange(shape[0]), np.arange(shape[1])
    side = max(2, math.isqrt(count))
    rows = min(shape[0], max(side, count // max(shape[1], 1)))
    return _choose_places(shape[0], tile[0], rows, rng), _choose_places(
        shape[1], tile[1], min(shape[1], max(side, count // rows)), rng
    )


def _choose_places(size: int, tile: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """`count` of `size` places: both ends of every tile first, then any."""
    if size <= count:
        return np.arange(size)
    starts = np.arange(0, size, tile)
    ends = np.unique(np.concatenate([starts, np.minimum(starts + tile, size) - 1]))
    if len(ends) > count:
        inner = rng.choice(ends[1:-1], count - 2, replace=False)
        return np.sort(np.concatenate([ends[[0, -1]], inner]))
    others = np.setdiff1d(np.arange(size), ends)
    return np.sort(np.concatenate([ends, rng.choice(others, count - len(ends), replace=False)]))


def run_of(ascending: np.ndarray) -> np.ndarray | slice:
    """Ascending places, as a slice where none is left out between them: NumPy takes a slice a hundred times as fast."""
    whole = len(ascending) > 0 and int(ascending[-1]) - int(ascending[0]) + 1 == len(ascending)
    return slice(int(ascending[0]), int(ascending[-1]) + 1) if whole else ascending


def operands(case: Case, draw: Draw) -> dict[str, Operand]:
    """X (L, K), gather (L,), W (K, N), scatter (L,), out (L, N): codes by `draw`."""
    p = case.problem
    operands_by_name = {}
    for name, shape, pad in (
        ("x", (p.table_rows, p.k), p.x_pad),
        ("w", (p.k, p.n), p.w_pad),
        ("out", (p.out_rows, p.n), p.out_pad),
    ):
        codes = draw(p.dtype, shape, case.data_seed, name)
        operands_by_name[name] = Operand(name=name, format=p.dtype, codes=codes, strides=(shape[1] + pad, 1))
    for name, outside, every in (("gather", -1, GATHERED_OUTSIDE), ("scatter", p.out_rows, SCATTERED_OUTSIDE)):
        numbers = regimes.generator(case.data_seed, name).permutation(p.rows).astype(np.int32)  # (L,)
        numbers[every - 1 :: every] = outside
        operands_by_name[name] = Operand(name=name, format="int32", codes=numbers)
    return operands_by_name


def landing_rows(given: Mapping[str, Operand]) -> np.ndarray:
    """(L,) the row of `out` that each place stands for: where it is scattered to, else one that no place is."""
    rows = given["scatter"].codes.astype(np.int64)  # (L,)
    nowhere = rows >= len(rows)
    rows[nowhere] = np.setdiff1d(np.arange(len(rows)), rows)
    return rows


def part(
    case: Case, full_operands: Mapping[str, Operand], places: np.ndarray, columns: np.ndarray
) -> tuple[Case, dict[str, Operand]]:
    """The problem of `places` in the lists and of `columns` of W alone, whose row i of `out` is that of place i; its operands."""
    p, count = case.problem, len(places)
    gathered, scatter_rows = (full_operands[name].codes[places] for name in ("gather", "scatter"))  # (places,) each
    inside, positions = gathered >= 0, np.arange(count)
    kept = full_operands["out"].codes[np.ix_(landing_rows(full_operands)[places], columns)]  # (places, columns)
    codes = {
        "x": full_operands["x"].codes[np.where(inside, gathered, 0)],  # (places, k)
        "w": np.ascontiguousarray(full_operands["w"].codes[:, run_of(columns)]),  # (k, columns)
        "out": kept,
        "gather": np.where(inside, positions, -1).astype(np.int32),  # (places,)
        "scatter": np.where(scatter_rows < p.out_rows, positions, count).astype(np.int32),  # (places,)
    }
    smaller = replace(p, table_rows=count, rows=count, out_rows=count, n=len(columns), x_pad=0, w_pad=0, out_pad=0)
    return replace(case, problem=smaller), {
        name: replace(full_operands[name], codes=made, strides=None) for name, made in codes.items()
    }

"""Operands of a large product between a gather and a scatter, and the smaller problem that chosen places and columns of it are.

    out[scatter[i], :] = X[gather[i], :] W          i < L; as many rows of `out` as row numbers

Both lists are permutations but for a few numbers outside. Such a gathered row is zeros, such a scattered row is written nowhere.
As many rows of `out` are named by none, and keep what they held. So each place i stands for one row of `out` (`landing`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from bitverdict.harness.contracts.inputs import regimes
from bitverdict.harness.lab.large_gemm.places import run_of
from bitverdict.harness.model.case import Case, Operand

GATHERED_OUTSIDE, SCATTERED_OUTSIDE = 97, 89  # of so many row numbers one lies outside

Draw = Callable[[str, tuple[int, int], int, str], np.ndarray]


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

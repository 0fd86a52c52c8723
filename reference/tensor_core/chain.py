"""`definition.element` for many elements: K as one chain of block steps, each result, rounded, the next step's c.

Equal to the definition because a tile runs the same steps in the same order, elements are independent of each other, and the two
shortcuts are taken only where a proof says that no step rounds or cuts: `_mostly_exact` for a block, `_exact_product` for a chain.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bitverdict.reference.tensor_core.fused_sum import (
    ZERO_ACCUMULATOR_EXPONENT,
    Scratch,
    accumulator_exponents,
    fused_sum,
    lowest_alignment,
    round_sum,
)
from bitverdict.reference.tensor_core.grouped_sum import grouped_sum
from bitverdict.reference.tensor_core.mfma import OVERFLOW, pairwise, product_overflow, products_first
from bitverdict.reference.tensor_core.record import Accumulator, ExponentFloor, Instruction, ScaledWindow, Step
from bitverdict.reference.tensor_core.terms import LOWEST_BIT_OF_ZERO, Terms, lowest_bits

TERMS_AT_ONCE = 1 << 16  # products alive at a time: 256 or 512 KiB, a second-level cache

Index = tuple[Any, ...]  # of one side's elements (block, ...), broadcast over the other side's


def chain_products(rule: Instruction, a: Terms, b: Terms, c: np.ndarray) -> np.ndarray:
    """Values of all M N results: `a` (K, M), `b` (K, N), `c` (M, N) float64 of the output format."""
    proven = _exact_product(rule, a, b, c)
    if proven is not None:
        return proven
    m, n = c.shape
    columns = min(n, 128)
    rows = max(1, TERMS_AT_ONCE // (rule.block * max(columns, 1)))
    result = np.empty((m, n))  # (M, N)
    for top in range(0, m, rows):
        band = a.take(slice(top, top + rows))
        for left in range(0, n, columns):
            stripe = b.take(slice(left, left + columns))
            tile = (slice(top, top + rows), slice(left, left + columns))
            proven = _exact_product(rule, band, stripe, c[tile])
            result[tile] = run_chain(rule, band, stripe, c[tile], by_pairs=False) if proven is None else proven
    return result


def chain_elements(rule: Instruction, a: Terms, b: Terms, c: np.ndarray) -> np.ndarray:
    """Values of P results: `a`, `b` (K, P), `c` (P,)."""
    at_once = max(1, TERMS_AT_ONCE // rule.block)
    result = np.empty(c.shape)  # (P,)
    for start in range(0, c.size, at_once):
        lanes = slice(start, start + at_once)
        result[lanes] = run_chain(rule, a.take(lanes), b.take(lanes), c[lanes], by_pairs=True)
    return result


def run_chain(rule: Instruction, a: Terms, b: Terms, c: np.ndarray, *, by_pairs: bool) -> np.ndarray:
    """The chain on one tile: results (M, N), or when `by_pairs` (P,), or what the operands broadcast to behind their K."""
    grid = _grid(c)
    scratch = Scratch.allocate(rule.block, c.shape, a.narrow is not None and b.narrow is not None)
    for start in range(0, a.values.shape[0], rule.span):
        total = c if rule.accumulator is Accumulator.IN_SUM else np.zeros(c.shape)  # (...)
        for taken in rule.steps:
            ascending = taken[-1] - taken[0] == len(taken) - 1
            k = slice(start + taken[0], start + taken[-1] + 1) if ascending else np.add(taken, start)
            grid = min(grid, int(a.lowest_bits[k].min()) + int(b.lowest_bits[k].min()))
            total = _step(rule, a, b, k, total, grid, scratch, by_pairs)  # (...)
        c = total if rule.accumulator is Accumulator.IN_SUM else _ieee_add(total, c, rule)
    return c


def _step(
    rule: Instruction, a: Terms, b: Terms, k: slice | np.ndarray, c: np.ndarray, grid: int, scratch: Scratch, by_pairs: bool
) -> np.ndarray:
    """One block on one tile; everything in it, c included, is a multiple of 2^grid."""
    left = (slice(None), slice(None)) if by_pairs else (slice(None), slice(None), None)
    right = (slice(None), slice(None)) if by_pairs else (slice(None), None, slice(None))
    if rule.step is Step.PAIRWISE:
        return pairwise(rule, _with_specials(a, k)[left], _with_specials(b, k)[right], c)
    special = _special_terms(a, b, k, left, right)  # (...) or None
    finite = np.isfinite(c)  # (...)
    if not finite.all():
        beyond = np.where(finite, 0.0, c)  # (...)
        special = beyond if special is None else _add_specials(special, beyond)  # (...)
        c = np.where(finite, c, 0.0)  # (...)
    sides = a.values[k], a.exponents[k], b.values[k], b.exponents[k]  # each (block, ...)
    if rule.step is not Step.FUSED:
        return _products_first(rule, sides, c, special, left, right)
    if rule.sums_groups_exactly:
        pairs = sides[1][left] + sides[3][right]  # (64, ...)
        exact = grouped_sum(sides[0][left] * sides[2][right], pairs, _scale_pairs(a, b, k, left, right), c, rule)  # (...)
    elif by_pairs or grid < int(sides[1].max()) + int(sides[3].max()) - rule.fraction_bits:
        exact = _fused_block(rule, a, b, k, c, scratch, left, right)  # (...)
    else:
        exact = _mostly_exact(rule, a, b, k, c, grid, scratch)  # (...)
    total = round_sum(exact, rule.output, rule.output_fraction_bits, rule.rounding)  # (...)
    # Beside an infinity nothing finite overflows: the infinity, or the NaN, is the result.
    return total if special is None else np.where(special == 0, total, special)


def _with_specials(side: Terms, k: slice | np.ndarray) -> np.ndarray:
    """Values (block, ...), NaN and infinities among them."""
    if side.specials is None:
        return side.values[k]
    return np.where(np.isfinite(side.specials[k]), side.values[k], side.specials[k])  # (block, ...)


def _products_first(
    rule: Instruction, sides: tuple[np.ndarray, ...], c: np.ndarray, special: np.ndarray | None, left: Index, right: Index
) -> np.ndarray:
    """One block whose products are added before c; `special` as in `_step`."""
    products = sides[0][left] * sides[2][right]  # (block, ...)
    beyond = product_overflow(products)  # (...) or None
    if beyond is not None:
        special = beyond if special is None else _add_specials(special, beyond)  # (...)
        products = np.where(np.abs(products) < OVERFLOW, products, 0.0)  # (block, ...)
    total = products_first(rule, products, sides[1][left] + sides[3][right], c)  # (...)
    return total if special is None else np.where(special == 0, total, special)


def _scale_pairs(a: Terms, b: Terms, k: slice | np.ndarray, left: Index, right: Index) -> np.ndarray:
    if a.scale_exponents is None or b.scale_exponents is None:
        raise ValueError("mxf4 and mxf4nvf4 need block scales on both sides")
    result: np.ndarray = a.scale_exponents[k][left] + b.scale_exponents[k][right]  # (64, ...)
    return result


def _fused_block(
    rule: Instruction, a: Terms, b: Terms, k: slice | np.ndarray, c: np.ndarray, scratch: Scratch, left: Index, right: Index
) -> np.ndarray:
    """`fused_sum` of the block, in the dtype of the scratch."""
    if a.narrow is not None and b.narrow is not None:
        a_values, b_values = a.narrow[k], b.narrow[k]  # (block, ...)
    else:
        a_values, b_values = a.values[k], b.values[k]  # (block, ...)
    return fused_sum(a_values[left], a.exponents[k][left], b_values[right], b.exponents[k][right], c, rule, scratch)


def _mostly_exact(
    rule: Instruction, a: Terms, b: Terms, k: slice | np.ndarray, c: np.ndarray, grid: int, scratch: Scratch
) -> np.ndarray:
    """Equal to the definition because nothing is cut: every term is a multiple of 2^grid, and no exponent exceeds grid + F.

    So the cut at E - F removes nothing, and the sum is below 2^(grid + F + 8): a matrix product in float64 is exact in any order.
    Where c's exponent is too high for that, the element takes `fused_sum`.
    """
    exact: np.ndarray = a.values[k].T @ b.values[k] + c  # (M, N)
    if _highest(c, rule) <= grid + rule.fraction_bits:
        return exact
    cut = accumulator_exponents(c, rule) > grid + rule.fraction_bits  # (M, N)
    rows, columns = np.nonzero(cut)  # (P,), (P,)
    if 4 * rows.size > cut.size:
        return _fused_block(rule, a, b, k, c, scratch, (slice(None), slice(None), None), (slice(None), None, slice(None)))
    pairs = a.values[k][:, rows], a.exponents[k][:, rows], b.values[k][:, columns], b.exponents[k][:, columns]  # each (block, P)
    room = Scratch.allocate(rule.block, rows.shape, narrow=False)
    exact[rows, columns] = fused_sum(*pairs, c[rows, columns], rule, room)
    return exact


def _grid(c: np.ndarray) -> int:
    """Largest exponent such that every finite element of `c` is a multiple of 2^it."""
    if not c.any():
        return LOWEST_BIT_OF_ZERO
    return int(lowest_bits(np.where(np.isfinite(c), c, 0.0)).min())


def _highest(c: np.ndarray, rule: Instruction) -> int:
    """At least what c and the exponent floor contribute to E, over all elements."""
    floor = lowest_alignment(rule)
    if rule.choices.exponent_floor is ExponentFloor.ZERO_ACCUMULATOR:
        floor = ZERO_ACCUMULATOR_EXPONENT
    largest = max(float(c.max(initial=0.0)), -float(c.min(initial=0.0)))
    return max(int(np.frexp(largest)[1]) - 1, rule.output.smallest_exponent, floor) if largest else floor


def _add_specials(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        result: np.ndarray = one + other  # (...) opposite infinities make NaN
        return result


def _special_terms(a: Terms, b: Terms, k: slice | np.ndarray, left: Index, right: Index) -> np.ndarray | None:
    """Per element the infinity or NaN that the block's own products bring, 0 where they are all finite; None when none can."""
    if a.specials is None and b.specials is None:
        return None
    a_signs = np.sign(a.values[k]) if a.specials is None else a.specials[k]  # (block, ...)
    b_signs = np.sign(b.values[k]) if b.specials is None else b.specials[k]  # (block, ...)
    if np.isfinite(a_signs).all() and np.isfinite(b_signs).all():
        return None
    with np.errstate(invalid="ignore"):
        total = (a_signs[left] * b_signs[right]).sum(axis=0)  # (...) infinity times zero makes NaN
    return np.where(np.isfinite(total), 0.0, total)  # (...)


def _ieee_add(total: np.ndarray, c: np.ndarray, rule: Instruction) -> np.ndarray:
    """Equal to the definition's `ieee_add` because NumPy's float32 addition is IEEE's, and float64 holds the sum of two fp16.

    `total + c` as one addition of the output format, to nearest even.
    """
    wide = np.float32 if rule.d == "fp32" else np.float64  # the sum of two fp16 is exact in float64
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        added = total.astype(wide) + c.astype(wide)  # (...)
        result: np.ndarray = added.astype(np.float32 if rule.d == "fp32" else np.float16).astype(np.float64)
        return result


def _exact_product(rule: Instruction, a: Terms, b: Terms, c: np.ndarray) -> np.ndarray | None:
    """Equal to the definition because the chain is proven to drop nothing: A B + C by one matrix product. None where it is not.

    Let 2^low divide every product and every c. If the sum of all magnitudes is below 2^(low + p), p the significand bits of
    the output, every partial sum of any subset in any order is a multiple of 2^low below 2^(low + p): a number of the output
    format, so no step rounds it. If no exponent exceeds low + F, no alignment cuts into a multiple of 2^low. Then the chain is
    the exact sum, and so is a BLAS product in a type with p bits or more. The sum of magnitudes is bounded by
    Cauchy and Schwarz: |a_m| |b_n| in the Euclidean norm, which costs one pass over each operand. It holds for the grouped kinds
    too: their cut is never above max(R, C) - F, because no pair of scales exceeds R.
    """
    if a.specials is not None or b.specials is not None or not np.isfinite(c).all() or not c.size:
        return None
    if not a.values.shape[0]:
        return c
    if rule.sums_groups_exactly and rule.choices.scaled_window is ScaledWindow.BY_SCALE:
        return None  # the cut follows the scales, which the proof does not look at
    low = int(a.lowest_bits.min()) + int(b.lowest_bits.min())
    low = min(low, _grid(c))
    if low > LOWEST_BIT_OF_ZERO // 2:
        return np.zeros(c.shape)  # one side is all zero, and so is c
    if rule.step is Step.PAIRWISE and low < rule.output.smallest_exponent:
        return None  # something may be flushed
    highest = max(int(a.exponents.max()) + int(b.exponents.max()), _highest(c, rule))
    norms = [np.sqrt(np.square(side.values).sum(axis=0).max()) for side in (a, b)]
    bound = (float(norms[0]) * float(norms[1]) + float(np.abs(c).max())) * (1 + 2.0**-20)
    output = rule.output
    if highest - rule.fraction_bits > low or low < output.smallest_exponent - rule.output_fraction_bits:
        return None
    if not bound < 2.0 ** min(low + rule.output_fraction_bits + 1, output.bias + 1):
        return None
    if -100 < low and bound < 2.0**100 and max(map(_largest, (a, b))) < 2.0**100 and rule.output_fraction_bits <= 23:
        product = a.values.T.astype(np.float32) @ b.values.astype(np.float32)  # (M, N)
        result: np.ndarray = product.astype(np.float64) + c + 0.0
        return result
    result = a.values.T @ b.values + c + 0.0
    return result


def _largest(side: Terms) -> float:
    return float(np.abs(side.values).max(initial=0.0))

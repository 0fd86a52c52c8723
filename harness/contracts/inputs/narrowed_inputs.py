"""fp32 operands as a tensor core may take them: with the low 13 bits dropped, rounded to tf32 before, or whole.

Hardware drops the low bits (docs/arithmetic.md); `cvt.rna.tf32.f32` (PTX ISA, `cvt`: nearest, ties away from zero) is what NVIDIA's
libraries put before it; tf32x3 and IEEE keep all of an operand, or more than either. What a product loses by it is summed here over
k, exactly: an operand without low bits loses nothing. Where an operand changes its kind (a small number that vanishes, a large one
that becomes an infinity, a NaN that is one by its low bits alone), right kernels may differ by more than any bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitverdict.reference.formats import FP32, decode

LOW_BITS = np.uint32(0x1FFF)  # of an fp32 word, which tf32 does not have
HALF_A_PLACE = np.uint32(0x1000)
_MAGNITUDE, _INFINITY = np.uint32(0x7FFFFFFF), np.uint32(0x7F800000)


@dataclass(frozen=True)
class NarrowingEffect:
    """What narrowing may do to the products of A (M, K) and B (K, N)."""

    loss: np.ndarray  # (M, N) how far the sum of products may move
    unsettled_results: np.ndarray  # (M, N) whether it may become an infinity or a NaN that it is not, where it is not NaN already
    hollow: np.ndarray  # (M, N) whether a NaN operand may become an infinity


@dataclass(frozen=True)
class _Side:
    """One operand (L, K): its finite magnitudes, what each may lose, and which elements may change their kind."""

    magnitudes: np.ndarray
    losses: np.ndarray
    may_vanish: np.ndarray
    infinite: np.ndarray
    may_grow: np.ndarray
    hollow: np.ndarray


def narrowing_effect(a: np.ndarray, b: np.ndarray) -> NarrowingEffect:
    """For fp32 words a (M, K) and b (K, N)."""
    left, right = _side(a), _side(b)
    loss = (left.magnitudes + left.losses) @ right.losses + left.losses @ right.magnitudes  # (M, N)
    loss = loss * (1 + (a.shape[1] + 4) * 2.0**-52)  # (M, N) the roundings of these sums, made up for
    meets = _any_k(left.may_vanish, right.infinite) | _any_k(left.infinite, right.may_vanish)  # (M, N)
    return NarrowingEffect(
        loss, meets | _in_row_or_column(left.may_grow, right.may_grow), _in_row_or_column(left.hollow, right.hollow)
    )


def _side(words: np.ndarray) -> _Side:
    magnitude = words & _MAGNITUDE  # (L, K)
    cut = magnitude & ~LOW_BITS  # (L, K)
    finite = magnitude < _INFINITY  # (L, K)
    values, kept = (decode(FP32, np.where(finite, codes, np.uint32(0))) for codes in (magnitude, cut))  # (L, K) each
    return _Side(
        magnitudes=values,
        losses=values - kept,  # rounding moves a value by no more than dropping does
        may_vanish=finite & (magnitude != 0) & (cut == 0),
        infinite=magnitude == _INFINITY,
        may_grow=finite & (magnitude + HALF_A_PLACE >= _INFINITY),
        hollow=(magnitude > _INFINITY) & (cut == _INFINITY),
    )


def _any_k(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """(M, N): whether `left` (M, K) and `right` (K, N) hold at one k."""
    if not (left.any() and right.any()):
        return np.zeros((left.shape[0], right.shape[1]), bool)
    return left.astype(np.float32) @ right.astype(np.float32) > 0  # (M, N)


def _in_row_or_column(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """(M, N): whether `left` (M, K) holds anywhere in row m, or `right` (K, N) in column n."""
    return np.logical_or.outer(np.any(left, axis=1), np.any(right, axis=0))  # (M, N)

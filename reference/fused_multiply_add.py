"""The fp32 fused multiply-add of a GPU's ordinary arithmetic, and the chain of them that an `ieee` matrix product is.

fma(a, b, c) = a * b + c rounded once, to nearest even, subnormals kept, NaN canonical (PTX ISA, `fma.rn.f32` without `.ftz`; a
NaN result is 0x7FFFFFFF). In float64 the product of two fp32 numbers is exact; the sum is not, and rounding it twice would be
wrong at ties. So the sum's error is computed (Knuth's two-sum, exact) and folded into the last bit, which makes the float64 a
rounding to odd; a second rounding, 29 bits higher, then decides as it would have on the exact value (Boldo and Melquiond,
"Emulation of a FMA and correctly rounded sums", 2008).

A chain rounds twice and looks whether it may: both roundings together are wrong only where the float64 is a tie of fp32, or below
its normal numbers, where ties lie elsewhere. A block in which neither comes up takes three operations in place of eighteen."""

from __future__ import annotations

import numpy as np

NAN = np.uint32(0x7FFFFFFF)
_BELOW, _TIE = np.int64((1 << 29) - 1), np.int64(1 << 28)  # the bits of a float64 below fp32's last, and those of a tie
_NORMAL = np.float64(2.0**-126)
_BLOCK = 1 << 15  # sums at a time: their float64 arrays stay in a core's own cache


def fused_multiply_add(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """fp32 codes (uint32) of a * b + c for float32 arrays that broadcast."""
    with np.errstate(all="ignore"):
        product = a.astype(np.float64) * b.astype(np.float64)  # (...)
        addend = c.astype(np.float64)
        total = product + addend  # (...)
        back = total - product
        error = (product - (total - back)) + (addend - back)  # (...) exact while total is finite
        words = total.view(np.int64) if total.ndim else np.asarray(total).view(np.int64)
        even = (words & 1) == 0
        inexact = np.isfinite(total) & (error != 0) & even
        away = (error > 0) == (total > 0)  # the exact sum's magnitude lies above the rounded one's
        odd = (words + np.where(inexact, np.where(away, 1, -1), 0)).view(np.float64)  # (...)
        rounded = odd.astype(np.float32)  # (...)
    return np.where(np.isnan(rounded), NAN, rounded.view(np.uint32))  # (...)


def paired_chain(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """`chain` for chosen elements: fp32 codes (P,) of `a` (P, K) with `b` (P, K) pairwise, started from `c` (P,)."""
    left, right, total = a.view(np.float32), b.view(np.float32), c.copy()  # (P, K), (P, K), (P,)
    for step in range(a.shape[1]):
        total = fused_multiply_add(left[:, step], right[:, step], total.view(np.float32))  # (P,)
    return total


def chain(a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None) -> np.ndarray:
    """fp32 codes (M, N) of one ascending chain over K: a (M, K), b (K, N), c (M, N) or None for +0, all fp32 codes (uint32)."""
    left, right = a.view(np.float32), b.view(np.float32)
    total = np.zeros((a.shape[0], b.shape[1]), np.uint32) if c is None else c.copy()  # (M, N)
    rows = max(1, _BLOCK // max(1, total.shape[1]))
    for top in range(0, total.shape[0], rows):
        block = slice(top, top + rows)
        total[block] = _chain_of_block(left[block], right, total[block])
    return total


def _chain_of_block(left: np.ndarray, right: np.ndarray, total: np.ndarray) -> np.ndarray:
    """`chain` of `left` (M, K) and `right` (K, N), float32, started from `total` (M, N)."""
    wide_left, wide_right = left.astype(np.float64), right.astype(np.float64)
    sums, exact = total.view(np.float32), np.empty(total.shape, np.float64)  # (M, N)
    bits, magnitude = np.empty(total.shape, np.int64), np.empty(total.shape, np.float64)  # (M, N)
    with np.errstate(all="ignore"):
        for step in range(left.shape[1]):
            np.multiply(wide_left[:, step, None], wide_right[None, step, :], out=exact)
            exact += sums
            np.bitwise_and(exact.view(np.int64), _BELOW, out=bits)
            if (bits == _TIE).any() or not np.abs(exact, out=magnitude).min(initial=_NORMAL) >= _NORMAL:  # or NaN
                sums = fused_multiply_add(left[:, step, None], right[None, step, :], sums).view(np.float32)
            else:
                sums = exact.astype(np.float32)
    return sums.view(np.uint32)

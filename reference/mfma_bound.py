"""How far a right product by AMD's MFMA may be from the exact one, element by element: derived, for any order of the sum.

    D = A B,  A (M, K), B (K, N) in fp16 or bf16, sums in fp32, one conversion to the output

MFMA's order of additions and its roundings are not published. So each product may be added alone, and each addition may lose a
whole last place of fp32, in either direction. Three causes remain:

1. The sum. K additions lose at most K 2^([X] - 23), X the largest partial sum (`bitverdict.reference.error_bound`, steps 1, 4, 6).
2. Subnormals. On MI200 (gfx90a) MFMA_F16 and MFMA_BF16 take subnormal inputs as zero and give zero for a subnormal output
   ([MI200] of reference/SOURCES.md). A product with such a factor may be lost whole. An fp32 result below 2^-126 may become zero at
   each step, which loses at most K 2^-126.
3. The store. One rounding to nearest even: half a last place of the output.

No word of such a chip stands behind it: it is a bound for launches there, and nothing here launches there.
"""

from __future__ import annotations

import numpy as np

from bitverdict.reference.error_bound import Accumulation, accumulation_bound, converted_bound
from bitverdict.reference.exact_gemm import exact_gemm
from bitverdict.reference.formats import FP32, Format, Rounding


def mfma_bound(
    left: np.ndarray, right: np.ndarray, operands: Format, output: Format, *, flushes_subnormals: bool
) -> tuple[np.ndarray, np.ndarray]:
    """(exact, |result - exact| at most), float64 (M, N): `left` (M, K), `right` (K, N) values in `operands`.

    `flushes_subnormals`: as on gfx90a. NaN or infinite where nothing is decided."""
    k = left.shape[1]
    exact = exact_gemm(left, right)  # (M, N) value and magnitude
    how = Accumulation(block=1, fraction_bits=23, rounding=Rounding.TOWARD_ZERO, output=FP32, output_fraction_bits=23, chains=1)
    summed = accumulation_bound(exact.value, exact.magnitude, k, accumulation=how)  # (M, N)
    if flushes_subnormals:
        summed = summed + subnormal_loss(left, right, operands) + k * FP32.smallest_normal  # (M, N)
    return exact.value, converted_bound(exact.value, summed, output)


def subnormal_loss(left: np.ndarray, right: np.ndarray, operands: Format) -> np.ndarray:
    """(M, N): sum |a||b| over products with a subnormal factor: what is lost where subnormals are taken as zero."""
    sides = [np.abs(np.where(np.isfinite(side), side, 0.0)) for side in (left, right)]  # (M, K), (K, N)
    kept = [np.where(side >= operands.smallest_normal, side, 0.0) for side in sides]  # (M, K), (K, N)
    lost = sides[0] @ sides[1] - kept[0] @ kept[1]  # (M, N)
    result: np.ndarray = np.maximum(lost, 0.0) + left.shape[1] * 2.0**-52 * (
        sides[0] @ sides[1]
    )  # and what these float64 sums may lose
    return result

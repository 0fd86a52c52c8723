"""From where the sums of right kernels lie to what a result may be: an `ExpectedOutput` of words from a lowest to a highest.

Two rules leave an element inconclusive. A sum that may have met infinities of both signs may be anything. And where more than one
word is allowed, an interval that would still hold the sum without its largest product cannot tell whether a product is missing."""

from __future__ import annotations

import numpy as np

from bitverdict.harness.model.contract import ExpectedOutput
from bitverdict.harness.model.verdict import Basis
from bitverdict.reference.error_bound import Sums, converted_bound
from bitverdict.reference.formats import FORMATS, Format

PAIRS_AT_ONCE = 1 << 20  # products alive at a time


def allowed_output(
    name: str,
    out: str,
    sums: Sums,
    left: np.ndarray,
    right: np.ndarray,
    *,
    inconclusive: np.ndarray | None = None,
    activation: bool = False,
    disputed_mask: np.ndarray | None = None,
    basis: str = Basis.BOUND,
) -> ExpectedOutput:
    """Results (M, N) in `out` of sums of products of `left` (M, K) and `right` (K, N), float64.

    `inconclusive` (M, N): where more is open than the sums say. `activation`: leaky_relu before the store. `disputed_mask` (M, N):
    where    machines do not agree what the operands are worth, so that the mathematics is not known either."""
    stored_sums = sums.activate() if activation else sums
    low, high, or_nan = stored_sums.words(FORMATS[out])  # (M, N) each
    with np.errstate(invalid="ignore"):  # NaN and infinities pass through, and are expected as they are
        bound = converted_bound(stored_sums.value, stored_sums.error, FORMATS[out])  # (M, N)
    open_ = sums.inconclusive | hides_a_product(sums.error, left, right, (low != high) & np.isfinite(sums.value))  # (M, N)
    if inconclusive is not None:
        open_ |= inconclusive
    return ExpectedOutput(
        name=name,
        format=out,
        shape=low.shape,
        value=stored_sums.value,
        bound=bound,
        low=low,
        high=high,
        or_nan=or_nan,
        inconclusive=open_,
        basis=basis,
        exact=stored_sums.value,
        exact_error=_own_rounding(sums.value, FORMATS[out], activation, disputed_mask),
    )


def _own_rounding(sums: np.ndarray, out: Format, activation: bool, disputed_mask: np.ndarray | None) -> np.ndarray:
    """(M, N): what float64 itself rounds of `sums` (M, N), which are exact to one unit of their last place, and of an activation.

    inf where nothing is known: where `disputed_mask`, and beyond the ends of a format of 8 bits, at which a kernel may clamp."""
    magnitude = np.abs(np.where(np.isfinite(sums), sums, 0.0))  # (M, N)
    error = 4 * np.spacing(magnitude + 1.0) if activation else np.spacing(magnitude)  # (M, N); of y = x + 1, and of 0.01 y
    clamped = (magnitude > out.largest) & (out.width <= 8)  # (M, N)
    return np.where(clamped if disputed_mask is None else clamped | disputed_mask, np.inf, error)


def hides_a_product(error: np.ndarray, left: np.ndarray, right: np.ndarray, where: np.ndarray) -> np.ndarray:
    """(M, N): whether none of the products of an element is larger than `error` (M, N); False outside `where`."""
    sides = [np.where(np.isfinite(side), np.abs(side), 0.0) for side in (left, right)]  # (M, K), (K, N)
    largest = np.multiply.outer(sides[0].max(axis=1, initial=0.0), sides[1].max(axis=0, initial=0.0))  # (M, N) or more
    hidden_products = where & (largest <= error)  # (M, N)
    rows, columns = np.nonzero(where & ~hidden_products & (_usual(*sides) <= error))  # (P,) each: only these must be looked at
    for start in range(0, rows.size, at_once := max(1, PAIRS_AT_ONCE // max(left.shape[1], 1))):
        part = slice(start, start + at_once)
        products = sides[0][rows[part]] * sides[1].T[columns[part]]  # (P, K)
        hidden_products[rows[part], columns[part]] = products.max(axis=1) <= error[rows[part], columns[part]]
    return hidden_products


def _usual(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """(M, N): the mean of an element's products, weighted by their size. Never more than the largest; one BLAS product each."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        mean = (np.square(left) @ np.square(right)) / (left @ right) * (1 - left.shape[1] * 2.0**-51)  # (M, N)
    return np.where(np.isfinite(mean), mean, 0.0)  # (M, N) of unknown ones, none

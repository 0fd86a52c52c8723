"""Operands that hold every code of a format, and every pair of codes of two factors: what is drawn at random may never meet some.

A pair is *met alone* where its product is the only one of a sum whose factors are not both zero: no other product hides it.
"""

from __future__ import annotations

import numpy as np

PAIRS = "pairs"
"""A regime of its own: each line of a factor has one code at the same k and zeros beside it. With 256 lines of 8 bits on both sides
every pair of codes is met alone. What is no factor is zero."""

ALL_CODES = "all codes"
"""A regime of its own: each code of the format alike often, those of NaN and infinities too."""

WIDEST = 16  # bits of a format of which all codes fit a case


def every_code(storage: type[np.generic], width: int, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Codes of `shape` in `storage`, each of the 2^width alike often, in an order that is drawn; of wider formats any."""
    count = int(np.prod(shape, dtype=np.int64))
    unsigned = np.dtype(f"u{np.dtype(storage).itemsize}")
    if width > WIDEST:
        return rng.integers(0, 1 << width, shape, unsigned).view(storage)
    return rng.permutation(np.resize(np.arange(1 << width, dtype=unsigned), count)).view(storage).reshape(shape)


def one_code_a_line(
    storage: type[np.generic], width: int, lines: int, k: int, data_seed: int, rng: np.random.Generator
) -> np.ndarray:
    """(lines, K) codes of the regime `PAIRS`: of each line one, at a k that the data seed gives. Fewer lines than codes hold those
    that follow: with 128 lines data seeds 0 and 1 give the two halves."""
    codes = np.zeros((lines, k), storage)  # (lines, K)
    if k:
        unsigned = np.dtype(f"u{np.dtype(storage).itemsize}")
        following = (np.arange(lines) + data_seed * lines) % (1 << width)  # (lines,)
        codes[:, data_seed % k] = rng.permutation(following).astype(unsigned).view(storage)
    return codes

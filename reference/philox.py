"""Philox 4x32-10, and the uniform numbers that `tl.rand` makes of it: integers, one conversion, one product.

Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011), section 5.3; the vectors published with
it are held by a test. `tl.rand` (Triton 3.9, `language/random.py`) takes its 64-bit seed as the key and the 64-bit offset as the
low half of the counter; it uses the first of the four words.
"""

from __future__ import annotations

import numpy as np

from bitverdict.reference.scalar_arithmetic import fp32

Words = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
ROUNDS = 10
_FACTORS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))  # of the first and the third word
_STEPS = (0x9E3779B9, 0xBB67AE85)  # of the two words of the key, from round to round
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
UNIT = np.array(4.6566127342e-10, np.float32)
"""The fp32 number that takes the largest int32 below 1."""


def philox(counter: Words, key: int) -> Words:
    """The four words (uint32, the shape of the counter's) that `counter` becomes under the 64-bit `key`."""
    a, b, c, d = (np.asarray(word, np.uint64) for word in counter)
    low, high = key & 0xFFFFFFFF, key >> 32
    for _ in range(ROUNDS):
        first, third = a * _FACTORS[0], c * _FACTORS[1]  # (...) 64 bits each
        a, b = (third >> _HALF) ^ b ^ np.uint64(low), third & _LOW
        c, d = (first >> _HALF) ^ d ^ np.uint64(high), first & _LOW
        low, high = (low + _STEPS[0]) & 0xFFFFFFFF, (high + _STEPS[1]) & 0xFFFFFFFF
    return a.astype(np.uint32), b.astype(np.uint32), c.astype(np.uint32), d.astype(np.uint32)


def uniform(key: int, index: np.ndarray) -> np.ndarray:
    """tl.rand(key, index): float32 in [0, 1), for indices (uint64, any shape). A negative word is inverted."""
    index = np.asarray(index, np.uint64)
    zero = np.zeros_like(index)
    signed = philox((index & _LOW, index >> _HALF, zero, zero), key)[0].view(np.int32)  # (...)
    return fp32.multiply(np.where(signed < 0, ~signed, signed).astype(np.float32), UNIT)

"""Words of neighbouring arguments in few bytes: their differences, zigzag, byte by byte, through bzip2.

The difference of two neighbours is a small number that repeats itself in long patterns; 2^23 words of a smooth function take about
100 kB.
"""

from __future__ import annotations

import bz2

import numpy as np


def pack(words: np.ndarray) -> np.ndarray:
    """Bytes (uint8) from which `unpack` makes the words, uint32 of one dimension, again."""
    difference = np.diff(words, prepend=np.uint32(0)).view(np.int32)  # (n,) modulo 2^32
    zigzag = (difference << 1 ^ difference >> 31).view(np.uint32)  # (n,)
    planes = np.ascontiguousarray(zigzag).view(np.uint8).reshape(-1, 4).T  # (4, n)
    return np.frombuffer(bz2.compress(planes.tobytes()), np.uint8)


def unpack(packed: np.ndarray) -> np.ndarray:
    """The words, uint32 of one dimension."""
    planes = np.frombuffer(bz2.decompress(packed.tobytes()), np.uint8).reshape(4, -1)  # (4, n)
    zigzag = np.ascontiguousarray(planes.T).view(np.uint32).reshape(-1)  # (n,)
    difference = zigzag >> 1 ^ (0 - (zigzag & 1)).astype(np.uint32)  # (n,)
    return np.cumsum(difference, dtype=np.uint32)

"""A product whose K is divided among programs: which products each takes, and the words of the sum of their parts.

Each share is a whole number of blocks of K, so that no block is cut. Parts are fp32 and are added one after another, each sum
rounded to nearest even (IEEE 754).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bitverdict.reference.scalar_arithmetic import fp32


def shares(k: int, block_k: int, split: int) -> list[slice]:
    """The elements of K that each of `split` programs takes: ceil(blocks / split) blocks of `block_k`; the last may be short, and
    those behind it are empty. ValueError unless `block_k` and `split` are at least 1."""
    if block_k < 1 or split < 1:
        raise ValueError(f"blocks of {block_k} in {split} shares: must be at least 1 each; take a block and a share")
    blocks = -(-k // block_k)
    each = -(-blocks // split) * block_k
    return [slice(min(s * each, k), min((s + 1) * each, k)) for s in range(split)]


def ascending_sum(parts: Sequence[np.ndarray]) -> np.ndarray:
    """fp32 words (...) of part 0 + part 1 + ..., from fp32 words of one shape (...); of one part that part."""
    total = np.asarray(parts[0], np.uint32).view(np.float32)  # (...)
    for part in parts[1:]:
        total = fp32.add(total, np.asarray(part, np.uint32).view(np.float32))
    return total.view(np.uint32)

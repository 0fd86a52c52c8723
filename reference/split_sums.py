"""A product whose K is divided among programs: which products each takes, and the words of the sum of their parts.

Each share is a whole number of blocks of K, so that no block is cut. Parts are fp32 and are added one after another, each sum
rounded to nearest even (IEEE 754). Atomics add them to a zero in an order that nobody knows. They take subnormal operands and sums
for zeros of their sign (PTX ISA, atom.add.f32 of global memory).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from bitverdict.reference.scalar_arithmetic import fp32

MOST_IN_ANY_ORDER = 6  # parts: 720 orders


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


def sums_in_any_order(parts: Sequence[np.ndarray]) -> np.ndarray:
    """fp32 words (R, ...) that atomics may leave where they add `parts`, fp32 words of one shape (...), to a zero.

    Some order leaves each of an element's R words, and no order another one; an element that has fewer repeats its first.
    ValueError for no part, and for too many."""
    if not 1 <= len(parts) <= MOST_IN_ANY_ORDER:
        raise ValueError(f"{len(parts)} parts: their orders are tried for 1 to {MOST_IN_ANY_ORDER}; hold more to a bound")
    numbers = [np.asarray(part, np.uint32).view(np.float32) for part in parts]  # (...) each
    reached = {frozenset[int](): np.zeros((1, *numbers[0].shape), np.uint32)}  # (R, ...) words by the parts that have arrived
    for count in range(1, len(parts) + 1):
        reached = {arrived: _distinct(np.concatenate([
            fp32.add(reached[arrived - {last}].view(np.float32), numbers[last], flush=True).view(np.uint32) for last in arrived
        ])) for arrived in map(frozenset, combinations(range(len(parts)), count))}  # fmt: skip
    return reached[frozenset(range(len(parts)))]


def _distinct(words: np.ndarray) -> np.ndarray:
    """The different ones of each element's words (R, ...), in as few rows as hold them all."""
    ordered = np.sort(words, axis=0)  # (R, ...)
    first = np.concatenate([np.ones_like(ordered[:1], bool), ordered[1:] != ordered[:-1]])  # (R, ...)
    place = np.cumsum(first, axis=0) - 1  # (R, ...) row of each word among the different ones
    kept = np.broadcast_to(ordered[:1], (int(place.max(initial=0)) + 1, *ordered.shape[1:])).copy()
    np.put_along_axis(kept, place, ordered, axis=0)
    return kept

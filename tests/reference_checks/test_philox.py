"""Contract under test: Philox gives the published words, those of another implementation, and numbers below 1."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from bitverdict.reference import philox
from tests.faults import reference_modules as corpus
from tests.faults.mutants import Mutant, mutant_module

ONES = 0xFFFFFFFF
PUBLISHED = (
    ((0, 0, 0, 0), 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES,) * 4, (1 << 64) - 1, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), 0x299F31D0_A4093822, (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
)
"""Counter, key and words of philox4x32-10 in the known-answer vectors of Random123 (kat_vectors)."""


def one(counter: tuple[int, ...], key: int) -> tuple[int, ...]:
    """The words of one counter, in Python's integers, as section 5.3 writes the round."""
    c, k = list(counter), [key & ONES, key >> 32]
    for _ in range(10):
        left, right = divmod(0xD2511F53 * c[0], 1 << 32), divmod(0xCD9E8D57 * c[2], 1 << 32)
        c = [right[0] ^ c[1] ^ k[0], right[1], left[0] ^ c[3] ^ k[1], left[1]]
        k = [(k[0] + 0x9E3779B9) & ONES, (k[1] + 0xBB67AE85) & ONES]
    return tuple(c)


def faults(module: ModuleType) -> list[str]:
    """What `module` gives that it must not."""
    found = []
    for counter, key, due in PUBLISHED:
        words = module.philox(tuple(np.array([word], np.uint64) for word in counter), key)
        if tuple(int(word[0]) for word in words) != due:
            found.append(f"words of {counter} under {key}")
    rng = np.random.default_rng(0)
    for key in (0, 5, (1 << 40) + 3, (1 << 64) - 1):
        index = np.concatenate([np.arange(40), rng.integers(0, 1 << 63, 40)]).astype(np.uint64)
        first = np.array([one((int(at) & ONES, int(at) >> 32, 0, 0), key)[0] for at in index]).astype(np.int64)
        small = np.where(first >> 31, ONES - first, first)  # of 31 bits
        due_numbers = small.astype(np.float32) * np.float32(4.6566127342e-10)
        numbers = module.uniform(key, index)
        if not np.array_equal(numbers, due_numbers) or numbers.max() >= 1:
            found.append(f"numbers of {key}")
    return found


def test_words_are_the_published_ones_and_those_of_pythons_integers() -> None:
    assert faults(philox) == []


def test_the_largest_number_is_below_one() -> None:
    assert np.float32((1 << 31) - 1) * philox.UNIT < 1


def test_numbers_are_spread_evenly() -> None:
    """65,536 numbers in 64 equal parts: chi-squared of 63 degrees of freedom lies within four standard deviations of its mean."""
    counts = np.bincount((philox.uniform(3, np.arange(1 << 16)) * 64).astype(int), minlength=64)
    assert abs(((counts - 1024) ** 2 / 1024).sum() - 63) < 4 * np.sqrt(2 * 63)


@pytest.mark.parametrize("mutant", corpus.PHILOX, ids=lambda mutant: mutant.name)
def test_another_generator_is_refused(mutant: Mutant) -> None:
    with mutant_module(mutant) as changed:
        assert faults(changed)

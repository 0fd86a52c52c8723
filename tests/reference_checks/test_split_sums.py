"""Contract under test: shares of K hold each block once and whole, and parts are added one after another, each sum rounded once."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest

from bitverdict.reference.formats import FP32, decode, encode
from bitverdict.reference.split_sums import MOST_IN_ANY_ORDER, ascending_sum, shares, sums_in_any_order


def test_each_element_of_k_is_in_one_share_and_no_block_is_cut() -> None:
    for k in range(70):
        for block_k in (1, 3, 16):
            for split in (1, 2, 3, 8):
                taken = shares(k, block_k, split)
                assert len(taken) == split and [x for share in taken for x in range(k)[share]] == list(range(k))
                assert all(share.start % block_k == 0 or share.start == share.stop == k for share in taken)
                lengths = [share.stop - share.start for share in taken]
                assert sorted(lengths, reverse=True) == lengths  # the short one and the empty ones are last


def test_the_shares_of_five_blocks_by_hand() -> None:
    assert shares(150, 32, 4) == [slice(0, 64), slice(64, 128), slice(128, 150), slice(150, 150)]


def test_a_sum_is_rounded_after_each_part_and_not_at_its_end() -> None:
    large, one = encode(FP32, np.array([2.0**24])), encode(FP32, np.array([1.0]))
    assert decode(FP32, ascending_sum([large, one, one])).tolist() == [2.0**24]
    assert decode(FP32, ascending_sum([one, one, large])).tolist() == [2.0**24 + 2]


def test_parts_are_added_as_exact_sums_that_are_rounded_once_each() -> None:
    rng = np.random.default_rng(0)
    values = np.ldexp(rng.uniform(-1, 1, (6, 50)), rng.integers(-9, 9, (6, 50))).astype(np.float32)  # (parts, 50)
    got = ascending_sum(list(values.view(np.uint32))).view(np.float32)
    for place in range(50):
        total = Fraction(float(values[0, place]))
        for part in values[1:, place]:
            exact = total + Fraction(float(part))  # fits float64, which NumPy then rounds once
            total = Fraction(float(np.float32(float(exact))))
        assert float(got[place]) == total


def test_one_part_is_kept_and_nan_of_a_sum_is_canonical() -> None:
    nan = np.array([0xFFC12345], np.uint32)
    assert (ascending_sum([nan]) == nan).all() and ascending_sum([nan, nan]).tolist() == [0x7FFFFFFF]


def test_no_share_and_no_block_are_refused() -> None:
    for sizes in ((0, 2), (16, 0)):
        with pytest.raises(ValueError, match="at least 1"):
            shares(10, *sizes)


def test_sums_in_any_order_are_those_of_every_order_and_no_other() -> None:
    """Beside all 24 orders of four parts, of values that lose bits, cancel, and are subnormal."""
    rng = np.random.default_rng(1)
    parts = np.ldexp(rng.uniform(-1, 1, (4, 40)), rng.integers(-12, 12, (4, 40))).astype(np.float32)  # (parts, elements)
    parts[:, :8] *= np.float32(2.0**-130)
    found = sums_in_any_order(list(parts.view(np.uint32)))  # (R, 40)
    assert 1 < len(found) <= 12
    for place in range(40):
        orders = set()
        for order in permutations(parts[:, place]):
            total = np.float32(0.0)
            for part in order:
                total = _flushed(total + _flushed(part))
            orders.add(int(total.view(np.uint32)))
        assert set(found[:, place].tolist()) == orders


def _flushed(x: np.float32) -> np.float32:
    return np.copysign(np.float32(0.0), x) if abs(x) < np.float32(2.0**-126) else x


def test_sums_in_any_order_by_hand() -> None:
    large, one, less = (encode(FP32, np.array([value])) for value in (2.0**24, 1.0, -(2.0**24)))
    assert decode(FP32, sums_in_any_order([large, one, less])).tolist() == [[0.0], [1.0]]
    subnormal = np.array([0x80000001], np.uint32)
    assert sums_in_any_order([subnormal]).tolist() == [[0]]  # 0 + -0
    for count in (0, MOST_IN_ANY_ORDER + 1):
        with pytest.raises(ValueError, match="hold more to a bound"):
            sums_in_any_order([one] * count)

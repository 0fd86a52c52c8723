"""Tests of `tests.support.default_kernels` as a user writes them, which a session is given by their addresses."""

from __future__ import annotations

import bitverdict as bv
from tests.support import default_kernels as kernels


def leaky(xp, x):
    return xp.where(x >= 0, x, 0.5 * x)


@bv.judged(reference=leaky)
def test_tuned_in_place(draw):
    return kernels.leaky_(draw.tensor("fp32", draw.size(1, 300, around=64)), restored=False)


@bv.judged(reference=leaky)
def test_tuned_and_restored(draw):
    return kernels.leaky_(draw.tensor("fp32", draw.size(1, 300, around=64)))


@bv.judged(reference=lambda xp, x: 2 * x)
def test_wrong_between(draw):
    return kernels.wrong_between(draw.tensor("fp32", draw.size(1, 100)))

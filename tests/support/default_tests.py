"""Tests of `tests.support.default_kernels` as a user writes them, which a session is given by their addresses."""

from __future__ import annotations

import bitverdict as bv
from tests.support import default_kernels as kernels
from tests.support import reported_kernels


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


@bv.judged(reference=lambda xp, x: 2 * x)
def test_contiguous_rows(draw):
    return kernels.doubled_of_contiguous(draw.tensor("fp16", (draw.size(1, 9), draw.size(1, 70))))


@bv.judged(reference=lambda xp, x: 2 * x)
def test_three_rows(draw):
    return kernels.doubled_rows(draw.tensor("fp16", (draw.size(1, 3), draw.size(1, 70))))


@bv.judged(reference=lambda xp, x: 2 * x)
def test_any_rows(draw):
    return kernels.doubled_rows(draw.tensor("fp16", (draw.size(1, 9), draw.size(1, 70))))


def rows_or_zero(xp, table, rows):
    inside = (rows >= 0) & (rows < table.shape[0])
    return xp.where(inside[:, None], xp.take(table, xp.clip(rows, 0, table.shape[0] - 1), axis=0), 0)


def table_and_rows(draw):
    m = draw.size(2, 40)
    return draw.tensor("fp32", (m, draw.size(1, 9)), strides="contiguous"), draw.indices(draw.size(1, 30), m, out_of_bounds=True)


@bv.judged(reference=rows_or_zero)
def test_rows_below_0_are_read(draw):
    return kernels.taken_or_zero(*table_and_rows(draw), below_0=True)


@bv.judged(reference=rows_or_zero)
def test_rows_below_0_are_zero(draw):
    return kernels.taken_or_zero(*table_and_rows(draw))


def sums_of_parts(xp, x, cu_seqlens, lengths):
    ends = [sum(lengths[: part + 1]) for part in range(len(lengths))]
    return xp.stack([xp.sum(x[end - length : end]) for end, length in zip(ends, lengths, strict=True)])


def parts(draw):
    lengths = draw.lengths(draw.size(1, 6), 0, 70, total=200, name="lengths")
    return draw.tensor("fp32", sum(lengths), name="x"), draw.offsets(lengths, name="cu_seqlens")


@bv.judged(reference=sums_of_parts)
def test_the_first_32_of_each_part_are_summed(draw):
    return kernels.sums_of_parts(*parts(draw), whole=False)


@bv.judged(reference=sums_of_parts)
def test_parts_are_summed(draw):
    return kernels.sums_of_parts(*parts(draw))


@bv.judged(reference=lambda xp, x: 2 * x)
def test_blocks_of_64(draw):
    return reported_kernels.doubled_by_64(draw.tensor("fp32", draw.size(1, 300, around=64)))


@bv.judged(reference=lambda xp, x: 2 * x)
def test_any_block(draw):
    return reported_kernels.doubled_by_block(draw.tensor("fp32", draw.size(1, 300, around=64)))

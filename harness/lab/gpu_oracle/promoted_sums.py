"""Sums of blocks that are promoted to fp32, on the GPU: total = fma(inner * scale of the row, scale of the column, total).

The product and the fused multiply-add are computed from words, in integer arithmetic: both operands are normalised, aligned to the
larger, and what is shifted out is kept as one sticky bit; then rounded once, to nearest even. Subnormals are kept, zeros have
their signs, and NaN is 0x7FFFFFFF. The rule is `reference.scalar_arithmetic.fp32`, `multiply` and `fma`.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from bitverdict.harness.lab.gpu_oracle.chain import LAYOUT, NO_EXPONENT, TILE, _length, _read, _round_word, tile_of

TOP = gl.constexpr(61)  # bits that the larger of two aligned numbers has: their sum has 62, and 13 lie below a product of 48


@gluon.jit
def _times(word, other):
    """The exact product of two fp32 words: magnitude (int64) * 2^unit, negative, special as `_read` tells them."""
    magnitude, exponent, negative, special = _read(word, 23, 127)
    other_magnitude, other_exponent, other_negative, other_special = _read(other, 23, 127)
    sign = negative ^ other_negative
    unordered = ((special | other_special) & 4) != 0
    of_zero = ((magnitude == 0) & (special == 0)) | ((other_magnitude == 0) & (other_special == 0))
    infinite = (special | other_special) != 0
    found = gl.where(unordered | (infinite & of_zero), 4, gl.where(infinite, 1 << sign, 0))
    size = magnitude.to(gl.int64) * other_magnitude.to(gl.int64)
    return size, gl.where(size == 0, NO_EXPONENT, exponent + other_exponent - 46), sign, found


@gluon.jit
def _normalise(magnitude, unit):
    """The same number with its highest bit at TOP - 1; a zero has the unit NONE."""
    left = TOP - _length(magnitude)
    return magnitude << left.to(gl.int64), gl.where(magnitude == 0, NO_EXPONENT, unit - left)


@gluon.jit
def _signed_zero(word, negative):
    """`word`, whose zero is +0, with the sign of a zero put in."""
    return gl.where(word == 0, negative << 31, word)


@gluon.jit
def _multiply_words(word, other):
    """The fp32 word of a product, rounded once."""
    size, unit, negative, special = _times(word, other)
    found = _round_word(gl.where(negative != 0, -size, size), unit, special, 23, 127, 23, True)
    return _signed_zero(found, negative)


@gluon.jit
def _fused_multiply_add(word, other, addend):
    """The fp32 word of word * other + addend, rounded once."""
    size, unit, negative, special = _times(word, other)
    added, exponent, added_negative, added_special = _read(addend, 23, 127)
    one, unit = _normalise(size, unit)
    two, added_unit = _normalise(added.to(gl.int64), exponent - 23)
    highest = gl.maximum(unit, added_unit)
    by_one, by_two = gl.minimum(highest - unit, 63).to(gl.int64), gl.minimum(highest - added_unit, 63).to(gl.int64)
    cut_one, cut_two = one >> by_one, two >> by_two
    cut_one |= ((cut_one << by_one) != one).to(gl.int64)
    cut_two |= ((cut_two << by_two) != two).to(gl.int64)
    total = gl.where(negative != 0, -cut_one, cut_one) + gl.where(added_negative != 0, -cut_two, cut_two)
    found = _round_word(total, highest, special | added_special, 23, 127, 23, True)
    below = gl.where(total == 0, negative & added_negative, (total < 0).to(gl.int32))  # of two zeros, or of numbers that cancel
    return _signed_zero(found, below)


@gluon.jit
def promote(
    inner_ptr, row_ptr, column_ptr, total_ptr, m, n, n_padded,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, layout: gl.constexpr,
):  # fmt: skip
    """A tile of `total_ptr` (m, n) with a block added: `inner_ptr` (m, n), `row_ptr` (m,), `column_ptr` (n,), all fp32 words."""
    i, j, inside, places = tile_of(m, n, n_padded, BLOCK_M, BLOCK_N, layout)
    row = gl.load(row_ptr + i, mask=i < m, other=0)[:, None] + gl.zeros((BLOCK_M, BLOCK_N), gl.int32, layout)
    column = gl.load(column_ptr + j, mask=j < n, other=0)[None, :] + gl.zeros((BLOCK_M, BLOCK_N), gl.int32, layout)
    scaled = _multiply_words(gl.load(inner_ptr + places, mask=inside, other=0), row)
    gl.store(
        total_ptr + places, _fused_multiply_add(scaled, column, gl.load(total_ptr + places, mask=inside, other=0)), mask=inside
    )


def add_promoted(total: torch.Tensor, inner: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> None:
    """Add a block to `total` (M, N) in place: `inner` (M, N), scales of `rows` (M,) and `columns` (N,); fp32 words as int32 all."""
    m, n = inner.shape
    across = -(-n // TILE[1])
    promote[(-(-m // TILE[0]) * across,)](
        inner, rows, columns, total, m, n, across * TILE[1], BLOCK_M=TILE[0], BLOCK_N=TILE[1], layout=LAYOUT
    )


def promoted_total(blocks: Iterable[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]) -> torch.Tensor:
    """fp32 words (M, N) of the sum from zero, in order. A block: its words (M, N), scales of rows (M,) and of columns (N,); int32
    all. ValueError without a block."""
    total: torch.Tensor | None = None
    for inner, rows, columns in blocks:
        if total is None:
            total = torch.zeros_like(inner)  # (M, N)
        add_promoted(total, inner, rows, columns)
    if total is None:
        raise ValueError("a sum of no block has no shape: give one block at least")
    return total

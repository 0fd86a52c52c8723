"""The chain of block steps of one instruction, all elements of a product at once, in integer arithmetic.

A program computes a tile of results. Per block it finds the largest exponent of products and accumulator, shifts each product to
it, cuts it toward zero, adds exactly and rounds once. A cut product is below 2^(F + 2), so 32 bits hold a sum of eight. The
accumulator is kept as the word that the instruction would leave. The rule is `reference.tensor_core.definition.block_step`.
"""

from __future__ import annotations

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from bitverdict.harness.lab.gpu_oracle.operands import PackedSide, classes_of
from bitverdict.reference.formats import FORMATS, Rounding
from bitverdict.reference.tensor_core.fused_sum import lowest_alignment
from bitverdict.reference.tensor_core.record import Accumulator, Instruction

IN_32_BITS = 8  # products of at most 2^(25 + 2) units whose sum int32 holds
NO_EXPONENT = gl.constexpr(-(1 << 12))  # stands for the exponent of a zero: below every other, and far enough to shift all bits out
STICKY = gl.constexpr(38)  # bits below the last of the larger of two numbers that are added


@gluon.jit
def _length(x):
    """How many bits the value of an int64 has that is not negative: 0 for 0."""
    high = (x >> 32).to(gl.int32)
    word = gl.where(high != 0, high, x.to(gl.int32))
    found = gl.where(high != 0, 32, 0)
    for step in gl.static_range(5):
        more = (word >> (16 >> step)) & ((1 << (32 - (16 >> step))) - 1)
        found += gl.where(more != 0, 16 >> step, 0)
        word = gl.where(more != 0, more, word)
    return found + (word != 0).to(gl.int32)


@gluon.jit
def _read(word, MANTISSA: gl.constexpr, BIAS: gl.constexpr):
    """A word as (magnitude, exponent, negative, special): magnitude * 2^(exponent - MANTISSA); special is 1 for +infinity, 2 for
    -infinity, 4 for NaN. What is special has magnitude 0, and zeros have exponent NONE."""
    HIGHEST: gl.constexpr = 2 * BIAS + 1
    field = (word >> MANTISSA) & HIGHEST
    low = word & ((1 << MANTISSA) - 1)
    negative = (word >> (31 if MANTISSA == 23 else 15)) & 1
    special = gl.where(field == HIGHEST, gl.where(low != 0, 4, 1 << negative), 0)
    magnitude = gl.where(field == HIGHEST, 0, gl.where(field == 0, low, low | (1 << MANTISSA)))
    exponent = gl.where(magnitude == 0, NO_EXPONENT, gl.maximum(field, 1) - BIAS)
    return magnitude, exponent, negative, special


@gluon.jit
def _round_word(total, unit, special, MANTISSA: gl.constexpr, BIAS: gl.constexpr, KEPT_BITS: gl.constexpr, NEAREST: gl.constexpr):
    """The word of `total` * 2^`unit` (int64, int32), rounded once to KEPT_BITS fraction bits; of `special` where that is not 0."""
    SIGN: gl.constexpr = 31 if MANTISSA == 23 else 15
    INFINITY: gl.constexpr = (2 * BIAS + 1) << MANTISSA
    below_zero = total < 0
    magnitude = gl.where(below_zero, -total, total)
    place = gl.maximum(_length(magnitude) - 1 + unit, 1 - BIAS) - KEPT_BITS  # exponent of the last bit that is kept
    drop = place - unit
    right = gl.minimum(gl.maximum(drop, 0), 63).to(gl.int64)
    significand = gl.where(drop > 0, magnitude >> right, magnitude << gl.minimum(gl.maximum(-drop, 0), 63).to(gl.int64))
    if NEAREST:
        rest = magnitude - (significand << right)
        half = gl.where(drop > 0, significand * 0 + 1, 0) << gl.maximum(right - 1, 0)
        significand += ((drop > 0) & ((rest > half) | ((rest == half) & ((significand & 1) != 0)))).to(gl.int64)
    # a kept value of KEPT_BITS + 2 bits carries into the field, as it must; field 0 has the exponent of field 1
    field = gl.where((significand >> KEPT_BITS) != 0, place + KEPT_BITS + BIAS - 1, 0)
    word = (field << MANTISSA) + (significand.to(gl.int32) << (MANTISSA - KEPT_BITS))
    word = gl.where((field >= 2 * BIAS) | (word >= INFINITY), INFINITY, word) | (below_zero.to(gl.int32) << SIGN)
    word = gl.where(significand == 0, 0, word)  # what is rounded to zero is +0
    known = gl.where(special == 1, INFINITY, gl.where(special == 2, INFINITY - (1 << SIGN), (1 << SIGN) - 1))
    return gl.where(special == 0, word, known)


@gluon.jit
def _add_words(word, other, MANTISSA: gl.constexpr, BIAS: gl.constexpr):
    """The word of the IEEE sum of two, to nearest even; what lies below STICKY further bits is kept as one sticky bit."""
    magnitude, exponent, negative, special = _read(word, MANTISSA, BIAS)
    other_magnitude, other_exponent, other_negative, other_special = _read(other, MANTISSA, BIAS)
    highest = gl.maximum(exponent, other_exponent)
    one, two = magnitude.to(gl.int64) << STICKY, other_magnitude.to(gl.int64) << STICKY
    by_one, by_two = gl.minimum(highest - exponent, 63).to(gl.int64), gl.minimum(highest - other_exponent, 63).to(gl.int64)
    cut_one, cut_two = one >> by_one, two >> by_two
    cut_one |= ((cut_one << by_one) != one).to(gl.int64)
    cut_two |= ((cut_two << by_two) != two).to(gl.int64)
    total = gl.where(negative != 0, -cut_one, cut_one) + gl.where(other_negative != 0, -cut_two, cut_two)
    return _round_word(total, highest - MANTISSA - STICKY, special | other_special, MANTISSA, BIAS, MANTISSA, True)


@gluon.jit
def tile_of(m, n, n_padded, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, layout: gl.constexpr):
    """Rows and columns of this program's tile, which of its words lie in the result, and where in it."""
    pid = gl.program_id(0)
    columns = n_padded // BLOCK_N
    i = (pid // columns) * BLOCK_M + gl.arange(0, BLOCK_M, gl.SliceLayout(1, layout))  # (BLOCK_M,)
    j = (pid % columns) * BLOCK_N + gl.arange(0, BLOCK_N, gl.SliceLayout(0, layout))  # (BLOCK_N,)
    inside = (i[:, None] < m) & (j[None, :] < n)  # (BLOCK_M, BLOCK_N)
    return i, j, inside, i[:, None].to(gl.int64) * n + j[None, :]


@gluon.jit
def chain(
    a_ptr, b_ptr, a_class_ptr, b_class_ptr, c_ptr, d_ptr, m, n, m_padded, n_padded, spans,
    BLOCK: gl.constexpr, SHIFT: gl.constexpr, F: gl.constexpr, FLOOR: gl.constexpr,
    MANTISSA: gl.constexpr, BIAS: gl.constexpr, KEPT_BITS: gl.constexpr, NEAREST: gl.constexpr,
    SPECIALS: gl.constexpr, HAS_C: gl.constexpr, ADDED_AFTER: gl.constexpr, PASSES: gl.constexpr, PARTS: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, layout: gl.constexpr,
):  # fmt: skip
    """Words of a tile: `a_ptr` (K, m_padded), `b_ptr` (K, n_padded) packed operands; `c_ptr`, `d_ptr` (m, n) words."""
    i, j, inside, places = tile_of(m, n, n_padded, BLOCK_M, BLOCK_N, layout)
    LEFT_SHIFT: gl.constexpr = F - MANTISSA if F > MANTISSA else 0
    RIGHT_SHIFT: gl.constexpr = MANTISSA - F if MANTISSA > F else 0

    word = gl.zeros((BLOCK_M, BLOCK_N), gl.int32, layout)
    if HAS_C:
        word = gl.load(c_ptr + places, mask=inside, other=0).to(gl.int32)
    for span in range(spans):
        before = word
        if ADDED_AFTER:
            word = gl.zeros((BLOCK_M, BLOCK_N), gl.int32, layout)
        for step in gl.static_range(PASSES):
            first_k = (span * PASSES + step) * BLOCK
            magnitude, exponent, negative, special = _read(word, MANTISSA, BIAS)
            highest = gl.maximum(exponent, FLOOR)
            a_row = a_ptr + first_k.to(gl.int64) * m_padded + i
            b_row = b_ptr + first_k.to(gl.int64) * n_padded + j
            for _ in range(BLOCK):
                pair = (gl.load(a_row) >> 16)[:, None] + (gl.load(b_row) >> 16)[None, :]
                highest = gl.maximum(highest, pair)
                a_row += m_padded
                b_row += n_padded
            cut = (magnitude.to(gl.int64) << LEFT_SHIFT) >> gl.minimum(highest - exponent + RIGHT_SHIFT, 63).to(gl.int64)
            total = gl.where(negative != 0, -cut, cut)
            a_row = a_ptr + first_k.to(gl.int64) * m_padded + i
            b_row = b_ptr + first_k.to(gl.int64) * n_padded + j
            for _ in range(BLOCK // PARTS):
                part = gl.zeros((BLOCK_M, BLOCK_N), gl.int32, layout)
                for _ in range(PARTS):
                    a, b = gl.load(a_row), gl.load(b_row)
                    left, right = ((a << 16) >> 16) << SHIFT, (b << 16) >> 16  # the product comes in units of the last bit kept
                    size = gl.where(left < 0, -left, left)[:, None] * gl.where(right < 0, -right, right)[None, :]
                    sign = (a << 16 >> 31)[:, None] ^ (b << 16 >> 31)[None, :]
                    below = (highest - (a >> 16)[:, None]) - (b >> 16)[None, :]
                    part += ((size >> gl.minimum(below, 31)) ^ sign) - sign
                    a_row += m_padded
                    b_row += n_padded
                total += part.to(gl.int64)
            if SPECIALS:
                a_kind = a_class_ptr + first_k.to(gl.int64) * m_padded + i
                b_kind = b_class_ptr + first_k.to(gl.int64) * n_padded + j
                for _ in range(BLOCK):
                    x = gl.load(a_kind).to(gl.int32)[:, None]
                    y = gl.load(b_kind).to(gl.int32)[None, :]
                    one, other = x & 3, y & 3
                    infinite = (one == 2) | (other == 2)
                    nan = (one == 3) | (other == 3) | (infinite & ((one == 0) | (other == 0)))
                    special |= gl.where(nan, 4, gl.where(infinite, 1 << (((x ^ y) >> 2) & 1), 0))
                    a_kind += m_padded
                    b_kind += n_padded
            word = _round_word(total, highest - F, special, MANTISSA, BIAS, KEPT_BITS, NEAREST)
        if ADDED_AFTER:
            word = _add_words(word, before, MANTISSA, BIAS)
    gl.store(d_ptr + places, word.to(d_ptr.dtype.element_ty), mask=inside)


TILE = (64, 64)  # of a program of four warps, each thread with 8 x 4 results
LAYOUT = gl.BlockedLayout([8, 4], [4, 8], [2, 2], [1, 0])


def product(rule: Instruction, a: PackedSide, b: PackedSide, c: torch.Tensor | None = None) -> torch.Tensor:
    """Words (M, N) of A B + C, one ascending chain of `rule`: int32 for fp32, int16 for fp16; `c` (M, N) likewise."""
    assert not rule.sums_groups_exactly
    m, n, output = a.size, b.size, rule.output
    operands = [FORMATS[rule.widened or name] for name in (rule.a, rule.b)]
    d = torch.empty((m, n), dtype=torch.int32 if output.width == 32 else torch.int16, device=a.words.device)  # (M, N)
    specials = a.classes is not None or b.classes is not None
    classes = [each.words if not specials else classes_of(each.words) if each.classes is None else each.classes for each in (a, b)]
    padded = [each.words.shape[1] for each in (a, b)]
    chain[(padded[0] // TILE[0] * (padded[1] // TILE[1]),)](
        a.words, b.words, *classes, c if c is not None else d, d, m, n, *padded, a.words.shape[0] // rule.span,
        BLOCK=rule.block, SHIFT=rule.fraction_bits - sum(each.mantissa_bits for each in operands), F=rule.fraction_bits,
        FLOOR=lowest_alignment(rule), MANTISSA=output.mantissa_bits, BIAS=output.bias, KEPT_BITS=rule.output_fraction_bits,
        NEAREST=rule.rounding is Rounding.NEAREST_EVEN, SPECIALS=specials, HAS_C=c is not None,
        ADDED_AFTER=rule.accumulator is Accumulator.ADDED_AFTER, PASSES=len(rule.steps), PARTS=min(IN_32_BITS, rule.block),
        BLOCK_M=TILE[0], BLOCK_N=TILE[1], layout=LAYOUT,
    )  # fmt: skip
    return d

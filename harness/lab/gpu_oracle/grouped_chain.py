"""The chain of mxf4 and mxf4nvf4 in integer arithmetic: small groups of products are added exactly before anything is cut.

Sixteen products share one pair of scales. Elements are e2m1: integers of halves from -12 to 12. So a group's sum is an integer
times the scales' significands, times a power of two. R, C and S are those of `reference.tensor_core.grouped_sum`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from bitverdict.harness.lab.gpu_oracle.chain import LAYOUT, TILE, _read, _round_word, tile_of
from bitverdict.harness.lab.gpu_oracle.operands import SIDE_MULTIPLE
from bitverdict.reference.formats import FORMATS, decode
from bitverdict.reference.tensor_core.fused_sum import LOWEST_EXPONENT
from bitverdict.reference.tensor_core.record import Choices, Instruction, ScaledGroups, ScaledWindow

GROUP = gl.constexpr(16)
FOUR = gl.constexpr(4)
HEADROOM = gl.constexpr(4)
NO_PRODUCT = gl.constexpr(-2048)  # exponent of a product that is zero: below every other
LOWEST = gl.constexpr(LOWEST_EXPONENT)
NAN_SCALE = gl.constexpr(-(1 << 15))  # what stands in the exponent of a scale that is NaN


@dataclass(frozen=True)
class GroupedSide:
    """One side: what `group_side` makes of codes and scales, filled up to whole blocks and tiles."""

    elements: torch.Tensor  # (K', L') int8: halves above bit 2, the exponent field 0..2 in bits 1..0
    scales: torch.Tensor  # (K' / 16, L') int32: the exponent above bit 15, the significand below
    size: int  # L


def group_side(rule: Instruction, codes: torch.Tensor, scales: torch.Tensor) -> GroupedSide:
    """`codes` (K, L) of e2m1 and `scales` (ceil(K / scale_block), L) of the rule's scale format, on any device."""
    values = decode(FORMATS["e2m1"], np.arange(16, dtype=np.uint8))  # (16,)
    fields = np.clip(np.arange(16) % 8 // 2, 1, None) - 1  # (16,) floor(log2 |v|), 0 for subnormals
    table = torch.from_numpy(((values * 2).astype(np.int64) * 8 + fields).astype(np.int8)).to(codes.device)  # (16,)
    elements = table[codes.to(torch.int32)]  # (K, L)
    assert rule.scale is not None and rule.scale_block is not None
    spread = _scale_table(rule.scale, codes.device)[scales.view(torch.uint8).to(torch.int32)]  # (blocks, L)
    spread = spread.repeat_interleave(rule.scale_block // 16, dim=0)  # (K / 16 or more, L)
    k, size = codes.shape
    depth, width = k + -k % rule.block, size + -size % SIDE_MULTIPLE
    spread = spread[: depth // 16]
    return GroupedSide(
        torch.nn.functional.pad(elements, (0, width - size, 0, depth - k)).contiguous(),
        torch.nn.functional.pad(spread, (0, width - size, 0, depth // 16 - spread.shape[0]), value=1).contiguous(),
        size,
    )


def _scale_table(name: str, device: torch.device) -> torch.Tensor:
    """Of each of 256 codes: exponent above bit 16, significand below (one bit for e8m0, four for ue4m3); (256,) int32."""
    fmt = FORMATS[name]
    values = decode(fmt, np.arange(256, dtype=np.uint8))  # (256,)
    finite = np.isfinite(values)
    plain = np.where(finite & (values != 0), values, 1.0)
    exponent = np.maximum(np.frexp(plain)[1] - 1, fmt.smallest_exponent)
    significand = np.where(values == 0, 0, plain * 2.0 ** (fmt.mantissa_bits - exponent.astype(np.float64))).astype(np.int64)
    exponent = np.where(values == 0, fmt.smallest_exponent if fmt.mantissa_bits else 0, exponent)
    words = np.where(finite, (exponent.astype(np.int64) << 16) | significand, np.int64(NAN_SCALE.value) << 16)
    return torch.from_numpy(words.astype(np.int32)).to(device)


@gluon.jit
def _cut(total, by):
    """`total` * 2^`by` cut toward zero, int64 and int32."""
    size = gl.where(total < 0, -total, total)
    up, down = gl.minimum(gl.maximum(by, 0), 62).to(gl.int64), gl.minimum(gl.maximum(-by, 0), 63).to(gl.int64)
    size = (size << up) >> down  # one of the two is 0
    return gl.where(total < 0, -size, size)


@gluon.jit
def _fields(a, b):
    """Exponents of the products of a column `a` and a row `b` of elements, 0 to 4; below 0 where one is zero."""
    return gl.where((a >> 3) == 0, NO_PRODUCT, a & 3)[:, None] + gl.where((b >> 3) == 0, NO_PRODUCT, b & 3)[None, :]


@gluon.jit
def _power_of_two(like, place):
    """2^`place` where that is an integer, else 0, of the shape of `like` (int64)."""
    one = gl.where(place >= 0, like * 0 + 1, 0)
    return one << gl.minimum(gl.maximum(place, 0), 62).to(gl.int64)


@gluon.jit
def grouped_chain(
    a_ptr, b_ptr, a_scale_ptr, b_scale_ptr, c_ptr, d_ptr, m, n, m_padded, n_padded, blocks,
    F: gl.constexpr, FRACTION: gl.constexpr, FOURS: gl.constexpr, BY_SCALE: gl.constexpr, E8M0: gl.constexpr, HAS_C: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, layout: gl.constexpr,
):  # fmt: skip
    """Words of a tile. FRACTION: fraction bits of a scaled product of halves. FOURS: groups of four where a product leads."""
    i, j, inside, places = tile_of(m, n, n_padded, BLOCK_M, BLOCK_N, layout)
    word = gl.zeros((BLOCK_M, BLOCK_N), gl.int32, layout)
    if HAS_C:
        word = gl.load(c_ptr + places, mask=inside, other=0)
    for block in range(blocks):
        magnitude, exponent, negative, special = _read(word, 23, 127)
        leading_c = gl.maximum(exponent, LOWEST)  # C
        leading_product = gl.full((BLOCK_M, BLOCK_N), NO_PRODUCT, gl.int32, layout)  # R
        leading_scale = gl.full((BLOCK_M, BLOCK_N), NO_PRODUCT, gl.int32, layout)  # S
        for group in range(4):
            place = block * 4 + group
            a_scale, b_scale = gl.load(a_scale_ptr + place * m_padded + i), gl.load(b_scale_ptr + place * n_padded + j)
            nan = ((a_scale >> 16) == NAN_SCALE)[:, None] | ((b_scale >> 16) == NAN_SCALE)[None, :]
            special |= gl.where(nan, 4, 0)
            pair = (a_scale >> 16)[:, None] + (b_scale >> 16)[None, :]
            zero_scale = ((a_scale & 0xFFFF) == 0)[:, None] | ((b_scale & 0xFFFF) == 0)[None, :]
            highest = gl.full((BLOCK_M, BLOCK_N), NO_PRODUCT, gl.int32, layout)
            for k in range(GROUP):
                row = (place * GROUP + k).to(gl.int64)
                a = gl.load(a_ptr + row * m_padded + i).to(gl.int32)
                b = gl.load(b_ptr + row * n_padded + j).to(gl.int32)
                highest = gl.maximum(highest, _fields(a, b))
            some = (highest >= 0) & (zero_scale == 0)
            leading_product = gl.maximum(leading_product, gl.where(some, highest + pair, NO_PRODUCT))
            leading_scale = gl.maximum(leading_scale, gl.where(some, pair, NO_PRODUCT))
        c_leads = leading_c >= leading_product
        if BY_SCALE:
            unit = gl.maximum(leading_scale, leading_c) - F
        else:
            unit = gl.where(c_leads, leading_c, gl.maximum(gl.maximum(leading_product, leading_c) - HEADROOM, leading_scale)) - F
        signed = gl.where(negative != 0, -magnitude, magnitude).to(gl.int64)
        total = _cut(signed, exponent - 23 - unit)
        reduced_total = total  # less the groups that a subnormal result leaves out
        for group in range(4):
            place = block * 4 + group
            a_scale, b_scale = gl.load(a_scale_ptr + place * m_padded + i), gl.load(b_scale_ptr + place * n_padded + j)
            pair = (a_scale >> 16)[:, None] + (b_scale >> 16)[None, :]
            factor = (a_scale & 0xFFFF)[:, None] * (b_scale & 0xFFFF)[None, :]
            highest = gl.full((BLOCK_M, BLOCK_N), NO_PRODUCT, gl.int32, layout)
            sixteen = gl.zeros((BLOCK_M, BLOCK_N), gl.int32, layout)
            in_fours = gl.zeros((BLOCK_M, BLOCK_N), gl.int64, layout)
            for part in range(GROUP // FOUR):
                four = gl.zeros((BLOCK_M, BLOCK_N), gl.int32, layout)
                for k in range(FOUR):
                    row = (place * GROUP + part * FOUR + k).to(gl.int64)
                    a = gl.load(a_ptr + row * m_padded + i).to(gl.int32)
                    b = gl.load(b_ptr + row * n_padded + j).to(gl.int32)
                    four += (a >> 3)[:, None] * (b >> 3)[None, :]
                    if E8M0:
                        fields = (
                            gl.where((a >> 3) == 0, NO_PRODUCT, a & 3)[:, None]
                            + gl.where((b >> 3) == 0, NO_PRODUCT, b & 3)[None, :]
                        )
                        highest = gl.maximum(highest, fields)
                sixteen += four
                if FOURS:
                    in_fours += _cut((four * factor).to(gl.int64), pair - FRACTION - unit)
            exact = (sixteen * factor).to(gl.int64)
            if E8M0 and not BY_SCALE:
                own = gl.where((c_leads == 0) & (highest + pair <= leading_c), gl.maximum(unit, leading_c - F), unit)
                cut = _cut(exact, pair - FRACTION - own) << (own - unit).to(gl.int64)
                total += cut
                size = gl.where(cut < 0, -cut, cut)
                tiny = size < _power_of_two(size, -174 - unit)
                reduced_total += gl.where(tiny & (pair < leading_scale), 0, cut)
            elif FOURS:
                total += gl.where(c_leads, _cut(exact, pair - FRACTION - unit), in_fours)
            else:
                total += _cut(exact, pair - FRACTION - unit)
        if E8M0 and not BY_SCALE:
            size = gl.where(total < 0, -total, total)
            subnormal = size < _power_of_two(size, -126 - unit)
            total = gl.where(subnormal, reduced_total, total)
        word = _round_word(total, unit, special, 23, 127, 23, False)
    gl.store(d_ptr + places, word, mask=inside)


def grouped_product(rule: Instruction, a: GroupedSide, b: GroupedSide, c: torch.Tensor | None = None) -> torch.Tensor:
    """Words (M, N) int32 of the scaled product, one ascending chain of `rule`. `c`: words of fp32."""
    choices: Choices = rule.choices
    by_scale = choices.scaled_window is ScaledWindow.BY_SCALE
    e8m0 = rule.scale == "e8m0"
    d = torch.empty((a.size, b.size), dtype=torch.int32, device=a.elements.device)  # (M, N)
    padded = [each.elements.shape[1] for each in (a, b)]
    grouped_chain[(padded[0] // TILE[0] * (padded[1] // TILE[1]),)](
        a.elements, b.elements, a.scales, b.scales, c if c is not None else d, d, a.size, b.size, *padded,
        a.elements.shape[0] // rule.block, F=rule.fraction_bits, FRACTION=2 + 2 * FORMATS[rule.scale or ""].mantissa_bits,
        FOURS=not e8m0 and not by_scale and choices.scaled_groups is ScaledGroups.OF_FOUR, BY_SCALE=by_scale, E8M0=e8m0,
        HAS_C=c is not None, BLOCK_M=TILE[0], BLOCK_N=TILE[1], layout=LAYOUT,
    )  # fmt: skip
    return d

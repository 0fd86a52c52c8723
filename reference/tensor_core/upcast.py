"""The compiler's own model for scaled operands where the chip has none: sm_90 (and sm_80) `tl.dot_scaled`.

Triton widens each element to bf16 (exact), turns its scale into bf16, multiplies the two in bf16 (one rounding to nearest even,
which may overflow or fall below the normal range), and hands the bf16 products to an ordinary wgmma or mma.sync. Read off the
tile program of Triton 3.9.0: `max(code << 7, 64)` as bf16, then `fma(s, 0, s)`, which makes NaN of the infinity that code 0xFF
becomes. An e4m3 scale keeps its sign, which tcgen05 ignores. Evidence: the compiler's program; no hardware word.
"""

from __future__ import annotations

from enum import Enum
from functools import cache

import numpy as np

from bitverdict.reference.formats import BF16, E4M3, FORMATS, decode, encode
from bitverdict.reference.tensor_core.lookup import instruction
from bitverdict.reference.tensor_core.product import product

LOOKED_UP = 1 << 18  # codes from which a table of all pairs is worth its making


class ScaleModel(Enum):
    """How an E8M0 code becomes bf16."""

    EXACT_ENDS = "2^-127 for code 0 and NaN for 0xFF (Triton 3.9.0, as compiled)"
    CUT = (
        "as EXACT_ENDS; a NaN of e4m3 counts as 480, and products are cut to bf16 (Triton 3.9.0 for gfx90a and gfx942, as compiled)"
    )
    CUT_ZERO_START = "as CUT, but zero for code 0 (Triton 3.8 for gfx90a and gfx942, as compiled)"
    ZERO_START = "zero for code 0 and NaN for 0xFF (Triton 3.6 to 3.8, as compiled: a shift by 7, and a select)"
    BARE_SHIFT = "code << 7: zero for code 0 and infinity for 0xFF (a bare shift)"

    @property
    def cuts(self) -> bool:
        return self in (ScaleModel.CUT, ScaleModel.CUT_ZERO_START)


def upcast_operand(
    element: str, codes: np.ndarray, scale: str, scales: np.ndarray, scale_block: int, model: ScaleModel = ScaleModel.EXACT_ENDS
) -> np.ndarray:
    """bf16 codes (L, K) of `codes` (L, K) in format `element` under `scales` (L, K / scale_block) in `scale` ("e8m0", "e4m3")."""
    if scales.shape != (codes.shape[0], -(-codes.shape[1] // scale_block)):
        raise ValueError(f"scales {scales.shape} do not cover codes {codes.shape} in blocks of {scale_block}")
    if codes.size < LOOKED_UP:
        return upcast_by_definition(element, codes, scale, scales, scale_block, model)
    high = np.repeat(scales.astype(np.uint16) << np.uint16(8), scale_block, axis=1)[:, : codes.shape[1]]  # (L, K)
    result: np.ndarray = _table(element, scale, model)[high | codes]  # (L, K)
    return result


@cache
def _table(element: str, scale: str, model: ScaleModel) -> np.ndarray:
    """(65536,) the bf16 code under each scale code, in the high byte, of each code of an element, in the low one."""
    codes = np.arange(1 << FORMATS[element].width, dtype=np.uint8)  # (codes,)
    scales = np.arange(256, dtype=np.uint8)  # (scale codes,)
    every = np.broadcast_to(codes, (256, codes.size))  # (scale codes, codes)
    found = np.zeros((256, 256), np.uint16)
    found[:, : codes.size] = upcast_by_definition(element, every, scale, scales[:, None], codes.size, model)
    return found.reshape(-1)


def upcast_by_definition(
    element: str, codes: np.ndarray, scale: str, scales: np.ndarray, scale_block: int, model: ScaleModel = ScaleModel.EXACT_ENDS
) -> np.ndarray:
    """What `upcast_operand` looks up, computed for each element."""
    if scale == "e8m0":
        words = scales.astype(np.uint16) << np.uint16(7)  # (L, blocks)
        factor = decode(BF16, words)  # (L, blocks)
        if model in (ScaleModel.EXACT_ENDS, ScaleModel.CUT):
            factor = decode(BF16, np.maximum(words, np.uint16(64)))  # (L, blocks)
        if model is not ScaleModel.BARE_SHIFT:
            factor[np.isinf(factor)] = np.nan
    elif scale in ("e4m3", "ue4m3"):
        factor = finite_e4m3(scales) if model.cuts else decode(E4M3, scales)  # (L, blocks) the sign bit counts here
    else:
        raise ValueError(f"no upcast model for scales in {scale}; there are e8m0 and e4m3")
    spread = np.repeat(factor, scale_block, axis=1)[:, : codes.shape[1]]  # (L, K)
    if model.cuts:
        return cut_product(element, codes, encode(BF16, spread))  # (L, K)
    with np.errstate(invalid="ignore"):
        return encode(BF16, decode(FORMATS[element], codes) * spread)  # (L, K) the product is exact, then rounded once


def finite_e4m3(codes: np.ndarray) -> np.ndarray:
    """Numbers (float64) of e4m3 `codes` of any shape as Triton 3.9.0 reads them for gfx90a and gfx942: the code of a NaN is 480, as
    if e4m3 went on."""
    magnitude = codes & np.uint8(0x7F)
    found = np.where(magnitude == 0x7F, 480.0, decode(E4M3, np.minimum(magnitude, np.uint8(0x7E))))
    return np.where(codes & np.uint8(0x80), -found, found)


def cut_product(element: str, codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """bf16 codes of `codes` in `element` ("e4m3", "e2m1") times bf16 `scales` of the same shape: an fp32 product, whose low half is
    dropped. A NaN stays one."""
    values = finite_e4m3(codes) if element == "e4m3" else decode(FORMATS[element], codes)
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        found = values.astype(np.float32) * decode(BF16, scales).astype(np.float32)
    words = (found.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(found), np.uint16(0x7FC0), words)


def upcast_product(
    element_a: str,
    a: np.ndarray,
    scale_a: np.ndarray,
    element_b: str,
    b: np.ndarray,
    scale_b: np.ndarray,
    c: np.ndarray | None = None,
    *,
    scale: str = "e8m0",
    scale_block: int = 32,
    arch: str = "sm_90",
    family: str = "wgmma",
    model: ScaleModel = ScaleModel.EXACT_ENDS,
) -> np.ndarray:
    """fp32 words (M, N) of `tl.dot_scaled` without scaled hardware.

    `a` (M, K), `b` (K, N), `scale_a` (M, K / scale_block), `scale_b` (N, K / scale_block), `c` (M, N) fp32 words or None.
    """
    left = upcast_operand(element_a, a, scale, scale_a, scale_block, model)  # (M, K)
    right = upcast_operand(element_b, np.ascontiguousarray(b.T), scale, scale_b, scale_block, model)  # (N, K)
    return product(instruction(arch, family, "bf16", "bf16", "fp32"), left, right.T, c)  # (M, N)

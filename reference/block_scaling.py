"""Formats whose elements share a scale by block: what they are, how values become them, and what they mean.

Source: OCP Microscaling Formats (MX) 1.0, section 5 (the formats; a value is its element times the scale) and section 6.3
(the conversion); for NVFP4 PTX ISA, `tcgen05.mma` block scaling (ue4m3 scale for 16 e2m1), with one fp32 scale a tensor
as in NVIDIA's recipe.

OCP's conversion: the shared exponent is floor(log2(largest |value| of the block)) less the element format's largest exponent; each
value over 2^shared is rounded to nearest even, saturating. The floor is read from exponent bits: a `log2` rounded to fp32 makes the
last numbers below 2^k into k and doubles the scale. What OCP leaves open is fixed here:

- a block with a NaN or an infinity gets the scale's NaN, and zero elements: all its values are NaN;
- a block of zeros gets the scale's smallest code (MX: 2^-127; NVFP4: 0);
- an exponent beyond the scale's range is held at its end: small values round toward zero, large ones saturate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bitverdict.reference.formats import E2M1, E2M3, E3M2, E4M3, E5M2, E8M0, FP32, UE4M3, Format, Overflow, decode, encode


@dataclass(frozen=True, kw_only=True)
class BlockFormat:
    """An element format, a scale format, and how many elements along K share a scale.

    `tensor_scale`: whether one fp32 factor for the whole tensor belongs to it (NVFP4, whose scale reaches only from 2^-9 to 448).
    """

    name: str
    element: Format
    scale: Format
    block_size: int
    tensor_scale: bool = False

    @property
    def largest_exponent(self) -> int:
        """Exponent of the element format's largest number: OCP's emax_elem."""
        return int(np.frexp(self.element.largest)[1]) - 1


MXFP4 = BlockFormat(name="mxfp4", element=E2M1, scale=E8M0, block_size=32)
MXFP6_E2M3 = BlockFormat(name="mxfp6_e2m3", element=E2M3, scale=E8M0, block_size=32)
MXFP6_E3M2 = BlockFormat(name="mxfp6_e3m2", element=E3M2, scale=E8M0, block_size=32)
MXFP8_E4M3 = BlockFormat(name="mxfp8_e4m3", element=E4M3, scale=E8M0, block_size=32)
MXFP8_E5M2 = BlockFormat(name="mxfp8_e5m2", element=E5M2, scale=E8M0, block_size=32)
NVFP4 = BlockFormat(name="nvfp4", element=E2M1, scale=UE4M3, block_size=16, tensor_scale=True)

BLOCK_FORMATS: dict[str, BlockFormat] = {
    block_format.name: block_format for block_format in (MXFP4, MXFP6_E2M3, MXFP6_E3M2, MXFP8_E4M3, MXFP8_E5M2, NVFP4)
}


@dataclass(frozen=True)
class QuantizedTensor:
    """Codes of the elements (shape of the values), codes of the scales (one a block along the axis), and the tensor's factor."""

    elements: np.ndarray
    scales: np.ndarray
    tensor_scale: float = 1.0


def saturating_codes(fmt: Format, values: np.ndarray) -> np.ndarray:
    """Codes of `values`, to nearest even, the largest for what lies beyond it."""
    return encode(fmt, values, overflow=Overflow.SATURATE)


def quantize(
    block_format: BlockFormat,
    values: np.ndarray,
    axis: int = -1,
    *,
    tensor_scale: float | None = None,
    narrow: Callable[[Format, np.ndarray], np.ndarray] = saturating_codes,
) -> QuantizedTensor:
    """`values` (float64 or float32, any shape) as elements and scales, in blocks along `axis`; the last block may be short.

    `tensor_scale` is NVFP4's: by default the fp32 nearest to largest |value| / (448 * 6), never 0; each block's scale is the
    UE4M3 nearest to its largest |value| / (6 * tensor_scale). Quotients are those of real numbers, rounded once; without a
    tensor scale by `narrow`. Raises ValueError for a tensor scale that is not a positive finite fp32 or that the format does
    not have, and for NVFP4 values that are not fp32.
    """
    along = np.moveaxis(np.asarray(values), axis, -1)  # (.., k)
    blocks = _blocks(along, block_format.block_size)  # (.., blocks, block)
    largest = np.abs(blocks).max(axis=-1, initial=0.0)  # (.., blocks) NaN where one is in the block
    finite = np.isfinite(largest)  # (.., blocks)
    if block_format.tensor_scale:
        factor = _tensor_scale(largest[finite], tensor_scale)
        _require_fp32(along)
        scales, elements = _nvfp4_codes(block_format, blocks, np.where(finite, largest, 0.0), factor)
    elif tensor_scale is not None:
        raise ValueError(f"{block_format.name} has no tensor scale; multiply the values")
    else:
        factor = 1.0
        scales = shared_scale(block_format, np.where(finite, largest, 0.0))  # (.., blocks)
        exponent = scales.astype(np.int32) - block_format.scale.bias  # (.., blocks)
        divided = np.ldexp(np.where(finite[..., None], blocks, 0.0), -exponent[..., None])  # (.., blocks, block) exact
        elements = narrow(block_format.element, divided)  # (.., blocks, block)
    scales[~finite] = block_format.scale.nan_code  # (.., blocks)
    elements = elements.reshape(*along.shape[:-1], blocks.shape[-2] * blocks.shape[-1])  # (.., k rounded up)
    elements = elements[..., : along.shape[-1]]  # (.., k)
    return QuantizedTensor(
        np.ascontiguousarray(np.moveaxis(elements, -1, axis)), np.ascontiguousarray(np.moveaxis(scales, -1, axis)), factor
    )


def shared_scale(block_format: BlockFormat, largest: np.ndarray) -> np.ndarray:
    """OCP's E8M0 code for blocks whose largest magnitudes are `largest` (any shape, finite, not negative)."""
    exponent = np.frexp(np.asarray(largest, np.float64))[1] - 1 - block_format.largest_exponent  # (...)
    exponent = np.where(np.asarray(largest) == 0, -block_format.scale.bias, exponent)  # (...)
    code = np.clip(exponent + block_format.scale.bias, 0, block_format.scale.largest_code)  # (...)
    result: np.ndarray = code.astype(block_format.scale.storage)
    return result


def dequantize(
    block_format: BlockFormat, elements: np.ndarray, scales: np.ndarray, axis: int = -1, *, tensor_scale: float = 1.0
) -> np.ndarray:
    """The exact values, float64, of element codes (any shape) under scale codes (one a block along `axis`).

    A NaN scale makes every value of its block NaN, zeros included. Exact because a product has at most 4 + 24 significant bits
    (element and block scale 2 + 4, an fp32 factor 24). Raises ValueError when the shapes do not belong together.
    """
    codes = np.moveaxis(np.asarray(elements), axis, -1)  # (.., k)
    block_scales = np.moveaxis(np.asarray(scales), axis, -1)  # (.., blocks)
    k, size = codes.shape[-1], block_format.block_size
    if block_scales.shape != (*codes.shape[:-1], -(-k // size)):
        raise ValueError(
            f"elements {codes.shape} in blocks of {size} take scales {(*codes.shape[:-1], -(-k // size))}, got {block_scales.shape}"
        )
    if tensor_scale != 1.0 and not block_format.tensor_scale:
        raise ValueError(f"{block_format.name} has no tensor scale")
    spread = np.repeat(decode(block_format.scale, block_scales), size, axis=-1)[..., :k]  # (.., k)
    return np.moveaxis(decode(block_format.element, codes) * spread * tensor_scale, -1, axis)  # (...)


def _nvfp4_codes(
    block_format: BlockFormat, blocks: np.ndarray, largest: np.ndarray, factor: float
) -> tuple[np.ndarray, np.ndarray]:
    """Scale and element codes. float64 quotients are near enough to be rounded again.

    A tie t of the destination (5 significant bits) times the divisor (24 + 4 bits) is an integer of at most 33 bits, the value
    one of 24: an unequal quotient is at least 2^-33 of itself away from t, and the first rounding moves it by 2^-53.
    """
    reach = block_format.element.largest * factor
    scales = encode(block_format.scale, np.asarray(largest / reach, np.float64), overflow=Overflow.SATURATE)  # (.., blocks)
    divisor = decode(block_format.scale, scales)[..., None] * factor  # (.., blocks, 1)
    usable = (divisor > 0) & np.isfinite(blocks)  # (.., blocks, block)
    quotient = np.divide(blocks, divisor, out=np.copysign(np.zeros(blocks.shape), blocks), where=usable)  # (.., blocks, block)
    quotient = np.where(np.isfinite(blocks).all(axis=-1, keepdims=True), quotient, 0.0)  # (.., blocks, block)
    return scales, encode(block_format.element, quotient, overflow=Overflow.SATURATE)


def _tensor_scale(largest: np.ndarray, given: float | None) -> float:
    """NVFP4's factor, checked or chosen so that the largest value meets 448 * 6; 1 for a tensor of zeros."""
    if given is not None:
        if not (given > 0 and np.isfinite(given) and float(np.float32(given)) == given):
            raise ValueError(f"a tensor scale is a positive finite fp32, got {given!r}")
        return float(given)
    top = float(largest.max(initial=0.0))
    if top == 0:
        return 1.0
    nearest = decode(FP32, encode(FP32, np.array(top / (NVFP4.scale.largest * NVFP4.element.largest))))  # ()
    return max(float(nearest), FP32.smallest)


def _require_fp32(values: np.ndarray) -> None:
    with np.errstate(over="ignore"):
        narrowed = values.astype(np.float32)  # (.., k)
    if not np.array_equal(narrowed, values, equal_nan=True):
        raise ValueError("NVFP4 is quantized from fp32 values: a float64 that fp32 cannot hold would be rounded twice")


def _blocks(along: np.ndarray, size: int) -> np.ndarray:
    """`along` (.., k) as float64 blocks (.., ceil(k / size), size), the last filled up with zeros."""
    missing = -along.shape[-1] % size
    padded = np.zeros((*along.shape[:-1], along.shape[-1] + missing))  # (.., k rounded up)
    with np.errstate(invalid="ignore"):
        padded[..., : along.shape[-1]] = along
    return padded.reshape(*along.shape[:-1], padded.shape[-1] // size, size)

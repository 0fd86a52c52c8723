"""Rows as elements and scales, in the words that the quantising kernel's plan gives: MX by OCP's rule, NVFP4 in fp32 steps.

`block_scaling.quantize` has both rules in real numbers. A plan of fp32 rounds 6 T, A / (6 T), s T and x / (s T) before the
conversions round again. Where the tensor's scale T is a power of two the products are exact, and a rounded quotient is a tie of the
conversion only where the quotient is one: both rules then give the same codes, as a test shows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bitverdict.reference.block_scaling import BLOCK_FORMATS, NVFP4, quantize, saturating_codes
from bitverdict.reference.formats import E2M1, E4M3, Format, decode
from bitverdict.reference.packing import pack
from bitverdict.reference.scalar_arithmetic import fp32

INFINITY = np.float32(np.inf)


Narrow = Callable[[Format, np.ndarray], np.ndarray]


def quantized_rows(
    format_name: str, x: np.ndarray, tensor_scale: float = 1.0, narrow: Narrow = saturating_codes
) -> tuple[np.ndarray, np.ndarray]:
    """Elements (rows, columns), or (rows, ceil(columns / 2)) bytes of e2m1, and scales (rows, blocks) of fp32 words x.
    `narrow`: how the kernel's conversion makes fp8 of fp32 values."""
    values = x.view(np.float32)  # (rows, columns)
    if format_name == NVFP4.name:
        elements, scales = nvfp4(values, np.array(tensor_scale, np.float32), narrow)
    else:
        found = quantize(BLOCK_FORMATS[format_name], values, narrow=narrow)
        elements, scales = found.elements, found.scales
    return (pack(elements) if BLOCK_FORMATS[format_name].element is E2M1 else elements), scales


def nvfp4(values: np.ndarray, tensor_scale: np.ndarray, narrow: Narrow = saturating_codes) -> tuple[np.ndarray, np.ndarray]:
    """Codes of elements (rows, columns) and scales (rows, blocks): `div.rn.f32` by 6 T, to e4m3, times T, `div.rn.f32` by that."""
    rows, columns = values.shape
    size = NVFP4.block_size
    blocks = np.pad(values, ((0, 0), (0, -columns % size))).reshape(rows, -(-columns // size), size)  # (rows, blocks, 16)
    finite = np.isfinite(blocks).all(axis=2)  # (rows, blocks)
    finite_blocks = np.where(finite[..., None], blocks, np.float32(0))  # (rows, blocks, 16)
    largest = np.abs(finite_blocks).max(axis=2)  # (rows, blocks)
    reach = fp32.multiply(np.array(E2M1.largest, np.float32), tensor_scale)
    scales = narrow(E4M3, fp32.divide(largest, reach))  # (rows, blocks)
    divisor = fp32.multiply(decode(E4M3, scales).astype(np.float32), tensor_scale)  # (rows, blocks)
    divisor = np.where(divisor > 0, divisor, INFINITY)[..., None]  # (rows, blocks, 1)
    quotient = fp32.divide(finite_blocks, divisor)  # (rows, blocks, 16)
    elements = saturating_codes(E2M1, quotient)  # (rows, blocks, 16)
    scales[~finite] = NVFP4.scale.nan_code
    return elements.reshape(rows, blocks.shape[1] * size)[:, :columns], scales

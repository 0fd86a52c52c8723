"""Values whose quantisation has something to decide: ties of an element format, their neighbours, and blocks at a tie of the scale.

A value drawn at random is next to no tie, so it cannot tell one rounding from another, nor a quotient from a product with the
reciprocal."""

from __future__ import annotations

import numpy as np

from bitverdict.reference.block_scaling import BLOCK_FORMATS
from bitverdict.reference.formats import FORMATS, Format, decode, encode

TIES = "ties"
"""A regime of its own, of kernels that quantise."""


def near_ties(block_format: str, dtype: str, shape: tuple[int, int], tensor_scale: float, rng: np.random.Generator) -> np.ndarray:
    """Codes of `dtype` (rows, columns). Each block has a largest element that decides its scale; of the others most lie on a tie
    under that scale, or one fp32 number beside it. NVFP4: one block in four is at a tie of the scale, one has the scale 0. MX: one
    in eight is zero, one has a subnormal as its largest element. One in twelve ends in a NaN or an infinity."""
    f, (rows, columns) = BLOCK_FORMATS[block_format], shape
    blocks = (rows, -(-columns // f.block_size), 1)
    if f.tensor_scale:
        steps = _numbers(f.scale)
        place = rng.integers(1, steps.size - 1, blocks)  # (rows, blocks, 1)
        divisor = (steps[place] * np.float64(np.float32(tensor_scale))).astype(np.float32).astype(np.float64)
        kind = rng.integers(0, 4, blocks)  # (rows, blocks, 1)
        between = (steps[place] + steps[place + 1]) / 2 * tensor_scale
        top = f.element.largest * np.select([kind == 0, kind == 1], [between, steps[1] * tensor_scale / 4], divisor)
    else:
        low, high = (-3, 1) if dtype == "fp16" else (-20, 20)
        kind = rng.integers(0, 8, blocks)  # (rows, blocks, 1)
        tiny = 2.0 ** (-FORMATS[dtype].bias - 4 - f.largest_exponent)
        divisor = np.select([kind == 0, kind == 1], [0.0, tiny], 2.0 ** rng.integers(low, high, blocks))
        large = 2.0**f.largest_exponent
        top = divisor * rng.choice([large, f.element.largest, 2 * large * (1 - 2.0**-9)], blocks)
    numbers = _numbers(f.element)
    ties = (numbers[1:] + numbers[:-1]) / 2
    values = rng.choice(ties, (*blocks[:2], f.block_size)) * divisor  # (rows, blocks, block)
    values = np.where((kind == 1) & f.tensor_scale, top * rng.uniform(0.1, 1, values.shape), values)  # (rows, blocks, block)
    values = np.minimum(values, top).astype(np.float32)
    values[..., :1] = top
    moved = np.maximum(values.view(np.int32) + rng.integers(-1, 2, values.shape, np.int32), 0)  # (rows, blocks, block)
    signed = moved.view(np.float32) * rng.choice(np.array([-1, 1], np.float32), values.shape)  # (rows, blocks, block)
    special = rng.choice(np.array([np.nan, np.inf, -np.inf], np.float32), blocks)  # (rows, blocks, 1)
    signed[..., -1:] = np.where(rng.random(blocks) < 1 / 12, special, signed[..., -1:])
    wide = signed.reshape(rows, blocks[1] * f.block_size)[:, :columns].astype(np.float64)  # (rows, columns)
    return encode(FORMATS[dtype], wide)


def _numbers(fmt: Format) -> np.ndarray:
    """The finite numbers of a format that are not negative, ascending."""
    return decode(fmt, np.arange(fmt.largest_code + 1, dtype=fmt.storage))

"""leaky_relu as the matmul kernels compile it, in fp32 and bit for bit.

The rule is y = x + 1, then y where y >= 0, else 0.01 y. On the GPU: one add, one ordered compare (false for NaN), one multiply by
the fp32 number nearest 0.01, one select; each arithmetic result is rounded to nearest even, subnormals are kept, and a NaN comes
out as 0x7FFFFFFF whatever went in (PTX ISA, `add.f32`, `mul.f32`).
"""

from __future__ import annotations

import numpy as np

SLOPE = np.float32(0.01)
SHIFT = np.float32(1.0)
NOT_A_NUMBER = np.uint32(0x7FFFFFFF)


def leaky_relu(words: np.ndarray) -> np.ndarray:
    """fp32 words (any shape, uint32) to fp32 words of the same shape."""
    if words.dtype != np.uint32:
        raise ValueError(f"leaky_relu takes fp32 words, uint32; got {words.dtype}")
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        shifted = words.view(np.float32) + SHIFT  # (...)
        result = np.where(shifted >= 0, shifted, shifted * SLOPE)  # (...)
    found = result.view(np.uint32).copy()  # (...)
    found[np.isnan(result)] = NOT_A_NUMBER
    return found


def leaky_relu_value(values: np.ndarray) -> np.ndarray:
    """The same rule on float64 values, slope the fp32 number: the exact result, to float64."""
    shifted = values + 1.0  # (...)
    return np.where(shifted >= 0, shifted, shifted * float(SLOPE))  # (...)

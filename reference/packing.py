"""Two 4-bit codes in a byte, along any axis: the even index in the low nibble, the odd one in the high nibble.

This is how PTX stores e2m1x2 and how Triton's `dot_scaled` and OCP MX libraries read fp4 operands. An odd length leaves the last
high nibble zero.
"""

from __future__ import annotations

import numpy as np

LARGEST_NIBBLE = 0xF


def pack(codes: np.ndarray, axis: int = -1) -> np.ndarray:
    """Bytes, uint8, with (length + 1) // 2 of them along `axis`, for 4-bit `codes` (uint8, any shape of one dimension or more).

    Raises ValueError for a code above 0xF, for another dtype and for an axis that is not there.
    """
    codes = _check_uint8(codes, "codes", axis)  # (.., length, ..)
    if codes.size and int(codes.max()) > LARGEST_NIBBLE:
        raise ValueError(f"{int(codes.max()):#x} does not fit four bits: encode to E2M1 before packing")
    along = np.moveaxis(codes, axis, -1)  # (.., length)
    low, high = along[..., 0::2], along[..., 1::2]  # (.., (length + 1) // 2), (.., length // 2)
    packed = low.copy()  # (.., (length + 1) // 2)
    packed[..., : high.shape[-1]] |= high << 4
    return np.ascontiguousarray(np.moveaxis(packed, -1, axis))


def unpack(packed_bytes: np.ndarray, axis: int = -1, *, length: int | None = None) -> np.ndarray:
    """The 4-bit codes of `packed` (uint8), `length` of them along `axis`: by default two a byte, or one less for an odd length.

    Raises ValueError for a length that `packed` cannot be the packing of.
    """
    packed_bytes = _check_uint8(packed_bytes, "packed bytes", axis)  # (.., bytes, ..)
    size = packed_bytes.shape[axis]
    length = 2 * size if length is None else length
    if (length + 1) // 2 != size:
        raise ValueError(f"{length} codes take {(length + 1) // 2} bytes along axis {axis}, got {size}")
    along = np.moveaxis(packed_bytes, axis, -1)  # (.., bytes)
    codes = np.stack((along & LARGEST_NIBBLE, along >> 4), axis=-1).reshape(*along.shape[:-1], 2 * size)  # (.., 2 * bytes)
    return np.ascontiguousarray(np.moveaxis(codes[..., :length], -1, axis))


def _check_uint8(array: np.ndarray, what: str, axis: int) -> np.ndarray:
    array = np.asarray(array)  # (...)
    if array.dtype != np.uint8:
        raise ValueError(f"{what} are uint8, got {array.dtype}")
    if not -array.ndim <= axis < array.ndim:
        raise ValueError(f"axis {axis} is not one of {array.ndim}")
    return array

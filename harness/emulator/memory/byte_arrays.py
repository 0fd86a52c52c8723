"""Arrays for the bytes of a memory: the unsigned type of each width, and zeros that take no memory before they are touched."""

from __future__ import annotations

import mmap

import numpy as np

UNSIGNED_TYPES: dict[int, np.dtype] = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.uint16),
    4: np.dtype(np.uint32),
    8: np.dtype(np.uint64),
}
LARGE_BYTES = 1 << 28  # bytes
NORESERVE = 0x4000  # MAP_NORESERVE of Linux (asm-generic/mman.h), which Python names from 3.13 on


def words_in(memory: np.ndarray, size: int) -> np.ndarray:
    """All of the bytes `memory` as unsigned words of `size` bytes."""
    return memory[: memory.size // size * size].view(UNSIGNED_TYPES[size])


def zeros(count: int, dtype: type) -> np.ndarray:
    """(count,) zeros; of many, what is never touched takes no memory, nor the promise of any."""
    size = count * np.dtype(dtype).itemsize
    if size < LARGE_BYTES:
        return np.zeros(count, dtype)
    return np.frombuffer(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE), dtype)

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
CHUNK = 1 << 20  # bytes looked at together
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


def copy_of(memory: np.ndarray) -> np.ndarray:
    """A copy of the bytes `memory`; of many, what is zero takes no memory."""
    if memory.size < LARGE_BYTES:
        return memory.copy()
    copy = zeros(memory.size, np.uint8)
    for start in range(0, memory.size, CHUNK):
        if _as_words_of_eight(chunk := memory[start : start + CHUNK]).any():
            copy[start : start + CHUNK] = chunk
    return copy


def different_places(one: np.ndarray, other: np.ndarray, size: int) -> np.ndarray:
    """Numbers of the words of `size` bytes that differ in the bytes `one` and `other`."""
    places = [np.zeros(0, np.int64)]
    for start in range(0, one.size, CHUNK):
        chunks = one[start : start + CHUNK], other[start : start + CHUNK]
        if not np.array_equal(_as_words_of_eight(chunks[0]), _as_words_of_eight(chunks[1])):
            a, b = (words_in(chunk, size) for chunk in chunks)
            places.append(np.flatnonzero(a != b) + start // size)
    return np.concatenate(places)


def _as_words_of_eight(memory: np.ndarray) -> np.ndarray:
    return memory if memory.size % 8 else words_in(memory, 8)

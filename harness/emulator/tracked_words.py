"""Words of a launch whose origin is followed: where they lie, their bits, and words of the same type to draw in their place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log2
from typing import TYPE_CHECKING

import numpy as np
import torch

from bitverdict.harness.emulator.memory.byte_arrays import UNSIGNED_TYPES

if TYPE_CHECKING:
    from bitverdict.harness.emulator.memory.global_memory import Region

RESOLUTION = 53  # bits of float64: chances below it are none
INTEGER_DTYPES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
TURNS = ((1.0, 5), (-1.0, 5), (1.0, -5), (-1.0, -5))
"""Signs and exponents that drawn words have in the first launches, turn by turn: a maximum or a limit passes no word each time."""
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(eq=False)
class Words:
    """Elements of one storage, or float arguments (`region` None), of type `dtype`: where they are, (n,) each."""

    region: Region | None
    dtype: torch.dtype
    first_byte: int  # the byte of the storage where elements begin
    places: np.ndarray  # (n,) elements from there
    numbers: np.ndarray  # (n,) uint8 origins

    def bits(self, raw: np.ndarray) -> np.ndarray:
        """(n,) unsigned: the words in the storage's bytes `raw`."""
        return as_words(raw, self.first_byte, self.dtype)[self.places]

    def only(self, chosen: np.ndarray) -> Words:
        """Those that are `chosen`, (n,)."""
        return replace(self, places=self.places[chosen], numbers=self.numbers[chosen])

    def with_origins(self, numbers: int | np.ndarray) -> Words:
        """These, of the origins `numbers`."""
        return replace(self, numbers=np.broadcast_to(np.asarray(numbers, np.uint8), self.places.shape))


def as_words(raw: np.ndarray, first: int, dtype: torch.dtype) -> np.ndarray:
    """(elements,) unsigned: a storage's bytes from `first` on."""
    count = (raw.size - first) // dtype.itemsize
    return raw[first : first + count * dtype.itemsize].view(UNSIGNED_TYPES[dtype.itemsize])


def as_bytes(raw: np.ndarray, first: int, dtype: torch.dtype) -> np.ndarray:
    """(elements, bytes of one) of a storage's bytes from `first` on."""
    count = (raw.size - first) // dtype.itemsize
    return raw[first : first + count * dtype.itemsize].reshape(count, dtype.itemsize)


def is_integer(dtype: torch.dtype) -> bool:
    """Whether words of the type may be indices or addresses."""
    return not dtype.is_floating_point and not dtype.is_complex


def entropy(dtype: torch.dtype) -> int:
    """The bits by which two drawn words of the type differ for certain: those of the mantissa."""
    if dtype is torch.bool:
        return 1
    if dtype.is_floating_point and dtype.itemsize > 1:
        return 1 - round(log2(torch.finfo(dtype).eps))
    return 3


def drawn(dtype: torch.dtype, count: int, generator: np.random.Generator, turn: int = 0) -> np.ndarray:
    """(count,) unsigned bits of words of `dtype`: any integers, finite floats of both signs and several exponents, or of those of
    one of the first turns, counted from 1."""
    kind = UNSIGNED_TYPES[dtype.itemsize]
    if dtype is torch.bool:
        return generator.integers(0, 2, count, np.uint8)
    if dtype.is_floating_point and dtype is not torch.float8_e8m0fnu:
        sign, exponent = (TURNS[turn - 1]) if 0 < turn <= len(TURNS) else (generator.choice((-1.0, 1.0), count), 0)
        values = sign * generator.uniform(1, 2, count) * 2.0 ** (exponent + generator.integers(-3, 4, count))
        values = values.astype(np.float32).astype(np.float64)  # what an argument holds
        return bits_of(values, dtype)
    return generator.integers(0, np.iinfo(kind).max, count, kind, endpoint=True)


def bits_of(values: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """(n,) unsigned: float64 `values` as words of a float type."""
    return torch.from_numpy(values).to(dtype).view(INTEGER_DTYPES[dtype.itemsize]).numpy().view(UNSIGNED_TYPES[dtype.itemsize])


def cast(bits: np.ndarray, dtype: torch.dtype, target: torch.dtype) -> np.ndarray | None:
    """`bits` of `dtype` as words of another type, as torch converts them; None where it does not."""
    if dtype is target:
        return bits
    try:
        held = torch.from_numpy(bits.copy().view(f"i{bits.itemsize}" if bits.itemsize > 1 else "u1")).view(dtype).to(target)
        return held.view(INTEGER_DTYPES[target.itemsize]).numpy().view(UNSIGNED_TYPES[target.itemsize])
    except (RuntimeError, TypeError, NotImplementedError):
        return None


def mix_hashes(hashes: np.ndarray, bits: np.ndarray) -> np.ndarray:
    """(n,) uint64: the hashes of words with one more."""
    mixed = (hashes ^ (hashes >> np.uint64(29))) * _MIX + bits.astype(np.uint64) + np.uint64(1)
    return mixed ^ (mixed >> np.uint64(32))

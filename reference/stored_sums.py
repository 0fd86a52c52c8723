"""Sums that are stored in a narrower type: a deliberate loss, which shows what a derived bound would see of it.

While `sums_in` is entered, the value of every sum and every matrix product of a traced reference, and of a bounded product, is
rounded once to that type. Every accumulator of that type ends in such a number, whatever it lost before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np

from bitverdict.reference.formats import FORMATS, Format, decode, encode


@dataclass
class StorageFormat:
    """Into which format sums go, and how many values were rounded so far."""

    format: Format
    count: int = 0


_storage: ContextVar[StorageFormat | None] = ContextVar("stored", default=None)


@contextmanager
def sums_in(name: str) -> Iterator[StorageFormat]:
    """While entered, sums are stored in format `name` ("bf16"). ValueError for a name that is none."""
    if name not in FORMATS:
        raise ValueError(f"no format {name!r}; there are {', '.join(FORMATS)}")
    made = StorageFormat(FORMATS[name])
    token = _storage.set(made)
    try:
        yield made
    finally:
        _storage.reset(token)


def store_sum(value: np.ndarray) -> np.ndarray:
    """`value` (float64, any shape) of a sum: as it is, or in the format that is entered."""
    into = _storage.get()
    if into is None:
        return value
    into.count += value.size
    with np.errstate(all="ignore"):
        return decode(into.format, encode(into.format, value))

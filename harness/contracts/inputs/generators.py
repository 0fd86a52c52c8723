"""Random generators of operands, by the data seed of a case."""

from __future__ import annotations

import zlib

import numpy as np


def generator(data_seed: int, name: str) -> np.random.Generator:
    """The generator of one operand: operands of one case are independent, whichever is drawn first."""
    return np.random.Generator(np.random.PCG64([data_seed, zlib.crc32(name.encode())]))

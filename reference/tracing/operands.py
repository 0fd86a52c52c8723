"""Operands of a reference: words in a format, or Python scalars, which stay what they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from bitverdict.reference.formats import FORMATS, decode
from bitverdict.reference.tracing.arrays import TracedArray
from bitverdict.reference.tracing.dtypes import WORDS, dtype_of
from bitverdict.reference.tracing.state import Trace


def operand(trace: Trace, given: object) -> Any:
    """A (format, codes) pair as a traced array; anything else unchanged."""
    if not (isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str) and isinstance(given[1], np.ndarray)):
        return given
    name, codes = given
    dtype = dtype_of(name)
    if dtype.kind == "bool":
        return TracedArray(trace, dtype, codes.astype(bool))
    if dtype.kind == "integer":
        width = np.dtype(dtype.storage_type).itemsize
        same = codes.dtype.itemsize == width and codes.dtype.kind in "iu"
        return TracedArray(
            trace, dtype, np.ascontiguousarray(codes).view(dtype.storage_type) if same else codes.astype(dtype.storage_type)
        )
    if codes.dtype.kind == "f":
        return TracedArray(trace, dtype, codes.astype(np.float64))
    if dtype.format == "fp64":
        return TracedArray(trace, dtype, np.ascontiguousarray(codes).view(np.float64))
    fmt = FORMATS[dtype.format]
    return TracedArray(trace, dtype, decode(fmt, np.ascontiguousarray(codes).view(WORDS[codes.dtype.itemsize])))

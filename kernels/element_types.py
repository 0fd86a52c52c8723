"""Names of element types, and what torch and Gluon call them.

The names are those of the model (`bitverdict.reference.formats`), so that a `Problem` goes through JSON and means the same
everywhere."""

from __future__ import annotations

from typing import NamedTuple

import torch
from triton.experimental.gluon import language as gl


class ElementType(NamedTuple):
    name: str
    torch: torch.dtype
    gluon: gl.dtype
    bits: int


ELEMENT_TYPES = {
    entry.name: entry
    for entry in (
        ElementType("fp32", torch.float32, gl.float32, 32),
        ElementType("fp16", torch.float16, gl.float16, 16),
        ElementType("bf16", torch.bfloat16, gl.bfloat16, 16),
        ElementType("e4m3", torch.float8_e4m3fn, gl.float8e4nv, 8),
        ElementType("e5m2", torch.float8_e5m2, gl.float8e5, 8),
        ElementType("int32", torch.int32, gl.int32, 32),
        ElementType("int16", torch.int16, gl.int16, 16),
        ElementType("int8", torch.int8, gl.int8, 8),
    )
}
_BY_TORCH = {entry.torch: entry for entry in ELEMENT_TYPES.values()}


def element_type(kind: str | torch.dtype) -> ElementType:
    """The record for a name or a torch dtype. ValueError with the known ones for anything else."""
    found = _BY_TORCH.get(kind) if isinstance(kind, torch.dtype) else ELEMENT_TYPES.get(kind)
    if found is None:
        raise ValueError(f"element type {kind!r}: not one that these kernels move; use one of {', '.join(ELEMENT_TYPES)}")
    return found


def bits_of(name: str) -> int:
    """Bits of one element; 0 for an unknown name, so that a clause can refuse it by value."""
    return ELEMENT_TYPES[name].bits if name in ELEMENT_TYPES else 0

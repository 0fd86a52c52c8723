"""As what elements a launch took the bytes of a storage: by its own loads and stores, whatever the storage was allocated as.

A launcher may allocate bytes, integers or complex numbers, and give a kernel a view of them as fp16. So the type of the allocation
says nothing of the words that the kernel passes on.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from bitverdict.harness.emulator.memory.global_memory import Region
    from bitverdict.harness.emulator.memory.provenance import Memory

_FLOATS = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "f8E4M3FN": torch.float8_e4m3fn,
    "f8E5M2": torch.float8_e5m2,
}
"""By their names in a tile program."""
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_FLOAT_TYPE = re.compile(r"\b(?:[0-9]+x)*(f16|bf16|f32|f64|f8E4M3FN|f8E5M2)\b")
_BITCAST = re.compile(r"bitcast\b.*(?:->|\bto)\s*(?:tensor<[0-9x]*)?(f16|bf16|f32|f64|f8E4M3FN|f8E5M2)\b")


class AccessTypes:
    """Of one launch, whose tile `program` says which floats it knows."""

    def __init__(self, program: str) -> None:
        self.named = {_FLOATS[name] for name in _FLOAT_TYPE.findall(program)}
        self.made_of_bits = {_FLOATS[name] for name in _BITCAST.findall(program)}

    def types_of(self, region: Region, memory: Memory) -> list[tuple[torch.dtype, int]]:
        """(type, first byte) of each way in which the launch took the elements of `region`, floats last; that of the allocation
        where it took none by itself, or by that type alone."""
        own = memory.dtype
        found: list[torch.dtype] = []
        for access in region.access_types:
            found += [own] if _is_access_of(own, access) else self._types_by_access(access)
            if access.kind in "iu":
                found += [each for each in self.made_of_bits if each.itemsize == access.itemsize]
        kinds = list(dict.fromkeys(found)) or [own]
        kinds.sort(key=lambda each: each.is_floating_point)
        return [(each, memory.first_byte if each is own else region.low % each.itemsize) for each in kinds]

    def _types_by_access(self, access: np.dtype) -> list[torch.dtype]:
        floats = [each for each in self.named if _is_access_of(each, access)]
        return floats or [_INTEGERS[access.itemsize]]


def _is_access_of(dtype: torch.dtype, access: np.dtype) -> bool:
    """Whether the emulated GPU takes elements of `dtype` as NumPy's `access`: floats below fp32 as their codes."""
    if dtype.itemsize != access.itemsize or dtype.is_complex:
        return False
    if dtype.is_floating_point:
        return access.kind == ("f" if dtype.itemsize >= 4 else "u")
    return access.kind == "i" or (access.kind == "u" and dtype in (torch.bool, torch.uint8))


__all__ = ["AccessTypes"]

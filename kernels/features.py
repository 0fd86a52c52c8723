"""What hardware a kernel needs, by feature and never by model number, and the shared memory that it may use.

A contract names the features its kernel requires; a target names those it has. An architecture is one line of `_FEATURES` and
one of `_SHARED_MEMORY`; the rest of its record is in `bitverdict.harness.model.architectures`.
Sources: PTX ISA 9.0, "Target ISA notes" of each instruction; Triton 3.9 where the compiler and not the chip decides
(`FP8_E4M3`: front end, which takes it for each AMD chip; `BLOCK_SCALED_MMA` counts only the instruction, not the compiler's
emulation).
"""

from __future__ import annotations

from enum import StrEnum


class Feature(StrEnum):
    """One ability of a GPU as a kernel may require it."""

    MMA_SYNC = "mma.sync"
    CP_ASYNC = "cp.async"
    FP8_E4M3 = "e4m3 as a type"
    WGMMA = "wgmma"
    MBARRIER = "mbarrier"
    TMA = "tensor memory accelerator"
    TCGEN05 = "tcgen05.mma"
    TENSOR_MEMORY = "tensor memory"
    TMA_GATHER = "TMA gather4"
    TMA_SCATTER = "TMA scatter4"
    BLOCK_SCALED_MMA = "block-scaled MMA"
    CLUSTERS = "thread block clusters"
    MFMA = "MFMA"
    XF32 = "MFMA xf32"
    F8F6F4_MODEL = "a public model of MFMA f8f6f4"  # this and the next are no chip's yet: contracts name them
    FP8_MODE_RULE = "a public rule of overflow in the mode FP16_OVFL"


_AMPERE = frozenset({Feature.MMA_SYNC, Feature.CP_ASYNC})
_ADA = _AMPERE | {Feature.FP8_E4M3}
_SM90 = _ADA | {Feature.MBARRIER, Feature.TMA, Feature.CLUSTERS}
_TCGEN05 = frozenset({Feature.TCGEN05, Feature.TENSOR_MEMORY, Feature.TMA_GATHER, Feature.TMA_SCATTER, Feature.BLOCK_SCALED_MMA})
_SM120 = _SM90 | {Feature.TMA_GATHER, Feature.BLOCK_SCALED_MMA}  # gather4 without scatter4, no tcgen05

_CDNA = frozenset({Feature.MFMA, Feature.FP8_E4M3})

_FEATURES: dict[str, frozenset[Feature]] = {
    "sm_80": _AMPERE,
    "sm_86": _AMPERE,
    "sm_87": _AMPERE,
    "sm_89": _ADA,
    "sm_90": _SM90 | {Feature.WGMMA},
    "sm_100": _SM90 | _TCGEN05,
    "sm_103": _SM90 | _TCGEN05,
    "sm_110": _SM90 | _TCGEN05,
    "sm_120": _SM120,
    "sm_121": _SM120,
    "gfx90a": _CDNA,
    "gfx942": _CDNA | {Feature.XF32},
    "gfx950": _CDNA,
}


_SMALL_BYTES, _A100, _LARGE_BYTES = 99 * 1024, 163 * 1024, 227 * 1024
_SHARED_MEMORY: dict[str, int] = {
    "sm_80": _A100,
    "sm_86": _SMALL_BYTES,
    "sm_87": _A100,
    "sm_89": _SMALL_BYTES,
    "sm_90": _LARGE_BYTES,
    "sm_100": _LARGE_BYTES,
    "sm_103": _LARGE_BYTES,
    "sm_110": _LARGE_BYTES,
    "sm_120": _SMALL_BYTES,
    "sm_121": _SMALL_BYTES,
    "gfx90a": 64 * 1024,
    "gfx942": 64 * 1024,
    "gfx950": 160 * 1024,
}
"""Bytes one program may use (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; AMD's CDNA ISA
documents, "LDS")."""


def architectures() -> tuple[str, ...]:
    """The names of all that are known, oldest first."""
    return tuple(_FEATURES)


def shared_memory_of(arch: str) -> int:
    """Bytes of shared memory that one program may use on ``sm_NN`` or ``gfxNNN``; ValueError for an architecture without a line."""
    features_of(arch)
    return _SHARED_MEMORY[arch]


def features_of(arch: str) -> frozenset[Feature]:
    """The features of ``sm_NN`` or ``gfxNNN``; ValueError (value, rule, remedy) for an architecture this table does not have."""
    try:
        return _FEATURES[arch]
    except KeyError:
        raise ValueError(
            f"architecture {arch!r}: not in the table of features; use one of {', '.join(_FEATURES)}, "
            "or add its line to kernels/features.py"
        ) from None

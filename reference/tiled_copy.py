"""What a tiled TMA copy expects: a box of a tensor at any coordinates, loaded or stored.

Rule (measured on an H200, sm_90, driver 580; PTX ISA, ``cp.async.bulk.tensor``, "Bounds checking"; the same on sm_100):

- load: elements outside the tensor are zero, below as well as above, in every dimension;
- store: rows outside above are not written, nor are columns past the unit of 16 bytes in which a row ends: a row is cut in whole
  units, so up to 15 bytes of padding after it are overwritten with the tile's own (H200, 2026-11-21: every element size and every
  residue of the width, 5,170 launches, byte by byte, kept in tests/hardware_words/tma_edges_h200.json; sm_100 assumed alike, no
  word). A reduction combines what lies there with the tile's own (H100, 2026-11-22: an addition to rows of 13 words). Any negative
  coordinate of a store is an illegal instruction;
- the innermost coordinate must be a multiple of 16 bytes, for both, or it is an illegal instruction;
- where the descriptor asks for NaN outside, a load fills in 0x7FF7 in each half-word (`nan_fill`; an H100's words of fp16, bf16,
  fp32, fp32 rounded to tf32 and fp64 in tiled copies, and of fp32 in im2col mode). The driver makes no such map of 8-bit elements;
- a load through a tensor map of TFLOAT32 rounds each fp32 element (`rounded_to_tf32`: 39,424 words of an H100, every exponent, none
  differs; sm_100 assumed alike). A store through one is taken to round nothing (assumed).

With Triton's iisan instrumentation the unaligned case becomes a device assert; a negative store stays an illegal instruction, since
iisan does not look at its sign. Before sm_90 there is no such instruction: refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

INFINITY = np.uint32(0x7F800000)  # the code of fp32
TF32_NAN = np.uint32(0x7FFFE000)  # of either sign and any payload
NAN_FILL = np.uint16(0x7FF7)  # of each half-word
ALIGNMENT = 16  # bytes, of the innermost coordinate, and of what a store cuts off at the end of a row


class Direction(Enum):
    """LOAD: global to shared memory. STORE: shared to global memory."""

    LOAD = "load"
    STORE = "store"


@dataclass(frozen=True)
class Fault:
    """What is expected instead of a result: the outcome by its name, and the rule that was broken."""

    outcome: str  # "illegal instruction" | "device assert" | "refused"
    reason: str


def capability(arch: str) -> int:
    """90 for "sm_90". ValueError for anything else."""
    if not arch.startswith("sm_") or not arch[3:].rstrip("af").isdigit():
        raise ValueError(f"architecture {arch!r}: name it like 'sm_90'")
    return int(arch[3:].rstrip("af"))


def alignment_fault(innermost: int, element_bytes: int, *, iisan: bool) -> Fault | None:
    """The fault expected for an innermost coordinate (elements) that is no multiple of 16 bytes."""
    if innermost * element_bytes % ALIGNMENT == 0:
        return None
    rule = f"innermost coordinate {innermost} is {innermost * element_bytes} bytes in: must be a multiple of {ALIGNMENT} bytes"
    return Fault("device assert" if iisan else "illegal instruction", rule)


def nan_fill(element_bytes: int) -> int | None:
    """The word of an element outside the tensor where NaN is asked for; None for elements of 1 byte, which have none."""
    return None if element_bytes < 2 else int.from_bytes(int(NAN_FILL).to_bytes(2, "little") * (element_bytes // 2), "little")


def rounded_to_tf32(codes: np.ndarray) -> np.ndarray:
    """fp32 `codes` (any shape, uint32) as TMA rounds them to 10 bits of fraction: to nearest even. Infinities stay; every NaN
    becomes `TF32_NAN`. Source: words of an H100 (tests/emulator/numerics/test_rounding_loads.py)."""
    half_less_one = (codes >> np.uint32(13) & np.uint32(1)) + np.uint32(0xFFF)  # (...) a carry moves on into the exponent
    rounded = codes + half_less_one & np.uint32(0xFFFFE000)  # (...)
    magnitude = codes & np.uint32(0x7FFFFFFF)  # (...)
    return np.where(magnitude < INFINITY, rounded, np.where(magnitude == INFINITY, codes, TF32_NAN))  # (...)


def fault(direction: Direction, origin: tuple[int, ...], element_bytes: int, arch: str, *, iisan: bool = False) -> Fault | None:
    """The fault expected for a box at `origin` (elements, innermost last), or None. ValueError for an unknown architecture name."""
    if capability(arch) < 90:
        return Fault("refused", f"cp.async.bulk.tensor needs sm_90 or later, not {arch}")
    misaligned = alignment_fault(origin[-1], element_bytes, iisan=iisan)
    if misaligned is not None:
        return misaligned
    if direction is Direction.STORE and min(origin) < 0:
        return Fault("illegal instruction", f"store at {origin}: no coordinate of a store may be negative")
    return None


def written_columns(columns: int, element_bytes: int) -> int:
    """Columns of a row of `columns` that a store may write: those of the tensor, and what is left of the last unit of 16 bytes.

    Columns past `columns` are padding of the row, whose stride is a multiple of 16 bytes; they get what the tile holds there.
    """
    return -(-columns * element_bytes // ALIGNMENT) * ALIGNMENT // element_bytes


def load(tensor: np.ndarray, origin: tuple[int, ...], box: tuple[int, ...]) -> np.ndarray:
    """The box at `origin`, zeros outside the tensor. Shape `box`; for coordinates that expect no fault."""
    result = np.zeros(box, tensor.dtype)
    inside = _overlap(tensor.shape, origin, box)
    if inside is not None:
        result[inside[1]] = tensor[inside[0]]
    return result


def store(tensor: np.ndarray, origin: tuple[int, ...], source: np.ndarray) -> np.ndarray:
    """A copy of the tensor with `source` written at `origin`; for coordinates that expect no fault.

    What happens to the padding after each row is not part of the tensor: `written_columns`.
    """
    result = tensor.copy()
    inside = _overlap(tensor.shape, origin, source.shape)
    if inside is not None:
        result[inside[0]] = source[inside[1]]
    return result


def _overlap(
    shape: tuple[int, ...], origin: tuple[int, ...], box: tuple[int, ...]
) -> tuple[tuple[slice, ...], tuple[slice, ...]] | None:
    """Where box and tensor meet, as slices of the tensor and of the box; None where they do not."""
    low = [max(0, start) for start in origin]
    high = [min(size, start + length) for size, start, length in zip(shape, origin, box, strict=True)]
    if any(a >= b for a, b in zip(low, high, strict=True)):
        return None
    in_tensor = tuple(slice(a, b) for a, b in zip(low, high, strict=True))
    in_box = tuple(slice(a - start, b - start) for a, b, start in zip(low, high, origin, strict=True))
    return in_tensor, in_box

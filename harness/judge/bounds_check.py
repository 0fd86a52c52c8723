"""What a launch did outside what it owns: bytes beside a view, in a gap of its strides, or an input that changed.

On the host every buffer is compared byte for byte. On a device one comparison an arena of inputs and one a guard band are queued
behind the launch, reduced to a flag each, and the flags are read at once: a kernel cannot forge what is computed after it ended.
Only what a flag accuses is read back, and the same comparison on the host then says what it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from bitverdict.harness.judge.far_views import Islands, map_zeros
from bitverdict.harness.model.verdict import Outcome

UNSIGNED_TYPES = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(frozen=True)
class OutOfBounds:
    """One thing a launch did outside what it owns."""

    outcome: Outcome
    message: str
    details: dict[str, Any]


@dataclass
class Arena:
    """All inputs of a case with their guard bands, and the same bytes as they were uploaded, on the same device where they fit."""

    arena_bytes: torch.Tensor  # (bytes,) uint8
    before: torch.Tensor | None = None  # (bytes,) uint8


@dataclass
class Buffer:
    """A view that was handed out, and the bytes around it. An input has `before`, or `upload_bytes` and `band` to make it of."""

    name: str
    storage: torch.Tensor  # (bytes,) uint8
    view: torch.Tensor
    start: int  # byte of the view's first element
    length: int  # bytes from the first element to the end of the last
    poison: int
    before: np.ndarray | None = None  # (bytes,) of an input, of its islands where it has some: it must not change
    upload_bytes: np.ndarray | None = None  # (bytes,) of an input, without its bands
    band: int = 0
    arena: Arena | None = None
    islands: Islands | None = None  # of a far view: the bytes that hold poison and are compared
    is_output: bool = False  # an input that is an output too: its elements may change
    unwritten: bool = False  # allocated, and full of one byte: nobody wrote its elements yet

    def as_uploaded(self) -> np.ndarray | None:
        """The bytes of an input's storage as they were uploaded; None of an output."""
        if self.upload_bytes is None:
            return self.before
        whole = np.full(self.storage.numel(), self.poison, np.uint8)  # (bytes,)
        whole[self.band : self.band + len(self.upload_bytes)] = self.upload_bytes
        return whole


def first_out_of_bounds(buffers: Sequence[tuple[Buffer, bool]]) -> OutOfBounds | None:
    """The first out-of-bounds write on buffers, each with whether it is to be compared where it is; None where there is none."""
    compared_buffers = [buffer for buffer, where in buffers if where]
    arenas = list({id(buffer.arena): buffer.arena for buffer in compared_buffers if buffer.arena is not None}.values())
    touched_arenas, under_test = _flag_changes(arenas, [buffer for buffer in compared_buffers if buffer.arena is None])
    for buffer, where in buffers:
        kept = buffer.arena
        if where and kept is not None:
            clean = kept.before is not None and id(kept) not in touched_arenas
        else:
            clean = where and id(buffer) not in under_test
        if not clean and (found := _out_of_bounds(buffer)) is not None:
            return found
    for arena in arenas:
        own = any(buffer.is_output for buffer in compared_buffers if buffer.arena is arena)
        if (
            id(arena) in touched_arenas and arena.before is not None and not own
        ):  # its inputs are as they were: what changed is the copy
            count = int((arena.arena_bytes != arena.before).sum())
            message = f"stray write far from every buffer: {count} bytes of the harness's own copy of the inputs"
            return OutOfBounds(Outcome.STRAY_WRITE, message, {"bytes": count})
    return None


def _flag_changes(arenas: list[Arena], outputs: list[Buffer]) -> tuple[set[int], set[int]]:
    """Which arenas differ from their copies, and which outputs have to be looked at, by id: one wait for the device for all."""
    flags: list[tuple[int, torch.Tensor]] = []  # id, () bool
    for arena in arenas:
        if arena.before is not None:
            flags.append((id(arena), (arena.arena_bytes.view(torch.int64) != arena.before.view(torch.int64)).any()))
    looked_at = set()
    for buffer in outputs:
        if not buffer.view.is_contiguous() or buffer.islands is not None:
            looked_at.add(id(buffer))  # for its gaps, and there are few such
            continue
        end = buffer.start + buffer.length
        flags += [(id(buffer), (band != buffer.poison).any()) for band in (buffer.storage[: buffer.start], buffer.storage[end:])]
    up = torch.stack([flag for _, flag in flags]).cpu().tolist() if flags else []
    raised = {key for (key, _), risen in zip(flags, up, strict=True) if risen}
    return raised, raised | looked_at


def _out_of_bounds(buffer: Buffer) -> OutOfBounds | None:
    current_bytes = buffer.storage.cpu().numpy() if buffer.islands is None else buffer.islands.gather(buffer.storage)  # (bytes,)
    before = buffer.as_uploaded()
    if before is not None:
        changed_bytes = current_bytes != before
        if buffer.is_output:
            changed_bytes &= _elements(buffer) == 0
    elif buffer.islands is not None:
        changed_bytes = (current_bytes != buffer.poison) & (_elements(buffer) == 0)
    else:
        changed_bytes = current_bytes != buffer.poison
        changed_bytes[buffer.start : buffer.start + buffer.length] = False
        if not buffer.view.is_contiguous():
            changed_bytes |= _in_gaps(buffer, current_bytes)
    if not changed_bytes.any():
        return None
    written_bytes = current_bytes[changed_bytes][:16]
    places = np.flatnonzero(changed_bytes) if buffer.islands is None else buffer.islands.places()[changed_bytes]
    itemsize = buffer.view.dtype.itemsize
    first, last_byte = (int(places[i]) - buffer.start for i in (0, -1))
    inside = [p for p in (first, last_byte) if 0 <= p < buffer.length]
    where = place_in(buffer, first)
    details = {
        "buffer": buffer.name,
        "first_byte": first,
        "last_byte": last_byte,
        "bytes": len(places),
        "shape": list(buffer.view.shape),
        "strides": list(buffer.view.stride()),
        "written": written_bytes.tolist(),
    }
    if before is not None and inside and not buffer.is_output:
        return OutOfBounds(Outcome.INPUT_CHANGED, f"input {buffer.name} changed: {len(places)} bytes, the first {where}", details)
    return OutOfBounds(
        Outcome.STRAY_WRITE,
        f"stray write beside {buffer.name}: {len(places)} bytes, the first {where}, "
        f"the last at element {last_byte // itemsize} from its start",
        details,
    )


def _elements(buffer: Buffer) -> np.ndarray:
    """(bytes,) of what is compared: not 0 where an element of the view lies."""
    owned = _owned_bytes(buffer)
    return owned if buffer.islands is None else buffer.islands.gather(torch.from_numpy(owned))


def _in_gaps(buffer: Buffer, now: np.ndarray) -> np.ndarray:
    """Bytes between the elements of a strided view that no longer hold poison."""
    owned = _owned_bytes(buffer)
    span = slice(buffer.start, buffer.start + buffer.length)
    gaps = np.zeros(now.shape, bool)  # (bytes,)
    gaps[span] = (owned[span] == 0) & (now[span] != buffer.poison)
    return gaps


def _owned_bytes(buffer: Buffer) -> np.ndarray:
    """(bytes,) uint8 of the buffer's storage: not 0 where an element of its view lies."""
    size, itemsize = buffer.storage.numel(), buffer.view.dtype.itemsize
    owned = np.zeros(size, np.uint8) if buffer.islands is None else map_zeros(size).numpy()  # (bytes,)
    if buffer.length:
        elements = owned[buffer.start : buffer.start + buffer.length].view(UNSIGNED_TYPES[itemsize])
        strides = [s * itemsize for s in buffer.view.stride()]
        np.lib.stride_tricks.as_strided(elements, tuple(buffer.view.shape), strides)[...] = np.iinfo(elements.dtype).max
    return owned


def place_in(buffer: Buffer, byte: int) -> str:
    """Where `byte`, counted from the first element of the view, lies, as a person reads it."""
    itemsize = buffer.view.dtype.itemsize
    if byte < 0:
        return f"{-byte} bytes before its start"
    if byte >= buffer.length:
        return f"{byte - buffer.length} bytes past its end"
    element, index = byte // itemsize, []
    for axis in np.argsort([-s for s in buffer.view.stride()], kind="stable"):
        stride = max(1, buffer.view.stride(int(axis)))
        index.append((int(axis), min(element // stride, buffer.view.shape[int(axis)] - 1)))
        element -= index[-1][1] * stride
    at = [i for _, i in sorted(index)]
    return f"at {at}" if element == 0 else f"{element} elements after {at}, in a gap of its strides"

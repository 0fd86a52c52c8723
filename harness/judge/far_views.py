"""Views that reach further than it is worth filling: rows a gigabyte apart, to meet offsets past 2^31.

On the host the buffer of such a view is mapped lazily (MAP_NORESERVE), so that only pages that are touched take memory. Poison is
put into *islands*, the pages around each run of elements and the bands at both ends, and only islands are compared afterwards. On
an emulated GPU every access is held to the view as well, so that nothing goes unseen between islands; on a real one a write there
is not seen, one to an address before the buffer is.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from bitverdict.harness.judge.devices import device_of
from bitverdict.harness.judge.machine_lock import exclusive
from bitverdict.harness.judge.out_of_memory import free_memory

if TYPE_CHECKING:
    from bitverdict.harness.model.targets import Target

FAR_BYTES = 1 << 30  # bytes: a longer buffer is one of islands where its elements are few
SPARSE_RATIO = 16  # of so many bytes one at most belongs to an element
PAGE = 4096  # bytes, around each run of elements
BEFORE = 1 << 35  # bytes: an offset that wraps at 32 bits lies at most 2^31 elements, of at most 16 bytes, before its buffer
NORESERVE = 0x4000  # MAP_NORESERVE of Linux (asm-generic/mman.h), which Python names from 3.13 on
MARGIN = 1 << 30  # bytes of a GPU that stay free beside the far operands and results of a case
PATIENCE = 60.0  # seconds for another process's far case
_ADMISSION: ContextVar[bool] = ContextVar("alone", default=False)  # a study admits a case whole, and then launches it


def map_zeros(size: int) -> torch.Tensor:
    """(size,) uint8 of zeros on the host; what is never touched takes no memory. Nothing else lies in the `BEFORE` bytes before it.
    OSError where there is no address space."""
    region = mmap.mmap(-1, BEFORE + size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE)
    return torch.frombuffer(region, dtype=torch.uint8, offset=BEFORE)


def is_far(span: int, elements: int) -> bool:
    """Whether a buffer of `span` bytes, of which `elements` bytes are elements, is filled and compared around them only."""
    return span > FAR_BYTES and span > SPARSE_RATIO * elements


@dataclass(frozen=True)
class Islands:
    """Runs [low, high) of a buffer's bytes, ascending and apart."""

    runs: tuple[tuple[int, int], ...]

    @classmethod
    def around(cls, size: int, band: int, start: int, shape: Sequence[int], strides: Sequence[int], itemsize: int) -> Islands:
        """Of a buffer of `size` bytes: `band` at both ends, and pages around the elements of a view from byte `start` on with
        `strides` in bytes."""
        inner, offsets = itemsize, np.zeros(1, np.int64)
        for stride, count in sorted(zip(strides, shape, strict=True)):
            if stride <= inner + 2 * PAGE and offsets.size == 1:
                inner += (count - 1) * stride
            else:
                offsets = (offsets[:, None] + np.arange(count) * stride).reshape(-1)
        lows = (start + np.sort(offsets)) // PAGE * PAGE - PAGE
        highs = -(-(start + np.sort(offsets) + inner) // PAGE) * PAGE + PAGE
        runs: list[tuple[int, int]] = [(0, band)]
        for low, high in [*zip(lows.tolist(), highs.tolist(), strict=True), (size - band, size)]:
            low, high = max(low, 0), min(high, size)
            if low <= runs[-1][1]:
                runs[-1] = runs[-1][0], high
            else:
                runs.append((low, high))
        return cls(tuple(runs))

    def fill(self, storage: torch.Tensor, value: int) -> None:
        """Put `value` into every byte of the islands of `storage` (bytes,)."""
        held = storage.numpy() if storage.device.type == "cpu" else storage
        for low, high in self.runs:
            held[low:high] = value

    def gather(self, storage: torch.Tensor) -> np.ndarray:
        """The islands of `storage` (bytes,), one behind the other, on the host."""
        if storage.device.type == "cpu":
            return np.concatenate([storage.numpy()[low:high] for low, high in self.runs])
        result: np.ndarray = torch.cat([storage[low:high] for low, high in self.runs]).cpu().numpy()
        return result

    def places(self) -> np.ndarray:
        """Where in the storage each byte of `of` lies."""
        return np.concatenate([np.arange(low, high) for low, high in self.runs])


def is_admitted() -> bool:
    """Whether this thread has been admitted to a GPU."""
    return _ADMISSION.get()


@contextmanager
def admit_bytes(
    needed_bytes: int, target: Target, *, purpose: str = "operands and results", wait: float | None = None
) -> Iterator[str]:
    """Room for `needed_bytes` of operands and results while entered, held by one process of a machine at a time on a GPU, which
    others await for `wait` seconds (None: `PATIENCE`).

    Where this thread has been admitted already, it has room.

    Yields why there is none, in a sentence that says what needs the room (`purpose`), or an empty text.
    """
    if not needed_bytes or _ADMISSION.get():
        yield ""
        return
    request = f"{needed_bytes / 2**30:.1f} GiB of {purpose}"
    if target.emulated:
        try:
            map_zeros(needed_bytes)
        except OSError as error:
            yield f"{request}: this machine does not map so much address space ({error.strerror})"
            return
        yield ""
        return
    wait = PATIENCE if wait is None else wait
    with exclusive(f"far {target.uuid or target.name}", wait=wait) as mine:
        if not mine:
            yield f"{request}: another process judged a case that needs as much on {target.name} for {wait:g} s"
            return
        free_memory()
        free, total = torch.cuda.mem_get_info(device_of(target))
        short = free < needed_bytes + MARGIN
        _ADMISSION.set(True)
        try:
            yield f"{request}: {free / 2**30:.1f} of {total / 2**30:.1f} GiB are free on {target.name}" if short else ""
        finally:
            _ADMISSION.set(False)  # as it was, or this thread would have been here no more; and a thread may enter for another
            free_memory()  # what torch keeps of it is nobody else's

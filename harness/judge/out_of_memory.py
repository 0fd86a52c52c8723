"""Running out of memory: how it is known, what is said of it, and what is freed before a case is tried once more.

It is an outcome that is inconclusive: whose memory it was, the kernel's, another worker's or another program's, cannot be told.
"""

from __future__ import annotations

import contextlib
import gc
import re
import sys

_SAID_BY_DEVICE = re.compile(r"CUDA.*out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation", re.IGNORECASE)
_ALLOCATION_SIZE = re.compile(r"[Tt]ried to allocate ([\d.]+ ?\w*?B|\d+ bytes)|[Uu]nable to allocate ([\d.]+ \w+)")
_FREE = re.compile(r"of which ([\d.]+ \w+) is free")
_ON_DEVICE = (
    "fewer workers on this GPU (BITVERDICT_GPU_SLOTS for pytest, --jobs for run), no other program on it, or a smaller case"
)
_ON_HOST = "fewer workers (--jobs, pytest -n) or a smaller case"


def out_of_memory(error: BaseException) -> str:
    """What to say of `error` if it says that memory is short, with the bytes asked and free and the remedy; else empty.

    Triton's OutOfResources is none: shared memory is the kernel's own to fit in.
    """
    from bitverdict.harness.emulator.faults import host_memory_is_short  # the command line imports this module before torch

    names = {kind.__name__ for kind in type(error).__mro__}
    text = str(error)
    if "OutOfResources" in names:
        return ""
    on_device = "OutOfMemoryError" in names or bool(_SAID_BY_DEVICE.search(text.partition("\n")[0]))
    on_host = host_memory_is_short(error)
    if not on_device and not on_host:
        return ""
    asked, free = _ALLOCATION_SIZE.search(text), _FREE.search(text)
    said = [f"{next(filter(None, asked.groups()))} requested"] if asked else []
    if on_device:
        left = free[1] if free else _free_on_device()
        said += [f"{left} free"] if left else []
    told = f" ({', '.join(said)})" if said else ""
    where, remedy = ("GPU", _ON_DEVICE) if on_device else ("host", _ON_HOST)
    return f"out of memory on the {where}{told}: says nothing about the kernel; remedy: {remedy}"


def free_memory() -> None:
    """Free what this process holds and does not use, on the host and in torch's cache of the device."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        with contextlib.suppress(RuntimeError):  # a context that is gone: the second try says so
            torch.cuda.empty_cache()


def _free_on_device() -> str:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return ""
    try:
        free, total = torch.cuda.mem_get_info()
    except RuntimeError:  # a context that is gone has no memory to tell of
        return ""
    return f"{free / 2**30:.2f} of {total / 2**30:.2f} GiB"

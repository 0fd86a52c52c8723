"""The GPUs that CUDA shows to a process, as a line of JSON: a worker of `bitverdict.harness.model.targets`, which itself stays
clear of CUDA.

A row: arch, model, uuid (the driver's, of the MIG slice where there is one: equal in every process, whatever order
CUDA_VISIBLE_DEVICES gives), free and total bytes. Memory is asked of NVML, the driver's own library, which needs no context; where
it is silent, of CUDA. Libraries are called by ctypes: there is nothing to install.
"""

from __future__ import annotations

import ctypes
import json
import uuid


class _Memory(ctypes.Structure):
    """nvmlMemory_t (NVML API reference, Device Queries): bytes."""

    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def identity(index: int) -> str:
    """The UUID of CUDA's device `index`, of its MIG slice where it is one (CUDA driver API, cuDeviceGetUuid_v2); "" if unknown."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        held, device = (ctypes.c_ubyte * 16)(), ctypes.c_int()
        asked = (driver.cuInit(0), driver.cuDeviceGet(ctypes.byref(device), index), driver.cuDeviceGetUuid_v2(held, device))
    except (OSError, AttributeError):
        return ""
    return "" if any(asked) else str(uuid.UUID(bytes=bytes(held)))


def memory(name: str) -> tuple[int, int] | None:
    """(free, total) bytes of the device with UUID `name`, by NVML; None where that does not say."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        if library.nvmlInit_v2():
            return None
        for kind in ("GPU", "MIG"):
            handle, told = ctypes.c_void_p(), _Memory()
            if library.nvmlDeviceGetHandleByUUID(f"{kind}-{name}".encode(), ctypes.byref(handle)):
                continue
            if not library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(told)):
                return told.free, told.total
    except (OSError, AttributeError):
        pass
    return None


def rows() -> list[dict]:
    """A row for each visible GPU, in CUDA's order."""
    import torch

    found = []
    for index in range(torch.cuda.device_count() if torch.version.cuda else 0):
        major, minor = torch.cuda.get_device_capability(index)
        name = identity(index)
        free, total = memory(name) or torch.cuda.mem_get_info(index)
        model = torch.cuda.get_device_name(index)
        found.append({"arch": f"sm_{major}{minor}", "model": model, "uuid": name, "free": free, "total": total})
    return found


if __name__ == "__main__":
    print(json.dumps(rows()))

"""The GPUs that CUDA shows to a process, as a line of JSON: a worker of `bitverdict.harness.model.targets`, which itself stays
clear of CUDA.

A row: arch, model, uuid (the driver's, of the MIG slice where there is one: equal in every process, whatever order
CUDA_VISIBLE_DEVICES gives), free and total bytes. Memory is asked of NVML, the driver's own library, which needs no context; where
it is silent, of CUDA. Libraries are called by ctypes: there is nothing to install.
"""

from __future__ import annotations

import ctypes
import json
import os
import runpy
import uuid
from importlib.util import find_spec
from typing import Any

COMPUTE_CAPABILITY = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR (CUDA driver API, CUdevice_attribute)."""
NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE (CUDA driver API, CUresult)


class _Memory(ctypes.Structure):
    """nvmlMemory_t (NVML API reference, Device Queries): bytes."""

    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def _attribute(driver: ctypes.CDLL, device: ctypes.c_int, attribute: int) -> int:
    """CUDA driver API, cuDeviceGetAttribute; RuntimeError with the status where it fails."""
    held = ctypes.c_int()
    _check_status("cuDeviceGetAttribute", driver.cuDeviceGetAttribute(ctypes.byref(held), attribute, device))
    return held.value


def _check_status(function: str, status: int) -> None:
    if status:
        raise RuntimeError(f"{function} gave CUDA error {status}; see nvidia-smi")


def identity(driver: ctypes.CDLL, device: ctypes.c_int) -> str:
    """The UUID of a device, of its MIG slice where it is one (CUDA driver API, cuDeviceGetUuid_v2); "" if unknown."""
    held = (ctypes.c_ubyte * 16)()
    try:
        return "" if driver.cuDeviceGetUuid_v2(held, device) else str(uuid.UUID(bytes=bytes(held)))
    except AttributeError:
        return ""


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


def built_for() -> str:
    """What the installed torch is built for, "cuda", "hip" or "", by its file of versions: torch takes seconds to import."""
    spec = find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return ""
    versions = runpy.run_path(os.path.join(spec.submodule_search_locations[0], "version.py"))
    return next((name for name in ("cuda", "hip") if versions.get(name)), "")


def rows() -> list[dict[str, Any]]:
    """A row for each visible GPU, in CUDA's order; none without a driver. RuntimeError where the driver fails."""
    maker = built_for()
    if maker != "cuda":
        return rows_of_hip() if maker else []
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    if (status := driver.cuInit(0)) == NO_DEVICE:
        return []
    _check_status("cuInit", status)
    count, gpu_rows = ctypes.c_int(), []
    _check_status("cuDeviceGetCount", driver.cuDeviceGetCount(ctypes.byref(count)))
    for index in range(count.value):
        device, model = ctypes.c_int(), ctypes.create_string_buffer(256)
        _check_status("cuDeviceGet", driver.cuDeviceGet(ctypes.byref(device), index))
        _check_status("cuDeviceGetName", driver.cuDeviceGetName(model, len(model), device))
        major, minor = (_attribute(driver, device, attribute) for attribute in COMPUTE_CAPABILITY)
        name = identity(driver, device)
        free, total = memory(name) or _memory_by_torch(index)
        gpu_rows.append({"arch": f"sm_{major}{minor}", "model": model.value.decode(), "uuid": name, "free": free, "total": total})
    return gpu_rows


def rows_of_hip() -> list[dict[str, Any]]:
    """The same of a torch that is built for ROCm, asked of torch: an architecture is gfx942, without what follows its colon
    ("gfx942:sramecc+:xnack-"). No AMD GPU was run."""
    import torch

    gpu_rows = []
    for index in range(torch.cuda.device_count()):
        told = torch.cuda.get_device_properties(index)
        free, total = torch.cuda.mem_get_info(index)
        name = str(getattr(told, "uuid", ""))
        arch = str(told.gcnArchName).partition(":")[0]
        gpu_rows.append({"arch": arch, "model": told.name, "uuid": name, "free": free, "total": total})
    return gpu_rows


def _memory_by_torch(index: int) -> tuple[int, int]:
    import torch

    free, total = torch.cuda.mem_get_info(index)
    return int(free), int(total)


if __name__ == "__main__":
    print(json.dumps(rows()))

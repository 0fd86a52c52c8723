"""A Triton driver that answers for a GPU which is not there, and keeps what is compiled for it instead of running it.

A launch under it is made as a user makes it, on CPU tensors, so that host tensor descriptors, specialisation and the launcher's own
choices are those of a real launch.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bitverdict.harness.model.architectures import ARCHITECTURES


@dataclass
class CompiledKernel:
    """One compiled kernel: its machine code, its assembly text, and Triton's metadata."""

    binary: bytes
    assembly: str
    metadata: dict[str, Any]


class _Utils:
    """What a driver answers about a device, for one that is not there."""

    def __init__(self, arch: str, kept: list[CompiledKernel]) -> None:
        self.arch, self.kept = arch, kept
        self.files: dict[str, str] = {}

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[object, ...]:
        by_suffix = {Path(path).suffix: Path(path) for path in self.files.values()}
        text = by_suffix.get(".ptx") or by_suffix[".amdgcn"]
        self.kept.append(CompiledKernel(kernel, text.read_text(), json.loads(by_suffix[".json"].read_text())))
        return "module", "function", 0, 0, 1024  # the last: most threads of a program

    def unload_module(self, module: object) -> None:
        """Nothing was loaded."""

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {
            "max_shared_mem": shared_limit(self.arch),
            "multiprocessor_count": 8,
            "warpSize": 64 if self.arch.startswith("gfx") else 32,
            "max_num_regs": 65536,
        }


_devices = itertools.count(1)  # every row is a device of its own: Triton keeps compiled kernels, and their target, by device


@contextmanager
def capture_compilations(arch: str, *, tries: bool = False) -> Iterator[list[CompiledKernel]]:
    """While entered, launches compile for `arch` and are kept instead of run; yields the list of what was kept.

    With `tries` an autotuner has each of its configurations compiled, as one on a GPU that times them; else it takes the first."""
    import torch
    from triton import knobs
    from triton.backends.compiler import GPUTarget
    from triton.backends.driver import DriverBase
    from triton.runtime import driver

    kernels: list[CompiledKernel] = []
    utilities = _Utils(arch, kernels)
    number = next(_devices)
    target = GPUTarget("hip", arch, 64) if arch.startswith("gfx") else GPUTarget("cuda", int(arch.removeprefix("sm_")), 32)

    class Launcher:
        def __init__(self, source: object, metadata: object) -> None:
            """Nothing to prepare."""

        def __call__(self, *arguments: object) -> None:
            """Nothing runs."""

    class Driver(DriverBase):  # type: ignore[misc]  # mypy does not follow Triton
        utils, launcher_cls = utilities, Launcher

        def __init__(self) -> None:
            """No device to look for."""

        @classmethod
        def is_active(cls) -> bool:
            return True

        def map_python_to_cpp_type(self, ty: str) -> str:
            return ty

        def get_current_target(self) -> GPUTarget:
            return target

        def get_current_device(self) -> int:
            return number

        def get_current_stream(self, device: int = 0) -> int:
            return 0

        def get_active_torch_device(self) -> torch.device:
            return torch.device("cpu")

        def get_benchmarker(self) -> Callable[..., list[float]]:
            return time_function

        def get_device_interface(self) -> Any:
            return torch.cpu

    def time_function(function: Callable[[], object], **_: object) -> list[float]:
        if tries:
            function()
        return [0.0, 0.0, 0.0]

    def on_load(module: object, function: object, name: str, files: dict[str, str], digest: str) -> None:
        utilities.files = files

    before, hook = driver._active, knobs.runtime.kernel_load_start_hook
    driver.set_active(Driver())
    knobs.runtime.kernel_load_start_hook = on_load
    try:
        yield kernels
    finally:
        driver._active = before
        knobs.runtime.kernel_load_start_hook = hook


def shared_limit(arch: str) -> int:
    """Bytes of shared memory one program may have; of AMD's local data share for gfx."""
    return ARCHITECTURES[arch].shared_memory if arch in ARCHITECTURES else 64 * 1024

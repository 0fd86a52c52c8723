"""The driver that Triton sees while an emulated GPU is entered.

    with emulated("sm_90") as device:
        kernel[grid](a, b, c, ...)          # CPU tensors; compiled by the real compiler, executed here

The driver answers for the target, `stop_compiler` stops the compiler at the tile program, `_Launcher` hands it to the `Device`.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import triton.experimental.gluon  # noqa: F401  (Triton imports it in a process's first launch)
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.compiler.compiler import max_shared_mem
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from bitverdict.harness.emulator import layout_classes  # noqa: F401  (what it does it does at import)
from bitverdict.harness.emulator.autotuner_choices import apply_tuning, check_tuning, several
from bitverdict.harness.emulator.benchmark_runs import run_benchmarks_once
from bitverdict.harness.emulator.compiled_kernel import KernelMetadata, return_emulated_kernels
from bitverdict.harness.emulator.compiler_digest import install
from bitverdict.harness.emulator.cuda_graphs import captured_launch
from bitverdict.harness.emulator.cuda_runtime import answer_torch_cuda
from bitverdict.harness.emulator.cuda_tensors import CUDA
from bitverdict.harness.emulator.device import Device, LaunchOptions
from bitverdict.harness.emulator.faults import EmulatedFault, raise_for_the_launcher
from bitverdict.harness.emulator.frontend.arguments import program_arguments, refuse_cpu_tensors
from bitverdict.harness.emulator.frontend.hints import compiled_in
from bitverdict.harness.emulator.frontend.stop_compiler import Stages
from bitverdict.harness.emulator.kernel_traceback import at_the_kernel
from bitverdict.harness.emulator.mlir_reader import escape
from bitverdict.harness.emulator.residency import check_grid
from bitverdict.harness.model.torch_internals import FunctionModesOff

if TYPE_CHECKING:
    from triton.compiler import ASTSource


class _Utils:
    """What Triton asks of a driver's `utils`."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[None, bytes, int, int, int]:
        return None, kernel, 0, 0, 1024  # no module to unload; the program's text; registers, spills, most threads

    def unload_module(self, module: object) -> None: ...

    def get_device_properties(self, device: int) -> dict[str, int]:
        chip = self.device.chip
        return {
            "max_shared_mem": self.device.architecture.shared_memory,
            "multiprocessor_count": self.device.multiprocessors,
            "warpSize": self.device.architecture.threads_per_warp,
            "max_num_regs": chip.multiprocessors.registers,
            "sm_clock_rate": chip.clock,
            "mem_clock_rate": chip.memory_clock,
            "mem_bus_width": chip.bus,
        }


class _Launcher:
    """One compiled kernel's way onto the device."""

    def __init__(self, source: ASTSource, metadata: KernelMetadata) -> None:
        self.source, self.signature, self.metadata = source, dict(source.signature), metadata
        kernel = getattr(getattr(source, "fn", None), "fn", None)
        self.file = kernel.__code__.co_filename if kernel is not None else ""
        self.program: bytes | None = None

    def __call__(
        self,
        x: int,
        y: int,
        z: int,
        stream: int,
        function: bytes,
        packed: Any,
        launch_metadata: Any,
        enter: Any,
        leave: Any,
        *values: Any,
    ) -> None:
        check_grid((x, y, z))
        if len(values) != len(self.signature):  # a compiled kernel takes all parameters, in place
            takes = f"{self.metadata.name} takes {len(self.signature)} arguments ({', '.join(self.signature)})"
            raise_for_the_launcher(TypeError(f"{takes}, {len(values)} were given"))
        passed_arguments = [
            part
            for (name, kind), value in zip(self.signature.items(), values, strict=True)
            for part in program_arguments(kind, name, value)
        ]
        if self.program is None:
            self.program = _relocate(function, self.file)
        device = driver.active.device
        if not device.options.takes_cpu_tensors:
            refuse_cpu_tensors([v for _, v in passed_arguments])
        with FunctionModesOff():  # what the emulator itself asks of torch is nobody's allocation
            if (fault := compiled_in(self.source, values)) is not None:
                raise device.record_finding(fault)
            for probe in device.options.probes:
                probe.on_request(self.source, self.metadata, (x, y, z), values)
            names, given_values = [name for name, _ in passed_arguments], [value for _, value in passed_arguments]
            program, metadata, constants = self.program, self.metadata, self._constants()
            captured_launch(lambda: device.run(program, metadata, (x, y, z), names, given_values, constants), values)

    def _constants(self) -> dict[str, int]:
        """The integers that the kernel was compiled for, by parameter."""
        names, found = list(self.signature), getattr(self.source, "constants", None) or {}
        return {names[place[0]]: value for place, value in found.items() if len(place) == 1 and type(value) is int}


def _relocate(program: bytes, file: str) -> bytes:
    """`program` with the lines of the kernel's own `file`. Triton's cache goes by source, not by place: what it hands out may have
    been compiled from a copy of the file that lay elsewhere."""
    end = re.search(rb"^  \}\).*loc\((#loc\d*)\)$", program, re.MULTILINE)  # of the first function: the kernel
    found = end and re.search(rb"^" + end[1] + rb' = loc\("([^"]+)":', program, re.MULTILINE)
    here = escape(file).encode()
    if not file or not found or found[1] == here:
        return program
    return program.replace(b'"' + found[1] + b'":', b'"' + here + b'":').replace(found[1] + b":", here + b":")


class EmulatedDriver(DriverBase):
    """Triton's view of a `Device`."""

    def __init__(self, device: Device) -> None:
        self.device, self.utils, self.launcher_cls = device, _Utils(device), _Launcher

    @classmethod
    def is_active(cls) -> bool:
        return False

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_target(self) -> GPUTarget:
        machine = self.device.architecture
        return GPUTarget(machine.backend, self.device.backend.target(machine.name), machine.threads_per_warp)

    def get_current_device(self) -> int:
        return 0  # torch's number, by which launchers read `device_caches`

    def set_current_device(self, device: int) -> None: ...

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        return divmod(self.device.capability, 10)

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    @property
    def takes_cpu_tensors(self) -> bool:
        return self.device.options.takes_cpu_tensors

    def get_active_torch_device(self) -> Any:
        return CUDA

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_benchmarker(self) -> Callable[..., list[float]]:
        return several

    def get_empty_cache_for_benchmark(self) -> Any:
        return None

    def clear_cache(self, cache: object) -> None: ...


class _DeviceCaches:
    """`JITFunction.device_caches`, what a kernel is compiled to by device. Each emulated GPU is device 0, so an architecture has a
    table of its own, and a real GPU's is untouched."""

    def __get__(self, kernel: JITFunction, _owner: object = None) -> dict:
        device = emulated_device()
        if device is None:
            return kernel.__dict__["device_caches"]
        tables = kernel.__dict__.setdefault("emulated_device_caches", defaultdict(lambda: defaultdict(kernel.create_binder)))
        return tables[device.arch]

    def __set__(self, kernel: JITFunction, table: dict) -> None:
        kernel.__dict__["device_caches"] = table


@contextmanager
def emulated(
    arch: str, schedule: str = "eager", tuning: str = "", options: LaunchOptions | None = None, *, prints_once: bool = False
) -> Iterator[Device]:
    """Within the block, launches run on an emulated `arch` ("sm_80", "emulated:sm_90", "gfx942"), and `torch.cuda` answers for it.

    Tensors are of `device="cuda"`; CPU tensors are taken too, unless `options` forbid it.

    - `schedule`: when asynchronous operations land: "eager", "latest" or "drawn:<seed>"; with " on 2", on two multiprocessors.
    - `tuning`: the configuration that autotuners take: "" the first that fits, "first", "config <n>", or "runs": they tune.
    - `prints_once`: `tl.device_print` prints each element once; on a GPU, each thread that holds an element prints it.

    ValueError for another arch, schedule or tuning.
    """
    options = options or LaunchOptions()
    options = replace(options, prints_once=prints_once or options.prints_once)
    with driven(Device(str(arch).removeprefix("emulated:"), schedule, options), tuning) as device:
        yield device


@contextmanager
def driven(device: Device, tuning: str = "") -> Iterator[Device]:
    """As `emulated`, of a `device` that is there."""
    device.tuning = check_tuning(tuning)
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # unset it warns in Triton 3.9 and flips in 3.10: it decides bits
    install()
    JITFunction.device_caches = _DeviceCaches()
    own = EmulatedDriver(device)
    before, hook = driver._active, knobs.runtime.add_stages_inspection_hook
    driver.set_active(own)
    max_shared_mem.cache_clear()  # kept by the number of the device, which all emulated GPUs and the first real one share
    knobs.runtime.add_stages_inspection_hook = Stages()
    try:
        with (
            apply_tuning(tuning, several) as device.tuned,
            return_emulated_kernels(),
            run_benchmarks_once(device),
            answer_torch_cuda(device),
        ):
            yield device
    except EmulatedFault as fault:
        at_the_kernel(fault)
        raise
    finally:
        driver._active = before
        max_shared_mem.cache_clear()
        knobs.runtime.add_stages_inspection_hook = hook


def emulated_device() -> Device | None:
    """The `Device` whose block this is; None where launches go to a real GPU."""
    active = driver._active
    return active.device if isinstance(active, EmulatedDriver) else None


__all__ = ["EmulatedDriver", "driven", "emulated", "emulated_device"]

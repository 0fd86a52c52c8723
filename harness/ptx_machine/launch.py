"""Launching a PTX kernel on the emulated GPU that is active: `bv.ptx_kernel(TEXT)[grid, block](tensor, 5)`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import cast

import numpy as np
import triton

from bitverdict.harness.emulator.advice import Advice, Note
from bitverdict.harness.emulator.device import Device, Launch
from bitverdict.harness.emulator.faults import BadArgument, EmulatedFault
from bitverdict.harness.emulator.frontend.arguments import bytes_of, host_descriptor
from bitverdict.harness.emulator.memory.byte_arrays import copy_of, different_places
from bitverdict.harness.emulator.memory.global_memory import GlobalMemory, Region
from bitverdict.harness.emulator.memory.tensor_maps import HostDescriptor
from bitverdict.harness.emulator.ptx.opcodes import DTYPES, UnknownOpcode, Words
from bitverdict.harness.emulator.ptx.text import NotPtx
from bitverdict.harness.emulator.triton_driver import emulated_device
from bitverdict.harness.ptx_machine.memory import GlobalSpace, Observer
from bitverdict.harness.ptx_machine.program import KernelProgram, Parameter, read_kernel
from bitverdict.harness.ptx_machine.tensor_maps import TensorMap, map_of_argument
from bitverdict.harness.ptx_machine.threads import LaunchShape, run_kernel

MOST_THREADS = 1024  # of a CTA
SLOW, FAST = 32, 1 << 20  # by which a clock goes on when it is read, in ns or cycles: words must be the same
MOST_CTAS = 16  # of a cluster (8 without a permission of the kernel's)


@dataclass(frozen=True)
class PtxKernel:
    """A kernel of a PTX module, launched as ``kernel[grid, block](arguments)``: tensors of the emulated GPU, integers and floats,
    one for each parameter; bytes of a struct; a `TensorDescriptor` of Gluon or Triton for a tensor map, or a pointer to one, whose
    box and swizzle it has. `shared_bytes`: of `.extern .shared`. `constants`: what the host writes to variables
    of the module, by name.

    BadArgument for a shape or an argument that the kernel does not take, and for a PTX that ptxas does not, with what it says.
    EmulatedFault for what is wrong with a launch: "not modelled" before anything runs, with the line of the instruction, where the
    machine does not execute one.
    """

    text: str
    name: str = ""
    shared_bytes: int = 0
    constants: tuple[tuple[str, object], ...] = ()

    def __getitem__(self, shape: tuple[Sequence[int] | int, Sequence[int] | int]) -> Callable[..., None]:
        grid, block = (_three(size) for size in shape)
        _check_block(block)

        def launch(*values: object) -> None:
            device = active_device()
            device.run_ptx(
                Launch(self.name, grid, {"num_warps": -(-int(np.prod(block)) // 32)}, self.text),
                lambda record: self._run(device, record, LaunchShape(grid, block, self.shared_bytes, self.constants), values),
            )

        return launch

    def _run(self, device: Device, record: Launch, shape: LaunchShape, values: Sequence[object]) -> None:
        program = kernel_program(self.text, self.name)
        record.name = program.function.name
        if int(program.arch[3:]) > device.capability:
            raise EmulatedFault("not modelled", f"PTX for {program.arch} on an emulated {device.arch}")
        if said := refusal_of_ptxas(self.text, device.capability):
            raise BadArgument(f"ptxas does not take the PTX of {record.name}: {said}")
        cluster = cluster_of(program, shape.grid)
        required = (*program.required_threads, 1, 1)[:3]
        if program.required_threads and required != shape.block:
            raise BadArgument(f"block {shape.block}: {program.function.name} says .reqntid {required}")
        if count := program.sums_that_may_be_fused:
            device.advise(Note(Advice.PTXAS_MAY_FUSE, "", (str(count), program.function.name)))
        memory = GlobalMemory()
        arguments = _arguments(memory, program.parameters, values)
        for region in memory.regions:
            region.changes = True
        space = run_on(program, replace(shape, cluster=cluster), arguments, memory.regions)
        if device.options.real_values is not None:
            device.reals.end([region for region in memory.regions if space.has_stored(region)], lost=True)


def run_on(
    program: KernelProgram,
    shape: LaunchShape,
    arguments: Sequence[Words | TensorMap],
    regions: Sequence[Region],
    observe: Observer | None = None,
) -> GlobalSpace:
    """Execute a launch on the storages `regions`. Where programs may wait for one another all run together, and what threads of two
    CTAs do is held to no order: atomics may make one. A kernel that reads a clock runs by a slow one and by a fast one: "not
    modelled" where its words differ."""
    waits = any(
        opcode.startswith("atom") or ("acquire" in opcode and not opcode.startswith(("barrier", "mbarrier")))
        for opcode in program.opcodes
    )
    together = waits and shape.ctas * shape.threads <= 1 << 16
    by_slow_clock = [replace(region, raw=copy_of(region.raw)) for region in regions] if program.reads_clock else []
    for tick, on in ((SLOW, by_slow_clock), (FAST, regions))[not program.reads_clock :]:
        space = GlobalSpace(on, unit=min(program.unit, 4), checks_ctas=not waits, observe=observe)
        run_kernel(program, replace(shape, tick=tick), arguments, space, together=together)
    for slow, fast in zip(by_slow_clock, regions, strict=False):
        if len(different_places(slow.raw, fast.raw, 1)):
            raise EmulatedFault("not modelled", f"words of {fast.name} depend on how fast a clock goes, which nobody knows")
    return space


@lru_cache(maxsize=256)
def refusal_of_ptxas(text: str, capability: int) -> str:
    """Why ptxas does not take the PTX for a chip: its sentences. "" where it does, and where none here reads a PTX so new."""
    target = re.search(r"\.target\s+(sm_(\d+)\w?)", text)
    arch = target[1] if target and int(target[2]) == capability else f"sm_{capability}"
    paths = [Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name for name in ("ptxas-blackwell", "ptxas")]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.ptx"
        file.write_text(text)
        for path in [*filter(Path.exists, paths), *filter(None, [shutil.which("ptxas")])]:
            command = [str(path), "-O0", "-arch", arch, "-o", os.devnull, str(file)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if "Unsupported .version" not in done.stderr:
                lines = [line.partition(f"{file}, ")[2] for line in done.stderr.splitlines() if str(file) in line]
                return "; ".join(lines[:3] or [done.stderr.strip()]) if done.returncode else ""
    return ""


def cluster_of(program: KernelProgram, grid: tuple[int, int, int]) -> tuple[int, int, int]:
    """The CTAs of a cluster along each axis. BadArgument where they do not divide the grid or are more than a GPU takes."""
    x, y, z = (*program.cluster, 1, 1, 1)[:3]
    if any(size % ctas for size, ctas in zip(grid, (x, y, z), strict=True)) or x * y * z > MOST_CTAS:
        raise BadArgument(f"grid {grid}: clusters of {x} x {y} x {z} CTAs divide it, and have at most {MOST_CTAS}")
    return x, y, z


def kernel_program(text: str, name: str = "") -> KernelProgram:
    """`read_kernel`, whose refusals are "not modelled"."""
    try:
        return read_kernel(text, name)
    except (UnknownOpcode, NotPtx) as error:
        raise EmulatedFault("not modelled", str(error)) from error


def active_device() -> Device:
    """The emulated GPU whose block this is. BadArgument where there is none."""
    if (device := emulated_device()) is None:
        raise BadArgument(
            "a PTX kernel runs on an emulated GPU: launch it under `bv.emulated`, `pytest --emulate` or a judged test"
        )
    return device


def _three(size: Sequence[int] | int) -> tuple[int, int, int]:
    sizes = (size,) if isinstance(size, int) else tuple(size)
    if not 1 <= len(sizes) <= 3 or any(not isinstance(each, int) or each < 1 for each in sizes):
        raise BadArgument(f"{size!r}: a grid or a block is one to three positive integers")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def _check_block(block: tuple[int, int, int]) -> None:
    if int(np.prod(block)) > MOST_THREADS:
        raise BadArgument(f"block {block}: a CTA has at most {MOST_THREADS} threads")


def _arguments(memory: GlobalMemory, parameters: Sequence[Parameter], values: Sequence[object]) -> list[Words | TensorMap]:
    """Words [1] of each parameter, or its tensor map."""
    if len(values) != len(parameters):
        raise BadArgument(f"the kernel has {len(parameters)} parameters, {len(values)} arguments were given")
    return [_argument(memory, parameter, value) for parameter, value in zip(parameters, values, strict=True)]


def _argument(memory: GlobalMemory, parameter: Parameter, value: object) -> Words | TensorMap:
    if hasattr(value, "block_shape"):
        if parameter.size not in (8, 128):
            raise BadArgument(f"parameter {parameter.name} is .{parameter.kind}, and no tensor map or pointer to one")
        descriptor = cast(HostDescriptor, value)
        return map_of_argument(host_descriptor(memory, parameter.name, descriptor), descriptor)
    if parameter.kind == "b8" and not (hasattr(value, "data_ptr") and parameter.size == 8):  # a struct of a pointer alone
        if not isinstance(value, bytes) or len(value) != parameter.size:
            raise BadArgument(f"parameter {parameter.name} is a struct of {parameter.size} bytes: give bytes, not {value!r}")
        return np.frombuffer(value, np.uint8)
    dtype = DTYPES[8 * parameter.size]
    if hasattr(value, "data_ptr"):
        if parameter.size != 8:
            raise BadArgument(f"parameter {parameter.name} is .{parameter.kind}, and no address")
        return np.array([memory.add(parameter.name, bytes_of(parameter.name, value))], dtype)
    if parameter.kind in ("f32", "f64"):
        return np.array([value], f"f{parameter.size}").view(dtype)
    return np.array([int(cast(int, value)) % (1 << 8 * parameter.size)], np.uint64).astype(dtype)


def ptx_kernel(
    source: str | Path, name: str = "", *, shared_bytes: int = 0, constants: Mapping[str, object] | None = None
) -> PtxKernel:
    """The kernel `name` (the first one where it is empty) of a PTX module: its text, or a file that has it. `constants`: what the
    host writes to variables of the module, by name: buffers."""
    is_text = isinstance(source, str) and ".entry" in source
    if not is_text and not Path(source).is_file():
        raise BadArgument(f"{source}: no such file; ptx_kernel takes a file of PTX, or its text")
    text = str(source) if is_text else Path(source).read_text()
    return PtxKernel(text, name, shared_bytes, tuple((constants or {}).items()))


__all__ = ["PtxKernel", "cluster_of", "kernel_program", "ptx_kernel", "run_on"]

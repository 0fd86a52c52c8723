"""The emulated GPU: a Triton driver whose device is a model.

    with emulated("sm_90") as device:
        kernel[grid](a, b, c, ...)          # CPU tensors; compiled by the real compiler, executed here

The driver answers for the target, `compiling` stops the compiler at the tile program, `Launcher` translates it once and runs it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import torch
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.backends.nvidia.compiler import get_ptx_version_from_options
from triton.runtime import driver

from bitverdict.harness.emulator.autotuning import Tuned, checked, several, tuned
from bitverdict.harness.emulator.compiled_kernel import returned
from bitverdict.harness.emulator.cuda_runtime import LAUNCH, answering
from bitverdict.harness.emulator.cuda_tensors import CUDA, outside
from bitverdict.harness.emulator.execution.async_ops import READ_BY, Schedule
from bitverdict.harness.emulator.execution.cta import Cta
from bitverdict.harness.emulator.execution.cta_state import LaunchContext
from bitverdict.harness.emulator.execution.interleaving import Programs
from bitverdict.harness.emulator.execution.mbarriers import PARITY
from bitverdict.harness.emulator.faults import BadArgument, EmulatedFault
from bitverdict.harness.emulator.frontend.access_widths import Access, accesses
from bitverdict.harness.emulator.frontend.arguments import bytes_of, flatten, passed, refuse_cpu_tensors
from bitverdict.harness.emulator.frontend.assembly import NotAssembled, registers
from bitverdict.harness.emulator.frontend.compiler_faults import blame
from bitverdict.harness.emulator.frontend.hints import compiled_in, hinted, untrue_arguments
from bitverdict.harness.emulator.frontend.program_facts import ProgramFacts
from bitverdict.harness.emulator.frontend.stop_compiler import FENCE, Stages, check_release, fences_of, language_of
from bitverdict.harness.emulator.frontend.translate import Translated, translate
from bitverdict.harness.emulator.memory.global_atomics import RELEASED, ROUNDS
from bitverdict.harness.emulator.memory.global_memory import GlobalMemory
from bitverdict.harness.emulator.memory.global_order import EQUAL
from bitverdict.harness.emulator.memory.proxy_fences import FENCE_READ
from bitverdict.harness.emulator.memory.undefined_lanes import NOTE
from bitverdict.harness.emulator.mlir_reader import Program, escaped
from bitverdict.harness.emulator.residency import Registers, Residency, check_grid, limit_of, most_registers, residency
from bitverdict.harness.model.architectures import ARCHITECTURES, CHIPS

KEPT = 512  # translated programs
STEP_LIMIT = 20_000_000  # operations of the tile program in one launch: far beyond any judged case
_ADVICE = {
    FENCE: "what is written here reaches the async proxy only by a proxy fence that the compiler inserts",
    FENCE_READ: "what is read here is refilled through the async proxy behind a proxy fence that the compiler inserts",
    PARITY: "the compiler waits for a parity that is neither 0 nor 1: the machine code takes its lowest bit",
    ROUNDS: "an atomic sum of floats depends on the order of programs: one order was taken",
    RELEASED: "what other threads wrote is released here behind a barrier that the compiler inserts; tl.debug_barrier() says it",
    EQUAL: "writes the words that another write puts there, and nothing orders the two: either may stay",
    "duplicate rows": "scatters two rows to one place: either may win",
    "stride cut": "a descriptor's strides must be multiples of 16 bytes: what is over is dropped",
}
"""What is not wrong, but rests on something: by the name of a note."""
_translations: dict[tuple[bytes, str, bool, bool], Translated] = {}


@dataclass(eq=False)
class Launch:
    """What one launch was: its grid, Triton's metadata, the tile program and the Python that it was translated to, operations
    executed, matrix products in the program."""

    name: str
    grid: tuple[int, int, int]
    metadata: dict[str, Any]
    program: str
    operations: Counter = field(default_factory=Counter)
    products: Counter = field(default_factory=Counter)  # (family, a, b, d, m, n, k) -> how many the program has
    timeline: list[str] = field(default_factory=list)
    constants: dict[str, int] = field(default_factory=dict)  # integers compiled in, by parameter
    python: str = ""

    @property
    def tile(self) -> tuple[int, ...]:
        """(m, n, k) of the largest product in the program; () where it has none."""
        return max((key[-3:] for key in self.products), key=prod, default=())

    @property
    def instructions(self) -> frozenset[str]:
        """Families of matrix instructions in the program: "mma.sync", "wgmma", "tcgen05", "fma"."""
        return frozenset(key[0] for key in self.products)


class Device:
    """One emulated GPU: what was launched on it, what it found, what it advises. Faults are also raised out of the launch."""

    def __init__(self, arch: str, schedule: str) -> None:
        if arch not in CHIPS:
            raise BadArgument(f"arch {arch!r}: no emulated GPU of that name; there are {', '.join(CHIPS)}")
        self.arch: str = arch
        self.schedule_text = schedule
        self.architecture, self.chip = ARCHITECTURES[arch], CHIPS[arch]
        self.capability = self.architecture.capability
        self.schedule = Schedule(schedule)
        self.multiprocessors = self.schedule.multiprocessors or self.chip.multiprocessors.count
        self.launches: list[Launch] = []
        self.findings: list[EmulatedFault] = []
        self.tuned: list[Tuned] = []  # what autotuners took
        self.dry = False  # compile and check resources, execute nothing
        self.takes_cpu_tensors = True  # a launch may be given tensors of the CPU, which a real GPU refuses
        self.reachable: list[Any] = []  # tensors, and functions that give some, that pointers in memory may lead to
        self.either_row = False  # of two rows scattered to one place either may stay: else two that differ are a race
        self._rewrites: list[Callable[[str], str]] = []
        self._advice: set[str] = set()
        self._ticks = 0

    @property
    def number(self) -> int:
        """Triton's number for it: each architecture has its own, so that what Triton keeps by device never mixes."""
        return 1000 + self.capability

    def place(self, tensor: Any) -> Any:
        """`tensor` (torch, CPU) as a tensor of this GPU: the two share every byte."""
        return outside(tensor)

    def reach(self, *tensors: Any) -> None:
        """Let pointers that lie in memory lead to `tensors` too. A function among them is asked at each launch for {name: tensor}.

        A launch reaches the tensors it is given. What it loads as a pointer (a grouped product's) must be named here.
        """
        self.reachable.extend(tensors)

    def _reached(self) -> Iterator[tuple[str, Any]]:
        for number, given in enumerate(self.reachable):
            yield from given().items() if callable(given) else ((f"reachable tensor {number}", given),)

    def tick(self) -> float:
        """The time in milliseconds, by what was launched: it grows with each launch and each call, and means nothing."""
        self._ticks += 1
        return LAUNCH * len(self.launches) + 1e-3 * self._ticks

    def rewrite(self, function: Callable[[str], str]) -> None:
        """Let `function` change the text of each tile program before it is executed: a compiler's fault, mutated."""
        self._rewrites.append(function)

    @property
    def advice(self) -> list[str]:
        """What is not wrong as compiled, but rests on the compiler."""
        return sorted(self._advice)

    def translated(self, program: bytes, metadata: Any, *, doubted: bool = False) -> Translated:
        """`program` ready to run; its accesses are held to their widths where the author promised something, or if `doubted`."""
        text = program
        for function in self._rewrites:
            text = function(text.decode()).encode()
        fused = bool(metadata.enable_fp_fusion) and not self.dry  # what is not executed need not know which sums are fused
        key = (text, self.arch, fused, doubted)
        if key not in _translations:
            if len(_translations) >= KEPT:
                _translations.clear()

            def widths(parsed: Program) -> dict[int, Access] | None:
                if not doubted and not hinted(parsed):
                    return None
                return accesses(parsed, self.capability, get_ptx_version_from_options(metadata, self.capability))

            _translations[key] = translate(text.decode(), arch=self.arch, fused=key[2], widths=widths)
        return _translations[key]

    def run(
        self,
        program: bytes,
        metadata: Any,
        grid: tuple[int, int, int],
        names: Sequence[str],
        values: Sequence[Any],
        constants: dict[str, int] | None = None,
    ) -> None:
        """Execute `program` over `grid`. Raises EmulatedFault for whatever fails it. `constants` are kept with the launch."""
        launch = Launch(metadata.name, grid, metadata._asdict(), "", constants=constants or {})
        try:
            self._run(launch, program, metadata, grid, names, values)
        except EmulatedFault as fault:
            self.findings.append(fault)
            raise

    def _run(
        self,
        launch: Launch,
        program: bytes,
        metadata: Any,
        grid: tuple[int, int, int],
        names: Sequence[str],
        values: Sequence[Any],
    ) -> None:
        if getattr(metadata, "num_ctas", 1) != 1:
            raise EmulatedFault(
                "not modelled", f"num_ctas = {metadata.num_ctas}: clusters are not modelled, launch with num_ctas=1"
            )
        ready = self.translated(program, metadata)
        launch.program, launch.python, launch.products = ready.program.text, ready.source, Counter(ready.products)
        self.launches.append(launch)
        if self.dry or prod(grid) == 0:
            return
        memory = GlobalMemory()
        arguments = flatten(memory, names, values, ready.arguments)
        for name, tensor in self._reached():
            memory.add(name, bytes_of(name, tensor))
        if untrue := untrue_arguments(ready.program, arguments):
            ready = self.translated(program, metadata, doubted=True)
        memory.begin(prod(grid), ready.facts, arguments)
        context = LaunchContext(
            memory=memory,
            grid=grid,
            schedule=self.schedule,
            shared=ready.program.integer("ttg.shared"),
            tensor=ready.program.integer("ttg.tensor_memory_size"),
            runs=[0] * len(ready.blocks),
            step_limit=STEP_LIMIT,
            end=ready.program.entry.blocks[-1].operations[-1].location,
            written=fences_of(program),
            compiled=language_of(program) == "triton",
            either_row=self.either_row,
            false_hints=dict(untrue),
        )
        resident = self._residency(ready, metadata, prod(grid))
        programs = Programs(Cta(context), self.schedule, resident, lambda m: m.run(ready.entry(m, *arguments)))
        try:
            with np.errstate(all="ignore"):
                self._run_programs(programs, ready.facts, prod(grid))
            for (location, _), said in context.false_hints.items():
                self._advice.add(f"{location}{': ' if location else ''}{said}; no access of this launch relies on it")
        except EmulatedFault as fault:
            cta = programs.current
            found = _read_by(fault, ready.running(fault)) if fault.details.pop(READ_BY, False) else fault
            if not found.location and (running := ready.running(fault)) is not None:
                found.location = running.location
                found.details.setdefault("operation", running.brief)
            blame(found, language_of(program))
            cta.state.timeline.add(cta.state.steps, cta.state.agent.name, found.outcome, found.location, "found here")
            for name, value in cta.report(found.location, found.details.get("other location", "")).items():
                found.details.setdefault(name, value)
            if found is fault:
                raise
            raise found from None
        finally:
            launch.operations = ready.counts(context.runs)
            launch.timeline = programs.current.state.timeline.lines()
            self._advice |= {f"{location}: {_ADVICE[name]}" for name, location in context.notes if name in _ADVICE}
            self._advice |= {said for name, said in context.notes if name == NOTE}

    def _run_programs(self, programs: Programs, facts: ProgramFacts, count: int) -> None:
        """Each of `count` programs by itself where none can wait for another or choose by what an atomic finds, else turn by turn.
        Those beyond what is resident begin in the order of their numbers."""
        if not facts.polling and not (facts.chooses and self.schedule.draw is not None):
            programs.run_in_turn(self.schedule.order(count))
        elif count > programs.resident.programs:
            programs.run_together(range(count))
        else:
            programs.run_together(self.schedule.order(count))

    def _residency(self, ready: Translated, metadata: Any, count: int) -> Residency:
        """How many programs are resident together. By the registers of the machine code where `count` programs wait for one another
        and are more than there may be by the most registers that a thread can take."""
        program = ready.program
        warps = program.integer("ttg.total-num-warps", program.integer("ttg.num-warps", 4))

        def held(registers: Registers) -> Residency:
            shared, columns = program.integer("ttg.shared"), program.integer("ttg.tensor_memory_size")
            return residency(self.arch, self.multiprocessors, shared=shared, warps=warps, columns=columns, registers=registers)

        found = held(most_registers(warps, limit_of(metadata, program.attributes.get("ttg.maxnreg"))))
        if not ready.facts.polling or count <= found.programs:
            return found
        with suppress(NotAssembled):  # a program that was edited may be no program of the compiler's
            taken = registers(program.text, self.capability, fused=bool(metadata.enable_fp_fusion))
            return held(Registers(taken, "by the machine code"))
        return found


def _read_by(fault: EmulatedFault, reader: Any) -> EmulatedFault:
    """`fault`, which knows what is in flight, told at the line that reads it."""
    if reader is None:
        return fault
    details = {**fault.details, "other operation": fault.details["operation"], "other location": fault.location}
    return type(fault)(fault.outcome, f"{reader.name}: {fault.message}", reader.location, details | {"operation": reader.brief})


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
            "warpSize": 32,
            "max_num_regs": chip.multiprocessors.registers,
            "sm_clock_rate": chip.clock,
            "mem_clock_rate": chip.memory_clock,
            "mem_bus_width": chip.bus,
        }


class _Launcher:
    """One compiled kernel's way onto the device."""

    def __init__(self, source: Any, metadata: Any) -> None:
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
        given = [
            part for (name, kind), value in zip(self.signature.items(), values, strict=True) for part in passed(kind, name, value)
        ]
        if self.program is None:
            self.program = _relocated(function, self.file)
        device = driver.active.device
        if not device.takes_cpu_tensors:
            refuse_cpu_tensors([v for _, v in given])
        with torch._C.DisableTorchFunction():  # what the emulator itself asks of torch is nobody's allocation
            if (fault := compiled_in(self.source, values)) is not None:
                device.findings.append(fault)
                raise fault
            names, given_values = [name for name, _ in given], [value for _, value in given]
            device.run(self.program, self.metadata, (x, y, z), names, given_values, self._constants())

    def _constants(self) -> dict[str, int]:
        """The integers that the kernel was compiled for, by parameter."""
        names, found = list(self.signature), getattr(self.source, "constants", None) or {}
        return {names[place[0]]: value for place, value in found.items() if len(place) == 1 and type(value) is int}


def _relocated(program: bytes, file: str) -> bytes:
    """`program` with the lines of the kernel's own `file`. Triton's cache goes by source, not by place: what it hands out may have
    been compiled from a copy of the file that lay elsewhere."""
    end = re.search(rb"^  \}\).*loc\((#loc\d*)\)$", program, re.MULTILINE)  # of the first function: the kernel
    found = end and re.search(rb"^" + end[1] + rb' = loc\("([^"]+)":', program, re.MULTILINE)
    here = escaped(file).encode()
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
        return GPUTarget("cuda", self.device.capability, 32)

    def get_current_device(self) -> int:
        return self.device.number

    def set_current_device(self, device: int) -> None: ...

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        return divmod(self.device.capability, 10)

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    @property
    def takes_cpu_tensors(self) -> bool:
        return self.device.takes_cpu_tensors

    def get_active_torch_device(self) -> Any:
        return CUDA

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_benchmarker(self) -> Callable[..., list[float]]:
        return several

    def get_empty_cache_for_benchmark(self) -> Any:
        return None

    def clear_cache(self, cache: Any) -> None: ...


@contextmanager
def emulated(arch: str, schedule: str = "eager", tuning: str = "") -> Iterator[Device]:
    """Launches go to an emulated `arch` ("sm_80", "sm_90", "sm_100") until the end of the block, and `torch.cuda` answers for it.

    Tensors are of `device="cuda"`, or CPU tensors unless `Device.takes_cpu_tensors` is set False.

    `schedule`: "eager", "latest" or "drawn:<schedule_seed>" (when asynchronous operations land), and "... on 2" for a GPU of two
    multiprocessors. `tuning`: which configuration autotuners take: "" the first that fits, "first", "config <n>", or "runs" for
    tuning runs, which are executed (`autotuning`). ValueError for another arch, schedule or tuning, RuntimeError for a Triton
    release that is not known.
    """
    check_release()
    checked(tuning)
    device = Device(arch, schedule)
    own = EmulatedDriver(device)
    before, hook = driver._active, knobs.runtime.add_stages_inspection_hook
    driver.set_active(own)
    knobs.runtime.add_stages_inspection_hook = Stages()
    try:
        with tuned(tuning, several) as device.tuned, returned(), answering(device):
            yield device
    finally:
        driver._active = before
        knobs.runtime.add_stages_inspection_hook = hook


__all__ = ["Device", "EmulatedDriver", "Launch", "emulated"]

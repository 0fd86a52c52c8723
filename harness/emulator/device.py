"""One emulated GPU: it translates the tile programs that it is handed, executes them, and keeps what was launched and found.

`triton_driver.emulated` makes one and lets Triton's launches go to it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from bitverdict.harness.emulator.advice import Advice, Note
from bitverdict.harness.emulator.autotuner_choices import TuningChoice
from bitverdict.harness.emulator.backends import backend_of
from bitverdict.harness.emulator.cuda_runtime import LAUNCH
from bitverdict.harness.emulator.cuda_tensors import (
    ACTIVE_WATCHES,
    OPERATORS,
    Watches,
    WatchGroup,
    allocations,
    outside,
    storages_since,
)
from bitverdict.harness.emulator.device_probe import DeviceProbe, LaunchRun, hooks
from bitverdict.harness.emulator.execution.async_ops import READ_BY, Schedule
from bitverdict.harness.emulator.execution.cta import Cta
from bitverdict.harness.emulator.execution.cta_state import LaunchContext
from bitverdict.harness.emulator.execution.interleaved_programs import Programs
from bitverdict.harness.emulator.execution.program_batches import FEW_PROGRAMS, run_in_batches
from bitverdict.harness.emulator.execution.real_launch import RealProbe
from bitverdict.harness.emulator.faults import BadArgument, EmulatedFault, TooLarge
from bitverdict.harness.emulator.frontend import kept_translations
from bitverdict.harness.emulator.frontend.access_widths import Access, accesses, ptx_version
from bitverdict.harness.emulator.frontend.arguments import bytes_of, flatten
from bitverdict.harness.emulator.frontend.assembly import NotAssembled, registers
from bitverdict.harness.emulator.frontend.compiler_faults import blame
from bitverdict.harness.emulator.frontend.edited_programs import EditedPrograms
from bitverdict.harness.emulator.frontend.hints import has_hints, untrue_arguments
from bitverdict.harness.emulator.frontend.program_facts import ProgramFacts
from bitverdict.harness.emulator.frontend.stop_compiler import fences_of, language_of
from bitverdict.harness.emulator.frontend.translate import TranslatedProgram, decode_program, fault_of, translate
from bitverdict.harness.emulator.memory.global_memory import GlobalMemory
from bitverdict.harness.emulator.memory.provenance import Origins, Provenance
from bitverdict.harness.emulator.memory.real_memory import RealMemory, RealValues, storage_of
from bitverdict.harness.emulator.memory.unwritten_words import AllocatedStorage, UnwrittenRead, UnwrittenWords
from bitverdict.harness.emulator.mlir_reader import Program
from bitverdict.harness.emulator.numerics.enclosed_memory import EnclosedMemory
from bitverdict.harness.emulator.numerics.enclosures import Enclosures, keys, words_of
from bitverdict.harness.emulator.real_tensors import RealTensors
from bitverdict.harness.emulator.residency import Registers, Residency, check_grid, limit_of, most_registers, residency
from bitverdict.harness.model.architectures import ARCHITECTURES, CHIPS

MOST_TRANSLATIONS = 512  # translated programs
STEP_LIMIT = 20_000_000  # operations of one program of a launch: far beyond those of any judged case
OPERATION_ELEMENTS = 1 << 12  # what an operation of one element takes beside others: as long as these elements more
MOST_PROGRAMS = 1 << 24  # of a launch: far beyond what ends in the time of a case
_translations: dict[tuple[str, str, bool, bool, bool, bool, frozenset[str] | None], TranslatedProgram] = {}


_DEFINITION = re.compile(r'^#loc = loc\("(.+)":(\d+):\d+\)$', re.MULTILINE)
"""The place of the module, which is the kernel's; those of operations have a number."""


@dataclass(eq=False)
class Launch:
    """What one launch was: its grid, Triton's metadata, the tile program and the Python that it was translated to, operations
    executed, matrix products in the program."""

    name: str
    grid: tuple[int, int, int]
    metadata: dict[str, Any]
    program: str
    operations: Counter = field(default_factory=Counter)
    elements: int = 0  # of all operations at most, each counted as `OPERATION_ELEMENTS` more
    products: Counter = field(default_factory=Counter)  # (family, a, b, d, m, n, k) -> how many the program has
    timeline: list[str] = field(default_factory=list)
    constants: dict[str, int] = field(default_factory=dict)  # integers compiled in, by parameter
    python: str = ""
    serial_reason: str = ""  # why its programs did not run several at once; empty where they did

    @property
    def tile(self) -> tuple[int, ...]:
        """(m, n, k) of the largest product in the program; () where it has none."""
        return max((key[-3:] for key in self.products), key=prod, default=())

    @property
    def place(self) -> str:
        """ "file:line" of the kernel's definition, as the tile program has it; empty where it does not."""
        found = _DEFINITION.search(self.program)
        return f"{found[1]}:{found[2]}" if found else ""

    @property
    def instructions(self) -> frozenset[str]:
        """Families of matrix instructions in the program: "mma.sync", "wgmma", "tcgen05", "fma"."""
        return frozenset(key[0] for key in self.products)


@dataclass(frozen=True)
class LaunchOptions:
    """What holds for each launch on a device."""

    allow_duplicate_rows: bool = False
    """Of two rows scattered to one place either may stay: else two that differ are a race."""
    takes_cpu_tensors: bool = True
    """A launch may be given tensors of the CPU, which a real GPU refuses."""
    follows_pointers: bool = True
    """An address that a program loads may lead to any tensor of the GPU that is alive; else to one that was named (`reach`)."""
    whole_storages: bool = False
    """A tensor of a launch reaches all of its storage. Some launchers pass views that say less than what their kernel reads."""
    views_bind: bool = True
    """What the sizes and strides of a view do not reach is out of bounds. Else it is an advice inside of the view's storage: some
    launchers allocate padding around what they hand on."""
    batches: bool = True
    """Programs that order nothing among one another may run several at once: sooner, and to the same end."""
    dry: bool = False
    """Compile and check resources, execute nothing."""
    real_values: frozenset[str] | None = None
    """Floats carry real values (`Device.real_values`), where this is not None: the formats to which conversions are mathematics."""
    rounded_arguments: bool = False
    """The real value of a float that a launcher passes is known to half a unit of its parameter's format, as a constant's is."""
    provenance: bool = False
    """The device keeps where each byte of its memory comes from (`Device.provenance`)."""
    list_allocations: Callable[[], Iterable[AllocatedStorage]] | None = None
    """Gives what was allocated full of one byte: the device keeps what takes words of it that nobody wrote."""
    rewrite: Callable[[str], str] | None = None
    """Changes the text of each tile program before it is executed: a fault of the compiler's, made by a test, or a mutant."""
    edited_programs: EditedPrograms | None = None
    """What is executed in the place of the programs that the compiler made: mutants."""
    probes: tuple[DeviceProbe, ...] = ()
    """What rides on each launch, besides what these options ask for: a recorder of pictures, or of launches to be replayed."""
    watches: tuple[Watches, ...] = ()
    """What follows the tensors of the device through operators of torch, beside what the device follows by itself."""
    prints_once: bool = False
    """`tl.device_print` prints each element once, not by each thread that holds it."""
    step_limit: int = 0
    """Operations of one program of a launch, after which it is a timeout; 0: `STEP_LIMIT`."""
    seconds_limit: float = 0
    """Processor seconds of a launch, after which it is not modelled, as too large; 0: it may take any."""


class Device:
    """One emulated GPU: what was launched on it, what it found, what it advises. Faults are also raised out of the launch."""

    def __init__(self, arch: str, schedule: str, options: LaunchOptions) -> None:
        if arch not in CHIPS:
            raise BadArgument(f"arch {arch!r}: no emulated GPU of that name; there are {', '.join(CHIPS)}")
        self.arch: str = arch
        self.schedule_text = schedule
        self.tuning = ""  # which configuration autotuners take (`autotuning`)
        self.architecture, self.chip = ARCHITECTURES[arch], CHIPS[arch]
        self.capability, self.backend = self.architecture.capability, backend_of(arch)
        self.schedule = Schedule(schedule)
        self.multiprocessors = self.schedule.multiprocessors or self.chip.multiprocessors.count
        self.launches: list[Launch] = []
        self.findings: list[EmulatedFault] = []
        self.tuned: list[TuningChoice] = []  # what autotuners took
        self.options = options
        self.reachable: list[Any] = []  # tensors, and functions that give some, that pointers in memory may lead to
        self._known_storages: dict[int, Any] | None = None  # of when the last launch here left enclosed words
        self.enclosed = EnclosedMemory()  # words that launches left, of which a choice of the compiler's is not known
        self.reals = RealMemory()  # real values that launches left
        self.unwritten = None if options.list_allocations is None else UnwrittenWords(options.list_allocations)
        self.origins = Provenance() if options.provenance else None
        self._taken: set[int] = set()  # where storages begin that launches have loaded from
        self._hangs: dict[tuple[str, str], None] = {}
        self._advice: set[Note] = set()
        self._ticks = 0
        self.benchmarks = 0  # that ran once (`benchmark_runs`)
        self.step_limit = options.step_limit or STEP_LIMIT

    def __repr__(self) -> str:
        return f"<emulated {self.arch}: {len(self.launches)} launches, {len(self.findings)} findings>"

    def place(self, tensor: Any) -> Any:
        """`tensor` (torch, CPU) as a tensor of this GPU, an operand: the two share every byte."""
        if self.origins is not None:
            self.origins.operand(bytes_of("tensor", tensor))
        return outside(tensor)

    def reach(self, *tensors: Any) -> None:
        """Let pointers that lie in memory lead to `tensors` too. A function among them is asked at each launch for {name: tensor}.

        A launch reaches the tensors it is given. What it loads as a pointer (a grouped product's) leads to any tensor of
        `device="cuda"` that is alive; a CPU tensor must be named here. Of one that is named no more is reached than its sizes and
        strides do.
        """
        self.reachable.extend(tensors)

    @contextmanager
    def watch_tensors(self) -> Iterator[None]:
        """While entered, real values and origins go through operations of torch on tensors of this GPU, where they are followed."""
        watches = list(self.options.watches)
        if self.options.real_values is not None:
            watches.append(RealTensors(self.reals, lambda reason: self._hangs.setdefault((reason, ""))))
        if self.origins is not None:
            from bitverdict.harness.emulator.provenance_tensors import ProvenanceTensors

            watches.append(ProvenanceTensors(self.origins))
        if not watches:
            yield
            return
        ACTIVE_WATCHES.append(watches[0] if len(watches) == 1 else WatchGroup(watches))
        try:
            yield
        finally:
            ACTIVE_WATCHES.pop()

    def _reachable_tensors(self) -> Iterator[tuple[str, Any]]:
        for number, given in enumerate(self.reachable):
            yield from given().items() if callable(given) else ((f"reachable tensor {number}", given),)

    def tick(self) -> float:
        """The time in milliseconds, by launches and operators of torch: it grows with each of them and each call, and means
        nothing."""
        self._ticks += 1
        return LAUNCH * (len(self.launches) + OPERATORS.count) + 1e-3 * self._ticks

    @property
    def advice(self) -> list[str]:
        """What is not wrong as compiled, but rests on the compiler (`Advice`), a sentence each."""
        return sorted(map(str, self._advice))

    def advise(self, note: Note) -> None:
        self._advice.add(note)

    def take_findings(self) -> tuple[list[Launch], list[EmulatedFault], list[str]]:
        """The launches, faults and advice since the last call, which the device keeps no longer."""
        taken = list(self.launches), list(self.findings), self.advice
        for kept in (self.launches, self.findings, self._advice):
            kept.clear()
        return taken

    @property
    def hangs(self) -> list[tuple[str, str]]:
        """Why real values are unknown: (what hangs on a rounding, or the operation that has no rule; "file:line"), as they came."""
        return list(self._hangs)

    def real_values(self, tensor: Any) -> RealValues | None:
        """What the elements of `tensor` (torch, of any type) are in the mathematics of the kernels that computed them; None where
        the launches carried no real values. Of words that no launch computed it is the word, and the error is 0."""
        if self.options.real_values is None:
            return None
        return self.reals.values_of(bytes_of("tensor", tensor))

    def has_loaded(self, tensor: Any) -> bool:
        """Whether a launch has loaded from the storage of `tensor` (torch, CPU), or updated what lay there by an atomic."""
        return storage_of(tensor)[0] in self._taken

    @property
    def unwritten_reads(self) -> list[UnwrittenRead]:
        """What launches took of uninitialised words, of `LaunchOptions.allocated`: once for a line and an allocation."""
        return [] if self.unwritten is None else list(self.unwritten.reads.values())

    def unwritten_elements(self, tensor: Any) -> np.ndarray:
        """Which elements of `tensor` (torch), in its shape, nobody has written, of `LaunchOptions.allocated`."""
        return (
            np.zeros(tuple(tensor.shape), np.bool_)
            if self.unwritten is None
            else self.unwritten.unwritten_elements(bytes_of("tensor", tensor))
        )

    def provenance(self, tensor: Any) -> Origins | None:
        """Where each element of `tensor` (torch) comes from; None without `LaunchOptions.provenance`."""
        return None if self.origins is None else self.origins.origins_of(bytes_of("tensor", tensor))

    def enclosure(self, tensor: Any) -> tuple[np.ndarray, np.ndarray] | None:
        """The lowest and the highest words that the elements of `tensor` (torch, no truths) may have, where the compiled programs
        that wrote it leave a choice open: unsigned integers of its shape, of the bits. None where all words are exact."""
        import torch

        if not self.enclosed or tensor.dtype == torch.bool or tensor.is_complex():
            return None
        tensor_bytes = bytes_of("tensor", tensor)
        size = tensor_bytes.element_size()
        whole = not tensor.is_floating_point()
        word = tensor_bytes.contiguous().view(getattr(torch, f"int{8 * size}")).numpy().view(f"{'i' if whole else 'u'}{size}")
        offsets = np.zeros((), np.int64)
        for count, stride in zip(tensor_bytes.shape, tensor_bytes.stride(), strict=True):
            offsets = np.add.outer(offsets, stride * np.arange(count, dtype=np.int64))
        found = self.enclosed.enclosure_at(tensor_bytes.data_ptr() + size * offsets, keys(word), size, whole)
        ends = () if found is None else (words_of(found.low, word.dtype), words_of(found.high, word.dtype))
        return (ends[0].view(f"u{size}"), ends[1].view(f"u{size}")) if ends else None

    def translate(self, program: bytes, metadata: Any, *, is_doubted: bool = False) -> TranslatedProgram:
        """`program` ready to run; its accesses are held to their widths where the author promised something, or if `is_doubted`."""
        text = self.options.rewrite(program.decode()) if self.options.rewrite else decode_program(program)
        fuses_sums = (
            bool(metadata.enable_fp_fusion) and not self.options.dry
        )  # what is not executed need not know which sums are fused
        flushes = bool(getattr(metadata, "enable_reflect_ftz", self.backend.flushes_subnormals))
        encloses = bool(self.enclosed) and not self.options.dry
        reals = None if self.options.dry else self.options.real_values
        options: dict[str, Any] = {
            "arch": self.arch,
            "fuses_sums": fuses_sums,
            "flushes": flushes,
            "encloses": encloses,
            "real_values": reals,
        }

        def widths(parsed: Program) -> dict[int, Access] | None:
            if not is_doubted and not has_hints(parsed):
                return None
            if not self.backend.assembles_ptx:  # what is untrue becomes advice
                return {}
            return accesses(parsed, self.capability, ptx_version(metadata, self.capability))

        if self.options.edited_programs is not None:
            changed = self.options.edited_programs.translation_of(text, is_doubted=is_doubted, widths=widths, **options)
            if changed is not None:
                return changed
        key = (text, self.arch, fuses_sums, flushes, is_doubted, encloses, reals)
        if key not in _translations:
            if len(_translations) >= MOST_TRANSLATIONS:
                _translations.clear()
            ptx = ptx_version(metadata, self.capability) if self.backend.assembles_ptx else 0
            named = kept_translations.key(text, is_doubted=is_doubted, ptx=ptx, **options)
            _translations[key] = kept_translations.load_or_translate(named, lambda: translate(text, widths=widths, **options))
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
        self._forget_freed_words()
        launch, probes = Launch(metadata.name, grid, metadata._asdict(), "", constants=constants or {}), self._probes()
        with self._recorded_faults(), _tell_failures(probes):
            self._run(launch, probes, program, metadata, grid, names, values)

    def run_ptx(self, launch: Launch, execute: Callable[[Launch], None]) -> None:
        """A `launch` of no tile program, which `execute` does: its threads carry no real values."""
        self._forget_freed_words()
        self.launches.append(launch)
        if self.options.real_values is not None:
            self._hangs.setdefault(("a PTX kernel carries no real values", ""))
        if not self.options.dry:
            with self._recorded_faults():
                execute(launch)

    @contextmanager
    def _recorded_faults(self) -> Iterator[None]:
        """A launch, whose faults are kept whether its launcher catches them or not."""
        try:
            yield
        except EmulatedFault as fault:
            self.record_finding(fault)
            raise
        except Exception as error:
            if (found := fault_of(error)) is None:
                raise
            self.findings.append(found)
            raise found from error
        finally:
            if self.enclosed:
                self._known_storages = self._known_storages or {}
                storages_since(self._known_storages)

    def _forget_freed_words(self) -> None:
        """Forget enclosed words where another storage lies by now: what it holds is exact, also where it holds an equal word. Words
        that another device left, whose launch is repeated here, stay."""
        if self._known_storages is not None and self.enclosed:
            for first, end in storages_since(self._known_storages):
                self.enclosed.forget_range(first, end)

    def _probes(self) -> list[DeviceProbe]:
        """What rides on a launch."""
        probes: list[DeviceProbe] = []
        if self.origins is not None:
            from bitverdict.harness.emulator.passed_words import OriginProbe

            probes.append(OriginProbe(self.origins))
        if self.options.real_values is not None:
            probes.append(RealProbe(self.reals, self._hangs, rounded=self.options.rounded_arguments))
        return [*probes, *filter(None, (self.unwritten, self.options.edited_programs)), *self.options.probes]

    def record_finding(self, fault: EmulatedFault) -> EmulatedFault:
        """`fault`, which is kept whether its launcher catches it or not."""
        self.findings.append(fault)
        return fault

    def _run(
        self,
        launch: Launch,
        probes: list[DeviceProbe],
        program: bytes,
        metadata: Any,
        grid: tuple[int, int, int],
        names: Sequence[str],
        values: Sequence[Any],
    ) -> None:
        check_grid(grid)
        if prod(grid) > MOST_PROGRAMS:
            raise TooLarge(f"a grid of {prod(grid)} programs: an emulated GPU runs at most {MOST_PROGRAMS}")
        translation = self.translate(program, metadata)
        launch.program, launch.python, launch.products = translation.program.text, translation.source, Counter(translation.products)
        launch.name = translation.program.entry.name
        self.launches.append(launch)
        if self.options.dry or prod(grid) == 0:
            return
        memory = GlobalMemory(self.options.whole_storages, probes, self.options.views_bind)
        floats: dict[int, float] = {}
        arguments = flatten(memory, names, values, translation.arguments, floats)
        for name, tensor in self._reachable_tensors():
            memory.add(name, bytes_of(name, tensor))
        if self.options.follows_pointers:
            memory.follow(translation.facts, allocations)
        if untrue := untrue_arguments(translation.program, arguments):
            translation = self.translate(program, metadata, is_doubted=True)
            launch.python = translation.source
        memory.begin(prod(grid), translation.facts, arguments)
        context = LaunchContext(
            memory=memory,
            grid=grid,
            schedule=self.schedule,
            shared=translation.program.integer("ttg.shared"),
            tensor=translation.program.integer("ttg.tensor_memory_size"),
            ctas=translation.program.integer("ttg.num-ctas", 1),
            runs=[0] * len(translation.blocks),
            step_limit=self.step_limit,
            seconds_limit=self.options.seconds_limit,
            end=translation.program.entry.blocks[-1].operations[-1].location,
            fence_lines=fences_of(program),
            is_compiled=language_of(program) == "triton",
            allow_duplicate_rows=self.options.allow_duplicate_rows,
            prints_once=self.options.prints_once,
            false_hints=dict(untrue),
            enclosures=Enclosures(self.enclosed),
            move_hooks=hooks(probes, "on_move"),
        )
        run = LaunchRun(launch, program, translation, values, arguments, floats, context, self.enclosed)
        run.repeat = lambda *changes: self._repeat_launch(launch, program, metadata, grid, names, *changes)
        for probe in probes:
            probe.begin(run)
        resident = self._residency(translation, metadata, prod(grid))
        programs = Programs(Cta(context), self.schedule, resident, lambda m: m.run(translation.entry(m, *arguments)))
        context.cancel = programs.cancel
        try:
            with np.errstate(all="ignore"):
                launch.serial_reason = self._run_batched(context, translation, arguments, probes)
                if not launch.serial_reason:
                    self.schedule.order(prod(grid))  # drawn, as ever: what is drawn next is what it was
                else:
                    self._run_programs(programs, translation.facts, prod(grid))
                    translation.no_batch_reason = translation.no_batch_reason or launch.serial_reason.removeprefix(
                        FEW_PROGRAMS
                    )  # or each launch tries in vain
            for false in context.false_hints.values():
                told = Advice.FALSE_HINT_HARMLESS if false.relied_on else Advice.FALSE_HINT
                self._advice.add(Note(told, false.location, (false.sentence,)))
            run.is_complete = True
        except EmulatedFault as fault:
            cta = programs.current
            located_fault = _read_by(fault, translation.operation_at_error(fault)) if fault.details.pop(READ_BY, False) else fault
            if not located_fault.location and (running := translation.operation_at_error(fault)) is not None:
                located_fault.location = running.location
                located_fault.details.setdefault("operation", running.brief)
            located_fault.tile_values = translation.values_at_error(fault) | dict(zip(names, values))
            blame(located_fault, language_of(program))
            cta.state.timeline.add(
                cta.state.steps, cta.state.agent.name, located_fault.outcome, located_fault.location, "found here"
            )
            for name, value in cta.report(located_fault.location, located_fault.details.get("other location", "")).items():
                located_fault.details.setdefault(name, value)
            if located_fault is fault:
                raise
            raise located_fault from None
        finally:
            launch.operations = translation.counts(context.runs)
            launch.elements = launch.operations.total() * (translation.widest + OPERATION_ELEMENTS)
            launch.timeline = programs.current.state.timeline.lines()
            self._advice |= context.notes
            self._taken |= {region.base for region in memory.regions if region.is_loaded}
            try:
                for probe in probes if run.is_complete else ():
                    probe.settle(run)
            finally:
                for probe in probes:
                    probe.end(run)

    def _repeat_launch(
        self,
        launch: Launch,
        program: bytes,
        metadata: Any,
        grid: tuple[int, int, int],
        names: Sequence[str],
        real_values: frozenset[str] | None = None,
        edited_programs: EditedPrograms | None = None,
    ) -> Callable[[Sequence[object]], Device]:
        """See `LaunchRun.repeat`."""
        options = replace(self.options, provenance=False, list_allocations=None, real_values=real_values, probes=())
        options = replace(options, edited_programs=edited_programs or options.edited_programs)
        twin = Device(self.arch, f"eager on {self.multiprocessors}", options)
        twin.reachable, twin.step_limit = self.reachable, max(sum(launch.operations.values()), 1)

        def repeat(values: Sequence[object]) -> Device:
            twin.run(program, metadata, grid, names, values)
            return twin

        return repeat

    def _run_batched(
        self, context: LaunchContext, translation: TranslatedProgram, arguments: Sequence[Any], probes: list[DeviceProbe]
    ) -> str:
        """Run the programs of a launch several at once. Why they are to run one by one, where they are, and none has run."""
        if not self.options.batches or any(probe.runs_in_turn for probe in probes):
            return FEW_PROGRAMS
        if translation.no_batch_reason:
            return translation.no_batch_reason
        for probe in probes:
            probe.begin_batches()
        why = run_in_batches(context, translation.batch, arguments, translation.widest)
        for probe in probes:
            probe.end_batches(kept=not why)
        return why

    def _run_programs(self, programs: Programs, facts: ProgramFacts, count: int) -> None:
        """Each of `count` programs by itself where none can wait for another or choose by what an atomic finds, else turn by turn.
        Those beyond what runs at the same time begin in the order of their numbers."""
        if not facts.polling_operations and not (facts.chooses and self.schedule.draw is not None):
            programs.run_in_turn(self.schedule.order(count))
        elif count > programs.resident.concurrent_programs:
            programs.run_together(range(count))
        else:
            programs.run_together(self.schedule.order(count))

    def _residency(self, translation: TranslatedProgram, metadata: Any, count: int) -> Residency:
        """How many programs are resident together. By the registers of the machine code where `count` programs wait for one another
        and are more than there may be by the most registers that a thread can take."""
        program = translation.program
        warps = program.integer("ttg.total-num-warps", program.integer("ttg.num-warps", 4))

        def residency_with(registers: Registers) -> Residency:
            shared, columns = program.integer("ttg.shared"), program.integer("ttg.tensor_memory_size")
            ctas = program.integer("ttg.num-ctas", 1)  # of a cluster, each on a multiprocessor of its own
            return residency(
                self.arch, max(self.multiprocessors // ctas, 1), shared=shared, warps=warps, columns=columns, registers=registers
            )

        estimate = residency_with(most_registers(warps, limit_of(metadata, program.attributes.get("ttg.maxnreg"))))
        if not translation.facts.polling_operations or count <= estimate.programs or not self.backend.assembles_ptx:
            return estimate
        with suppress(NotAssembled):  # a program that was edited may be no program of the compiler's
            taken = registers(program.text, self.capability, fuses_sums=bool(metadata.enable_fp_fusion))
            return residency_with(Registers(taken, "by the machine code"))
        return estimate


@contextmanager
def _tell_failures(probes: list[DeviceProbe]) -> Iterator[None]:
    """A launch, whose `probes` are told what ends it early."""
    try:
        yield
    except BaseException as error:
        for probe in probes:
            probe.on_failure(error)
        raise


def _read_by(fault: EmulatedFault, reader: Any) -> EmulatedFault:
    """`fault`, which knows what is in flight, told at the line that reads it."""
    if reader is None:
        return fault
    details = {**fault.details, "other operation": fault.details["operation"], "other location": fault.location}
    return type(fault)(fault.outcome, f"{reader.name}: {fault.message}", reader.location, details | {"operation": reader.brief})


__all__ = ["Device", "Launch", "LaunchOptions"]
# One file because it is the one object that a launch, its probes and its results meet in.

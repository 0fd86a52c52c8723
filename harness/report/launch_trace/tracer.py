"""`bv.trace`: launches on the emulated GPU that is entered, each followed by a `Trace`; the programs that hand it their values."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from triton.runtime.jit import KernelInterface

from bitverdict.harness.emulator.cuda_runtime import entered_device, is_entered
from bitverdict.harness.emulator.cuda_tensors import inside
from bitverdict.harness.emulator.device_probe import ChipEvent, DeviceProbe, LaunchRun, WordAccess
from bitverdict.harness.emulator.faults import BadArgument
from bitverdict.harness.emulator.frontend.arguments import bytes_of, program_arguments
from bitverdict.harness.emulator.frontend.edited_programs import EditedPrograms, Widths
from bitverdict.harness.emulator.frontend.generated_code import compile_code
from bitverdict.harness.emulator.frontend.translate import TranslatedProgram, load_code, translate
from bitverdict.harness.emulator.mlir_reader import nested_operations
from bitverdict.harness.report.launch_trace.records import UNNAMED_VALUE, Assignment
from bitverdict.harness.report.launch_trace.trace import Trace

if TYPE_CHECKING:
    import torch

    from bitverdict.harness.emulator.execution.cta import Cta

_ASSIGNMENT = re.compile(r" *(?P<names>\w+(?:, \w+)*),? = .*")
_NUMBER = re.compile(r"_\d+$")
_BESIDE_A_VALUE = ("_real", "_lanes", "_undefined", "_bytes", "_spread")  # ends of names in the generated code
_FOLDS = ("tt.reduce", "tt.scan", "tt.map_elementwise")  # whose regions work on single elements


class LaunchTracer(DeviceProbe):
    """Rides on launches, each of which gets a `Trace`."""

    runs_in_turn = True

    def __init__(self, arch: str, traced_programs: Collection[int] | None = None) -> None:
        self.arch, self.traced_programs = arch, traced_programs
        self.traces: list[Trace] = []
        self._arguments: list[tuple[str, object]] = []
        self._snapshot: Any = None

    def on_request(self, source: object, metadata: object, grid: tuple[int, int, int], values: Sequence[object]) -> None:
        signature = cast(Any, source).signature.items()
        self._arguments = [part for (name, kind), value in zip(signature, values) for part in program_arguments(kind, name, value)]

    def begin(self, run: LaunchRun) -> None:
        from bitverdict.harness.report.launch_trace.memory_facts import FactsSource

        trace = Trace(arch=self.arch, traced_programs=self.traced_programs, earlier_launches=list(self.traces))
        trace.kernel, trace.grid, trace.launch = run.launch.name, run.launch.grid, run.launch
        for place, (name, value) in enumerate(self._arguments):
            tensor = getattr(value, "base", value) if hasattr(value, "block_shape") else value
            trace.places[name] = place
            if hasattr(tensor, "data_ptr"):
                trace.tensors[name] = bytes_of(name, tensor)
        self._snapshot = FactsSource.before(run)
        self.traces.append(trace)

    def on_load(self, access: WordAccess) -> None:
        self.traces[-1].on_load(access)

    def on_store(self, access: WordAccess) -> None:
        self.traces[-1].on_store(access)

    def on_move(self, event: ChipEvent) -> None:
        self.traces[-1].on_move(event)

    def end(self, run: LaunchRun) -> None:
        if run.is_complete:
            self.traces[-1].facts_of = self._snapshot.facts

    def keep(self, m: Cta, assignment: Assignment, value: object, is_second: bool) -> None:
        self.traces[-1].keep(m, assignment, value, is_second)

    def options(self, probes: tuple[DeviceProbe, ...] = ()) -> dict[str, Any]:
        """The `LaunchOptions` of launches that it follows, beside `probes`."""
        return {"edited_programs": _TracedPrograms(self), "batches": False, "probes": (*probes, self)}

    def with_relaunch(self, relaunch: Callable[[EditedPrograms], object]) -> list[Trace]:
        """The traces, which can be launched again."""
        for each in self.traces:
            each.relaunch = relaunch
        return self.traces


def _stem_of(result: str, name: str) -> str:
    """What the generated code's variable `name` is called without its number, if it holds the value `result`."""
    stem = _NUMBER.sub("", result.lstrip("%").partition("#")[0].partition(".")[0])
    return name if stem.isdigit() and UNNAMED_VALUE.fullmatch(name) else stem


class _TracedPrograms(EditedPrograms):
    """Programs that hand each value to a tracer once it is there."""

    def __init__(self, tracer: LaunchTracer) -> None:
        super().__init__(lambda text: None)
        self.tracer = tracer

    def translation_of(
        self, text: str, *, arch: str, is_doubted: bool, widths: Widths, **options: object
    ) -> TranslatedProgram | None:
        """The program `text`, each assignment of an operation's result followed by a call of `LaunchTracer.keep`."""
        translation = translate(text, arch=arch, widths=widths, **cast(dict[str, Any], options))
        lines, assignments = translation.source.split("\n"), list[Assignment]()
        inner = {
            id(each)
            for op in translation.operations
            if op.name in _FOLDS
            for blocks in op.regions
            for each in nested_operations(blocks)
        }
        numbers: dict[tuple[int, int], int] = {}  # of assignments, by operation and result
        for place, text_line in enumerate(lines):
            op, match = translation.operation_at(place + 1), _ASSIGNMENT.fullmatch(text_line.partition("  #")[0])
            if op is None or match is None or op.name.startswith("scf.") or id(op) in inner:
                continue
            names = [name for name in match["names"].split(", ") if not name.endswith(_BESIDE_A_VALUE)]
            if len(names) != len(op.results):
                continue
            for result, name in enumerate(names):
                stem = _NUMBER.sub("", name)
                if stem != _stem_of(op.results[result], name) or "!tt" in op.result_types[result].partition("ptr<")[0]:
                    continue  # a variable of the generated code's own, or no value of an element
                is_second = (id(op), result) in numbers
                number = numbers.setdefault((id(op), result), len(assignments))
                if not is_second:
                    file, _, line = op.location.rpartition(":")
                    type_text = translation.program.expand(op.result_types[result])
                    assignments.append(Assignment(file, int(line) if line.isdigit() else 0, stem, type_text))
                lines[place] = f"{lines[place].partition('  #')[0]}; keep_value(m, assignments[{number}], {name}, {is_second})"
        source = "\n".join(lines)
        constants = translation.constants | {"keep_value": self.tracer.keep, "assignments": assignments}
        return load_code(replace(translation, source=source, constants=constants), compile_code(source))


def trace(
    kernel: Callable[..., object], *arguments: object, traced_programs: Collection[int] | None = None, **options: object
) -> Trace:
    """Launch `kernel[grid]` on the emulated GPU that is entered, and return what each of its programs computed, line by line.

        with bv.emulated("sm_90"):
            trace = bv.trace(kernel[grid], x, y, n, BLOCK=64)
        trace.tile("a", program=1)  # the variable `a` of the kernel in program 1, as a NumPy array; line=11: after that line
        trace.accesses("y", 3)      # who loaded and stored y[3], in order
        trace.layout("a")           # the thread and the register of each element
        trace.errors("y")           # what each line adds to the error of the worst element
        trace.facts()               # widths of accesses, bank conflicts

    In a notebook it is shown as a page. A launcher may stand in the place of `kernel[grid]`: the trace is that of its last launch,
    `earlier_launches` has those before it. `traced_programs`: the programs that are kept, all where it is None. ValueError outside
    of `emulated`, and for a variable or a program that is not there.
    """
    if not is_entered():
        raise BadArgument("trace: no emulated GPU is entered; write it inside of `with bv.emulated('sm_90'):`")
    if isinstance(kernel, KernelInterface) or not callable(kernel):
        raise BadArgument(f"trace: {type(kernel).__name__} is no launch; write bv.trace(kernel[grid], x, y, n, BLOCK=64)")
    device = entered_device()
    tensors = [inside(value) for value in map(_tensor_of, (*arguments, *options.values())) if value is not None]
    before = [tensor.clone() for tensor in tensors]
    tracer = LaunchTracer(device.arch, traced_programs)
    options_before = device.options
    device.options = replace(options_before, **tracer.options(options_before.probes))
    try:
        kernel(*arguments, **options)
    finally:
        device.options = options_before
    if not tracer.traces:
        raise BadArgument("trace: it launches nothing; give kernel[grid], or a function that launches, and its arguments")

    def relaunch(edited_programs: EditedPrograms) -> None:
        from bitverdict.harness.emulator.device import LaunchOptions
        from bitverdict.harness.emulator.triton_driver import emulated

        current_values = [tensor.clone() for tensor in tensors]
        _put_back(tensors, before)
        try:
            with emulated(device.arch, options=LaunchOptions(real_values=frozenset(), edited_programs=edited_programs)):
                kernel(*arguments, **options)
        finally:
            _put_back(tensors, current_values)

    return tracer.with_relaunch(relaunch)[-1]


def _tensor_of(value: object) -> torch.Tensor | None:
    import torch

    base = value.base if hasattr(value, "block_shape") and hasattr(value, "base") else value
    return base if isinstance(base, torch.Tensor) else None


def _put_back(tensors: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
    for tensor, value in zip(tensors, values, strict=True):
        tensor.copy_(value)

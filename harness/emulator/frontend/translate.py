"""From the text of a tile program to Python that runs it: read, verified, translated (`frontend.translator`) and compiled.

`bitverdict translate` prints the code. Where native code runs in a process of its own (`compiler_process`), nobody trusts the
program: the compiler's own verifier must take it too, and whatever else reading, translating or executing it raises is a refusal.
It counts as the launcher's, because a program that the compiler made leads to none, as far as is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from math import prod
from types import CodeType, TracebackType
from typing import Any

from bitverdict.harness.emulator.backends import backend_of
from bitverdict.harness.emulator.compiler_process import in_compiler_process, is_used
from bitverdict.harness.emulator.faults import BadArgument, EmulatedFault
from bitverdict.harness.emulator.frontend.access_widths import Access
from bitverdict.harness.emulator.frontend.buffer_operations import through_pointers
from bitverdict.harness.emulator.frontend.enclosure_code import EnclosureWriter
from bitverdict.harness.emulator.frontend.generated_code import compile_code, run
from bitverdict.harness.emulator.frontend.instruction_sets import check_instructions
from bitverdict.harness.emulator.frontend.module_text import read_back
from bitverdict.harness.emulator.frontend.program_facts import ProgramFacts
from bitverdict.harness.emulator.frontend.program_verifier import refusal, verify_program
from bitverdict.harness.emulator.frontend.translator import OpenChoice, Translator
from bitverdict.harness.emulator.memory.undefined_lanes import UndefinedLanes
from bitverdict.harness.emulator.mlir_reader import Function, Operation, Program, make_names_unique
from bitverdict.harness.emulator.mlir_types import Type, parse_type

_DRIVER_SAYS = "Triton Error [CUDA]"  # what a launcher may catch: a real driver raises it, too
_numbers = count(1)  # of translated programs
TRANSLATION_KEY = "__translated__"  # the name by which the generated code's globals hold its `Translated`


@dataclass(eq=False)
class TranslatedProgram:
    """A program ready to run: `entry(machine, *arguments)` is a generator. `blocks[i]` are the operations of block i, for the
    counts."""

    program: Program
    entry: Callable[..., Any]
    arguments: list[Type]
    blocks: list[list[Operation]]
    source: str
    facts: ProgramFacts
    products: Counter = field(default_factory=Counter)  # (family, a, b, d, m, n, k) -> operations in the program
    operations: list[Operation] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)  # of the operation that each line of `source` is of, in `operations`
    name: str = ""  # of the entry, in `source`
    constants: dict[str, Any] = field(default_factory=dict)  # what `source` names
    code: CodeType | None = None  # `source` compiled
    batch_name: str = ""  # in `source`, of the entry for several programs at once; empty where there is none
    batch: Callable[..., Any] = lambda *given: None
    no_batch_reason: str = ""  # why there is none
    widest: int = 1  # elements of the largest tensor of a program
    encloses: bool = False  # it has the code for enclosures

    def __getstate__(self) -> dict[str, Any]:
        """What goes to disk (`kept_translations`): all but what `load_code` makes."""
        return {name: value for name, value in self.__dict__.items() if name not in ("entry", "code", "batch")}

    def operation_at_error(self, error: BaseException) -> Operation | None:
        """The operation that was running when `error` was raised."""
        entry = self._innermost(error)
        return self.operation_at(entry.tb_lineno) if entry is not None else None

    def values_at_error(self, error: BaseException) -> dict[str, Any]:
        """What was computed when `error` was raised, by lines before that which raised it."""
        entry, running = self._innermost(error), self.operation_at_error(error)
        if entry is None or running is None:
            return {}
        unfinished = {name.lstrip("%") for op in self.operations if op.location == running.location for name in op.results}
        return {name: value for name, value in entry.tb_frame.f_locals.items() if name not in unfinished}

    def _innermost(self, error: BaseException) -> TracebackType | None:
        """The innermost entry of the traceback of `error` that is of the generated code."""
        found, entry = None, error.__traceback__
        while entry is not None:
            if entry.tb_frame.f_code.co_filename == self.entry.__code__.co_filename:
                found = entry
            entry = entry.tb_next
        return found

    def operation_at(self, line: int) -> Operation | None:
        """The operation of a line (from 1) of the generated code; of one that only counts, the operation behind it."""
        number = self.numbers[line - 1] if 0 < line <= len(self.numbers) else -1
        return self.operations[number] if 0 <= number < len(self.operations) else None

    def counts(self, runs: list[int]) -> Counter:
        """Operations executed, by name, when block i ran `runs[i]` times."""
        found: Counter = Counter()
        for operations, times in zip(self.blocks, runs, strict=True):
            if times:
                for operation in operations:
                    found[operation.name] += times
        return found


def _unset() -> None:
    """In the place of an entry that is not made yet."""


def _entry_types(function: Function) -> list[Type]:
    types = []
    for value, text in function.blocks[0].arguments:
        kind = parse_type(text)
        if kind is None:
            raise EmulatedFault("not modelled", f"argument {value} of {function.name} has the type {text}")
        types.append(kind)
    return types


def translate(
    text: str,
    *,
    arch: str,
    fuses_sums: bool,
    flushes: bool = True,
    widths: Callable[[Program], dict[int, Access] | None] = lambda program: None,
    encloses: bool = False,
    real_values: frozenset[str] | None = None,
) -> TranslatedProgram:
    """The tile program `text` as Python, each access held to its width where `widths` says one by line. `fuses_sums` is
    the launch's `enable_fp_fusion`, `flushes` its `enable_reflect_ftz`. `encloses`: the launch may meet enclosures in memory; a
    program that makes some has the code for them in any case. `real_values`: where floats carry real values, the formats to which
    conversions are mathematics. Raises EmulatedFault "not modelled", with the operation and its line, for what is not known, and
    "refused" for what is no tile program (`verify_program`)."""
    program = verify_program(text, arch)
    check_accepted(text)
    check_instructions(program, arch)
    return translated_program(
        program,
        arch=arch,
        fuses_sums=fuses_sums,
        flushes=flushes,
        accesses=widths(program),
        encloses=encloses,
        real_values=real_values,
    )


def translated_program(
    program: Program,
    *,
    arch: str,
    fuses_sums: bool,
    flushes: bool,
    accesses: dict[int, Access] | None,
    encloses: bool,
    real_values: frozenset[str] | None,
) -> TranslatedProgram:
    """As `translate`, of a `program` that was read and verified."""
    make_names_unique(program)
    if backend_of(arch).has_buffer_operations:
        through_pointers(program)

    def new_translator(encloses: bool) -> Translator:
        translator = Translator(program, arch=arch, fuses=fuses_sums, flushes=flushes, accesses=accesses, real_values=real_values)
        translator.enclosing = EnclosureWriter(translator) if encloses else None
        return translator

    try:
        return _finish_translation(new_translator(encloses))
    except OpenChoice:
        if encloses:
            raise
        return _finish_translation(new_translator(True))


def _finish_translation(translator: Translator) -> TranslatedProgram:
    from bitverdict.harness.emulator.frontend.lowerings.program_batches import write_batch_form  # (and the table is filled)
    from bitverdict.harness.emulator.frontend.lowerings.reductions import differing_reductions

    if translator.declared is not None:
        import bitverdict.harness.emulator.frontend.real_operations  # noqa: F401  (fills the table)

    program = translator.program
    entry, types = translator.name_of(program.entry), _entry_types(program.entry)
    while translator.asked:
        function, translator.place_of_function = translator.asked.pop()
        translator.begin()
        translator.scan(function.blocks)
        translator.undefined = UndefinedLanes(translator, function.blocks, program) or None
        if translator.enclosing is not None:
            translator.enclosing.begin(function)
        translator.lane_words.begin(function.blocks, differing_reductions(translator, function.blocks))
        if translator.reals is not None:
            translator.reals.begin(function.blocks)
        translator.function(translator.name_of(function, translator.place_of_function), function.blocks)
    batch, no_batch_reason = write_batch_form(translator, program)
    translation = TranslatedProgram(
        program,
        _unset,
        types,
        translator.blocks,
        "\n".join(translator.lines),
        translator.facts,
        translator.products,
        translator.done,
        translator.numbers,
        entry,
        translator.constants,
        batch_name=batch,
        no_batch_reason=no_batch_reason,
        widest=max((prod(kind.shape) for op in translator.done for kind in op.outputs if kind is not None), default=1),
        encloses=translator.enclosing is not None,
    )
    return load_code(translation, compile_code(translation.source))


def load_code(ready: TranslatedProgram, code: CodeType) -> TranslatedProgram:
    """`ready` with its entry, from its source compiled to `code`."""
    namespace = run(code, ready.source, f"<tile program {ready.name} {next(_numbers)}>", ready.constants, ready)
    ready.entry, ready.code, ready.batch = namespace[ready.name], code, namespace.get(ready.batch_name, _unset)
    namespace[TRANSLATION_KEY] = ready  # whoever looks at a running frame finds the operation by it
    return ready


# -- programs that nobody trusts ----------------------------------------------------------------------------------------
def decode_program(program: bytes) -> str:
    """The text of `program`. EmulatedFault "refused" where programs are not trusted, and it is not ASCII."""
    try:
        return program.decode("ascii")
    except UnicodeDecodeError as error:
        if not is_used():
            return program.decode()
        raise refusal("it is not ASCII") from error


def check_accepted(text: str) -> None:
    """Where programs are not trusted: EmulatedFault "refused" for a text that the compiler's verifier does not take."""
    if not is_used():
        return
    try:
        _read_back(text)
    except RuntimeError as error:
        raise refusal(f"the compiler's verifier does not take it: {str(error)[:300]}") from error


@in_compiler_process
def _read_back(text: str) -> None:
    read_back(text)


def fault_of(error: Exception) -> EmulatedFault | None:
    """The fault that a launch ends with which raised `error`, where programs are not trusted; None where `error` is to go on as it
    is: programs are trusted, or it is meant for the launcher."""
    if not is_used() or isinstance(error, BadArgument) or _DRIVER_SAYS in str(error):
        return None
    if isinstance(error, MemoryError):
        return EmulatedFault("out of memory", "the program needs more memory than its executor may have")
    return refusal(f"its execution raised {type(error).__name__}: {str(error)[:300]}")

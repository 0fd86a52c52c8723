"""From a tile program to Python: each function is translated once, to a generator that runs one program of the grid.

Every operation has an entry in `LOWERINGS`, the table that says what its lowering decides. An operation without one, or in a form
that is not known, is refused here, before anything runs. The code is straight lines of calls, one local variable a value, one
branch a block; it yields where the program may have to wait for another agent.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from bitverdict.harness.emulator.execution.threads import Owners, owners
from bitverdict.harness.emulator.faults import EmulatedFault
from bitverdict.harness.emulator.frontend.access_widths import Access
from bitverdict.harness.emulator.frontend.contraction import Contraction
from bitverdict.harness.emulator.frontend.hints import check, hints_of, note
from bitverdict.harness.emulator.frontend.instruction_sets import check_instructions
from bitverdict.harness.emulator.frontend.program_facts import ProgramFacts
from bitverdict.harness.emulator.memory.undefined_lanes import UndefinedLanes
from bitverdict.harness.emulator.mlir_reader import Block, Function, Operation, Program, parse_program
from bitverdict.harness.emulator.mlir_types import Type, parse_type

Lowering = Callable[["Translator", Operation], None]
LOWERINGS: dict[str, Lowering] = {}
TRANSLATED = "__translated__"  # the name by which the generated code's globals hold its `Translated`


def lowers(*names: str) -> Callable[[Lowering], Lowering]:
    """Register the lowering of the operations `names`."""

    def register(function: Lowering) -> Lowering:
        for name in names:
            LOWERINGS[name] = function
        return function

    return register


class NotModelled(EmulatedFault):
    """An operation, or a form of it, that the emulator does not know: nothing of the launch has run."""

    def __init__(self, op: Operation, why: str = "") -> None:
        super().__init__(
            "not modelled",
            f"{op.name}{': ' + why if why else ' is no operation the emulator knows'}",
            op.location,
            {"operation": op.brief, "text": op.text},
        )


@dataclass(eq=False)
class Translated:
    """A program ready to run: `entry(machine, *arguments)` is a generator. `blocks[i]` are the operations of block i, for the
    counts."""

    program: Program
    entry: Callable
    arguments: list[Type]
    blocks: list[list[Operation]]
    source: str
    facts: ProgramFacts
    products: Counter = field(default_factory=Counter)  # (family, a, b, d, m, n, k) -> operations in the program
    operations: list[Operation] = field(default_factory=list)

    def running(self, error: BaseException) -> Operation | None:
        """The operation that was running when `error` was raised."""
        found, name = None, self.entry.__code__.co_filename
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == name:
                found = self.at(trace.tb_lineno)
            trace = trace.tb_next
        return found

    def at(self, line: int) -> Operation | None:
        """The operation of a line of the generated code; of one that only counts, the operation behind it."""
        lines = self.source.splitlines()
        behind = (text for text in lines[line - 1 :] if "m.tick(" not in text)
        number = next(behind, "").rpartition("#@")[2]
        return self.operations[int(number)] if number.isdigit() else None

    def counts(self, runs: list[int]) -> Counter:
        """Operations executed, by name, when block i ran `runs[i]` times."""
        found: Counter = Counter()
        for operations, times in zip(self.blocks, runs, strict=True):
            if times:
                for operation in operations:
                    found[operation.name] += times
        return found


class Translator:
    """The state of one translation: names of values, constants of the generated code, the text so far."""

    def __init__(self, program: Program, *, arch: str, fused: bool, accesses: dict[int, Access] | None = None) -> None:
        self.program, self.arch, self.fused = program, arch, fused
        self.facts = ProgramFacts(program)
        self.accesses = accesses  # by line, where something that the compiler was told may be untrue
        self.constants: dict[str, Any] = {}
        self.begin()
        self.lines: list[str] = []
        self.indent = ""
        self.blocks: list[list[Operation]] = []
        self.products: Counter = Counter()
        self.names: dict[str, str] = {}
        self.numbers = 0
        self.last = ""
        self.done: list[Operation] = []  # operations in the order of their translation: the code's lines end in their number

    def begin(self) -> None:
        """Know no value: names of values are a function's own."""
        self.types: dict[str, Type | None] = {}
        self.defined: dict[str, Operation] = {}
        self.users: dict[str, list[Operation]] = {}
        self.incoming: dict[str, list[str]] = {}  # argument of a block -> what branches give it
        self.undefined: UndefinedLanes | None = None
        self.replaced: set[str] = set()  # values that the code of an earlier operation made already

    @cached_property
    def contraction(self) -> Contraction:
        """What the compiler made of this program's sums."""
        return Contraction(self.program, int(self.arch.removeprefix("sm_")))

    # -- what lowerings use -------------------------------------------------------------------------------------------
    def constant(self, value: Any) -> str:
        """A name by which the generated code reaches `value`."""
        name = f"k{len(self.constants)}"
        self.constants[name] = value
        return name

    def value(self, name: str) -> str:
        """The local variable that holds the value `name`."""
        if name not in self.names:
            self.names[name] = f"v{len(self.names)}"
        return self.names[name]

    def values(self, names: list[str]) -> str:
        return ", ".join(self.value(n) for n in names)

    def emit(self, line: str) -> None:
        self.lines.append(f"{self.indent}{line}  #@{len(self.done) - 1}")

    def call(self, op: Operation, function: Callable, *extra: str) -> None:
        """`results = function(operands..., extra...)`."""
        arguments = ", ".join([self.value(n) for n in op.operands] + list(extra))
        self.emit(f"{self.target(op)}{self.constant(function)}({arguments})")

    def check_vectors(self, op: Operation, pointer: str, mask: str) -> None:
        """Hold what `op` moves at once to the addresses in the local variable `pointer`, where `mask` (or "None")."""
        access = self.accesses.get(op.line) if self.accesses else None
        if access is not None:
            names = [self.constant(each) for each in (check, op, access)]
            self.emit(f"{names[0]}(m, {names[1]}, {names[2]}, {self.operand(op, 0).itemsize}, {pointer}, {mask})")

    def meet(self, *, warps: bool = False) -> None:
        """The lowering of the operation has a barrier of all threads, or only moves values from thread to thread inside `warps`.
        Where no program touches again what it wrote, threads that meet in their warp order nothing."""
        if not warps:
            self.emit("m.meet()")
        elif self.facts.returns_to:
            self.emit("m.meet_warps()")

    def owners(self, kind: Type) -> Owners:
        """Which thread holds each element of a value of the type `kind`."""
        return owners(kind, self.program.expand(kind.layout))

    def target(self, op: Operation) -> str:
        return f"{self.values(op.results)} = " if op.results else ""

    def alias(self, op: Operation, name: str) -> None:
        """The one result of `op` is the value `name` itself."""
        self.emit(f"{self.value(op.results[0])} = {self.value(name)}")

    def result(self, op: Operation) -> Type:
        """Type of the one result; refused when it is not modelled."""
        return self.typed(op, op.outputs[0])

    def operand(self, op: Operation, index: int) -> Type:
        return self.typed(op, op.inputs[index])

    @staticmethod
    def typed(op: Operation, found: Type | None) -> Type:
        if found is None:
            raise NotModelled(op, "a type of " + op.text[:160])
        return found

    # -- the translation ----------------------------------------------------------------------------------------------
    def number(self) -> int:
        """A number that names something new."""
        self.numbers += 1
        return self.numbers

    def kind_of(self, name: str) -> str:
        """Kind of the type of the value `name`; empty when it is not modelled."""
        found = self.types.get(name)
        return found.kind if found else ""

    def nested(self, name: str, blocks: list[Block]) -> None:
        """A generator function inside the one being written, which sees its values; `last` is its name."""
        depth = self.indent
        lines = self.function(name, blocks)
        for line in lines:
            self.lines.append(depth + line)
        self.indent = depth
        self.last = name

    def function(self, name: str, blocks: list[Block]) -> list[str]:
        """The lines of a generator function that runs `blocks`."""
        outer, depth = self.lines, self.indent
        self.lines, self.indent = [], "    "
        arguments = [self.value(a) for a, _ in blocks[0].arguments]
        labels = {block.label: i for i, block in enumerate(blocks)}
        self.emit("if False: yield")
        if len(blocks) > 1:
            self.emit("b = 0")
            self.emit("while True:")
        for i, block in enumerate(blocks):
            if len(blocks) > 1:
                self.indent = "        "
                self.emit(f"{'if' if i == 0 else 'elif'} b == {i}:")
                self.indent = "            "
            self.emit(f"m.tick({len(self.blocks)}, {len(block.operations)})")
            self.blocks.append(block.operations)
            for operation in block.operations:
                self.operation(operation, blocks, labels)
        body, self.lines, self.indent = self.lines, outer, depth
        return [f"def {name}({', '.join(['m', *arguments])}):", *body]

    def operation(self, op: Operation, blocks: list[Block], labels: dict[str, int]) -> None:
        self.done.append(op)
        if op.successors:
            self.branch(op, blocks, labels)
            return
        lowering = LOWERINGS.get(op.name)
        if lowering is None:
            raise NotModelled(op)
        try:
            if not op.results or op.results[0] not in self.replaced:
                lowering(self, op)
        except (KeyError, ValueError, IndexError) as error:
            raise NotModelled(op, f"in this form ({error})") from error
        if self.accesses is not None and (hints := hints_of(op)):
            self.emit(f"{self.constant(note)}(m, {self.constant(op)}, {self.constant(hints)}, {self.value(op.results[0])})")
        if self.undefined:
            self.undefined.follow(op)

    def branch(self, op: Operation, blocks: list[Block], labels: dict[str, int]) -> None:
        def go(label: str, given: list[str]) -> str:
            at = labels[label]
            arguments = [a for a, _ in blocks[at].arguments]
            move = f"{self.values(arguments)} = {self.values(given)}; " if arguments else ""
            lanes = self.undefined.handed(arguments, given) if self.undefined else ""
            return f"{lanes}{move}b = {at}"

        if op.name == "cf.br":
            self.emit(go(op.successors[0], op.operands))
        elif op.name == "cf.cond_br":
            condition, first, second = op.segments()
            if self.undefined:
                self.undefined.branched(op, condition[0])
            self.emit(f"if {self.value(condition[0])}: {go(op.successors[0], first)}")
            self.emit(f"else: {go(op.successors[1], second)}")
        else:
            raise NotModelled(op)

    def scan(self, blocks: list[Block]) -> None:
        """Note who defines and who uses each value, regions included."""
        arguments = {block.label: [value for value, _ in block.arguments] for block in blocks}
        for block in blocks:
            for value, text in block.arguments:
                self.types[value] = parse_type(text)
            for op in block.operations:
                for value in op.operands:
                    self.users.setdefault(value, []).append(op)
                for value, found in zip(op.results, op.outputs, strict=True):
                    self.defined[value] = op
                    self.types[value] = found
                for label, given in zip(op.successors, op.segments()[1:] if len(op.successors) > 1 else [op.operands]):
                    for argument, value in zip(arguments[label], given):
                        self.incoming.setdefault(argument, []).append(value)
                for region in op.regions:
                    self.scan(region)


def _entry_types(function: Function) -> list[Type]:
    found = []
    for value, text in function.blocks[0].arguments:
        kind = parse_type(text)
        if kind is None:
            raise EmulatedFault("not modelled", f"argument {value} of {function.name} has the type {text}")
        found.append(kind)
    return found


def translate(
    text: str, *, arch: str, fused: bool, widths: Callable[[Program], dict[int, Access] | None] = lambda program: None
) -> Translated:
    """The tile program `text` as Python, each access held to its width where `widths` says one by line. Raises EmulatedFault
    "not modelled", with the operation and its line, for what is not known."""
    from bitverdict.harness.emulator.frontend import lowerings  # noqa: F401  (fills the table)

    program = parse_program(text)
    if program.integer("ttg.num-ctas", 1) != 1:
        raise EmulatedFault(
            "not modelled", f"num_ctas = {program.integer('ttg.num-ctas')}: clusters are not modelled, launch with num_ctas=1"
        )
    check_instructions(program, arch)
    translator = Translator(program, arch=arch, fused=fused, accesses=widths(program))
    for function in program.functions.values():
        translator.begin()
        translator.scan(function.blocks)
        translator.undefined = UndefinedLanes(translator, function.blocks, program) or None
        translator.lines += translator.function(f"f_{function.name}", function.blocks)
    source = "\n".join(translator.lines)
    namespace = dict(translator.constants)
    name = hashlib.sha256(text.encode()).hexdigest()[:12]
    exec(
        compile(source, f"<tile program {name}>", "exec"), namespace
    )  # the text is ours: made by this module from a parsed program
    entry = program.entry
    run, types = namespace[f"f_{entry.name}"], _entry_types(entry)
    ready = Translated(program, run, types, translator.blocks, source, translator.facts, translator.products, translator.done)
    namespace[TRANSLATED] = ready  # whoever looks at a running frame finds the operation by it
    return ready

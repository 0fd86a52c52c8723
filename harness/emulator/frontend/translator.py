"""From a tile program to Python: each function is translated once, to a generator that runs one program of the grid.

Every operation has an entry in `LOWERINGS`, the table that says what its lowering decides. An operation without one, or in a form
that is not known, is refused here, before anything runs. The code is straight lines of calls, one local variable a value, one
branch a block; it yields where the program may have to wait for another agent. Variables have the names of the program's values,
and the first line of each operation ends in its name and line.
"""

# One file because every lowering is given the one object that holds the names and the text so far.
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec

from bitverdict.harness.emulator.backends import backend_of
from bitverdict.harness.emulator.execution.cta import Cta
from bitverdict.harness.emulator.execution.onchip_access import OnChipMemory
from bitverdict.harness.emulator.execution.threads import Owners, owners
from bitverdict.harness.emulator.faults import NotModelled
from bitverdict.harness.emulator.frontend.access_widths import Access
from bitverdict.harness.emulator.frontend.carried_reals import CarriedReals
from bitverdict.harness.emulator.frontend.cluster_layouts import Split, commits, split
from bitverdict.harness.emulator.frontend.contraction import AmdContraction, Contraction
from bitverdict.harness.emulator.frontend.generated_code import Code, Writer, gives_nothing, register_in
from bitverdict.harness.emulator.frontend.hints import check, hints_of, note
from bitverdict.harness.emulator.frontend.lane_words import LaneWords
from bitverdict.harness.emulator.frontend.program_facts import ProgramFacts
from bitverdict.harness.emulator.frontend.region_sums import Side
from bitverdict.harness.emulator.memory.undefined_lanes import UndefinedLanes
from bitverdict.harness.emulator.mlir_reader import Block, Function, Operation, Program
from bitverdict.harness.emulator.mlir_types import Type, parse_type

if TYPE_CHECKING:
    from bitverdict.harness.emulator.frontend.enclosure_code import EnclosureWriter
    from bitverdict.harness.emulator.frontend.lowerings.program_batches import Batches

LoweringFunction = Callable[["Translator", Operation], None]
LOWERINGS: dict[str, LoweringFunction] = {}
P = ParamSpec("P")
_TOKEN = Code("None")


class FunctionPlace(NamedTuple):
    """Where a function has its memory, which is laid out before the program runs: the first byte of its shared memory, and the
    lines of the `calls` that led to it, each of which has scratch memory of its own."""

    shared_base: int = 0
    calls: tuple[int, ...] = ()


class OpenChoice(NotModelled):
    """A sum of which the compiled program does not show what became of it: an enclosure holds each possibility."""


def lowers(*names: str) -> Callable[[LoweringFunction], LoweringFunction]:
    """Register the lowering of the operations `names`."""
    return register_in(LOWERINGS, *names)


class Translator(Writer):
    """The state of one translation: names of values, constants of the generated code, the text so far.

    Tokens order operations for the compiler. The machine keeps for itself what orders them, so no token is in the code."""

    def __init__(
        self,
        program: Program,
        *,
        arch: str,
        fuses: bool,
        flushes: bool = True,
        accesses: dict[int, Access] | None = None,
        real_values: frozenset[str] | None = None,
    ) -> None:
        super().__init__()
        self.declared = real_values
        self.enclosing: EnclosureWriter | None = None  # what writes the code for enclosures, where there is some
        self.program, self.arch, self.fuses_sums, self.flushes = program, arch, fuses, flushes
        self.backend = backend_of(arch)
        self.facts = ProgramFacts(program)
        self.accesses = accesses  # by line, where something that the compiler was told may be untrue
        self.begin()
        self.blocks: list[list[Operation]] = []
        self.products: Counter = Counter()
        self.functions: dict[tuple[str, FunctionPlace], Code] = {}
        self.asked: list[tuple[Function, FunctionPlace]] = []  # functions that are named and not written yet
        self.place_of_function = FunctionPlace()  # of the function being written
        self.scratch_numbers: dict[tuple[tuple[int, ...], int], int] = {}  # of an allocation of scratch memory, by calls and line
        self.done: list[Operation] = []  # operations in the order of their translation
        self.numbers: list[int] = []  # for each line of code the number of its operation in `done`
        self.current = 0
        self.comment = ""  # for the next line
        self.batches: Batches | None = None  # while a function is written for several programs at once
        self.leading = 0  # axes that arrays have in front of those of their types

    def begin(self) -> None:
        """Know no value: names of values are a function's own."""
        self.names: dict[str, Code] = {}
        self.types: dict[str, Type | None] = {}
        self.defined: dict[str, Operation] = {}
        self.users: dict[str, list[Operation]] = {}
        self.incoming: dict[str, list[str]] = {}  # argument of a block -> what branches give it
        self.combined: dict[str, list[str]] = {}  # argument of the function of a reduction or scan -> what it combines
        self.doubted_sums: set[int] = set()  # lines of sums of such functions, of which the compiled program says too little
        self.region_sides: dict[int, Side] = {}  # of the sums, by line, of the function that is being written
        self.region_number: Any = None  # the variable of what that function combines, in numbers
        self.region_factors: dict[str, tuple[str, str]] = {}  # argument of that function -> the factors of the product that it is
        self.undefined: UndefinedLanes | None = None
        self.reals = CarriedReals(self, self.declared) if self.declared is not None else None
        self.lane_words = LaneWords(self)
        self.scaled: dict[tuple[str, int], Code] = {}  # of this block: (offsets, bytes of an element) -> the offsets in bytes
        self.replaced: set[str] = set()  # values that the code of an earlier operation made already

    @cached_property
    def contraction(self) -> Contraction | AmdContraction:
        """What the compiler made of this program's sums."""
        if not self.backend.assembles_ptx:
            return AmdContraction(self.program, self.arch)
        return Contraction(self.program, self.backend.capability(self.arch))

    @property
    def ctas(self) -> int:
        """How many CTAs a cluster of the launch has; a cluster is one program."""
        return self.program.integer("ttg.num-ctas", 1)

    def split(self, kind: Type) -> Split:
        """How a value of the type `kind` is dealt out to the CTAs of the cluster."""
        return split(self.program.expand(kind.layout), kind.shape)

    def commits(self, op: Operation, operands: Iterable[str], *, multicast: bool) -> int:
        """How many arrivals each CTA's barrier sees when `op`, a product of `operands` or its commit, is complete."""
        if not multicast:
            return 1
        kinds = [self.require_type(op, self.types.get(name)) for name in operands]
        return commits(
            (self.program.expand(kind.layout) for kind in kinds), two_ctas=self.program.attributes.get("ttng.two-ctas") == "true"
        )

    @cached_property
    def reinterprets(self) -> bool:
        """Whether shared memory is read by another layout than it was written in: then where its elements lie is seen."""
        return any(
            op.name == "ttg.memdesc_reinterpret" and (kind := op.outputs[0]) is not None and kind.space == "shared"
            for op in self.program.operations()
        )

    def constant(self, value: Any, wished: str = "") -> Code:
        """A name by which the generated code reaches `value`; a function that a lowering made is called as its operation."""
        if "<locals>" in getattr(value, "__qualname__", "") and self.current < len(self.done):
            wished = wished or self.done[self.current].name.rpartition(".")[2]
        return super().constant(value, wished)

    # -- what lowerings use: values -----------------------------------------------------------------------------------
    def value(self, name: str) -> Any:
        """The local variable that holds the value `name`, as `Code`: `Any`, so that mypy takes it for what it holds at run time."""
        if (found := self.names.get(name)) is None:
            found = self.names[name] = _TOKEN if self.kind_of(name) == "token" else self.name(name)
        return found

    def values(self, names: Iterable[str]) -> Any:
        """The variables of `names`, tokens left out, with commas between."""
        return self.join_values(value for value in map(self.value, names) if value is not _TOKEN)

    def operands(self, op: Operation, *names: str) -> tuple[Any, ...]:
        """The values of the operands of `op` by name (`Operation.operands_by_name`): for "x" its variable, for "x?" that or None,
        for "x*" a tuple. NotModelled where the operation has others."""
        found: list[Any] = []
        for name, group in zip(names, op.operands_by_name(*names).values(), strict=True):
            values = tuple(self.value(each) for each in group)
            found.append(values if name.endswith("*") else values[0] if values else None)
        return tuple(found)

    # -- what lowerings use: code -------------------------------------------------------------------------------------
    def machine(
        self, op: Operation, function: Callable[Concatenate[Any, Operation, P], Any], *given: P.args, **named: P.kwargs
    ) -> None:
        """`results = function(op, given...)`, of a method of the program that runs or of one of its units (`UNIT_OF`), or of a
        function that takes the program first. mypy holds `given` to the parameters, and so does the translation."""
        self._call(op, function, op, *given, **named)

    def machine_without_op(
        self, op: Operation, function: Callable[Concatenate[Any, P], Any], *given: P.args, **named: P.kwargs
    ) -> None:
        """As `machine`, of a method that need not know the operation."""
        self._call(op, function, *given, **named)

    def _call(self, op: Operation, function: Callable, *given: Any, **named: Any) -> None:
        call = self.calls(function, *given, **named)
        if not (targets := self.values(op.results)):
            self.emit("{}", call)
            return
        if gives_nothing(function):
            raise TypeError(f"{function.__qualname__} gives nothing, and {op.name} has results")
        self.emit("{} = {}", targets, call)

    def call(self, op: Operation, function: Callable, *extra: Any) -> None:
        """`results = function(operands..., extra...)`, of a function that needs no machine."""
        self.assign(op, self.apply(function, *(self.value(name) for name in op.operands), *extra))

    def apply(self, function: Callable, *given: Any) -> Any:
        """The expression `function(given...)`, of a function that needs no machine."""
        return Code(f"{self.constant(function)}({', '.join(map(self.text, given))})")

    def assign(self, op: Operation, value: Any) -> None:
        """`results = value`."""
        self.emit("{} = {}", self.values(op.results), value)

    def check_vectors(self, op: Operation, pointer: Any, mask: Any) -> Any:
        """Hold what `op` moves at once to the addresses in the variable `pointer`, where `mask` (or None). The variable of the
        elements that it takes from elsewhere, where these are followed; else None."""
        access = self.accesses.get(op.line) if self.accesses else None
        if access is None:
            return None
        followed = self.undefined is not None and id(op) in self.undefined.displaced
        held = self.calls(check, op, access, self.operand(op, 0).itemsize, pointer, mask, self._promises(op.operands), followed)
        if not followed:
            self.emit("{}", held)
            return None
        elsewhere = self.displaced_lanes_of(op)
        self.emit("{} = {}", elsewhere, held)
        return elsewhere

    def displaced_lanes_of(self, op: Operation) -> Any:
        """The variable that says which elements the load `op` takes from elsewhere."""
        return self.value(f"{op.results[0]}~elsewhere")

    def _promises(self, values: Iterable[str]) -> frozenset[int | str] | None:
        """Operations, by their line in the program's text, and arguments of the entry that `values` come of; None where that is not
        known, as in a function that is called."""
        lines, worklist, visited_values = set[int | str](), list(values), set[str]()
        arguments = {name for name, _ in self.program.entry.blocks[0].arguments}
        while worklist:
            value = worklist.pop()
            if value in visited_values:
                continue
            visited_values.add(value)
            op = self.defined.get(value)
            if op is not None:
                lines.add(op.line)
                worklist += op.operands
            elif value in self.incoming:
                worklist += self.incoming[value]
            elif value in arguments and len(self.program.functions) == 1:
                lines.add(value)
            else:
                return None
        return frozenset(lines)

    def meet(self, *, warps: bool = False) -> None:
        """The lowering of the operation has a barrier of all threads, or only moves values from thread to thread inside `warps`.
        Where no program touches again what it wrote, threads that meet in their warp order nothing."""
        if self.batches is not None:
            return
        if not warps:
            self.emit("{}", self.calls(Cta.meet))
        elif self.facts.returns_to:
            self.emit("{}", self.calls(Cta.meet_warps))

    def scratch(self, op: Operation, size: int = 0) -> bool:
        """Whether the compiled form of `op` goes through shared memory, `size` bytes unless it says how many: then the code says
        that what lay there is lost."""
        if "allocation.offset" not in op.attributes or not (size := op.integer("allocation.size", 0) or size):
            return False
        if self.batches is None:
            self.emit("{}", self.calls(OnChipMemory.scratch, op, self.place(op), size))
        return True

    def owners(self, kind: Type) -> Owners:
        """Which thread holds each element of a value of the type `kind`."""
        return owners(kind, self.program.expand(kind.layout))

    def alias(self, op: Operation, name: str) -> None:
        """The one result of `op` is the value `name` itself."""
        self.assign(op, self.value(name))

    def result(self, op: Operation) -> Type:
        """Type of the one result; refused when it is not modelled."""
        return self.require_type(op, op.outputs[0])

    def operand(self, op: Operation, index: int) -> Type:
        return self.require_type(op, op.inputs[index])

    @staticmethod
    def require_type(op: Operation, found: Type | None) -> Type:
        if found is None:
            raise NotModelled(op, "a type of " + op.text[:160])
        return found

    def name_of(self, function: Function, place: FunctionPlace | None = None) -> Code:
        """What the generated code calls `function` at `place`: one that was not inlined is written once for each place where its
        callers have room for it."""
        key = function.name, place or FunctionPlace()
        if key not in self.functions:
            self.functions[key] = self.name(function.name)
            self.asked.append((function, key[1]))
        return self.functions[key]

    def place(self, op: Operation) -> int:
        """Where in shared memory the compiler laid what `op` uses."""
        return self.place_of_function.shared_base + op.integer("allocation.offset")

    def scratch_number(self, op: Operation) -> int:
        """Which scratch memory of the program `op` allocates: each call of a function has its own."""
        return self.scratch_numbers.setdefault((self.place_of_function.calls, op.line), len(self.scratch_numbers))

    # -- the translation ----------------------------------------------------------------------------------------------
    def emit(self, template: str, *given: Any) -> None:
        super().emit(template, *given)
        self.numbers.append(self.current)
        if self.comment:
            self.remark(self.comment)
            self.comment = ""

    def type_of(self, op: Operation, name: str, names: tuple[str, ...]) -> Type:
        """Type of the operand `name` of `names` (`Operation.operands_by_name`)."""
        return self.require_type(op, self.types.get(op.operands_by_name(*names)[name][0]))

    def kind_of(self, name: str) -> str:
        """Kind of the type of the value `name`; empty when it is not modelled."""
        found = self.types.get(name)
        return found.kind if found else ""

    def starts(self, name: Any, given: Iterable[str] = (), *, called: bool = False) -> Any:
        """The expression that starts the generator function `name` on the values `given`. `called`: it is no part of this one."""
        names = list(given)
        parts = self._append_values(
            self.values(names), [] if self.reals is None else self.reals.parameter_reals(names, called=called)
        )
        return Code(f"{name}({', '.join(['m', *([parts] if parts else [])])})")

    def handed_out(self, names: Iterable[str]) -> Any:
        """What a function or a region returns for the values `names`, with commas between; `result_targets` take it."""
        found = list(names)
        return self._append_values(self.values(found), [] if self.reals is None else self.reals.return_reals(found))

    def result_targets(self, op: Operation) -> Any:
        """The variables that take what a function or a region returns for the results of `op`."""
        return self._append_values(self.values(op.results), [] if self.reals is None else self.reals.result_variables(op.results))

    def _append_values(self, values: Any, more: list[Any]) -> Any:
        """`values`, with commas between, and `more` behind them."""
        return self.join_values([*([values] if values else []), *more])

    def nested_function(self, wished: str, blocks: list[Block]) -> Any:
        """The name of a generator function inside the one being written, which sees its values and runs `blocks`."""
        before, name = self.current, self.name(wished)
        self.function(name, blocks)
        self.current = before
        return name

    def function(self, name: str, blocks: list[Block]) -> None:
        """Write the generator function `name` that runs `blocks`."""
        self.current = len(self.done)
        arguments = self._append_values(
            self.values(a for a, _ in blocks[0].arguments), [] if self.reals is None else self.reals.parameters(blocks)
        )
        labels = {block.label: i for i, block in enumerate(blocks)}
        self.emit("def {}(m{}):", name, Code(f", {arguments}" if arguments else ""))
        with self.indent_block():
            if self.batches is None:
                self.emit("if False: yield")
            if self.reals is not None:
                self.reals.enter(blocks)
            if len(blocks) == 1:
                self.block(blocks[0], blocks, labels)
                return
            self.emit("block = 0")
            self.emit("while True:")
            with self.indent_block():
                for i, block in enumerate(blocks):
                    self.current = len(self.done)
                    self.emit("if block == {}:" if i == 0 else "elif block == {}:", i)
                    with self.indent_block():
                        self.block(block, blocks, labels)

    def block(self, block: Block, blocks: list[Block], labels: dict[str, int]) -> None:
        """Write the code of `block`, behind the count of what it executes."""
        before, self.scaled = self.scaled, {}
        self.emit("{}", self.calls(Cta.tick, len(self.blocks), len(block.operations)))
        self.blocks.append(block.operations)
        for operation in block.operations:
            self.operation(operation, blocks, labels)
        self.scaled = before

    def operation(self, op: Operation, blocks: list[Block], labels: dict[str, int]) -> None:
        """Write the code of `op`, a comment behind its first line."""
        before, self.current = self.current, len(self.done)
        self.done.append(op)
        self.comment = f"{op.name}  {op.location.rpartition('/')[2]}".rstrip()
        self._operation(op, blocks, labels)
        self.current, self.comment = before, ""

    def _operation(self, op: Operation, blocks: list[Block], labels: dict[str, int]) -> None:
        if op.successors:
            self.lane_words.follow(op)
            self.branch(op, blocks, labels)
            return
        if op.name not in LOWERINGS:
            raise NotModelled(op)
        if self.reals is not None:
            self.reals.precede(op)
        try:
            if not op.results or op.results[0] not in self.replaced:
                self.lower(op)
        except ValueError as error:
            raise NotModelled(op, f"in this form ({error})") from error
        if self.accesses is not None and (hints := hints_of(op)):
            self.emit("{}", self.calls(note, op, hints, self.value(op.results[0])))
        self.lane_words.follow(op)
        if self.undefined:
            self.undefined.follow(op)
        if self.reals is not None:
            self.reals.follow(op)

    def lower(self, op: Operation) -> None:
        """Write `op` by its lowering."""
        if self.enclosing is not None:
            self.enclosing.write(op)
        else:
            self.lower_plainly(op)

    def lower_plainly(self, op: Operation) -> None:
        """Write `op` alone, and not what it does to enclosures."""
        if self.batches is not None:
            self.batches.lower(op)
        else:
            LOWERINGS[op.name](self, op)

    def branch(self, op: Operation, blocks: list[Block], labels: dict[str, int]) -> None:
        def go(label: str, value_names: list[str]) -> None:
            number = labels[label]
            arguments = [a for a, _ in blocks[number].arguments]
            if self.undefined:
                self.undefined.hand_over(arguments, value_names)
            self.lane_words.hand_over(arguments, value_names)
            if self.reals is not None:
                self.reals.hand_over(arguments, value_names)
            if moved := self.values(arguments):
                self.emit(
                    "{} = {}",
                    moved,
                    self.values(value_names) if self.batches is None else self.batches.branch_values(arguments, value_names),
                )
            self.emit("block = {}", number)

        ways = op.branch_operands()
        if len(ways) == 1:
            go(op.successors[0], ways[0])
            return
        condition = op.operands[0]
        if self.undefined:
            self.undefined.check_branch(op, condition)
        if self.reals is not None:
            self.reals.check_branch(op, condition)
        if self.enclosing is not None:
            self.enclosing.check_branch(op, condition)
        with self.when(self.value(condition) if self.batches is None else self.batches.condition(condition)):
            go(op.successors[0], ways[0])
        self.emit("else:")
        with self.indent_block():
            go(op.successors[1], ways[1])

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
                for label, given in zip(op.successors, op.branch_operands(), strict=True):
                    for argument, value in zip(arguments[label], given, strict=True):
                        self.incoming.setdefault(argument, []).append(value)
                for region in op.regions:
                    self.scan(region)
                    if op.name in ("tt.reduce", "tt.scan") and len(region[0].operations) > 2:
                        pairs = [[*pair] for pair in zip(op.operands, region[0].operations[-1].operands, strict=True)]
                        self.combined |= {name: pairs[i % len(pairs)] for i, (name, _) in enumerate(region[0].arguments)}

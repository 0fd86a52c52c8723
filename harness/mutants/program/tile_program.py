"""A tile program as operators look at it: its operations, who defines and uses each value, its loops and its arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from bitverdict.harness.emulator.mlir_reader import Block, Function, Operation, parse_program
from bitverdict.harness.emulator.mlir_types import parse_type
from bitverdict.harness.mutants.program.lines import Line, line_of

CACHE_SIZE = 256  # programs of one process


@dataclass(frozen=True)
class Place:
    """An operation by what it is in the source, the same in every program that the kernel is compiled to: the function, the line
    (0 where it has none), the operation's name, and how many of that name and line come before it."""

    function: str
    line: int
    operation: str
    ordinal: int


@dataclass(frozen=True, eq=False)
class Site:
    """An operation where it stands."""

    program: TileProgram
    place: Place
    op: Operation
    region: tuple[int, int]
    """First and last line of the innermost region around it, which names of values belong to."""
    function: Function
    block: Block
    blocks: list[Block]
    around: str
    """The operation that the region is of: "tt.func", "tt.reduce", "ttg.warp_specialize.partitions", ..."""

    @cached_property
    def line(self) -> Line:
        return self.program.line(self.op)

    @property
    def file(self) -> str:
        return self.program.file_of(self.op)

    @cached_property
    def users(self) -> list[Operation]:
        """The operations that use a result of this one."""
        names = set(self.op.results)
        first, last = self.region
        return [op for name in names for op in self.program.users.get(name, ()) if first <= op.line <= last and op is not self.op]

    def definer(self, value: str) -> Operation | None:
        """The operation that defines `value`, as seen from here; None for an argument of a function or of a block."""
        return next((op for op in self.program.definers.get(value, ()) if op.line < self.op.line), None)

    def constant(self, value: str) -> str | None:
        """What `value` is, where it is a constant: "32 : i32", "dense<0> : tensor<...>", "true"."""
        op = self.definer(value)
        return op.attributes.get("value") if op is not None and op.name == "arith.constant" else None

    def exchangeable_arguments(self, value: str) -> list[str]:
        """The arguments of the kernel that `value`, which is one too, could be exchanged for: those of the same type."""
        arguments = self.function.blocks[0].arguments
        kinds = dict(arguments)
        if value not in kinds:
            return []
        return [name for name, kind in arguments if kind == kinds[value] and name != value]


class TileProgram:
    """A tile program, read. `text` is what the compiler made."""

    def __init__(self, text: str) -> None:
        self.text, self.lines = text, text.split("\n")
        self.program = parse_program(text)
        self.users: dict[str, list[Operation]] = {}
        self.definers: dict[str, list[Operation]] = {}
        self.sites: dict[Place, Site] = {}
        self._lines: dict[int, Line] = {}
        counts: Counter[tuple[str, int, str]] = Counter()
        line_count = len(self.lines)
        for op in self.program.operations():
            for value in op.operands:
                self.users.setdefault(value, []).append(op)
            for value in op.results:
                self.definers.setdefault(value, []).append(op)
        for function in self.program.functions.values():
            for op, region, block, blocks, around in _all_operations(function.blocks, (0, line_count), "tt.func"):
                number = self.number_of(op)
                counts[key := (function.name, number, op.name)] += 1
                place = Place(*key, counts[key] - 1)
                self.sites[place] = Site(self, place, op, region, function, block, blocks, around)

    def line(self, op: Operation) -> Line:
        if op.line not in self._lines:
            self._lines[op.line] = line_of(self.lines[op.line])
        return self._lines[op.line]

    def number_of(self, op: Operation) -> int:
        """The line of the kernel's source that `op` comes from; of a constant that stands at none that of its first user."""
        number = op.location.rpartition(":")[2]
        if number:
            return int(number)
        user = next((user for name in op.results for user in self.users.get(name, ()) if user.location), None)
        return int(user.location.rpartition(":")[2]) if user is not None and not op.operands else 0

    def file_of(self, op: Operation) -> str:
        if op.location:
            return op.location.rpartition(":")[0]
        user = next((user for name in op.results for user in self.users.get(name, ()) if user.location), None)
        return user.location.rpartition(":")[0] if user is not None else ""

    @cached_property
    def arguments(self) -> dict[str, list[str]]:
        """Of each name of an argument of a function or of a block the types of all that are called so."""
        found: dict[str, list[str]] = {}
        for block in {id(block): block for site in self.sites.values() for block in site.blocks}.values():
            for name, kind in block.arguments:
                found.setdefault(name, []).append(kind)
        return found

    @cached_property
    def loops(self) -> dict[str, tuple[Block, list[Operation]]]:
        """By label (those of partitions may repeat: the first) each block that a later one branches back to, and those branches."""
        loops_by_label: dict[str, tuple[Block, list[Operation]]] = {}
        for site in self.sites.values():
            labels = {block.label: i for i, block in enumerate(site.blocks)}
            for label in site.op.successors:
                if labels[label] <= labels[site.block.label]:
                    loops_by_label.setdefault(label, (site.blocks[labels[label]], []))[1].append(site.op)
        return loops_by_label


def _all_operations(
    blocks: list[Block], region: tuple[int, int], around: str
) -> Iterator[tuple[Operation, tuple[int, int], Block, list[Block], str]]:
    for block in blocks:
        for op in block.operations:
            yield op, region, block, blocks, around
            for inner in op.regions:
                yield from _all_operations(inner, _lines_of(inner), op.name)


def _lines_of(blocks: list[Block]) -> tuple[int, int]:
    """First and last line of the operations of a region, its first label not counted."""
    return blocks[0].operations[0].line, blocks[-1].operations[-1].last_line


@lru_cache(maxsize=CACHE_SIZE)
def tile_program(text: str) -> TileProgram:
    return TileProgram(text)


def is_integer(kind: str) -> bool:
    """Whether a value of the type `kind` (its text) is an integer, or a tensor of some."""
    found = parse_type(kind)
    return found is not None and found.kind in ("scalar", "tensor") and not found.pointers and found.element.startswith("i")


def is_boolean(kind: str) -> bool:
    found = parse_type(kind)
    return found is not None and found.kind in ("scalar", "tensor") and not found.pointers and found.element == "i1"


def is_float(kind: str) -> bool:
    found = parse_type(kind)
    return found is not None and found.kind in ("scalar", "tensor") and not found.pointers and not found.element.startswith("i")


def is_tensor(kind: str) -> bool:
    return kind.startswith("tensor<")

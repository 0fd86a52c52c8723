"""The tile program: functions, blocks and operations, read from MLIR's generic assembly.

The generic form has one grammar for every operation (name, operands, successors, properties, regions, types, location), so an
operation that nobody has seen before is still read, and refused by name rather than misread.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from bitverdict.harness.emulator.faults import NotModelled
from bitverdict.harness.emulator.mlir_types import Type, closing_position, parse_type, split_top


@dataclass(eq=False)
class Block:
    label: str
    arguments: list[tuple[str, str]] = field(default_factory=list)  # (value, type text)
    operations: list[Operation] = field(default_factory=list)


@dataclass(eq=False)
class Operation:
    """One operation. `results` and `operands` are value names (``%a``, ``%a#1``), `attributes` raw texts by name."""

    name: str
    results: list[str]
    operands: list[str]
    attributes: dict[str, str]
    operand_types: list[str]
    result_types: list[str]
    successors: list[str]
    location: str  # file:line of the first frame outside Triton itself
    text: str
    regions: list[list[Block]] = field(default_factory=list)
    line: int = 0  # of the program's text, from 0

    @property
    def last_line(self) -> int:
        """The line that ends the operation, where the compiler names its location."""
        return self.regions[-1][-1].operations[-1].last_line + 1 if self.regions else self.line

    def integer(self, name: str, default: int | None = None) -> int:
        """Integer attribute `name`; ValueError when it is absent and has no default."""
        text = self.attributes.get(name)
        if text is None:
            if default is None:
                raise ValueError(f"{self.name} has no attribute {name!r}: {self.text}")
            return default
        if text in ("true", "false"):
            return int(text == "true")
        return int(text.split(" ")[0], 0)

    def integers(self, name: str) -> list[int]:
        """`array<i32: 1, 2>` or `[1 : i32, ...]` as a list."""
        text = self.attributes[name]
        return [
            int(n)
            for n in re.findall(r"-?\d+", text.split(":", 1)[1] if text.startswith("array<") else re.sub(r": i\d+", "", text))
        ]

    def string(self, name: str) -> str:
        """String attribute `name`, empty when it is absent."""
        return unescape(self.attributes.get(name, '""')[1:-1])

    def flag(self, name: str) -> bool:
        return self.attributes.get(name, "false") != "false"

    def operands_by_name(self, *names: str) -> dict[str, list[str]]:
        """Operands by name: one name for each group that `operandSegmentSizes` counts, or for each operand where there is none. A
        name that ends in "?" is of at most one operand, in "*" of any number; without groups one name may. NotModelled where the
        operation has other groups or operands: nothing is taken for something else."""
        if "operandSegmentSizes" in self.attributes:
            sizes, group_kind = self.integers("operandSegmentSizes"), "operand groups"
        else:
            spare, group_kind = len(self.operands) - sum(name[-1] not in "?*" for name in names), "operands"
            sizes = [1 if name[-1] not in "?*" else spare for name in names]
            if sum(sizes) != len(self.operands):  # two that end in "*" would need groups
                sizes = [1] * len(self.operands) if sum(name.endswith("*") for name in names) < 2 else []
        bounds = {"?": range(2), "*": range(len(self.operands) + 1)}
        fits = len(sizes) == len(names) and sum(sizes) == len(self.operands)
        if not fits or any(size not in bounds.get(name[-1], (1,)) for name, size in zip(names, sizes)):
            raise NotModelled(self, f"with {group_kind} {sizes}, where it is known with {', '.join(names) or 'none'}")
        groups, at = {}, 0
        for name, size in zip(names, sizes):
            groups[name.rstrip("?*")] = self.operands[at : at + size]
            at += size
        return groups

    def branch_operands(self) -> list[list[str]]:
        """For each successor of a branch the values that it is given. NotModelled where it is neither `cf.br` nor `cf.cond_br`."""
        if not self.successors:
            return []
        if self.name == "cf.br":
            return [self.operands]
        if self.name != "cf.cond_br":
            raise NotModelled(self)
        groups = self.operands_by_name("condition", "true*", "false*")
        return [groups["true"], groups["false"]]

    @cached_property
    def inputs(self) -> list[Type | None]:
        return [parse_type(t) for t in self.operand_types]

    @cached_property
    def outputs(self) -> list[Type | None]:
        return [parse_type(t) for t in self.result_types]

    @property
    def brief(self) -> str:
        """The operation as a person reads it: no types, no location."""
        head = f"{', '.join(self.results)} = " if self.results else ""
        shown = {k: v for k, v in self.attributes.items() if k not in ("operandSegmentSizes", "resultSegmentSizes")}
        tail = " {" + ", ".join(f"{k} = {v}" if v else k for k, v in shown.items()) + "}" if shown else ""
        return f"{head}{self.name} {', '.join(self.operands)}{tail}"


@dataclass(eq=False)
class Function:
    name: str
    public: bool
    blocks: list[Block]
    argument_attributes: list[dict[str, str]] = field(default_factory=list)  # attributes of each argument; empty where none has any


@dataclass(eq=False)
class Program:
    """A module: its functions, its attributes (``ttg.shared``, ``ttg.num-warps``, ...), its layout aliases."""

    functions: dict[str, Function]
    attributes: dict[str, str]
    aliases: dict[str, str]
    text: str

    @property
    def entry(self) -> Function:
        return next(f for f in self.functions.values() if f.public)

    def operations(self) -> Iterator[Operation]:
        """All operations in the order of the text, those of regions included."""
        for function in self.functions.values():
            yield from nested_operations(function.blocks)

    def integer(self, name: str, default: int = 0) -> int:
        text = self.attributes.get(name)
        return default if text is None else int(text.split(" ")[0])

    def expand(self, text: str) -> str:
        """`text` with every ``#alias`` replaced by what it stands for. ValueError where that has no end, or a very far one."""
        for _ in range(MOST_DEPTH):
            wider = re.sub(r"#\w+\b(?!\.)", lambda m: self.aliases.get(m[0], m[0]), text)
            if wider == text:
                return text
            if len(wider) > MOST_EXPANDED:
                break
            text = wider
        raise ValueError(f"aliases that stand for one another, or for more than {MOST_EXPANDED} characters: {text[:80]}")


def nested_operations(blocks: list[Block]) -> Iterator[Operation]:
    for block in blocks:
        for op in block.operations:
            yield op
            for region in op.regions:
                yield from nested_operations(region)


def make_names_unique(program: Program) -> None:
    """Give each value of a function a name of its own. MLIR prints a name again in regions that lie side by side, such as those of
    two `ttg.warp_specialize`, and in regions that see nothing from outside; what is kept by name would mix their values up."""
    for function in program.functions.values():
        _make_names_unique(function.blocks, set(), {})


def _make_names_unique(blocks: list[Block], used_names: set[str], outer_names: dict[str, str]) -> None:
    names = dict(outer_names)

    def unique_name(value: str) -> str:
        name, number = value, 0
        while name in used_names:
            number += 1
            name = f"{value}.{number}"
        used_names.add(name)
        names[value] = name
        return name

    for block in blocks:
        block.arguments = [(unique_name(value), text) for value, text in block.arguments]
        for op in block.operations:
            op.results = [unique_name(value) for value in op.results]
    for op in (op for block in blocks for op in block.operations):
        op.operands = [names.get(value, value) for value in op.operands]
        for region in op.regions:
            _make_names_unique(region, used_names, names)


MOST_DEPTH = 64  # regions in one another, aliases that stand for aliases; of the compiler's programs at most 4
MOST_EXPANDED = 1 << 16  # characters of one alias with all that it stands for
MOST_RESULTS = 9999  # of one operation
OPERATION = re.compile(r'\s*(?:(%[^=]*?) = )?"([\w.\-]+)"\(([^)]*)\)(?:\[([^\]]*)\])?')
_ALIAS = re.compile(r"^(#\w+) = (.*)$")


class _Locations:
    """The location aliases of a module's text, resolved to ``file:line``."""

    def __init__(self, lines: list[str]) -> None:
        self.aliases: dict[str, str] = {}
        self.locations: dict[str, str] = {}
        self.resolved: dict[str, tuple[str, bool]] = {}
        self.depth = 0
        for line in lines:
            if line.startswith("#") and (found := _ALIAS.match(line)):
                (self.locations if found[2].startswith("loc(") else self.aliases)[found[1]] = found[2]

    def resolve(self, text: str) -> tuple[str, bool]:
        """(file:line, whether it lies outside Triton) of a location's text; nothing where it is its own part, or very deep."""
        if text not in self.resolved:
            self.resolved[text] = "", False
            if self.depth < MOST_DEPTH:
                self.depth += 1
                self.resolved[text] = self._resolve(text)
                self.depth -= 1
        return self.resolved[text]

    def _resolve(self, text: str) -> tuple[str, bool]:
        if text.startswith("#"):
            return self.resolve(self.locations.get(text, "unknown"))
        if text.startswith("loc("):
            return self.resolve(text[4:-1])
        if text.startswith("callsite("):
            callee, _, caller = text[len("callsite(") : -1].partition(" at ")
            location = self.resolve(callee)
            return location if location[1] else self.resolve(caller)
        if plain := re.match(r'"([^"]*)":(\d+):\d+', text):
            return f"{plain[1]}:{plain[2]}", "/triton/" not in plain[1]
        if named := re.match(r'"[^"]*"\((.*)\)$', text):
            return self.resolve(named[1])
        if fused := re.match(r"fused(?:<.*?>)?\[(.*)\]$", text):
            return next((location for part in split_top(fused[1]) if (location := self.resolve(part))[1]), ("", False))
        return "", False


def escape(text: str) -> str:
    """`text` as MLIR writes it between quotes: printable, without a quote."""
    plain = (chr(byte) if 0x20 <= byte < 0x7F and byte != 0x22 else f"\\{byte:02X}" for byte in os.fsencode(text))
    return "".join("\\\\" if each == "\\" else each for each in plain)


def unescape(text: str) -> str:
    """What MLIR wrote as `text` between quotes."""
    if "\\" not in text:
        return text
    parts = re.split(r"\\(\\|[0-9A-Fa-f]{2})", text)
    found = [p.encode() if i % 2 == 0 else b"\\" if p == "\\" else bytes.fromhex(p) for i, p in enumerate(parts)]
    return os.fsdecode(b"".join(found))


def places(text: str, name: str) -> list[str]:
    """``file:line`` of each operation `name` in a module's text, in either assembly; the file as MLIR writes it between quotes."""
    if name not in text:  # most programs of Triton kernels have no fence before lowering
        return []
    lines = text.splitlines()
    locations = _Locations(lines)
    return [locations.resolve(line.rpartition(" loc(")[2][:-1])[0] for line in lines if re.search(rf"\b{re.escape(name)}\b", line)]


class _Reader:
    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.locations = _Locations(self.lines)
        self.depth = 0  # of regions
        self.at = next((i for i, line in enumerate(self.lines) if line.startswith('"builtin.module"')), len(self.lines))

    def line(self) -> str:
        """The line that is read next."""
        if self.at >= len(self.lines):
            raise ValueError("the tile program ends before its module does, or has none")
        return self.lines[self.at]

    def operation(self) -> Operation:
        number, line = self.at, self.line()
        self.at += 1
        found = OPERATION.match(line)
        if not found:
            raise ValueError(f"line {self.at} of the tile program is no operation: {line.strip()[:120]}")
        results, name, operands, successors = found.groups()
        rest = line[found.end() :]
        attributes: dict[str, str] = {}
        if rest.startswith(" <{"):
            end = closing_position(rest, 1)
            attributes |= _attributes(rest[3 : end - 2])
            rest = rest[end:]
        regions = []
        while rest.startswith((" ({", ", {")):
            regions.append(self.region())
            rest = self.line().strip()[1:]  # past the brace that ends the region
            self.at += 1
            if rest.startswith(")"):
                rest = rest[1:]
                break
        if rest.startswith(" {"):
            end = closing_position(rest, 1)
            more = _attributes(rest[2 : end - 1])
            if twice := attributes.keys() & more.keys():
                raise ValueError(f"line {number + 1} of the tile program says {min(twice)} twice")
            attributes |= more
            rest = rest[end:]
        if not rest.startswith(" : "):
            raise ValueError(f"line {self.at} of the tile program has no types: {line.strip()[:120]}")
        rest, _, place = rest[3:].rpartition(" loc(")
        end = closing_position(rest, 0)
        inputs = split_top(rest[1 : end - 1])
        outputs_text = rest[end:].removeprefix(" -> ").strip()
        outputs = split_top(outputs_text[1:-1]) if outputs_text.startswith("(") else [outputs_text]
        names: list[str] = []
        for part in split_top(results or ""):
            base, _, count = part.partition(":")
            if count and not 0 < int(count) <= MOST_RESULTS:
                raise ValueError(f"line {number + 1} of the tile program has {count} results; at most {MOST_RESULTS} are read")
            names += [f"{base}#{i}" for i in range(int(count))] if count else [base]
        operation = Operation(
            name,
            names,
            split_top(operands),
            attributes,
            inputs,
            outputs,
            [s.strip() for s in (successors or "").split(",") if s.strip()],
            unescape(self.locations.resolve(place[:-1])[0]),
            line.strip(),
            regions,
            number,
        )
        if name == "ttg.warp_specialize" and operation.operands:  # older releases print what its partitions take here
            partitions = regions[1][0].operations[0]
            partitions.operands, partitions.operand_types = operation.operands, operation.operand_types
            operation.operands, operation.operand_types = [], []
        return operation

    def region(self) -> list[Block]:
        blocks = [Block("^entry")]
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise ValueError(f"line {self.at + 1} of the tile program: more than {MOST_DEPTH} regions in one another")
        while True:
            line = self.line().strip()
            if line.startswith("}"):
                if not blocks[0].operations and not blocks[0].arguments and len(blocks) > 1:
                    del blocks[0]
                self.depth -= 1
                return blocks
            if line.startswith("^"):
                self.at += 1
                label, _, rest = line.partition("(") if re.match(r"\^\w+\(", line) else (line.split(":")[0], "", "")
                arguments = []
                if rest:
                    inside = line[len(label) + 1 : closing_position(line, len(label)) - 1]
                    for part in split_top(inside):
                        value, _, typed = part.partition(": ")
                        arguments.append((value, re.sub(r" loc\(.*\)$", "", typed)))
                blocks.append(Block(label, arguments))
            else:
                blocks[-1].operations.append(self.operation())


def _attributes(text: str) -> dict[str, str]:
    attributes = {}
    for part in split_top(text):
        name, _, value = part.partition(" = ")
        key = name.strip().strip('"')
        if key in attributes:
            raise ValueError(f"the attribute {key[:80]} is said twice in {text[:120]}")
        attributes[key] = value.strip()
    return attributes


def parse_program(text: str) -> Program:
    """The module in `text` (generic assembly, locations printed). ValueError, with the line, for anything else."""
    reader = _Reader(text)
    module = reader.operation()
    functions = {}
    for operation in module.regions[0][0].operations:
        if operation.name == "tt.func":
            name = operation.attributes["sym_name"].strip('"')
            public = operation.attributes.get("sym_visibility", '"public"') == '"public"'
            told = [_attributes(each[1:-1]) for each in split_top(operation.attributes.get("arg_attrs", "[]")[1:-1])]
            if name in functions:
                raise ValueError(f"line {operation.line + 1} of the tile program defines the function {name} again")
            functions[name] = Function(name, public, operation.regions[0], told)
    return Program(functions, module.attributes, reader.locations.aliases, text)

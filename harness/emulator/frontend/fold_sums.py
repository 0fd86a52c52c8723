"""Which product each sum inside a `tt.reduce` or `tt.scan` takes in, register by register, read off the compiled program.

Triton writes such an operation out in LLVM's dialect as one addition a register and step. Which of them becomes a fused
multiply-add, and of which of two products, LLVM decides for each: its SLP vectoriser may swap the operands of single lanes, and a
negated product is none. So the additions are followed down to the PTX. Every instruction of the dialect is given a column of its
own (a *mark*) under its line of the tile program; LLVM carries it along. Where the vectoriser put several under one mark, or a mark
is lost, an addition is known by what it sums: the bytes that were loaded which it depends on (*sources*). They are told from the
dialect and from the PTX alike, whatever was done to the arithmetic between.

What PTX leaves to ptxas (a product and a sum without `.rn`) is read off the machine code. What cannot be told is *open*.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from bitverdict.harness.emulator.frontend.assembly import (
    FIRST_UNPLACED_NUMBER,
    LABEL,
    Instruction,
    instructions,
    machine_code,
    marked_ptx,
    placed_columns,
)
from bitverdict.harness.emulator.frontend.float_instructions import (
    FUSED_MULTIPLY_ADD,
    Definitions,
    adds,
    form_of,
    is_open_product,
    multiplies,
    origins,
)

Source = tuple[int, int, int]  # line and column of what loads, and the byte of the result
Mark = tuple[int, int]  # line and column
Path = tuple[tuple[int, int], ...]  # which part of a value: (index, bytes of a part), the outermost first
_STATEMENT = re.compile(r'\s*(%[\w.$#-]+)(?::\d+)? = (?:llvm\.)?([\w.]+)\s*(.*?) loc\((?:"tile program":(\d+):(\d+)\)$|[#"])')
_NAME = re.compile(r"%[\w.$-]+")
_BLOCK = re.compile(r"\s*(\^\w+)(?:\((.*)\))?:")
_BRANCH_ARGUMENTS = re.compile(r"(\^\w+)(?:\(([^:)]*) : )?")
_BYTES = {"i1": 1, "i8": 1, "i16": 2, "f16": 2, "bf16": 2, "i32": 4, "f32": 4, "i64": 8, "f64": 8, "ptr": 8}
_LOADS = ("inline_asm", "load", "nvvm.ldmatrix", "atomicrmw", "cmpxchg", "nvvm.")
_ARITHMETIC = ("fadd", "fsub", "fmul", "fdiv", "intr.fma", "intr.fmuladd")
_CONSTANT = re.compile(r"(-?\d+) :")
_EMPTY_PATH: Path = ()
_CAST = "builtin.unrealized_conversion_cast"


@dataclass(frozen=True)
class FoldSums:
    """Of one reduction or scan, by register of its operand: whether the sum that register first goes into takes in its product
    (`first`), and whether the sum that puts what stands before it in front of it does (`later`, of a scan). `open`: why this is
    not known, empty where it is."""

    first_sums: tuple[bool, ...] = ()
    later_sums: tuple[bool, ...] = ()
    open: str = ""

    @property
    def fuses(self) -> bool:
        return any(self.first_sums) or any(self.later_sums)


@dataclass
class _Sum:
    """One addition of the dialect: its mark, and of each of its lanes the registers that its two sides are (None for none) and what
    each side depends on."""

    mark: Mark
    lanes: list[tuple[tuple[int | None, int | None], tuple[frozenset[Source], frozenset[Source]]]]
    products: tuple[frozenset[Mark], frozenset[Mark]]  # the multiplications that the sides are
    names: tuple[str, str]  # the values that the sides are
    is_used: bool  # not where selects whose condition is a constant pass it by, as what stands before the first element

    @property
    def sources(self) -> frozenset[Source]:
        return frozenset().union(*(side for _, sides in self.lanes for side in sides))


class _Dialect:
    """The values of a module in LLVM's dialect, by name."""

    def __init__(self, text: str) -> None:
        self.made: dict[str, tuple[str, str, Mark]] = {}  # operation, what stands behind it, mark
        self.order: list[str] = []
        self.handed: dict[str, list[str]] = defaultdict(list)  # argument of a block -> what branches give it
        arguments: dict[str, list[str]] = {}
        branches: list[tuple[str, list[str]]] = []
        self.known: dict[tuple[str, Path], frozenset[Source]] = {}
        self.users: dict[str, list[str]] = defaultdict(list)  # value -> what is made of it, "" for what makes nothing
        self.constants: dict[str, int | None] = {}
        for line in text.splitlines():
            user, _, operands = line.partition(" = ") if " = " in line else ("", "", line)
            for name in _NAME.findall(operands):
                self.users[name].append(user.strip().partition(":")[0])
            if found := _STATEMENT.match(line):
                self.made[found[1]] = (found[2], found[3], (int(found[4] or 0), int(found[5] or 0)))
                self.order.append(found[1])
            elif found := _BLOCK.match(line):
                arguments[found[1]] = re.findall(r"(%[\w.$-]+): ", found[2] or "")
            elif "llvm.br " in line or "llvm.cond_br " in line:
                branches += [(to, _NAME.findall(given or "")) for to, given in _BRANCH_ARGUMENTS.findall(line)]
        for to, given in branches:
            for argument, name in zip(arguments.get(to, ()), given, strict=False):
                self.handed[argument].append(name)

    def sources(self, name: str, path: Path = _EMPTY_PATH, near: bool = False) -> frozenset[Source]:
        """What the part `path` of the value `name` depends on; `near`: by the fewest operations."""
        if near:
            return _nearest([(name, path)], self._step, lambda at: self.made.get(at[0], ("",))[0] in _ARITHMETIC)
        return _all_sources((name, path), self._step, self.known)

    def _step(self, name: str, path: Path) -> tuple[set[Source], list[tuple[str, Path]]]:
        if name not in self.made:
            return set(), [(operand, path) for operand in self.handed.get(name, ())]
        operation, rest, mark = self.made[name]
        names = _NAME.findall(rest.partition(" : ")[0])
        if operation == "extractvalue":
            return set(), [(names[0], ((self._index(rest), self._struct_part(rest)), *path))]
        if operation == "insertvalue":
            value, into = names
            if not path:
                return set(), [(value, path), (into, path)]
            return set(), [(value, path[1:]) if path[0][0] == self._index(rest) else (into, path)]
        if operation == "extractelement":
            return set(), [(names[0], (*self._element(names[1], rest), *path))]
        if operation == "insertelement":
            value, into, where = names
            if not path or (index := self._number(where)) is None:
                return set(), [(value, _EMPTY_PATH), (into, path)]
            return set(), [(value, path[1:]) if path[0][0] == index else (into, path)]
        if operation.startswith(_LOADS) and not operation.startswith("nvvm.read"):
            return {(*mark, sum(index * size for index, size in path))}, []
        if operation == "select":
            names = [chosen] if (chosen := self._selected_name(names)) else names[1:]
        if operation in ("bitcast", "freeze", _CAST) or operation.startswith("f"):
            return set(), [(operand, path) for operand in names]  # lane by lane
        return set(), [(operand, path if operation in ("select",) else _EMPTY_PATH) for operand in names]

    def is_used(self, name: str) -> bool:
        """Whether anything but a select that never chooses it takes the value `name`."""
        for user in self.users[name]:
            operation, rest, _ = self.made.get(user, ("", "", (0, 0)))
            names = _NAME.findall(rest.partition(" : ")[0])
            if operation != "select" or names[0] == name or self._selected_name(names) in (None, name):
                return True
        return False

    def _selected_name(self, names: list[str]) -> str | None:
        """Which of two values a select of `names` (condition, values) always chooses."""
        condition = self.constant(names[0])
        return None if condition is None else names[1] if condition else names[2]

    def constant(self, name: str) -> int | None:
        """The integer that the value `name` always is, where that shows: what is one lane or one warp has the number 0."""
        if name not in self.constants:
            self.constants[name] = None
            self.constants[name] = self._constant(*self.made.get(name, ("", "", (0, 0)))[:2])
        return self.constants[name]

    def _constant(self, operation: str, rest: str) -> int | None:
        if operation == "mlir.constant":
            found = re.match(r"\((?:(-?\d+) :|(true|false)\))", rest)
            return None if found is None else int(found[1]) if found[1] else int(found[2] == "true")
        if operation not in ("urem", "and", "icmp"):
            return None
        left_value, right_value = (self.constant(each) for each in _NAME.findall(rest.partition(" : ")[0]))
        if (operation == "urem" and right_value == 1) or (operation == "and" and 0 in (left_value, right_value)):
            return 0
        if left_value is None or right_value is None or operation == "urem":
            return None
        if operation == "and":
            return left_value & right_value
        return int((left_value == right_value) == ('"eq"' in rest)) if '"eq"' in rest or '"ne"' in rest else None

    def _struct_part(self, rest: str) -> int:
        part = rest.rpartition("struct<(")[2].partition(",")[0].rstrip(">) ")
        return _BYTES.get(part, 4)

    def _index(self, rest: str) -> int:
        found = re.search(r"\[(\d+)\]", rest)
        return int(found[1]) if found else 0

    def _element(self, where: str, rest: str) -> Path:
        found = re.search(r"vector<(\d+)x(\w+)>", rest)
        count, size = (int(found[1]), _BYTES.get(found[2], 4)) if found else (1, 4)
        index = self._number(where)
        return () if count == 1 or index is None else ((index, size),)

    def _number(self, name: str) -> int | None:
        operation, rest, _ = self.made.get(name, ("", "", (0, 0)))
        found = _CONSTANT.search(rest.replace("(", "")) if operation == "mlir.constant" else None
        return int(found[1]) if found else None

    def products(self, name: str, path: Path = _EMPTY_PATH) -> frozenset[Mark]:
        """The multiplications that the value `name` is, its sign changed perhaps."""
        marks, seen, worklist = set[Mark](), set[tuple[str, Path]](), [(name, path)]
        while worklist:
            place = worklist.pop()
            if place in seen:
                continue
            seen.add(place)
            operation, _, mark = self.made.get(place[0], ("", "", (0, 0)))
            if operation == "fmul":
                marks.add(mark)
            elif not operation or operation in ("fneg", "bitcast", _CAST) or operation.startswith(("extract", "insert")):
                worklist += self._step(*place)[1]
        return frozenset(marks)

    def register_of(self, name: str, registers: dict[str, int]) -> list[int | None]:
        """The register that each lane of the value `name` is; None where it is none."""
        if name in registers:
            return [registers[name]]
        operation, rest, _ = self.made.get(name, ("", "", (0, 0)))
        if operation != "insertelement":
            return [None]
        found = re.search(r"vector<(\d+)x", rest)
        lanes: list[int | None] = [None] * (int(found[1]) if found else 1)
        while operation == "insertelement":
            value, name, where = _NAME.findall(rest.partition(" : ")[0])
            index = self._number(where)
            if index is not None and index < len(lanes) and lanes[index] is None:
                lanes[index] = registers.get(value)
            operation, rest, _ = self.made.get(name, ("", "", (0, 0)))
        return lanes

    def sums(self, lines: tuple[int, int]) -> tuple[int, list[_Sum]]:
        """How many registers the operand of the reduction or scan has, whose sum stands at the first of `lines` and which ends at
        the second, and its additions."""
        struct, registers = "", dict[str, int]()
        sum_list: list[_Sum] = []
        for name in self.order:
            operation, rest, mark = self.made[name]
            if mark[0] == lines[1] and operation == "extractvalue" and not sum_list:
                (source,) = _NAME.findall(rest.partition(" : ")[0])
                struct = struct or source
                if source == struct:
                    registers[name] = self._index(rest)
            elif operation == "fadd" and mark[0] in lines:
                left, right = _NAME.findall(rest.partition(" : ")[0])[:2]
                sides = [self.register_of(each, registers) for each in (left, right)]
                count = max(map(len, sides))
                lanes = []
                for lane in range(count):
                    path: Path = ((lane, 0),) if count > 1 else _EMPTY_PATH
                    one, other = (side[lane] if len(side) == count else None for side in sides)
                    lanes.append(((one, other), (self.sources(left, path), self.sources(right, path))))
                sum_list.append(_Sum(mark, lanes, (self.products(left), self.products(right)), (left, right), self.is_used(name)))
        return len(set(registers.values())), sum_list


def _all_sources(
    start: Any, step: Callable[..., tuple[set[Source], list]], known_sources: dict[Any, frozenset[Source]]
) -> frozenset[Source]:
    """The sources that `step` leads to from `start`; `known` has those of earlier questions, and then of this one."""
    sources, seen, worklist = set[Source](), set[Any](), [start]
    while worklist:
        place = worklist.pop()
        if place in seen:
            continue
        seen.add(place)
        if place in known_sources:
            sources |= known_sources[place]
            continue
        made, taken = step(*place)
        sources |= made
        worklist += taken
    known_sources[start] = frozenset(sources)
    return known_sources[start]


def _nearest(start: list, step: Callable[..., tuple[set[Source], list]], counts: Callable[[Any], bool]) -> frozenset[Source]:
    """The sources that `step` leads to from `start` by the fewest of the operations that `counts` names."""
    layer, visited_places = list(start), set[Any]()
    while layer:
        nearest_sources, next_layer, worklist = set[Source](), list[Any](), layer
        while worklist:
            place = worklist.pop()
            if place in visited_places:
                continue
            visited_places.add(place)
            made, taken = step(*place)
            nearest_sources |= made
            (next_layer if counts(place) else worklist).extend(taken)
        if nearest_sources:
            return frozenset(nearest_sources)
        layer = next_layer
    return frozenset()


@dataclass
class _Code:
    """The PTX: its instructions with their marks, and what registers depend on. What an instruction reads that its block wrote
    before is named after that ("%r1@17")."""

    marked_instructions: list[tuple[Instruction, Mark]]
    definitions: Definitions
    marks: dict[int, Mark]  # of an instruction, by identity
    known_sources: dict[tuple[str, int | None], frozenset[Source]] = field(default_factory=dict)

    @classmethod
    def from_ptx(cls, text: str) -> _Code:
        column_text, marks = placed_columns(text)
        marked_instructions, definitions, current_names = (
            list[tuple[Instruction, Mark]](),
            defaultdict[str, list[Instruction]](list),
            dict[str, str](),
        )
        last_writers: dict[str, Instruction] = {}  # by register, what writes it last in this block

        def leave() -> None:
            for name, instruction in last_writers.items():
                definitions[name].append(instruction)
            current_names.clear()
            last_writers.clear()

        for number, statement in enumerate(instructions(column_text)):
            if statement.opcode == LABEL:
                leave()
                continue
            instruction = replace(statement, reads=tuple(current_names.get(read, read) for read in statement.reads))
            marked_instructions.append((instruction, marks[statement.line] if statement.line >= 0 else (0, 0)))
            for name in statement.writes:
                current_names[name] = f"{name}@{number}"
                definitions[current_names[name]], last_writers[name] = [instruction], instruction
            if statement.opcode.startswith("bra"):
                leave()
        leave()
        return cls(marked_instructions, dict(definitions), {id(read): mark for read, mark in marked_instructions})

    def sources(self, name: str, half: int | None = None) -> frozenset[Source]:
        """What register `name`, or one `half` of it, depends on."""
        return _all_sources((name, half), self._steps, self.known_sources)

    def nearest(self, names: Iterable[str], half: int | None) -> frozenset[Source]:
        """What the product of the registers `names`, or of one `half` of them, depends on by the fewest operations."""

        def counts(at: tuple[str, int | None]) -> bool:
            return any(
                each.opcode.partition(".")[0] in ("add", "sub", "mul", "fma", "div") for each in self.definitions.get(at[0], [])
            )

        return _nearest([(name, half) for name in names], partial(self._steps, loads=("ld",)), counts)

    def _steps(
        self, name: str, half: int | None, loads: tuple[str, ...] = ("ld", "atom", "mma", "wgmma", "tcgen05")
    ) -> tuple[set[Source], list[tuple[str, int | None]]]:
        """What `_step` finds of all that write `name`; of the loads alone where there are any: what a guarded one leaves in
        place is written before it."""
        sources, operands = set[Source](), list[tuple[str, int | None]]()
        makers = self.definitions.get(name, [])
        loading = [each for each in makers if each.opcode.startswith(loads) and not each.opcode.startswith("ld.param")]
        for maker in loading or makers:
            made, taken = self._step(maker, name, half)
            sources |= made
            operands += taken
        return sources, operands

    def _step(self, maker: Instruction, name: str, half: int | None) -> tuple[set[Source], list[tuple[str, int | None]]]:
        kind, name = maker.opcode.partition(".")[0], name.partition("@")[0]
        reads = [read for read in maker.reads if read.startswith("%")]
        if kind in ("ld", "atom", "mma", "wgmma", "tcgen05", "ldmatrix", "shfl"):
            if maker.opcode.startswith("ld.param"):
                return set(), []
            size = _bits(maker.opcode) // 8
            return {(*self.marks[id(maker)], maker.writes.index(name) * size + (half or 0) * 2)}, []
        if kind == "mov" and len(maker.writes) == 2 and len(reads) == 1:
            return set(), [(reads[0], maker.writes.index(name))]
        if kind == "mov" and len(maker.reads) == 2:
            picked = maker.reads if half is None else (maker.reads[half],)
            return set(), [(read, None) for read in picked if read.startswith("%")]
        if kind in ("shl", "shr", "and") and half is None and len(reads) == 1 and maker.opcode.endswith("32"):
            amount = maker.reads[1]
            if (kind, amount) in (("shl", "16"), ("and", "65535")):
                return set(), [(reads[0], 0)]
            if (kind, amount) in (("shr", "16"), ("and", "-65536")):
                return set(), [(reads[0], 1)]
        if kind == "selp":
            reads = [read for read in maker.reads[:2] if read.startswith("%")]
        if kind == "prmt" and half is not None and (taken := _permuted_half(maker, half)):
            return set(), [taken]
        if kind == "xor" and maker.opcode.endswith("32") and len(reads) == 1:
            return set(), [(reads[0], half)]  # the sign of both halves
        if kind == "cvt" and maker.opcode.endswith("16"):
            half = 0 if maker.opcode == "cvt.u16.u32" else None
        packed = maker.opcode.endswith("x2") or kind in ("mov", "selp")
        return set(), [(read, half if packed or kind == "cvt" else None) for read in reads]


def _permuted_half(instruction: Instruction, half: int) -> tuple[str, int] | None:
    """The register, and the half of it, that a `prmt.b32` puts in the `half` of its result; None where it is no whole half."""
    *sources, selector = instruction.reads
    if not re.fullmatch(r"0x[0-9A-Fa-f]+U?", selector) or instruction.opcode != "prmt.b32":
        return None
    low, high = (int(selector.rstrip("U"), 0) >> shift & 15 for shift in (8 * half, 8 * half + 4))
    if low % 2 or high != low + 1 or low > 7 or not sources[low // 4].startswith("%"):
        return None
    return sources[low // 4], low % 4 // 2


def _bits(opcode: str) -> int:
    found = re.search(r"[bfsu](\d+)$", opcode)
    return int(found[1]) if found else 32


@dataclass(frozen=True)
class _Outcome:
    """What one instruction makes of a sum: None where it adds, 0 or 1 where it takes in the product that this side is, -1 where
    that is not known. `reached`: products and divisions that ptxas may still take in."""

    side: int | None
    place: int  # of the instruction among those of floats
    is_reached: bool


def fold_sums(program: str, capability: int, folds: Iterable[tuple[int, int, str]]) -> list[FoldSums]:
    """Of each of the `folds` (the line of its sum, the line that ends it, the element type) of the tile program `program`."""
    dialect_text, text = marked_ptx(program, capability)
    dialect, code = _Dialect(dialect_text), _Code.from_ptx(text)
    joined: list[set[int]] = []

    def machine() -> set[int]:
        if not joined:
            joined.append(_machine_places(text, capability))
        return joined[0]

    return [_read((one + 1, last + 1), form, dialect, code, machine) for one, last, form in folds]


def _read(lines: tuple[int, int], form: str, dialect: _Dialect, code: _Code, machine: Callable[[], set[int]]) -> FoldSums:
    count, sums = dialect.sums(lines)
    line_instructions = [(place, candidate, mark) for place, candidate, mark in _float_sums(code) if mark[0] in lines]
    forms = {form_of(candidate.opcode) for _, candidate, _ in line_instructions}
    if forms - {form}:
        return FoldSums(open=f"computes it in {', '.join(sorted(forms))}")
    first_flags, later_flags = [False] * count, [False] * count
    touched_registers = set[int]()
    direct = [candidate for candidate in sums if any(register is not None for sides, _ in candidate.lanes for register in sides)]
    if not direct:
        return FoldSums(
            open=""
            if not any(candidate.opcode.startswith("fma.") for _, candidate, _ in line_instructions)
            else "fuses it in another way"
        )
    if not any(
        candidate.opcode.startswith("fma.") and not adds(candidate, code.definitions) for _, candidate, _ in line_instructions
    ):
        reached = {place for place, candidate, _ in line_instructions if _is_reached(candidate, code)}
        if reached and reached & machine():
            return FoldSums(open="leaves it to ptxas, which takes in a product")
        return FoldSums(tuple(first_flags), tuple(later_flags))
    used_places = set[int]()
    live = [candidate for candidate in sums if candidate.is_used]
    for candidate in direct:
        if not candidate.is_used:
            touched_registers.update(register for registers, _ in candidate.lanes for register in registers if register is not None)
            continue
        outcomes = []
        for lane in range(len(candidate.lanes)):
            found = _instructions_of(candidate, lane, line_instructions, code, live)
            used_places.update(place for place, *_ in found)
            outcomes += [_outcome(candidate, lane, *one, dialect, code) for one in found]
        sides = set()
        for outcome in outcomes:
            side = outcome.side
            if side is None and outcome.is_reached:
                if outcome.place in machine():
                    return FoldSums(open="leaves it to ptxas, which takes in a product")
            sides.add(side)
        if not sides:
            return FoldSums(open="keeps nothing of one of its sums that could be read")
        if len(sides) > 1 or -1 in sides:
            return FoldSums(open="fuses it in one place and not in another")
        for registers, _ in candidate.lanes:
            for which, register in enumerate(registers):
                if register is not None:
                    flags = later_flags if register in touched_registers else first_flags
                    flags[register] = which in sides
            touched_registers.update(register for register in registers if register is not None)
    left = [
        candidate
        for place, candidate, _ in line_instructions
        if place not in used_places and candidate.opcode.startswith("fma.") and not adds(candidate, code.definitions)
    ]
    if left:
        return FoldSums(open="fuses a product into it that reaches it through a branch, a loop or a select")
    return FoldSums(tuple(first_flags), tuple(later_flags))


def _float_sums(code: _Code) -> Iterator[tuple[int, Instruction, Mark]]:
    """Additions and fused multiply-adds, each with its place among the instructions that `_machine_places` numbers."""
    place = -1
    for instruction, mark in code.marked_instructions:
        kind = instruction.opcode.partition(".")[0]
        if not form_of(instruction.opcode) or kind not in ("add", "sub", "mul", "fma", "div"):
            continue
        place += 1
        if kind in ("add", "sub", "fma") and not multiplies(instruction, code.definitions):
            yield place, instruction, mark


def _instructions_of(
    addition: _Sum, lane: int, line_instructions: list[tuple[int, Instruction, Mark]], code: _Code, sums: list[_Sum]
) -> list[tuple[int, Instruction, int | None]]:
    """The instructions that compute one lane of the addition `each`, with the half that does: those of its mark that depend on what
    it does; else those of another mark, where no other addition depends on the same."""
    due = frozenset().union(*addition.lanes[lane][1])

    def halves(instruction: Instruction) -> list[int | None]:
        packed = instruction.opcode.endswith("x2")
        asked: tuple[int | None, ...] = ((lane,) if len(addition.lanes) > 1 else (0, 1)) if packed else (None,)
        return [half for half in asked if frozenset().union(*(code.sources(name, half) for name in instruction.reads)) == due]

    matching = [(place, instruction, half, mark) for place, instruction, mark in line_instructions for half in halves(instruction)]
    if same := [(place, instruction, half) for place, instruction, half, mark in matching if mark == addition.mark]:
        return same
    others = [(place, instruction, half) for place, instruction, half, _ in matching]
    if others and all(_same_sides(other, addition) for other in sums if other.sources == addition.sources):
        return others
    mine = [(place, instruction) for place, instruction, mark in line_instructions if mark == addition.mark]
    half = lane if len(addition.lanes) > 1 else None
    if len(mine) != 1 or others or (half is None and mine[0][1].opcode.endswith("x2")):
        return []
    return [(*mine[0], half if mine[0][1].opcode.endswith("x2") else None)]


def _same_sides(one: _Sum, other: _Sum) -> bool:
    return {sides for _, sides in one.lanes} == {sides for _, sides in other.lanes}


def _outcome(
    addition: _Sum, lane: int, place: int, instruction: Instruction, half: int | None, dialect: _Dialect, code: _Code
) -> _Outcome:
    registers, sources = addition.lanes[lane]
    if not instruction.opcode.startswith("fma.") or adds(instruction, code.definitions):
        return _Outcome(None, place, _is_reached(instruction, code))
    leaves = [side for side, register in enumerate(registers) if register is not None]
    if len(leaves) == 1:
        return _Outcome(leaves[0], place, False)
    if addition.products[0] == addition.products[1] and sources[0] == sources[1]:
        return _Outcome(0, place, False)  # a product and itself
    added_marks = {
        code.marks[id(one)] for one in origins(instruction.reads[2:], code.definitions) if multiplies(one, code.definitions)
    }
    taken = frozenset().union(*(code.sources(name, half) for name in instruction.reads[:2]))
    rest = code.sources(instruction.reads[2], half)
    alone = (sources[0] - sources[1], sources[1] - sources[0])
    for side, other in ((0, 1), (1, 0)):
        clear = not taken & alone[other] and not rest & alone[side]
        if clear and (taken & alone[side] or rest & alone[other]):
            return _Outcome(side, place, False)
    near = [dialect.sources(name, ((lane, 0),) if len(addition.lanes) > 1 else _EMPTY_PATH, near=True) for name in addition.names]
    product = code.nearest(instruction.reads[:2], half)
    if near[0] != near[1] and product in near:
        return _Outcome(near.index(product), place, False)
    for side in (0, 1):
        if (
            len(addition.lanes) == 1
            and added_marks
            and added_marks <= addition.products[1 - side]
            and not added_marks & addition.products[side]
        ):
            return _Outcome(side, place, False)
    return _Outcome(-1, place, False)


def _is_reached(instruction: Instruction, code: _Code) -> bool:
    """Whether ptxas may take a product or a quotient into the addition `instruction`."""
    made = origins(instruction.reads, code.definitions)
    return "rn" not in instruction.opcode.split(".") and any(
        is_open_product(each) or each.opcode == "div.full.f32" for each in made
    )


def _machine_places(text: str, capability: int) -> set[int]:
    """The places of the float instructions of PTX that are fused multiply-adds in the machine code."""
    output_lines, count, within = [], FIRST_UNPLACED_NUMBER, False
    for raw in text.splitlines():
        if raw.lstrip().startswith(".loc"):
            within = True
            continue
        if within and re.match(
            r"\s*(?:@!?%\w+\s+)?(?:add|sub|mul|fma|div)\.(?:\w+\.)*(?:f32|f32x2|f16|f16x2|bf16|bf16x2|f64)\s", raw
        ):
            output_lines.append(f"\t.loc\t1 {count + 1} 1")
            count += 1
        output_lines.append(raw)
    code = machine_code("\n".join(output_lines) + "\n", capability)
    return {
        line - FIRST_UNPLACED_NUMBER
        for line, listed in code.items()
        if line >= FIRST_UNPLACED_NUMBER and any(map(FUSED_MULTIPLY_ADD.match, listed))
    }


__all__ = ["FoldSums", "fold_sums"]

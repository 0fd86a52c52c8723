"""The additions of one reduction or scan in LLVM's dialect, and what each is made of (`fold_sums`).

A *mark* is the line and column of an instruction, a *source* a byte that was loaded. LLVM joins loads from shared memory and splits
them, under one mark: such a byte is known by its line and by its address in the first thread.
"""

from __future__ import annotations

import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

Source = tuple[int, int, int]  # line and column of what loads, and the byte of the result; or line, SHARED and the address
SHARED = -1
Mark = tuple[int, int]  # line and column
Path = tuple[tuple[int, int], ...]  # which part of a value: (index, bytes of a part), the outermost first
_STATEMENT = re.compile(r'\s*(%[\w.$#-]+)(?::\d+)? = (?:llvm\.)?([\w.]+)\s*(.*?) loc\((?:"tile program":(\d+):(\d+)\)$|[#"])')
_NAME = re.compile(r"%[\w.$-]+")
_NAME_OR_BLOCK = re.compile(r"%[\w.$-]+|\^\w+")
_BLOCK = re.compile(r"\s*(\^\w+)(?:\((.*)\))?:")
_BRANCH_ARGUMENTS = re.compile(r"(\^\w+)(?:\(([^:)]*) : )?")
_BYTES = {"i1": 1, "i8": 1, "i16": 2, "f16": 2, "bf16": 2, "i32": 4, "f32": 4, "i64": 8, "f64": 8, "ptr": 8}
_LOADS = ("inline_asm", "load", "nvvm.ldmatrix", "atomicrmw", "cmpxchg", "nvvm.")
_CONSTANT = re.compile(r"(-?\d+) :")
EMPTY_PATH: Path = ()
FIRST_THREAD = ("tid.x", "laneid", "warp_id")  # what is 0 in the first thread
INTEGER_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "and": operator.and_, "or": operator.or_, "xor": operator.xor,
    "shl": operator.lshift, "lshr": operator.rshift, "shr": operator.rshift, "udiv": operator.floordiv, "urem": operator.mod,
}  # fmt: skip
"""Of the dialect and of PTX, without sign."""
_WORD = 0xFFFFFFFF
_CAST = "builtin.unrealized_conversion_cast"


@dataclass
class FoldAddition:
    """One addition of the dialect: its mark, and of each of its lanes the registers that its two sides are (None for none)."""

    name: str
    mark: Mark
    lanes: list[tuple[int | None, ...]]
    products: tuple[frozenset[Mark], frozenset[Mark]]  # the multiplications that the sides are
    names: tuple[str, str]  # the values that the sides are
    is_used: bool  # not where selects whose condition is a constant pass it by, as what stands before the first element

    @property
    def paths(self) -> list[Path]:
        """Of each lane, in the value."""
        return [((lane, 0),) for lane in range(len(self.lanes))] if len(self.lanes) > 1 else [EMPTY_PATH]


class FoldDialect:
    """The values of a module in LLVM's dialect, by name."""

    def __init__(self, text: str) -> None:
        self.made: dict[str, tuple[str, str, Mark]] = {}  # operation, what stands behind it, mark
        self.order: list[str] = []
        self.handed: dict[str, list[str]] = defaultdict(list)  # argument of a block -> what branches give it
        arguments: dict[str, list[str]] = {}
        branches: list[tuple[str, list[str]]] = []
        self.users: dict[str, list[str]] = defaultdict(list)  # value -> what is made of it, "" for what makes nothing
        self.integers: dict[tuple[str, bool], int | None] = {}
        self.structs: dict[str, tuple[dict[int, str], str]] = {}
        self.parameters: dict[str, int] = {}  # of functions, by name
        function_count = 0
        for line in text.splitlines():
            function_count += "llvm.func" in line
            if function_count > 1:  # each has names of its own
                line = _NAME_OR_BLOCK.sub(rf"\g<0>_{function_count}", line)
            if "llvm.func" in line:
                self.parameters |= {name: number for number, name in enumerate(re.findall(r"(%[\w.$-]+): ", line))}
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
        shared_loads = [(mark[0], rest) for operation, rest, mark in self.made.values() if _reads_shared(operation, rest)]
        self.unknown_lines = {line for line, rest in shared_loads if self._shared_address(rest) is None}
        self.addressed_lines = {line for line, _ in shared_loads} - self.unknown_lines

    def step(self, name: str, path: Path) -> tuple[set[Source], list[tuple[str, Path]]]:
        if name not in self.made:
            return set(), [(operand, path) for operand in self.handed.get(name, ())]
        operation, rest, mark = self.made[name]
        names = _NAME.findall(rest.partition(" : ")[0])
        if operation == "extractvalue":
            return set(), [(names[0], ((self.index(rest), self._struct_part(rest)), *path))]
        if operation == "insertvalue":
            if not path:
                return set(), [(each, path) for each in names]
            members, beneath = self._struct_members(name)
            return set(), [(members[path[0][0]], path[1:]) if path[0][0] in members else (beneath, path)]
        if operation == "extractelement":
            return set(), [(names[0], (*self._element(names[1], rest), *path))]
        if operation == "insertelement":
            value, into, where = names
            if not path or (index := self._number(where)) is None:
                return set(), [(value, EMPTY_PATH), (into, path)]
            return set(), [(value, path[1:]) if path[0][0] == index else (into, path)]
        if operation.startswith(_LOADS) and not operation.startswith("nvvm.read"):
            byte = sum(index * size for index, size in path)
            if mark[0] in self.addressed_lines and _reads_shared(operation, rest):
                return {(mark[0], SHARED, (self._shared_address(rest) or 0) + byte)}, []
            return {(*mark, byte)}, []
        if operation == "select":
            names = [chosen] if (chosen := self._selected_name(names)) else names[1:]
        if operation in ("bitcast", "freeze", _CAST) or operation.startswith("f"):
            return set(), [(operand, path) for operand in names]  # lane by lane
        return set(), [(operand, path if operation in ("select",) else EMPTY_PATH) for operand in names]

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

    def constant(self, name: str, first_thread: bool = False) -> int | None:
        """The integer that the value `name` always is, or is in the first thread, where that shows: what is one lane or one warp
        has the number 0."""
        place = name, first_thread
        if place not in self.integers:
            self.integers[place] = None  # of what a loop carries
            self.integers[place] = self._integer(*place)
        return self.integers[place]

    def _integer(self, name: str, first_thread: bool) -> int | None:
        if name not in self.made:
            given = {self.constant(value_name, first_thread) for value_name in self.handed.get(name, ())}
            return given.pop() if len(given) == 1 else None
        operation, rest, _ = self.made[name]
        if operation == "mlir.constant":
            found = re.match(r"\((?:(-?\d+) :|(true|false)\))", rest)
            return None if found is None else int(found[1]) & _WORD if found[1] else int(found[2] == "true")
        if first_thread and (operation.endswith(FIRST_THREAD) or (operation == "mlir.addressof" and "@global_smem" in rest)):
            return 0
        operands = _NAME.findall(rest.partition(" : ")[0])
        if operation == "extractvalue":
            member = self._struct_members(operands[0])[0].get(self.index(rest))
            return None if member is None else self.constant(member, first_thread)
        values = [self.constant(each, first_thread) for each in operands]
        if operation in ("bitcast", "zext", "trunc", "freeze", _CAST):
            return values[0]
        if operation == "select":
            return None if values[0] is None else values[1] if values[0] else values[2]
        if operation == "nvvm.shfl.sync":
            return values[1] if rest.startswith("idx") else None
        if operation == "getelementptr" and None not in values:
            size = _BYTES.get(rest.rpartition(", ")[2].strip(), 0)
            return values[0] + values[1] * size if len(values) == 2 and size else None  # type: ignore[operator]
        if (operation == "urem" and values[1] == 1) or (operation in ("and", "mul") and 0 in values):
            return 0
        if None in values or len(values) != 2:
            return None
        if operation == "icmp":
            return int((values[0] == values[1]) == ('"eq"' in rest)) if '"eq"' in rest or '"ne"' in rest else None
        return integer_result(operation, *values)  # type: ignore[arg-type]

    def _shared_address(self, rest: str) -> int | None:
        """Where what stands behind a load from shared memory reads, in the first thread."""
        return self.constant(_NAME.findall(rest)[0], True)

    def _struct_part(self, rest: str) -> int:
        part = rest.rpartition("struct<(")[2].partition(",")[0].rstrip(">) ")
        return _BYTES.get(part, 4)

    def _struct_members(self, name: str) -> tuple[dict[int, str], str]:
        """What a chain of insertvalues that ends with the value `name` puts at each index, and the struct beneath it. Read once: a
        tile's registers are taken out of one chain by as many extractvalues."""
        if name not in self.structs:
            members: dict[int, str] = {}
            beneath = name
            while (made := self.made.get(beneath)) and made[0] == "insertvalue":
                value, beneath = _NAME.findall(made[1].partition(" : ")[0])
                members.setdefault(self.index(made[1]), value)
            self.structs[name] = members, beneath
        return self.structs[name]

    def index(self, rest: str) -> int:
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

    def products(self, name: str) -> frozenset[Mark]:
        """The multiplications that the value `name` is, its sign changed perhaps."""
        return self.makers(name, "fmul")

    def makers(self, name: str, kind: str = "") -> frozenset[Mark]:
        """The operations, or those of one `kind`, whose result the value `name` is, its sign changed perhaps. Of equal
        products LLVM keeps one, under its mark; of a sum with zero what is added to it."""
        marks, seen, worklist = set[Mark](), set[tuple[str, Path]](), [(name, EMPTY_PATH)]
        while worklist:
            place = worklist.pop()
            if place in seen:
                continue
            seen.add(place)
            operation, _, mark = self.made.get(place[0], ("", "", (0, 0)))
            if not operation or operation in ("fneg", "bitcast", _CAST) or operation.startswith(("extract", "insert")):
                worklist += self.step(*place)[1]
            elif operation == kind or not kind:
                marks |= self.equal_products.get(self._factors(place[0]), {mark}) if operation == "fmul" else {mark}
                worklist += self._beside_zero(*place) if not kind else ()
        return frozenset(marks)

    @cached_property
    def equal_products(self) -> dict[tuple[str, ...], set[Mark]]:
        """The marks of the multiplications, by the names of what they multiply."""
        marks = defaultdict[tuple[str, ...], set[Mark]](set)
        for name, (operation, _, mark) in self.made.items():
            if operation == "fmul":
                marks[self._factors(name)].add(mark)
        return marks

    def _factors(self, name: str) -> tuple[str, ...]:
        return tuple(sorted(self.operands(name)))

    def _beside_zero(self, name: str, path: Path) -> list[tuple[str, Path]]:
        """What the sum `name` adds to zero."""
        sides = self.operands(name)[:2] if self.made[name][0] == "fadd" else []
        return [(side, path) for side, other in zip(sides, reversed(sides), strict=True) if self._is_zero(other)]

    def _is_zero(self, name: str) -> bool:
        return self._constant_text(name).startswith(("(0.0", "(-0.0"))

    def is_foreseen(self, sides: tuple[str, str]) -> bool:
        """Whether the compiler may take the sum of two `sides` away and leave the same word: of constants, or where one is zero."""
        return all(map(self._is_constant, sides)) or any(map(self._is_zero, sides))

    def _is_constant(self, name: str) -> bool:
        operation = self.made.get(name, ("", "", (0, 0)))[0]
        return bool(self._constant_text(name)) or (
            operation in ("fadd", "fmul", "fdiv") and all(map(self._is_constant, self.operands(name)))
        )

    def _constant_text(self, name: str) -> str:
        """What stands behind the constant that the value `name` is, seen through structs; empty where it is none."""
        place = name, EMPTY_PATH
        while (operation := self.made.get(place[0], ("", "", (0, 0)))[0]).startswith(("extractvalue", "insertvalue", "bitcast")):
            steps = self.step(*place)[1]
            if len(steps) != 1:
                return ""
            (place,) = steps
        return self.made[place[0]][1] if operation == "mlir.constant" and not place[1] else ""

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

    def operands(self, name: str) -> list[str]:
        """The values that the value `name` is made of."""
        return _NAME.findall(self.made[name][1].partition(" : ")[0])

    def addition(self, name: str, registers: dict[str, int]) -> FoldAddition:
        """The addition or subtraction that the value `name` is; `registers`: values that are registers of the operand."""
        left, right = self.operands(name)[:2]
        sides = [self.register_of(each, registers) for each in (left, right)]
        count = max(map(len, sides))
        lanes = [tuple(side[lane] if len(side) == count else None for side in sides) for lane in range(count)]
        products = self.products(left), self.products(right)
        return FoldAddition(name, self.made[name][2], lanes, products, (left, right), self.is_used(name))

    def combinations(self, lines: Iterable[int]) -> list[dict[int, list[str]]]:
        """What a region whose operations stand at `lines` became each time that it was written out: by line, the values."""
        values: list[dict[int, list[str]]] = []
        lines, last_line = set(lines), max(lines)
        for name in self.order:
            if (line := self.made[name][2][0]) in lines:
                if not values or line < last_line:
                    values.append(defaultdict(list))
                values[-1][line].append(name)
                last_line = line
        return values

    def sums(self, lines: tuple[int, int]) -> tuple[int, list[FoldAddition]]:
        """How many registers the operand of the reduction or scan has, whose sum stands at the first of `lines` and which ends at
        the second, and its additions."""
        struct, registers = "", dict[str, int]()
        sum_list: list[FoldAddition] = []
        for name in self.order:
            operation, rest, mark = self.made[name]
            if mark[0] == lines[1] and operation == "extractvalue" and not sum_list:
                (source,) = _NAME.findall(rest.partition(" : ")[0])
                struct = struct or source
                if source == struct:
                    registers[name] = self.index(rest)
            elif operation == "fadd" and mark[0] in lines:
                sum_list.append(self.addition(name, registers))
        return len(set(registers.values())), sum_list


def _reads_shared(operation: str, rest: str) -> bool:
    return operation == "load" and "!llvm.ptr<3>" in rest


def integer_result(operation: str, left: int, right: int) -> int | None:
    """What an operation of `INTEGER_OPERATIONS` gives, of 32 bits; None of others."""
    if operation not in INTEGER_OPERATIONS or (operation in ("udiv", "urem") and not right) or (operation == "shl" and right > 31):
        return None
    return INTEGER_OPERATIONS[operation](left, right) & _WORD

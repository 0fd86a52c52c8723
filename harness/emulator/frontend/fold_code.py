"""The PTX of a tile program with reductions: the mark of each instruction, and what each register is made of (`fold_sums`)."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace

from bitverdict.harness.emulator.frontend.assembly import LABEL, Instruction, instructions, placed_columns
from bitverdict.harness.emulator.frontend.float_instructions import Definitions
from bitverdict.harness.emulator.frontend.fold_dialect import FIRST_THREAD, SHARED, Mark, Source, integer_result

_REGISTER = re.compile(r"%\w+")
_ADDRESS = re.compile(r"\[\s*([%\w@.$]+)\s*(?:\+\s*(-?\d+)\s*)?\]")


@dataclass
class FoldCode:
    """The PTX: its instructions with their marks, and what registers depend on. What an instruction reads that its block wrote
    before is named after that ("%r1@17"). `addressed_lines`: of which loads from shared memory are known by their addresses."""

    marked_instructions: list[tuple[Instruction, Mark]]
    definitions: Definitions
    marks: dict[int, Mark]  # of an instruction, by identity
    addressed_lines: set[int]
    repeated_loads: dict[int, int]  # of those under one mark in one block, by identity: which of them it is
    integers: dict[str, int | None] = field(default_factory=dict)

    @classmethod
    def from_ptx(cls, text: str, addressed_lines: set[int]) -> FoldCode:
        column_text, marks = placed_columns(text)
        marked_instructions, definitions, current_names = (
            list[tuple[Instruction, Mark]](),
            defaultdict[str, list[Instruction]](list),
            dict[str, str](),
        )
        last_writers: dict[str, Instruction] = {}  # by register, what writes it last in this block
        loads = defaultdict[tuple[int, Mark], list[Instruction]](list)  # by block and mark, from shared memory
        block, statements = 0, list(instructions(column_text))
        writers = _writers_before(statements)

        def leave() -> None:
            nonlocal block
            for name, instruction in last_writers.items():
                definitions[name].append(instruction)
            current_names.clear()
            last_writers.clear()
            block += 1

        def name_now(found: re.Match) -> str:
            name = found[0]
            return current_names.get(name) or "@".join((name, *map(str, writers.get((block, name), ()))))

        for number, statement in enumerate(statements):
            if statement.opcode == LABEL:
                leave()
                continue
            reads = (_REGISTER.sub(name_now, read) for read in statement.reads)
            instruction = replace(statement, reads=tuple(reads))
            mark = marks[statement.line] if statement.line >= 0 else (0, 0)
            marked_instructions.append((instruction, mark))
            if statement.opcode.startswith("ld.shared"):
                loads[block, mark].append(instruction)
            for name in statement.writes:
                current_names[name] = f"{name}@{number}"
                definitions[current_names[name]], last_writers[name] = [instruction], instruction
            if statement.opcode.startswith("bra"):
                leave()
        leave()
        for (_, name), numbers in writers.items():
            listed = [instruction for number in numbers for instruction in definitions.get(f"{name}@{number}", ())]
            definitions["@".join((name, *map(str, numbers)))] = listed
        repeated_loads = {id(load): number for listed in loads.values() if len(listed) > 1 for number, load in enumerate(listed)}
        mark_of = {id(read): mark for read, mark in marked_instructions}
        return cls(marked_instructions, dict(definitions), mark_of, addressed_lines, repeated_loads)

    def step(self, maker: Instruction, name: str, half: int | None) -> tuple[set[Source], list[tuple[str, int | None]]]:
        kind, name = maker.opcode.partition(".")[0], name.partition("@")[0]
        reads = [read for read in maker.reads if read.startswith("%")]
        if kind in ("ld", "atom", "mma", "wgmma", "tcgen05", "ldmatrix", "shfl", "redux"):
            bits = _bits(maker.opcode)
            byte = maker.writes.index(name) * bits // 8 + (half or 0) * bits // 16
            line, column = self.marks[id(maker)]
            is_known = line in self.addressed_lines or not line  # without a line it was moved out of a loop or a branch
            if maker.opcode.startswith("ld.shared") and (is_known or id(maker) in self.repeated_loads):
                address = self._address(maker) if is_known else None
                repeated = self.repeated_loads.get(id(maker), 0)
                return {(line, SHARED, -1 - repeated if address is None else (address + byte))}, []  # else it is like no other
            return {(line, column, byte)}, []
        if kind == "mov" and len(maker.reads) == 2:
            picked = maker.reads if half is None else (maker.reads[half],)
            return set(), [(read, None) for read in picked if read.startswith("%")]
        if kind in ("shl", "shr", "and") and half is None and len(reads) == 1 and maker.opcode.endswith("32"):
            amount = maker.reads[1]
            if (kind, amount) in (("shl", "16"), ("and", "65535")):
                return set(), [(reads[0], 0)]
            if (kind, amount) in (("shr", "16"), ("and", "-65536")):
                return set(), [(reads[0], 1)]
        if half is not None and (pair_half := self._pair_half(maker, half)):
            return set(), [pair_half]
        if kind == "prmt" and half is not None and (taken := _permuted_half(maker, half)):
            return set(), [taken]
        if kind == "cvt" and maker.opcode.endswith("16"):
            half = 0 if maker.opcode == "cvt.u16.u32" else None
        packed = maker.opcode.endswith("x2") or kind == "mov"
        return set(), [(read, half if packed or kind == "cvt" else None) for read in reads]

    def _pair_half(self, maker: Instruction, half: int) -> tuple[str, int | None] | None:
        """What stands in a `half` of the pair of 32 bits that `maker` joins by integers, as older LLVMs do; None of no pair."""
        if (maker.opcode, half) == ("cvt.u64.u32", 0):
            return maker.reads[0], None
        if (maker.opcode, half, maker.reads[1:]) == ("shl.b64", 1, ("32",)):
            return maker.reads[0], 0
        sides = {self._single_maker(read): read for read in maker.reads}
        is_pair = maker.opcode == "or.b64" and sides.keys() == {("cvt.u64.u32",), ("shl.b64", "32")}
        return (sides["shl.b64", "32"] if half else sides["cvt.u64.u32",], half) if is_pair else None

    def _single_maker(self, name: str) -> tuple[str, ...]:
        """The opcode of the one instruction that makes `name`, and what it reads second; empty where there are several."""
        makers = self.definitions.get(name, [])
        return (makers[0].opcode, *makers[0].reads[1:]) if len(makers) == 1 else ()

    def _address(self, load: Instruction) -> int | None:
        """Where the first thread reads by `load`; None where it is not known."""
        found = _ADDRESS.fullmatch(load.reads[-1])
        start = self._integer(found[1]) if found else None
        return None if found is None or start is None else integer_result("add", start, int(found[2] or 0))

    def _integer(self, name: str) -> int | None:
        """What register or operand `name` is in the first thread, where that shows."""
        if name not in self.integers:
            self.integers[name] = None  # of what a loop carries
            self.integers[name] = self._integer_made(name)
        return self.integers[name]

    def _integer_made(self, name: str) -> int | None:
        if name == "global_smem" or name.removeprefix("%").startswith(FIRST_THREAD):
            return 0
        if re.fullmatch(r"-?\d+", name):
            return int(name)
        makers = self.definitions.get(name, [])
        if len(makers) != 1:
            return None
        kind = makers[0].opcode.partition(".")[0]
        values = [self._integer(read) for read in makers[0].reads]
        if kind in ("mov", "cvt", "cvta") or makers[0].opcode.startswith("shfl.sync.idx"):
            return values[0] if len(makers[0].writes) == 1 and (kind == "shfl" or len(values) == 1) else None
        if kind in ("and", "mul") and 0 in values:
            return 0
        if kind == "mad" and None not in values:
            return integer_result("add", values[0] * values[1], values[2])  # type: ignore[operator,arg-type]
        return integer_result(kind, *values) if len(values) == 2 and None not in values else None  # type: ignore[arg-type]


def _writers_before(statements: list[Instruction]) -> dict[tuple[int, str], list[int]]:
    """The numbers of the statements that may have written a register before a block, by the block and the register, where several
    blocks write it. A block ends at a label or behind a branch. A branch inside of inline assembly, as of a wait, may be the one
    that goes on: its label is no label of the program, and what the assembly loops over are registers of its own."""
    block_writes, entries, jumps, falls = [dict[str, int]()], dict[str, int](), list[tuple[int, str]](), set[int]()
    for number, statement in enumerate(statements):
        if statement.opcode == LABEL:
            falls.add(len(block_writes))
            block_writes.append({})
            entries[statement.writes[0]] = len(block_writes) - 1
            continue
        block_writes[-1] |= dict.fromkeys(statement.writes, number)
        if statement.opcode.startswith("bra"):
            label = statement.reads[-1]
            jumps.append((len(block_writes) - 1, label))
            falls |= set() if statement.opcode.endswith(".uni") and label.startswith("$") else {len(block_writes)}
            block_writes.append({})
    before = [{block - 1} & {start - 1 for start in falls} for block in range(len(block_writes))]
    for block, label in jumps:
        if label in entries:
            before[entries[label]].add(block)
    counts = Counter(name for names in block_writes for name in names)
    writers = dict[tuple[int, str], list[int]]()
    for name in (name for name, count in counts.items() if count > 1 and name.startswith("%")):
        incoming_numbers = [set[int]() for _ in block_writes]
        outgoing_numbers = [{names[name]} if name in names else set[int]() for names in block_writes]
        changes = True
        while changes:
            changes = False
            for block, blocks in enumerate(before):
                numbers = set().union(*(outgoing_numbers[previous] for previous in blocks))
                if numbers != incoming_numbers[block]:
                    incoming_numbers[block], changes = numbers, True
                    outgoing_numbers[block] = outgoing_numbers[block] if name in block_writes[block] else numbers
        writers |= {(block, name): sorted(numbers) for block, numbers in enumerate(incoming_numbers) if numbers}
    return writers


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
    """Of each register that an instruction writes."""
    if opcode.startswith("ldmatrix"):
        return 32  # two elements of 16
    found = re.search(r"[bfsu](\d+)$", opcode)
    return int(found[1]) if found else 32

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

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from bitverdict.harness.emulator.frontend.assembly import Instruction, marked_ptx
from bitverdict.harness.emulator.frontend.assembly_sums import flatten
from bitverdict.harness.emulator.frontend.float_instructions import (
    adds,
    form_of,
    is_open_product,
    machine_places,
    multiplies,
    origins,
)
from bitverdict.harness.emulator.frontend.fold_code import FoldCode
from bitverdict.harness.emulator.frontend.fold_dialect import EMPTY_PATH, FoldAddition, FoldDialect, Mark


@dataclass(frozen=True)
class FoldSums:
    """Of one reduction or scan, by register of its operand: whether the sum that register first goes into takes in its product
    (`first`), and whether the sum that puts what stands before it in front of it does (`later`, of a scan). `open`: why this is
    not known, empty where it is."""

    first_sums: tuple[bool, ...] = ()
    later_sums: tuple[bool, ...] = ()
    open: str = ""

    def to_list(self) -> list:
        """As JSON."""
        return [self.first_sums, self.later_sums, self.open]

    @classmethod
    def from_list(cls, kept: list) -> FoldSums:
        return cls(tuple(kept[0]), tuple(kept[1]), kept[2])

    @property
    def fuses(self) -> bool:
        return any(self.first_sums) or any(self.later_sums)


@dataclass(frozen=True)
class _Outcome:
    """What one instruction makes of a sum: None where it adds, 0 or 1 where it takes in the product that this side is, -1 where
    that is not known. `reached`: products and divisions that ptxas may still take in."""

    side: int | None
    place: int  # of the instruction among those of floats
    is_reached: bool


class MarkedProgram:
    """A tile program in LLVM's dialect, and its PTX with the same marks. NotAssembled where the compiler does not take it."""

    def __init__(self, program: str, capability: int) -> None:
        dialect, text, self.is_packed = marked_ptx(program, capability)
        self.text = flatten(text)
        self.dialect, self.capability = FoldDialect(dialect), capability
        self.code = FoldCode.from_ptx(self.text, self.dialect.addressed_lines)

    @cached_property
    def joined_places(self) -> set[int]:
        """The places of the PTX of which the machine code makes fused multiply-adds."""
        return machine_places(self.text, self.capability)[0]


def fold_sums(program: MarkedProgram, lines: tuple[int, int], form: str) -> FoldSums:
    """Of the reduction or scan whose sum stands at the first of `lines` (from 1) and which ends at the second; `form`: its element
    type."""
    dialect, code = program.dialect, program.code
    count, sums = dialect.sums(lines)
    all_sums = [*float_sums(code)]
    line_instructions = [each for each in all_sums if each[2][0] in lines]
    unmarked_sums = [each for each in all_sums if not each[2][0] and form_of(each[1].opcode) == form]  # moved out of a loop, as one
    forms = {form_of(candidate.opcode) for _, candidate, _ in line_instructions}
    if forms - {form}:
        return FoldSums(open=f"computes it in {', '.join(sorted(forms))}")
    first_flags, later_flags = [False] * count, [False] * count
    touched_registers = set[int]()
    direct = [candidate for candidate in sums if any(register is not None for sides, _ in candidate.lanes for register in sides)]
    live = [candidate for candidate in sums if candidate.is_used]
    near_sums = line_instructions + unmarked_sums
    fuses = any(_fuses(candidate, code) for _, candidate, _ in near_sums)
    if not direct:
        return FoldSums(open="fuses it in another way" if fuses else "")
    if not fuses and (len(near_sums) >= len(live) or not program.is_packed):  # else some stand under another mark
        reached = {place for place, candidate, _ in near_sums if is_reached(candidate, code)}
        if reached and reached & program.joined_places:
            return FoldSums(open="leaves it to ptxas, which takes in a product")
        return FoldSums(tuple(first_flags), tuple(later_flags))
    used_places = set[int]()
    for candidate in direct:
        if not candidate.is_used:
            touched_registers.update(register for registers, _ in candidate.lanes for register in registers if register is not None)
            continue
        outcomes = []
        for lane in range(len(candidate.lanes)):
            found = _instructions_of(candidate, lane, near_sums, code, live)
            used_places.update(place for place, *_ in found)
            outcomes += [_outcome(candidate, lane, *one, program) for one in found]
        sides = set()
        for outcome in outcomes:
            side = outcome.side
            if side is None and outcome.is_reached:
                if outcome.place in program.joined_places:
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
    if any(place not in used_places and _fuses(candidate, code) for place, candidate, _ in line_instructions):
        return FoldSums(open="fuses a product into it that reaches it through a branch, a loop or a select")
    return FoldSums(tuple(first_flags), tuple(later_flags))


def _fuses(instruction: Instruction, code: FoldCode) -> bool:
    return instruction.opcode.startswith("fma.") and not adds(instruction, code.definitions)


def float_sums(code: FoldCode) -> Iterator[tuple[int, Instruction, Mark]]:
    """Additions and fused multiply-adds, each with its place."""
    for instruction, mark in code.marked_instructions:
        kind = instruction.opcode.partition(".")[0]
        if form_of(instruction.opcode) and kind in ("add", "sub", "fma") and not multiplies(instruction, code.definitions):
            yield instruction.place, instruction, mark


def _instructions_of(
    addition: FoldAddition,
    lane: int,
    line_instructions: list[tuple[int, Instruction, Mark]],
    code: FoldCode,
    sums: list[FoldAddition],
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


def _same_sides(one: FoldAddition, other: FoldAddition) -> bool:
    return {sides for _, sides in one.lanes} == {sides for _, sides in other.lanes}


def _outcome(
    addition: FoldAddition, lane: int, place: int, instruction: Instruction, half: int | None, program: MarkedProgram
) -> _Outcome:
    registers, sources = addition.lanes[lane]
    if not instruction.opcode.startswith("fma.") or adds(instruction, program.code.definitions):
        return _Outcome(None, place, is_reached(instruction, program.code))
    leaves = [side for side, register in enumerate(registers) if register is not None]
    if len(leaves) == 1:
        return _Outcome(leaves[0], place, False)
    if addition.products[0] == addition.products[1] and sources[0] == sources[1]:
        return _Outcome(0, place, False)  # a product and itself
    return _Outcome(side_by_sources(addition, lane, instruction, half, program), place, False)


def side_by_sources(addition: FoldAddition, lane: int, instruction: Instruction, half: int | None, program: MarkedProgram) -> int:
    """The side whose product a fused multiply-add takes in, by what it depends on, or by the one mark of what it adds; -1 where
    that does not tell."""
    dialect, code, sources = program.dialect, program.code, addition.lanes[lane][1]
    taken = frozenset().union(*(code.sources(name, half) for name in instruction.reads[:2]))
    rest = code.sources(instruction.reads[2], half)
    alone = (sources[0] - sources[1], sources[1] - sources[0])
    for side, other in ((0, 1), (1, 0)):
        clear = not taken & alone[other] and not rest & alone[side]
        if clear and (taken & alone[side] or rest & alone[other]):
            return side
    near = [dialect.sources(name, ((lane, 0),) if len(addition.lanes) > 1 else EMPTY_PATH, near=True) for name in addition.names]
    product = code.nearest(instruction.reads[:2], half)
    if near[0] != near[1] and product in near:
        return near.index(product)
    added = {code.marks[id(one)] for one in origins(instruction.reads[2:], code.definitions) if multiplies(one, code.definitions)}
    if len(addition.lanes) == 1 and not program.is_packed and added:  # each product has its own mark
        for side, products in enumerate(addition.products):
            if added <= addition.products[1 - side] and not added & products:
                return side
    return -1


def is_reached(instruction: Instruction, code: FoldCode) -> bool:
    """Whether ptxas may take a product or a quotient into the addition `instruction`."""
    made = origins(instruction.reads, code.definitions)
    return "rn" not in instruction.opcode.split(".") and any(
        is_open_product(each) or each.opcode == "div.full.f32" for each in made
    )


__all__ = ["FoldSums", "MarkedProgram", "float_sums", "fold_sums", "is_reached", "side_by_sources"]

"""Which product each sum inside a `tt.reduce` or `tt.scan` takes in, register by register, read off the compiled program.

Triton writes such an operation out in LLVM's dialect as one addition a register and step. Which of them becomes a fused
multiply-add, and of which of two products, LLVM decides for each: its SLP vectoriser may swap the operands of single lanes, and a
negated product is none. So the additions are followed down to the PTX. Every instruction of the dialect is given a column of its
own (a *mark*) under its line of the tile program; LLVM carries it along. Where the vectoriser put several under one mark, or a mark
is lost, an addition is known by what it computes (`value_numbers`).

What PTX leaves to ptxas (a product and a sum without `.rn`) is read off the machine code. What cannot be told is *open*.
"""

from __future__ import annotations

from collections import defaultdict
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
from bitverdict.harness.emulator.frontend.fold_dialect import FoldAddition, FoldDialect, Mark, Path
from bitverdict.harness.emulator.frontend.value_numbers import PRIME, NumberedSum, magnitude, numbered_sums, of_dialect, sum_number


@dataclass(frozen=True)
class FoldSums:
    """Of one reduction or scan, by register of its operand: whether the sum that register first goes into takes in its product
    (`first_sums`), and whether the sum that puts what stands before it in front of it does (`later_sums`, of a scan). `open`: why
    this is not known, empty where it is."""

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
    def _additions(self) -> list[FoldAddition]:
        dialect = self.dialect
        return [dialect.addition(name, {}) for name in dialect.order if dialect.made[name][0] in ("fadd", "fsub")]

    @cached_property
    def _dialect_numbers(self) -> dict[tuple[str, Path], int]:
        """Of what additions add; not of different values that have one number."""
        places = [(name, path) for each in self._additions for path in each.paths for name in each.names]
        values, exact = of_dialect(self.dialect), of_dialect(self.dialect, exact=True)
        values.number(places)
        exact.number(places)
        told_apart = defaultdict[int, set[int]](set)
        for place in places:
            told_apart[magnitude(values.numbers[place])].add(magnitude(exact.numbers[place]))
        return {place: values.numbers[place] for place in places if len(told_apart[magnitude(values.numbers[place])]) == 1}

    @cached_property
    def _code_numbers(self) -> dict[int, list[NumberedSum]]:
        return numbered_sums(self.code, [(place, each, fuses(each, self.code)) for place, each, _ in float_sums(self.code)])

    def outcomes_by_value(self, addition: FoldAddition, lane: int, form: str) -> list[_Outcome]:
        """The instructions of the element type `form` that compute a lane of `addition`, by what they compute."""
        path, minus = addition.paths[lane], self.dialect.made[addition.name][0] == "fsub"
        left, right = (self._dialect_numbers.get((name, path)) for name in addition.names)
        if left is None or right is None:
            return []
        right = -right % PRIME if minus else right
        ways = {(right, left): 1, (-right % PRIME, -left % PRIME): 1, (left, right): 0, (-left % PRIME, -right % PRIME): 0}
        return [
            _Outcome(ways[each.parts] if each.fuses else None, each.place, is_reached(each.instruction, self.code))
            for each in self._code_numbers.get(magnitude(sum_number(left, right)), ())
            if each.parts in ways and form_of(each.instruction.opcode) == form
        ]

    @cached_property
    def numbered_places(self) -> set[int]:
        """The places of all instructions of which it is known what addition they compute."""
        forms = {form_of(each.instruction.opcode) for found in self._code_numbers.values() for each in found}
        return {
            outcome.place
            for addition in self._additions
            for lane in range(len(addition.lanes))
            for form in forms
            for outcome in self.outcomes_by_value(addition, lane, form)
        }

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
    direct = [
        candidate for candidate in sums if any(register is not None for registers in candidate.lanes for register in registers)
    ]
    live = [candidate for candidate in sums if candidate.is_used]
    near_sums = line_instructions + unmarked_sums
    is_fused = any(fuses(candidate, code) for _, candidate, _ in near_sums)
    if not direct:
        return FoldSums(open="fuses it in another way" if is_fused else "")
    if not is_fused and (len(near_sums) >= len(live) or not program.is_packed):  # else some stand under another mark
        reached = {place for place, candidate, _ in near_sums if is_reached(candidate, code)}
        if reached and reached & program.joined_places:
            return FoldSums(open="leaves it to ptxas, which takes in a product")
        return FoldSums(tuple(first_flags), tuple(later_flags))
    used_places = set[int]()
    for candidate in direct:
        if not candidate.is_used:
            touched_registers.update(register for registers in candidate.lanes for register in registers if register is not None)
            continue
        outcomes = []
        for lane in range(len(candidate.lanes)):
            by_mark = _marked_outcomes(candidate, lane, near_sums, program)
            is_marked = by_mark and not program.is_packed and all(outcome.side != -1 for outcome in by_mark)
            lane_outcomes = by_mark if is_marked else program.outcomes_by_value(candidate, lane, form) or by_mark
            used_places.update(outcome.place for outcome in lane_outcomes)
            outcomes += lane_outcomes
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
        for registers in candidate.lanes:
            for which, register in enumerate(registers):
                if register is not None:
                    flags = later_flags if register in touched_registers else first_flags
                    flags[register] = which in sides
            touched_registers.update(register for register in registers if register is not None)
    if any(place not in used_places and fuses(candidate, code) for place, candidate, _ in line_instructions):
        return FoldSums(open="fuses a product into it that reaches it through a branch, a loop or a select")
    return FoldSums(tuple(first_flags), tuple(later_flags))


def fuses(instruction: Instruction, code: FoldCode) -> bool:
    return instruction.opcode.startswith("fma.") and not adds(instruction, code.definitions)


def float_sums(code: FoldCode) -> Iterator[tuple[int, Instruction, Mark]]:
    """Additions and fused multiply-adds, each with its place."""
    for instruction, mark in code.marked_instructions:
        kind = instruction.opcode.partition(".")[0]
        if form_of(instruction.opcode) and kind in ("add", "sub", "fma") and not multiplies(instruction, code.definitions):
            yield instruction.place, instruction, mark


def _marked_outcomes(
    addition: FoldAddition, lane: int, line_instructions: list[tuple[int, Instruction, Mark]], program: MarkedProgram
) -> list[_Outcome]:
    """What the instructions under the mark of an addition of one lane make of it, whatever they compute. Where the vectoriser
    packed some, the one there is it where it is known to compute nothing else."""
    registers, code = addition.lanes[lane], program.code
    own_instructions = [(place, instruction) for place, instruction, mark in line_instructions if mark == addition.mark]
    is_alone = len(own_instructions) == 1 and own_instructions[0][0] not in program.numbered_places
    if len(addition.lanes) > 1 or (program.is_packed and not is_alone):
        return []
    sides = [side for side, register in enumerate(registers) if register is not None]
    outcomes = []
    for place, instruction in own_instructions:
        side = None
        if fuses(instruction, code):
            added = {code.marks[id(one)] for one in origins(instruction.reads[2:], code.definitions)}
            beside = [side for side in sides if added <= addition.products[1 - side] and not added & addition.products[side]]
            is_told = len(beside) == 1 and added and not program.is_packed  # products are packed under one mark too
            side = sides[0] if len(sides) == 1 else beside[0] if is_told else -1
        outcomes.append(_Outcome(side, place, is_reached(instruction, code)))
    return outcomes


def is_reached(instruction: Instruction, code: FoldCode) -> bool:
    """Whether ptxas may take a product or a quotient into the addition `instruction`."""
    made = origins(instruction.reads, code.definitions)
    return "rn" not in instruction.opcode.split(".") and any(
        is_open_product(each) or each.opcode == "div.full.f32" for each in made
    )


__all__ = ["FoldSums", "MarkedProgram", "float_sums", "fold_sums", "is_reached"]

"""Which product each sum of a combination of several operations takes in, read off the compiled program: of
`tl.associative_scan((a, x * y), ...)` for one.

Triton writes the region of such a `tt.reduce` or `tt.scan` out once for each step and register. A product that is an element of the
operand is fused into the first sums that the element goes into, and further on there are only words. So what the region became is
distinguished by its two sides (`side_kind`): each is an element of the operand, the result that the region gave before it, or
something else, as what came from another lane. Of each of these pairs all that the region became must say the same. A sum is found
by its mark (`fold_sums`), and what it takes in by the marks of what it adds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from bitverdict.harness.emulator.frontend.assembly import Instruction
from bitverdict.harness.emulator.frontend.float_instructions import adds, doubles, form_of, origins
from bitverdict.harness.emulator.frontend.fold_dialect import EMPTY_PATH, FoldAddition, FoldDialect, Mark, Path
from bitverdict.harness.emulator.frontend.fold_sums import MarkedProgram, float_sums, is_reached
from bitverdict.harness.emulator.mlir_reader import Operation

ByPlace = list[tuple[int, int, int, int | None]]
Side = int | str | None | ByPlace
"""The side whose product a sum takes in, None where it adds, or why that is not known. Where it is another in another place: by
what the region combines there, which `_Places` numbers (left, right, what it gives, the side)."""
RegionSums = dict[str, dict[int, Side]]
"""By the kinds of the two sides ("result element", and `WORDS` where neither is an element), and by the line of a sum. In a
reduction two that a thread computed and two that it did not are kinds of their own: LLVM may know a product of what it computed."""
WORDS, IN_THREAD, FROM_MEMORY = "words", "result result", "other other"
LOADED_NUMBER, FIRST_RESULT = -1, 1 << 16  # beside the numbers of elements, which are those of the registers of a thread
_SUMS = ("arith.addf", "arith.subf")
_DIRECT = (*_SUMS, "arith.mulf")  # operations that become one of the dialect, of the same operands


@dataclass
class _Combination:
    """What the region became once: the kinds of its two sides, what these are (`_Places`), and its sums by line."""

    pair: str
    place: tuple[int, int, int] | None
    sums: dict[int, FoldAddition]


class _Places:
    """Numbers for what a region of the reduction `op`, whose operations stand at the lines of `body`, combines: a register of the
    operand, what is `LOADED_NUMBER`, and from `FIRST_RESULT` on the results, one of the same two sides one number."""

    def __init__(self, dialect: FoldDialect, op: Operation, body: Collection[int]) -> None:
        self.dialect, self.op, self.body = dialect, op, body
        self.results: dict[str, int | None] = {}
        self.known: dict[tuple[int, int], int] = {}

    def combine(self, sides: tuple[set[str], set[str]], names: Iterable[str]) -> tuple[int, int, int] | None:
        """The numbers of the two `sides`, which several values may be, and of what is made of them, which `names` are; None where
        one of them is not known."""
        left, right = ({self._number(name) for name in side} for side in sides)
        pair = *left, *right
        known = len(left) == len(right) == 1 and None not in pair and self.op.name == "tt.reduce"
        found = self.known.setdefault(pair, FIRST_RESULT + len(self.known)) if known else None  # type: ignore[arg-type]
        self.results |= dict.fromkeys(names, found)
        return None if found is None else (*pair, found)  # type: ignore[return-value]

    def _number(self, name: str) -> int | None:
        place: tuple[str, Path] = name, EMPTY_PATH
        while True:
            operation, rest, mark = self.dialect.made.get(place[0], ("", "", (0, 0)))
            if mark[0] in self.body:
                return self.results.get(place[0])
            if operation == "load" and mark[0] == self.op.last_line + 1:
                return LOADED_NUMBER
            if operation == "nvvm.shfl.sync":
                place = self.dialect.operands(place[0])[1], EMPTY_PATH
                continue
            if side_kind(place[0], self.op, self.body, self.dialect) == "element":
                return self.dialect.index(rest)
            sources, places = self.dialect.step(*place)
            if sources or len(places) != 1:
                return None
            (place,) = places


def region_sums(program: MarkedProgram, op: Operation) -> RegionSums:
    """Of the reduction or scan `op` of the program."""
    dialect = program.dialect
    (block,) = op.regions[0]
    body = {inner.line + 1: inner for inner in block.operations[:-1]}
    side_of = {argument: i * 2 // len(block.arguments) for i, (argument, _) in enumerate(block.arguments)}
    places, combinations = _Places(dialect, op, body), list[_Combination]()
    for values in dialect.combinations(body):
        sides: tuple[set[str], set[str]] = set(), set()
        for line, names in values.items():
            if body[line].name in _DIRECT and len(names) == 1:
                for operand, name in zip(body[line].operands, dialect.operands(names[0]), strict=False):
                    if operand in side_of:
                        sides[side_of[operand]].add(name)
        pair = " ".join("+".join(sorted({side_kind(name, op, body, dialect) for name in side})) for side in sides)
        pair = pair if "element" in pair or (pair in (IN_THREAD, FROM_MEMORY) and op.name == "tt.reduce") else WORDS
        sums = {
            line: dialect.addition(names[0], {}) for line, names in values.items() if body[line].name in _SUMS and len(names) == 1
        }
        combinations.append(_Combination(pair, places.combine(sides, (name for names in values.values() for name in names)), sums))
    by_mark: dict[Mark, list[tuple[int, Instruction]]] = defaultdict(list)
    for place, instruction, mark in float_sums(program.code):
        if not doubles(instruction, program.code.definitions):
            by_mark[mark].append((place, instruction))
    sides_by_pair: dict[str, dict[int, list[tuple[_Combination, list[Side]]]]] = defaultdict(lambda: defaultdict(list))
    for combination in combinations:
        for line, addition in combination.sums.items():
            sides_here = [_side(body[line], addition, *instruction, program) for instruction in by_mark.get(addition.mark, ())]
            if program.is_packed or not sides_here or any(isinstance(side, str) for side in sides_here):
                marked_sides: list[Side] = (
                    ["packs it"] if program.is_packed and any(n in sides_here for n in (0, 1)) else sides_here
                )
                sides_here = _numbered_sides(body[line], addition, program) or marked_sides
            sides_here = [None] if dialect.is_foreseen(addition.names) else sides_here
            sides_by_pair[combination.pair][body[line].line].append((combination, sides_here))
    own_marks = {addition.mark for combination in combinations for addition in combination.sums.values()}
    is_whole = all(mark in own_marks or (mark[0] and mark[0] not in body) for mark in by_mark)
    common: RegionSums = {
        pair: {line: _common_side([sides for _, sides in instances], is_whole) for line, instances in lines.items()}
        for pair, lines in sides_by_pair.items()
    }
    if not any(isinstance(side, str) for lines in common.values() for side in lines.values()):
        return common
    by_place: RegionSums = {
        pair: {line: _by_place(instances) for line, instances in lines.items()} for pair, lines in sides_by_pair.items()
    }
    return by_place if all(side for lines in by_place.values() for side in lines.values()) else common


def register_sums(program: MarkedProgram, op: Operation) -> list[int | None]:
    """Of the sum `op` of the program, outside of regions: what each register of it takes in. Empty where an instruction under
    its line computes something that the sum does not, as of the first step of a loop that LLVM peeled."""
    dialect, line = program.dialect, op.line + 1
    names = [name for name in dialect.order if dialect.made[name][0] in ("fadd", "fsub") and dialect.made[name][2][0] == line]
    sides = list[Side]()
    for addition in (dialect.addition(name, {}) for name in names):
        sides_here = {*_numbered_sides(op, addition, program)} if len(addition.lanes) == 1 else set()
        sides_here = {None} if dialect.is_foreseen(addition.names) else sides_here
        sides.append(sides_here.pop() if len(sides_here) == 1 else "fuses it in one place and not in another")
    others = {place for place, _, mark in float_sums(program.code) if mark[0] == line} - program.numbered_places
    known = [side for side in sides if side is None or isinstance(side, int)]
    return [] if others or len(known) < len(sides) else known


def _numbered_sides(inner: Operation, addition: FoldAddition, program: MarkedProgram) -> list[Side]:
    """What the instructions of the addition take in, found by what they compute."""
    if inner.inputs[0] is None:
        return []
    outcomes = program.outcomes_by_value(addition, 0, inner.inputs[0].element)
    if any(outcome.is_reached and outcome.place in program.joined_places for outcome in outcomes if outcome.side is None):
        return ["leaves it to ptxas, which takes a product in"]
    return [outcome.side for outcome in outcomes]


def _by_place(instances: list[tuple[_Combination, list[Side]]]) -> ByPlace:
    """The side of each place; none where one of them is not known."""
    sides_by_place: dict[tuple[int, int, int], set[Side]] = defaultdict(set)
    for combination, sides in instances:
        if combination.place is None or not sides:
            return []
        sides_by_place[combination.place].update(sides)  # type: ignore[arg-type]
    if any(len(sides) > 1 or isinstance(next(iter(sides)), str) for sides in sides_by_place.values()):
        return []
    return [(*place, *sides) for place, sides in sorted(sides_by_place.items())]  # type: ignore[misc]


def _common_side(by_addition: list[list[Side]], is_whole: bool) -> Side:
    """What additions alike take in, by what their instructions do. Where each instruction has its addition, others were removed, or
    stand under one another's mark."""
    sides = [side for sides in by_addition for side in sides]
    if not sides or not (all(by_addition) or (is_whole and len(sides) <= len(by_addition))):
        return "keeps nothing of one of its sums that could be read"
    return sides[0] if len(set(sides)) == 1 else "fuses it in one place and not in another"  # type: ignore[arg-type]


def _side(inner: Operation, addition: FoldAddition, place: int, instruction: Instruction, program: MarkedProgram) -> Side:
    """What an instruction of the addition takes in: the product on the side that it does not add, by marks or, where the vectoriser
    put several instructions under one, by lines."""
    form, code = form_of(instruction.opcode), program.code
    if inner.inputs[0] is None or form != inner.inputs[0].element or instruction.opcode.endswith("x2"):
        return f"computes it in {form}, or packs it with another"
    if not instruction.opcode.startswith("fma.") or adds(instruction, code.definitions):
        is_joined = is_reached(instruction, code) and place in program.joined_places
        return "leaves it to ptxas, which takes a product in" if is_joined else None
    added = {code.marks[id(origin)] for origin in origins(instruction.reads[2:], code.definitions)}
    makers = [program.dialect.makers(name) for name in addition.names]
    for side, other in ((0, 1), (1, 0)):
        if addition.products[side] and (_is_of(added, makers[other], makers[side]) if added else not addition.products[other]):
            return side
    return "fuses a product into it that reaches it in another way"


def _is_of(added: set[Mark], makers: frozenset[Mark], others: frozenset[Mark]) -> bool:
    """Whether what is `added` is what `makers` made, and not what `others` did."""
    if added <= makers and not added & others:
        return True
    lines, other_lines = ({line for line, _ in marks} for marks in (makers, others))
    return {line for line, _ in added} <= lines - other_lines


def side_kind(name: str, op: Operation, lines: Iterable[int], dialect: FoldDialect) -> str:
    """What the value `name` is, which the region of `op` combines."""
    operation, _, mark = dialect.made.get(name, ("", "", (0, 0)))
    if mark[0] in lines:
        return "result"
    if operation != "extractvalue" or mark[0] != op.last_line + 1:
        return "other"
    (struct,) = dialect.operands(name)
    return "other" if dialect.made.get(struct, ("", "", (0, 0)))[2][0] == op.last_line + 1 else "element"


__all__ = [
    "FIRST_RESULT", "FROM_MEMORY", "IN_THREAD", "LOADED_NUMBER", "WORDS", "ByPlace", "RegionSums", "Side", "region_sums",
    "register_sums",
]  # fmt: skip

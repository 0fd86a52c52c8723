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
from collections.abc import Iterable

from bitverdict.harness.emulator.frontend.assembly import Instruction
from bitverdict.harness.emulator.frontend.float_instructions import adds, doubles, form_of, origins
from bitverdict.harness.emulator.frontend.fold_dialect import FoldAddition, FoldDialect, Mark
from bitverdict.harness.emulator.frontend.fold_sums import MarkedProgram, float_sums, is_reached, side_by_sources
from bitverdict.harness.emulator.mlir_reader import Operation

Side = int | str | None  # the side whose product a sum takes in, None where it adds, or why that is not known
RegionSums = dict[str, dict[int, Side]]
"""By the kinds of the two sides ("result element", and `WORDS` where neither is an element), and by the line of a sum. In a
reduction two that a thread computed and two that it did not are kinds of their own: LLVM may know a product of what it computed."""
WORDS, IN_THREAD, FROM_MEMORY = "words", "result result", "other other"
_SUMS = ("arith.addf", "arith.subf")
_DIRECT = (*_SUMS, "arith.mulf")  # operations that become one of the dialect, of the same operands


def region_sums(program: MarkedProgram, op: Operation) -> RegionSums:
    """Of the reduction or scan `op` of the program."""
    dialect = program.dialect
    (block,) = op.regions[0]
    body = {inner.line + 1: inner for inner in block.operations[:-1]}
    side_of = {argument: i * 2 // len(block.arguments) for i, (argument, _) in enumerate(block.arguments)}
    additions: list[tuple[str, Operation, FoldAddition]] = []
    for values in dialect.combinations(body):
        kinds: tuple[set[str], set[str]] = set(), set()
        for line, names in values.items():
            if body[line].name in _DIRECT and len(names) == 1:
                for operand, name in zip(body[line].operands, dialect.operands(names[0]), strict=False):
                    if operand in side_of:
                        kinds[side_of[operand]].add(side_kind(name, op, body, dialect))
        pair = " ".join("+".join(sorted(each)) for each in kinds)
        pair = pair if "element" in pair or (pair in (IN_THREAD, FROM_MEMORY) and op.name == "tt.reduce") else WORDS
        additions += [
            (pair, inner, dialect.addition(names[0], {}))
            for line, names in values.items()
            if (inner := body[line]).name in _SUMS and len(names) == 1
        ]
    by_mark: dict[Mark, list[tuple[int, Instruction]]] = defaultdict(list)
    for place, instruction, mark in float_sums(program.code):
        if not doubles(instruction, program.code.definitions):
            by_mark[mark].append((place, instruction))
    sides_by_pair: dict[str, dict[int, list[list[Side]]]] = defaultdict(lambda: defaultdict(list))
    for pair, inner, addition in additions:
        sides = [_side(inner, addition, *instruction, program) for instruction in by_mark.get(addition.mark, ())]
        sides = sides or [None] * program.dialect.is_foreseen(addition.names)
        sides_by_pair[pair][inner.line].append(sides)
    own_marks = {addition.mark for *_, addition in additions}
    is_whole = all(mark in own_marks or (mark[0] and mark[0] not in body) for mark in by_mark)
    return {pair: {line: _common_side(sides, is_whole) for line, sides in lines.items()} for pair, lines in sides_by_pair.items()}


def _common_side(by_addition: list[list[Side]], is_whole: bool) -> Side:
    """What additions alike take in, by what their instructions do. Where each instruction has its addition, others were removed, or
    stand under one another's mark."""
    sides = [side for sides in by_addition for side in sides]
    if not sides or not (all(by_addition) or (is_whole and len(sides) <= len(by_addition))):
        return "keeps nothing of one of its sums that could be read"
    return sides[0] if len(set(sides)) == 1 else "fuses it in one place and not in another"


def _side(inner: Operation, addition: FoldAddition, place: int, instruction: Instruction, program: MarkedProgram) -> Side:
    """What an instruction of the addition takes in: the product on the side that it does not add, by marks or, where the vectoriser
    put several instructions under one, by lines."""
    form, code = form_of(instruction.opcode), program.code
    if inner.inputs[0] is None or form != inner.inputs[0].element or instruction.opcode.endswith("x2"):
        return f"computes it in {form}, or packs it with another"
    if not instruction.opcode.startswith("fma.") or adds(instruction, code.definitions):
        is_joined = is_reached(instruction, code) and place in program.joined_places
        return "leaves it to ptxas, which takes a product in" if is_joined else None
    if program.is_packed and all(addition.products):  # one mark is that of several products
        side = side_by_sources(addition, 0, instruction, None, program)
        return side if side >= 0 else "fuses one of two products into it that are hard to tell apart"
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


__all__ = ["FROM_MEMORY", "IN_THREAD", "WORDS", "RegionSums", "Side", "region_sums"]

"""What ptxas made of the products and sums of inline assembly that say no rounding.

It contracts a `mul` and an `add` without `.rn` wherever the two stand (PTX ISA 9.7.3). `flatten` puts the statements one a line, so
that each has a line of its own in the machine code, and `assembly_sums` reads there what became of each sum.
"""

from __future__ import annotations

import re
from itertools import count

from bitverdict.harness.emulator.frontend.assembly import (
    FIRST_PLACE,
    FLOATS,
    Instruction,
    instructions,
    machine_code,
    number_floats,
)
from bitverdict.harness.emulator.frontend.compiled_operations import OPEN_PRODUCT, OPEN_SUM
from bitverdict.harness.emulator.frontend.float_instructions import FUSED_MULTIPLY_ADD, PLAIN_ADDITION, Definitions, origins
from bitverdict.harness.emulator.ptx.text import NotPtx, parse_body

ROUNDED_PRODUCT = -1  # what a sum takes in: no product, or that of its first (0) or second (1) operand
_BEGIN, _END = "// begin inline asm", "// end inline asm"
_BLOCK = re.compile(rf"{_BEGIN}\n(.*?){_END}", re.S)
_COMPUTES = re.compile(r"\b(add|sub|mul)\.(\w+\.)*(f16|bf16|f32|f64)")
_NAME = re.compile(r"%?[A-Za-z_$][\w$]*(@\d+)?")

AssemblySums = dict[int, dict[int, set[int]]]
"""By line of the program's text and number of the float statement there: what a sum takes in, one for all copies or several."""


def flatten(text: str) -> str:
    """The PTX `text` with the statements of inline assembly that adds or multiplies floats one a line, on registers of its own."""
    numbers = count()

    def one_a_line(block: re.Match[str]) -> str:
        body = re.sub(r"^\s*\.loc\b.*$", "", block[1], flags=re.M)
        try:
            function = parse_body(body, {}) if _COMPUTES.search(body) else None
        except NotPtx:
            function = None
        if function is None or function.locals:
            return block[0]
        number = next(numbers)
        inner = [*function.registers, *(label for label, _ in function.blocks if label)]
        names = {name: f"%inline{number}_{place}" for place, name in enumerate(inner)}
        lines = [f".reg .{f'b{bits}' if bits > 1 else 'pred'} {name};" for name, bits in function.registers.items()]
        for label, statements in function.blocks:
            lines += [f"{label}:"] * bool(label) + [f"{statement};" for statement in statements]
        renamed = _NAME.sub(lambda found: names.get(found[0], found[0]), "\n\t".join(lines))
        return f"{_BEGIN}\n\t{{\n\t{renamed}\n\t}}\n\t{_END}"

    return _BLOCK.sub(one_a_line, text)


def assembly_sums(text: str, capability: int) -> AssemblySums:
    """Of the PTX `text`, which `flatten` gave. NotAssembled where ptxas or nvdisasm fails."""
    code = machine_code(number_floats(text), capability)
    text_instructions = list(instructions(text))
    definitions: Definitions = {}
    for instruction in text_instructions:
        for name in instruction.writes:
            definitions.setdefault(name, []).append(instruction)
    statements, sums = _numbers_of_statements(text), AssemblySums()

    def products(name: str) -> list[Instruction]:
        return [origin for origin in origins([name], definitions) if OPEN_PRODUCT.match(origin.opcode)]

    def holds_fma(place: int) -> bool:
        return any(map(FUSED_MULTIPLY_ADD.match, code.get(FIRST_PLACE + place, ())))

    for instruction in text_instructions:
        if instruction.place not in statements or not OPEN_SUM.match(instruction.opcode):
            continue
        origin_lists = [products(name) for name in instruction.reads[:2]]
        sides = {side for side, reached in enumerate(origin_lists) if reached}
        is_added = any(map(PLAIN_ADDITION.match, code.get(FIRST_PLACE + instruction.place, ())))
        if is_added == holds_fma(instruction.place):  # both, or neither where it could be read
            outcomes = sides | {ROUNDED_PRODUCT}
        elif is_added:
            outcomes = {ROUNDED_PRODUCT}
        else:  # of two products the one that has no code of its own
            alone = {s for s in sides if not any(FIRST_PLACE + origin.place in code for origin in origin_lists[s])}
            outcomes = alone if len(alone) == 1 else sides
        sums.setdefault(instruction.line, {}).setdefault(statements[instruction.place], set()).update(outcomes)
    return sums


def _numbers_of_statements(text: str) -> dict[int, int]:
    """By place (`Instruction.place`) of a float instruction of inline assembly, its number among those of its copy."""
    numbers, place, inside = dict[int, int](), count(), count(-1)
    is_inside = False
    for raw in text.splitlines():
        if raw.strip() in (_BEGIN, _END):
            is_inside, inside = raw.strip() == _BEGIN, count()
        elif FLOATS.match(raw):
            at = next(place)
            if is_inside:
                numbers[at] = next(inside)
    return numbers


__all__ = ["ROUNDED_PRODUCT", "AssemblySums", "assembly_sums", "flatten"]

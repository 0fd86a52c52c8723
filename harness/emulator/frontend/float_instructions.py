"""Sums and products of floats among the instructions of PTX, and what their operands come from."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from bitverdict.harness.emulator.frontend.assembly import FIRST_PLACE, Instruction, machine_code, number_floats

Definitions = dict[str, list[Instruction]]  # register -> who writes it
_FORMATS = ("f32", "f16", "bf16", "f64")
FUSED_MULTIPLY_ADD = re.compile(r"U?[FHD]FMA(?!.*(RZ\b|, -?1,))")
"""A fused multiply-add of machine code; with RZ or one in it, it is a move, a product or a sum that ptxas writes so."""
PLAIN_ADDITION = re.compile(r"U?[FHD]ADD")
_ONE_WORDS = {0x3F80, 0xBF80, 0x3F803F80, 0xBF80BF80}  # bf16 +1 and -1, packed too
_PLUS_ONE_WORDS = {0x3F80, 0x3F803F80}
_MINUS_ZERO = {0x8000, 0x80008000}


_OF_HALVES = re.compile(r"(add|sub|mul|fma|neg|abs)\..*f32x2$")


def by_halves(code: list[Instruction]) -> list[Instruction]:
    """`code` with two instructions for each that is packed, one a half: "%rd1.0" and "%rd1.1" are the halves of %rd1. LLVM packs
    fp32 operations of several lines, two of one sum among them, and leaves a half undefined that nothing reads: it is left out."""
    pairs = {
        name
        for instruction in code
        if _OF_HALVES.match(instruction.opcode)
        for name in (*instruction.writes, *instruction.reads)
        if name[0] == "%"
    }
    if not pairs:
        return code
    split: list[Instruction] = []
    for instruction in code:
        if instruction.opcode.startswith("mov.b") and len(instruction.writes) == 2 and instruction.reads[0] in pairs:
            split += [
                replace(instruction, writes=(name,), reads=(f"{instruction.reads[0]}.{half}",))
                for half, name in enumerate(instruction.writes)
            ]
            continue
        is_packed, packs = (
            _OF_HALVES.match(instruction.opcode),
            instruction.opcode.startswith("mov.b") and len(instruction.reads) == 2,
        )
        for name in pairs.intersection(instruction.writes):
            names = [f"{name}.0", f"{name}.1"]
            for half, own in enumerate(names):
                reads = tuple(f"{read}.{half}" if read in pairs else read for read in instruction.reads)
                if is_packed or packs:
                    split.append(
                        replace(instruction, writes=(own,), reads=reads if is_packed else instruction.reads[half : half + 1])
                    )
                else:
                    split.append(
                        Instruction(
                            "mov.b32", (own,), reads if instruction.opcode.startswith("mov.") else (name,), instruction.line
                        )
                    )
            if is_packed or packs:
                split.append(Instruction("mov.b64", (name,), tuple(names), instruction.line))
        if not (is_packed or (packs and pairs.intersection(instruction.writes))):
            split.append(instruction)
    makers: dict[str, list[Instruction]] = {}
    for instruction in split:
        for name in instruction.writes:
            makers.setdefault(name, []).append(instruction)
    live = set[int]()
    pending_code = [
        instruction for instruction in split if not instruction.opcode.startswith("mov.") and "." not in "".join(instruction.writes)
    ]
    while pending_code:
        instruction = pending_code.pop()
        if id(instruction) not in live:
            live.add(id(instruction))
            pending_code += [maker for name in instruction.reads for maker in makers.get(name, ())]
    return [instruction for instruction in split if id(instruction) in live]


def machine_places(text: str, capability: int) -> tuple[set[int], set[int]]:
    """The places (`Instruction.place`) of the PTX `text` of which the machine code makes fused multiply-adds, and those of which it
    makes additions; -1 for such instructions that stand under no line."""
    code = {
        max(line - FIRST_PLACE, -1): listed
        for line, listed in machine_code(number_floats(text), capability).items()
        if line >= FIRST_PLACE or line == -1
    }
    joined, added = (
        {place for place, listed in code.items() if any(map(each.match, listed))} for each in (FUSED_MULTIPLY_ADD, PLAIN_ADDITION)
    )
    return joined, added


def doubles(instruction: Instruction, definitions: Definitions) -> bool:
    """Whether `instruction` is what LLVM makes of a product by two: x + x, and of a * b * 2 the fused a * b + (a * b). Its words
    are those of the product: it is off by no more than the rounding of a * b was, less than half a unit of the result."""
    first_operand, second = instruction.reads[0], instruction.reads[1]
    if instruction.opcode.startswith("add."):
        return first_operand == second
    made = definitions.get(instruction.reads[-1], [])
    return (
        instruction.opcode.startswith("fma.")
        and len(made) == 1
        and made[0].opcode.startswith("mul.")
        and sorted(made[0].reads) == sorted((first_operand, second))
    )


def behind_moves(name: str, defined: Definitions) -> str:
    """The register whose value the register `name` holds, its sign changed perhaps."""
    while len(makers := defined.get(name, [])) == 1:
        (maker,) = makers
        changes_sign = maker.opcode.startswith("xor.b") and not maker.reads[-1].startswith("%")
        if not maker.opcode.startswith(("mov.", "neg.")) and not changes_sign:
            break
        if len(maker.writes) != 1 or len([read for read in maker.reads if read.startswith("%")]) != 1:
            break
        name = maker.reads[0]
    return name


def one_line(name: str, defined: Definitions) -> int:
    """The line of the one instruction whose result the register `name` holds, its sign changed perhaps; -1 where it is not one, as
    of what a loop carries, or it has no line. A load that is guarded has what it leaves in place written before it."""
    makers = defined.get(behind_moves(name, defined), [])
    if len(makers) == 2 and makers[0].opcode.startswith("mov.") and makers[1].opcode.startswith("ld."):
        return makers[1].line
    return makers[0].line if len(makers) == 1 and not makers[0].opcode.startswith(("mov.", "neg.", "xor.b")) else -1


def is_square(names: tuple[str, ...], defined: Definitions) -> bool:
    """Whether the first two of `names` hold one value, the sign aside."""
    return len({behind_moves(name, defined) for name in names[:2]}) == 1


def is_open_product(instruction: Instruction) -> bool:
    """Whether ptxas may contract this product: it has no rounding modifier."""
    kind, modifiers, form = parts_of(instruction.opcode)
    return kind == "mul" and "rn" not in modifiers and bool(form)


def parts_of(opcode: str) -> tuple[str, list[str], str]:
    """ "fma.rn.f32x2" as ("fma", ["rn", "f32x2"], "f32"): the first type is that of the result ("add.rn.f32.bf16" on sm_100)."""
    kind, *modifiers = opcode.split(".")
    return kind, modifiers, next((each.removesuffix("x2") for each in modifiers if each.removesuffix("x2") in _FORMATS), "")


def form_of(opcode: str) -> str:
    """The format of the result of a float instruction; empty for others."""
    return parts_of(opcode)[2]


def adds(instruction: Instruction, defined: Definitions) -> bool:
    """Whether a fused multiply-add of bf16 multiplies by one: what a sum is where there is no instruction for it (sm_80)."""
    return instruction.opcode.startswith("fma.rn.bf16") and any(
        _holds_immediate(name, _ONE_WORDS, defined) for name in instruction.reads[:2]
    )


def multiplies(instruction: Instruction, defined: Definitions) -> bool:
    """Whether `instruction` is a product: of bf16 a fused multiply-add on -0 where there is no other (sm_80)."""
    return instruction.opcode.startswith("mul.") or (
        instruction.opcode.startswith("fma.rn.bf16") and _holds_immediate(instruction.reads[2], _MINUS_ZERO, defined)
    )


def kind_and_reads(instruction: Instruction, definitions: Definitions) -> tuple[str, tuple[str, ...]]:
    """What `instruction` computes, and of what: see `multiplies` and `adds`."""
    kind, reads = instruction.opcode.partition(".")[0], instruction.reads
    if kind == "fma" and multiplies(instruction, definitions):
        return "mul", reads[:2]
    for i, name in enumerate(reads[:2] if instruction.opcode.startswith("fma.rn.bf16") else ()):
        if _holds_immediate(name, _PLUS_ONE_WORDS, definitions):
            return "add", reads[:i] + reads[i + 1 :]
    return kind, reads


def _holds_immediate(name: str, values: set[int], definitions: Definitions) -> bool:
    """Whether register `name` holds one of the immediate `values`, in both halves if it is packed."""
    worklist, visited_names = [name], set[str]()
    while worklist:
        register = worklist.pop()
        if register.startswith("%"):
            sources = definitions.get(register, [])
            if register in visited_names or not sources or not all(source.opcode.startswith("mov.") for source in sources):
                return False
            visited_names.add(register)
            worklist += [read for source in sources for read in source.reads]
        elif (
            not re.fullmatch(r"-?(0x)?[0-9A-Fa-f]+", register)
            or not {int(register, 0) & 0xFFFF, int(register, 0) & 0xFFFFFFFF} & values
        ):
            return False
    return True


def origins(names: Iterable[str], definitions: Definitions) -> list[Instruction]:
    """The instructions whose results the registers `names` hold, seen through moves, packing and changes of sign."""
    origin_instructions, seen, worklist = [], set[str](), list(names)
    while worklist:
        name = worklist.pop()
        if name in seen:
            continue
        seen.add(name)
        for source in definitions.get(name, ()):
            changes_sign = source.opcode.startswith("xor.b") and not source.reads[-1].startswith("%")
            if source.opcode.startswith(("mov.", "neg.")) or changes_sign:
                worklist += [read for read in source.reads if read.startswith("%")]
            else:
                origin_instructions.append(source)
    return origin_instructions

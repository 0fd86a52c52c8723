"""Sums and products of floats among the instructions of PTX, and what their operands come from."""

from __future__ import annotations

import re
from collections.abc import Iterable

from bitverdict.harness.emulator.frontend.assembly import UNPLACED, Instruction

Definitions = dict[str, list[Instruction]]  # register -> who writes it
_FORMATS = ("f32", "f16", "bf16", "f64")
JOINED = re.compile(r"U?[FHD]FMA(?!.*(RZ\b|, -?1,))")
"""A fused multiply-add of machine code; with RZ or one in it, it is a move, a product or a sum that ptxas writes so."""
ADDED = re.compile(r"U?[FHD]ADD")
_ONE = {0x3F80, 0xBF80, 0x3F803F80, 0xBF80BF80}  # bf16 +1 and -1, packed too
_MINUS_ZERO = {0x8000, 0x80008000}


def placed(line: int) -> int:
    """The line of an instruction; -1 for one that has a number in its place."""
    return -1 if line >= UNPLACED else line


def doubles(instruction: Instruction, defined: Definitions) -> bool:
    """Whether `instruction` is what LLVM makes of a product by two: x + x, and of a * b * 2 the fused a * b + (a * b). Its words
    are those of the product: it is off by no more than the rounding of a * b was, less than half a unit of the result."""
    first, second = instruction.reads[0], instruction.reads[1]
    if instruction.opcode.startswith("add."):
        return first == second
    made = defined.get(instruction.reads[-1], [])
    return (
        instruction.opcode.startswith("fma.")
        and len(made) == 1
        and made[0].opcode.startswith("mul.")
        and sorted(made[0].reads) == sorted((first, second))
    )


def one_line(name: str, defined: Definitions) -> int:
    """The line of the one instruction whose result the register `name` holds, its sign changed perhaps; -1 where it is not one, as
    of what a loop carries, or it has no line. A load that is guarded has what it leaves in place written before it."""
    while True:
        made = defined.get(name, [])
        if len(made) == 2 and made[0].opcode.startswith("mov.") and made[1].opcode.startswith("ld."):
            return placed(made[1].line)
        if len(made) != 1:
            return -1
        changes_sign = made[0].opcode.startswith("xor.b") and not made[0].reads[-1].startswith("%")
        if not made[0].opcode.startswith(("mov.", "neg.")) and not changes_sign:
            return placed(made[0].line)
        if len(made[0].writes) != 1 or len([read for read in made[0].reads if read.startswith("%")]) != 1:
            return -1
        name = made[0].reads[0]


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
    return instruction.opcode.startswith("fma.rn.bf16") and any(_is(name, _ONE, defined) for name in instruction.reads[:2])


def multiplies(instruction: Instruction, defined: Definitions) -> bool:
    """Whether `instruction` is a product: of bf16 a fused multiply-add on -0 where there is no other (sm_80)."""
    return instruction.opcode.startswith("mul.") or (
        instruction.opcode.startswith("fma.rn.bf16") and _is(instruction.reads[2], _MINUS_ZERO, defined)
    )


def _is(name: str, values: set[int], defined: Definitions) -> bool:
    """Whether register `name` holds one of the immediate `values`, in both halves if it is packed."""
    waiting, seen = [name], set[str]()
    while waiting:
        at = waiting.pop()
        if at.startswith("%"):
            sources = defined.get(at, [])
            if at in seen or not sources or not all(source.opcode.startswith("mov.") for source in sources):
                return False
            seen.add(at)
            waiting += [read for source in sources for read in source.reads]
        elif not re.fullmatch(r"-?(0x)?[0-9A-Fa-f]+", at) or not {int(at, 0) & 0xFFFF, int(at, 0) & 0xFFFFFFFF} & values:
            return False
    return True


def origins(names: Iterable[str], defined: Definitions) -> list[Instruction]:
    """The instructions whose results the registers `names` hold, seen through moves, packing and changes of sign."""
    found, seen, waiting = [], set[str](), list(names)
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for source in defined.get(name, ()):
            changes_sign = source.opcode.startswith("xor.b") and not source.reads[-1].startswith("%")
            if source.opcode.startswith(("mov.", "neg.")) or changes_sign:
                waiting += [read for read in source.reads if read.startswith("%")]
            else:
                found.append(source)
    return found

"""Inline assembly that computes: its PTX is executed, one lane a group of elements, by the constraints that the author wrote.

Elements of less than 32 bits share a register, the first in its low bits (`ElementwiseInlineAsmOpConversion` of Triton's own
lowering). An opcode that is not known is refused by its name, and so is whatever leaves the registers: memory, barriers, special
registers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from bitverdict.harness.emulator.frontend.assembly import Instruction, instructions
from bitverdict.harness.emulator.frontend.compiled_operations import OPEN_PRODUCT, OPEN_SUM, words_of
from bitverdict.harness.emulator.frontend.float_instructions import origins
from bitverdict.harness.emulator.mlir_types import ELEMENTS, element_dtype
from bitverdict.harness.emulator.ptx.lanes import LANES, Program
from bitverdict.harness.emulator.ptx.opcodes import DTYPES, UnknownOpcode
from bitverdict.harness.emulator.ptx.text import Module, NotPtx, parse_body

_BITS = {"b": 1, "h": 16, "r": 32, "f": 32, "l": 64, "d": 64}
_PLACE = re.compile(r"\$(?:(\d+)|\{(\d+)\}|(\$))")
_CLOBBER = re.compile(r"~\{\w+\}$")


@dataclass(frozen=True)
class Registers:
    """The registers of one operand or result: `names`, of `bits` each, and how many elements of `element` each holds."""

    names: tuple[str, ...]
    bits: int
    element: str
    elements_per_register: int


class Assembly:
    """The statement as a function of the words of `pack` elements of each operand.

    Raises NotPtx or UnknownOpcode, with what is not known, when it is made.
    """

    def __init__(self, text: str, constraints: str, operands: tuple[str, ...], results: tuple[str, ...], pack: int) -> None:
        self.pack = pack
        self.results, self.operands = _registers(constraints, operands, results, pack)
        names = {name: item.bits for item in (*self.results, *self.operands) for name in item.names}
        order = [name for item in (*self.results, *self.operands) for name in item.names]
        function = parse_body(_PLACE.sub(lambda m: "$" if m[3] else _place(order, int(m[1] or m[2])), text), names)
        self.program = Program(Module(), function)
        self.listed = list(instructions("".join(f"{item};\n" for _, block in function.blocks for item in block)))
        self.defined: dict[str, list[Instruction]] = {}
        for instruction in self.listed:
            for name in instruction.writes:
                self.defined.setdefault(name, []).append(instruction)
        if missing := [name for item in self.results for name in item.names if name not in self.defined]:
            raise NotPtx(f"{', '.join(missing)}: a result that no instruction writes")
        given = {name: np.zeros(1, DTYPES[item.bits]) for item in self.operands for name in item.names}
        try:
            self.program.frame(given, 1)
        except KeyError as error:
            raise NotPtx(f"{error}: read before it is written") from error

    def __call__(self, operand_words: list[np.ndarray], groups: int) -> list[np.ndarray]:
        """Words [groups, pack] of each result, for those of each operand."""
        result_words = [np.empty((groups, self.pack), word_dtype(each.element)) for each in self.results]
        for start in range(0, groups, LANES):
            part = slice(start, start + LANES)
            held: dict[str, np.ndarray] = {}
            for words, operand in zip(operand_words, self.operands, strict=True):
                held |= zip(operand.names, _pack_registers(words[part], operand), strict=True)
            lanes = min(LANES, groups - start)
            frame = self.program.frame(held, lanes)
            for words, result in zip(result_words, self.results, strict=True):
                for number, name in enumerate(result.names):
                    whole = np.broadcast_to(frame.registers[name], lanes)
                    for place in range(result.elements_per_register):
                        shift = whole.dtype.type(place * ELEMENTS[result.element][0]) if place else None
                        column = number * result.elements_per_register + place
                        words[part, column] = (whole if shift is None else whole >> shift).astype(words.dtype)
        return result_words

    @property
    def leaves_products(self) -> bool:
        """Whether ptxas may contract a product and a sum of it, because neither says its rounding."""
        return any(_open_products(each.reads, self.defined) for each in self.listed if OPEN_SUM.match(each.opcode))

    @property
    def gives_product(self) -> bool:
        """Whether a result may be a product that ptxas contracts with a sum behind it."""
        return bool(_open_products([name for each in self.results for name in each.names], self.defined))

    @property
    def takes_product(self) -> bool:
        """Whether it begins with a sum that ptxas may contract with a product before it."""
        given = {name for each in self.operands for name in each.names}
        moved = {name for each in self.listed if each.opcode.startswith("mov") and given & {*each.reads} for name in each.writes}
        return any(OPEN_SUM.match(each.opcode) and (given | moved) & {*each.reads} for each in self.listed)


def _open_products(names: tuple[str, ...] | list[str], defined: dict[str, list[Instruction]]) -> list[Instruction]:
    return [each for each in origins(names, defined) if OPEN_PRODUCT.match(each.opcode)]


def _place(order: list[str], number: int) -> str:
    if number >= len(order):
        raise NotPtx(f"${number}: the constraints name {len(order)} operands")
    return order[number]


def word_dtype(element: str) -> np.dtype:
    """The unsigned NumPy type of the words of `element`."""
    return np.dtype(bool) if element == "i1" else np.dtype(f"u{element_dtype(element).itemsize}")


def _pack_registers(words: np.ndarray, operand: Registers) -> list[np.ndarray]:
    """Words of each register, for the elements [lanes, pack]."""
    dtype: Any = DTYPES[operand.bits]
    registers = []
    for number in range(len(operand.names)):
        parts = words[:, number * operand.elements_per_register : (number + 1) * operand.elements_per_register]  # (lanes, together)
        whole = np.ascontiguousarray(parts[:, 0]).astype(dtype)  # (lanes,)
        for place in range(1, operand.elements_per_register):
            whole = whole | parts[:, place].astype(dtype) << dtype.type(place * ELEMENTS[operand.element][0])
        registers.append(whole)
    return registers


def _registers(
    constraints: str, operands: tuple[str, ...], results: tuple[str, ...], pack: int
) -> tuple[list[Registers], list[Registers]]:
    """Registers of the results and of the operands, by what is written for each."""
    written = [each.strip() for each in constraints.split(",") if each.strip() and not _CLOBBER.match(each.strip())]
    outputs = [each.lstrip("=&") for each in written if each.startswith("=")]
    inputs = [each for each in written if not each.startswith("=")]
    register_lists: list[list[Registers]] = []
    for kinds, letters, prefix in ((results, outputs, "%result"), (operands, inputs, "%operand")):
        registers, position = [], 0
        for kind in kinds:
            width = ELEMENTS[kind][0]
            elements_per_register = min(max(32 // width, 1), pack)
            count = pack // elements_per_register
            given = letters[position : position + count]
            if len(given) < count or len({*given}) != 1:
                raise NotPtx(f'constraints "{constraints}": {count} register(s) of one kind for {pack} element(s) of {kind}')
            letter = outputs[int(given[0])] if given[0].isdigit() else given[0]
            if given[0].isdigit():
                raise NotPtx(f'constraint "{given[0]}": an operand that shares the register of a result is not executed here')
            written_out = letter == "n" and prefix == "%operand" and pack == 1  # LLVM puts a number in the place of a register
            bits = width if written_out else _BITS.get(letter, 0)
            narrower = prefix == "%result" and elements_per_register == 1 and 16 <= width < bits  # LLVM takes the low bits
            if bits != width * elements_per_register and not narrower:
                raise NotPtx(f'constraint "{letter}" for {elements_per_register} element(s) of {kind} is not executed here')
            registers.append(Registers(tuple(f"{prefix}{position + i}" for i in range(count)), bits, kind, elements_per_register))
            position += count
        if position != len(letters):
            raise NotPtx(f'constraints "{constraints}": {len(letters)} registers are named, and {position} are passed')
        register_lists.append(registers)
    return register_lists[0], register_lists[1]


__all__ = ["Assembly", "NotPtx", "Registers", "UnknownOpcode", "words_of"]

"""Inline assembly that computes: its PTX is executed, one lane a group of elements, by the constraints that the author wrote.

Elements of less than 32 bits share a register, the first in its low bits (`ElementwiseInlineAsmOpConversion` of Triton's own
lowering). An opcode that is not known is refused by its name, and so is whatever leaves the registers: memory, barriers, special
registers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np

from bitverdict.harness.emulator.frontend.assembly import FLOATS, Instruction, instructions
from bitverdict.harness.emulator.frontend.assembly_sums import ROUNDED_PRODUCT
from bitverdict.harness.emulator.frontend.compiled_operations import OPEN_PRODUCT, OPEN_SUM, words_of
from bitverdict.harness.emulator.frontend.float_instructions import origins
from bitverdict.harness.emulator.mlir_types import ELEMENTS, element_dtype
from bitverdict.harness.emulator.ptx.lanes import LANES, Program
from bitverdict.harness.emulator.ptx.opcodes import DTYPES, UnknownOpcode
from bitverdict.harness.emulator.ptx.text import Module, NotPtx, Statement, parse_body

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
        self.function = parse_body(_PLACE.sub(lambda m: "$" if m[3] else _place(order, int(m[1] or m[2])), text), names)
        self.program = Program(Module(), self.function)
        self.statements = [item for _, block in self.function.blocks for item in block]
        self.listed = list(instructions("".join(f"{replace(item, guard='')};\n" for item in self.statements)))
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
    def gives_approximation(self) -> bool:
        """Whether a result may be the last product of an approximate function, which ptxas may contract with a sum behind it."""
        made = _open_products([name for each in self.results for name in each.names], self.defined)
        return any(not each.opcode.startswith("mul.") for each in made)

    @property
    def takes_product(self) -> bool:
        """Whether it begins with a sum that ptxas may contract with a product before it."""
        given = {name for each in self.operands for name in each.names}
        moved = {name for each in self.listed if each.opcode.startswith("mov") and given & {*each.reads} for name in each.writes}
        return any(OPEN_SUM.match(each.opcode) and (given | moved) & {*each.reads} for each in self.listed)

    @property
    def open_sides(self) -> dict[int, set[int]]:
        """By number among its float statements: what the sums of its own products may take in, as `assembly_sums` says it."""
        floats, found = [each for each in self.listed if each.place >= 0], dict[int, set[int]]()
        for number, each in enumerate(floats):
            sides = {side for side, name in enumerate(each.reads[:2]) if _open_products([name], self.defined)}
            if OPEN_SUM.match(each.opcode) and sides:
                found[number] = sides | {ROUNDED_PRODUCT}
        return found

    def fuse_sums(self, sides: Mapping[int, int]) -> Assembly:
        """With sums fused, by their numbers among the float statements: each takes in the product of that operand. NotPtx where
        that is no `mul` of this statement whose factors are still there."""
        numbers, registers = count(), dict(self.function.registers)

        def statements_of(statement: Statement) -> list[Statement]:
            side = sides.get(next(numbers), ROUNDED_PRODUCT) if FLOATS.match(f"{statement.opcode} ") else ROUNDED_PRODUCT
            return [statement] if side == ROUNDED_PRODUCT else self._fuse_sum(statement, side, registers)

        blocks = [(label, [new for each in block for new in statements_of(each)]) for label, block in self.function.blocks]
        found = copy(self)
        found.function = replace(self.function, blocks=blocks, registers=registers)
        found.program = Program(Module(), found.function)
        return found

    def _maker(self, register: str) -> Statement | None:
        """The one statement that writes `register`."""
        makers = [each for each in self.statements if each.operands[:1] == (register,)]
        return makers[0] if len(makers) == 1 else None

    def _fuse_sum(self, statement: Statement, side: int, registers: dict[str, int]) -> list[Statement]:
        """The sum `statement` as a fused multiply-add."""
        kind, _, modifiers = statement.opcode.partition(".")
        product = self._maker(statement.operands[1 + side])
        if product is not None and product.opcode.startswith("mov."):
            product = self._maker(product.operands[1])
        if product is None or product.opcode != f"mul.{modifiers.replace('sat.', '')}" or product.guard != statement.guard:
            raise NotPtx(f"{statement}: takes in a product that is no mul beside it")
        _, left, right = product.operands
        given = [name for each in self.operands for name in each.names]
        kept = all((given + [each.operands[0] for each in self.statements]).count(name) <= 1 for name in (left, right))
        if not kept or product.is_negated != statement.is_negated or len(self.function.blocks) > 1:
            raise NotPtx(f"{statement}: takes in a product whose factors may be gone")
        addend, minus = statement.operands[2 - side], f"minus@{len(registers)}"
        sources = [left, right, addend]
        negated = 0 if side else 2
        before = []
        if kind == "sub":
            registers[minus] = registers[statement.operands[0]]
            before = [replace(statement, opcode=f"neg.{modifiers.rpartition('.')[2]}", operands=(minus, sources[negated]))]
            sources[negated] = minus
        return [*before, replace(statement, opcode=f"fma.rn.{modifiers}", operands=(statement.operands[0], *sources))]


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

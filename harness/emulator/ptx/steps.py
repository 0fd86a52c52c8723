"""From statements of PTX to steps that are ready to run, in blocks that end where control flow branches.

A statement that is not executed here is refused by name, before anything runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bitverdict.harness.emulator.ptx.meanings import meaning
from bitverdict.harness.emulator.ptx.opcodes import CARRY, DTYPES, Meaning, UnknownOpcode, Words, bits
from bitverdict.harness.emulator.ptx.text import Function, Module, NotPtx, Statement

DATA = 1 << 40  # address of constant data
SPECIAL = ("%tid.x", "%tid.y", "%tid.z", "%ctaid.x", "%ctaid.y", "%ctaid.z", "%laneid")  # 0 in every lane
_MEMORY_OR_EXIT = ("ld", "st", "call", "ret", "exit")  # what leaves the registers, or the statement
_WITHOUT_EFFECT = ("bar", "membar", "fence", "prefetch", "nanosleep")


@dataclass
class Step:
    """A statement ready to run: where it reads, what it computes, where it writes; a guard keeps lanes as they were."""

    statement: Statement
    reads: tuple[Any, ...]  # register names, or constant words
    writes: tuple[str, ...]
    compute: Callable[..., Any]
    guard: str = ""
    is_negated: bool = False
    memory: str = ""  # "load", "store", "call": needs the frame
    size: int = 0  # bits of one element that is loaded or stored
    base: Any = None  # of an address
    offset: int = 0


@dataclass
class Block:
    """Steps without a branch, and what follows: a guard, where it goes, and the next block in the text."""

    steps: list[Step] = field(default_factory=list)
    branch: tuple[str, bool, str] | None = None  # predicate, negated, label
    target: int = -1
    next_block: int = -1  # -1 ends the function
    needs: set[str] = field(default_factory=set)
    gives: set[str] = field(default_factory=set)
    last_uses: list[tuple[str, ...]] = field(default_factory=list)  # by step: registers that nobody reads behind it; [] where kept


def split_list(text: str) -> list[str]:
    return [part.strip() for part in text.strip("()").split(",") if part.strip()]


def blocks_of(module: Module, function: Function) -> list[Block]:
    labels = {label: number for number, (label, _) in enumerate(function.blocks) if label}
    blocks = []
    for number, (_, statements) in enumerate(function.blocks):
        block = Block(next_block=number + 1 if number + 1 < len(function.blocks) else -1)
        for statement in statements:
            kind = statement.opcode.partition(".")[0]
            if function.is_inline and kind in (*_WITHOUT_EFFECT, *_MEMORY_OR_EXIT):
                raise UnknownOpcode(f"{statement.opcode} is not executed in inline assembly that computes")
            if kind == "bra":
                block.branch = (statement.guard, statement.is_negated, statement.operands[0])
                block.target = labels[statement.operands[0]]
                if not statement.guard:
                    block.next_block = -1
            elif kind in ("ret", "exit") and not statement.guard:
                block.next_block = -1
            elif kind not in _WITHOUT_EFFECT:
                block.steps.append(step_of(module, function, statement))
        blocks.append(block)
    note_registers(blocks)
    return blocks


def note_registers(blocks: list[Block]) -> None:
    """What each block needs from before it, and what it gives to others."""
    for block in blocks:
        for step in block.steps:
            reads = {read for read in (*step.reads, step.base, step.guard) if isinstance(read, str) and read}
            if step.guard:
                reads |= set(step.writes)
            block.needs |= reads - block.gives
            block.gives |= set(step.writes)
            if step.memory == "call":
                block.needs.add("")
        if block.branch and block.branch[0]:
            block.needs |= {block.branch[0]} - block.gives
    needed_names = set().union(*(block.needs for block in blocks)) if blocks else set()
    for block in blocks:
        block.gives &= needed_names


def note_last_uses(blocks: list[Block]) -> set[str]:
    """Note of each step which registers of its block alone it is the last to use. Gives all of them."""
    read_elsewhere = set().union(*(block.needs for block in blocks)) if blocks else set()
    all_names: set[str] = set()
    for block in blocks:
        last_places: dict[str, int] = {}
        for place, step in enumerate(block.steps):
            used = (*step.reads, step.base, step.guard, *step.writes)
            last_places |= {name: place for name in used if isinstance(name, str)}
        names = {name for step in block.steps for name in step.writes} - read_elsewhere - {block.branch[0] if block.branch else ""}
        block.last_uses = [()] * len(block.steps)
        for name in names:
            block.last_uses[last_places[name]] += (name,)
        all_names |= names
    return all_names


def reverse_postorder(blocks: list[Block]) -> list[int]:
    """The place of each block in an order in which a block comes after those that lead to it, loops aside."""
    visited_blocks, postorder = set(), []
    stack: list[tuple[int, Iterable[int]]] = [(0, iter(_after(blocks[0])))] if blocks else []
    visited_blocks.add(0)
    while stack:
        block_number, successors = stack[-1]
        for successor in successors:
            if successor not in visited_blocks:
                visited_blocks.add(successor)
                stack.append((successor, iter(_after(blocks[successor]))))
                break
        else:
            postorder.append(block_number)
            stack.pop()
    place = {block_number: number for number, block_number in enumerate(reversed(postorder))}
    return [place.get(block_number, len(blocks)) for block_number in range(len(blocks))]


def _after(block: Block) -> list[int]:
    return [number for number in (block.target, block.next_block) if number >= 0]


def step_of(module: Module, function: Function, statement: Statement) -> Step:
    """One statement, ready to run. UnknownOpcode, with the opcode's name, for one that is not known."""
    kind, *modifiers = statement.opcode.split(".")
    try:
        if kind in ("ld", "st"):
            step = _of_memory(module, function, statement, modifiers)
        elif kind == "call":
            step = Step(statement, (), (), lambda: None, memory="call")
        elif kind == "mov":
            step = _of_move(module, function, statement, modifiers)
        else:
            step = _of_meaning(module, function, statement, meaning(statement.opcode))
    except (IndexError, KeyError) as error:
        raise UnknownOpcode(f"{statement}: this form is not executed here ({error})") from error
    step.guard, step.is_negated = statement.guard, statement.is_negated
    return step


def _of_meaning(module: Module, function: Function, statement: Statement, opcode_meaning: Meaning) -> Step:
    reads = [kind for kind in opcode_meaning.reads if kind != CARRY]
    writes = [kind for kind in opcode_meaning.writes if kind != CARRY]
    targets, sources = statement.operands[: len(writes)], statement.operands[len(writes) :]
    if opcode_meaning.second is not None and "|" in statement.operands[0]:  # one of the two may be "_"
        targets, sources = tuple(name.strip() for name in statement.operands[0].split("|")), statement.operands[1:]
        writes, computes = ["pred", "pred"], (opcode_meaning.compute, opcode_meaning.second)
        both = lambda *words: tuple(compute(*words) for compute in computes)
        opcode_meaning = replace(opcode_meaning, writes=("pred", "pred"), compute=both)
    is_negated = [kind == "pred" and text.startswith("!") for text, kind in zip(sources, reads, strict=False)]
    if any(is_negated):
        sources = tuple(text.removeprefix("!") for text in sources)
        opcode_meaning = replace(opcode_meaning, compute=_with_negated_predicates(opcode_meaning.compute, is_negated))
    if len(targets) != len(writes) or len(sources) != len(reads) or any(re.search(r"[|{]", target) for target in targets):
        raise UnknownOpcode(f"{statement}: this form is not executed here")
    operands = tuple(operand(module, function, text, kind) for text, kind in zip(sources, reads, strict=True))
    if CARRY in opcode_meaning.reads:
        operands += (CARRY,)
    names = targets + ((CARRY,) if CARRY in opcode_meaning.writes else ())
    widths = [function.registers.get(name) for name in targets]
    return Step(statement, operands, names, _convert_widths(opcode_meaning, operands, widths, function.registers))


def _with_negated_predicates(compute: Callable[..., Any], is_negated: list[bool]) -> Callable[..., Any]:
    return lambda *words: compute(*(~each if negated else each for each, negated in zip(words, is_negated, strict=True)))


def _convert_widths(
    opcode_meaning: Meaning, operands: tuple[object, ...], targets: list[int | None], registers: Mapping[str, int]
) -> Callable[..., Any]:
    """The computation between registers that may be wider than the types of the opcode (PTX ISA 9.4.1)."""
    narrower = [
        DTYPES[bits(kind)] if isinstance(operand, str) and registers.get(operand, bits(kind)) > bits(kind) else None
        for operand, kind in zip(operands, (kind for kind in opcode_meaning.reads if kind != CARRY), strict=False)
    ]
    wider = targets[0] if targets and targets[0] and targets[0] > bits(opcode_meaning.writes[0]) else None
    if not any(operand is not None for operand in narrower) and wider is None:
        return opcode_meaning.compute

    def compute(*words: Words) -> Any:
        narrowed_words = [
            operand if dtype is None else operand.astype(dtype) for operand, dtype in zip(words, narrower, strict=False)
        ]
        result = opcode_meaning.compute(*narrowed_words, *words[len(narrowed_words) :])
        if wider is None:
            return result
        if opcode_meaning.writes[0].startswith("s"):
            return result.view(f"i{result.itemsize}").astype(f"i{wider // 8}").view(DTYPES[wider])
        return result.astype(DTYPES[wider])

    return compute


def _of_move(module: Module, function: Function, statement: Statement, modifiers: list[str]) -> Step:
    """mov: a register, an immediate, the address of a variable, or a vector packed or unpacked."""
    target, source = statement.operands
    width = bits(modifiers[-1])
    if target.startswith("{"):
        names = tuple(split_list(target.strip("{}")))
        part = width // len(names)
        dtype = DTYPES[part]
        operands = (operand(module, function, source, modifiers[-1]),)
        return Step(
            statement, operands, names, lambda a: tuple((a >> a.dtype.type(part * i)).astype(dtype) for i in range(len(names)))
        )
    if source.startswith("{"):
        parts = tuple(
            operand(module, function, part_text, f"b{width // len(split_list(source.strip('{}')))}")
            for part_text in split_list(source.strip("{}"))
        )
        result_dtype = DTYPES[width]

        def pack(*words: Words) -> Words:
            result = words[0].astype(result_dtype)
            for number, part_words in enumerate(words[1:], 1):
                result = result | part_words.astype(result_dtype) << result_dtype.type(width // len(words) * number)
            return result

        return Step(statement, parts, (target,), pack)
    return Step(statement, (operand(module, function, source, modifiers[-1]),), (target,), lambda a: a)


_PLACE = re.compile(r"\[\s*([%\w$@]+)\s*(?:\+\s*(-?\w+))?\s*\]")


def _of_memory(module: Module, function: Function, statement: Statement, modifiers: list[str]) -> Step:
    loads = statement.opcode.startswith("ld")
    place, value_text = statement.operands[::-1] if loads else statement.operands
    address_match = _PLACE.match(place)
    if not address_match:
        raise UnknownOpcode(f"{statement}: this address is not executed here")
    unknown = set(modifiers[:-1]) - {
        "param",
        "global",
        "const",
        "local",
        "nc",
        "v2",
        "v4",
        "weak",
        "relaxed",
        "gpu",
        "cta",
        "volatile",
    }
    if unknown:
        raise UnknownOpcode(f"{statement.opcode} is a PTX opcode that is not executed here")
    kind, offset = modifiers[-1], int(address_match[2] or "0", 0)
    names = tuple(split_list(value_text.strip("{}")))
    if "param" in modifiers:
        key = f"[{address_match[1]}{f'+{offset}' if offset else ''}]"
        if loads:
            return Step(statement, (key,), names, conversion_of_load(kind, function.registers[names[0]]))
        return Step(statement, (operand(module, function, value_text, kind),), (key,), lambda a: a)
    base = operand(module, function, address_match[1], "u64")
    if loads:
        convert = conversion_of_load(kind, function.registers[names[0]])
        return Step(statement, (), names, convert, memory="load", size=bits(kind), base=base, offset=offset)
    operands = tuple(operand(module, function, name, kind) for name in names)
    return Step(statement, operands, (), lambda: None, memory="store", size=bits(kind), base=base, offset=offset)


def conversion_of_load(kind: str, width: int) -> Callable[[Words], Words]:
    """How a register of `width` bits holds a word that was loaded as `kind` (PTX ISA 9.4.1)."""
    if bits(kind) >= width:
        return lambda a: a
    if kind.startswith("s"):
        return lambda a: a.view(f"i{a.itemsize}").astype(f"i{width // 8}").view(DTYPES[width])
    return lambda a: a.astype(DTYPES[width])


def operand(module: Module, function: Function, text: str, kind: str) -> Any:
    """The name of a register, or the constant words [1] that an operand writes out."""
    function = function
    if text in function.registers:
        return text
    if text.startswith("!") and text[1:] in function.registers:
        raise UnknownOpcode(f"the negated predicate {text} is not executed here")
    if text in SPECIAL and not function.is_inline:
        return np.zeros(1, np.uint32)
    if text in function.locals:
        return np.array([function.locals[text]], DTYPES[max(bits(kind), 32)])
    if text in module.offsets:
        return np.array([DATA + module.offsets[text]], np.uint64)
    return _immediate(text, kind)


def _immediate(text: str, kind: str) -> Words:
    dtype = DTYPES[bits(kind)]
    if kind == "pred":
        return np.array([int(text, 0) != 0])
    if digits := re.fullmatch(r"(-?)0[fF]([0-9A-Fa-f]{8})", text):
        word = np.uint32(int(digits[2], 16)) ^ (np.uint32(1 << 31) if digits[1] else np.uint32(0))
        return np.array([word]) if bits(kind) == 32 else np.array([word]).view(np.float32).astype(np.float64).view(np.uint64)
    if digits := re.fullmatch(r"(-?)0[dD]([0-9A-Fa-f]{16})", text):
        wide = np.array([int(digits[2], 16) ^ (1 << 63 if digits[1] else 0)], np.uint64)
        return wide if bits(kind) == 64 else wide.view(np.float64).astype(np.float32).view(np.uint32)
    if re.fullmatch(r"-?(0[xX][0-9A-Fa-f]+|0[bB][01]+|\d+)U?", text):
        value = int(text.rstrip("U"), 0) if not re.fullmatch(r"-?0\d+U?", text) else int(text.rstrip("U"), 8)
        if kind in ("f32", "f64"):
            return _immediate(f"{value}.0", kind)
        return np.array([value % (1 << bits(kind))], np.uint64).astype(dtype)
    if re.fullmatch(r"-?(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d+)?", text):
        number = np.array([float(text)])
        return number.view(np.uint64) if bits(kind) == 64 else number.astype(np.float32).view(np.uint32)
    raise NotPtx(f"{text!r} is neither a register that is declared nor a constant")

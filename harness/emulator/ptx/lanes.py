"""Executing PTX with one lane an element: registers are arrays, branches split the lanes, joins bring them together.

A register holds a word a lane, or one word where all lanes agree: constants and loop counters stay single words. A block runs for
the lanes that wait there. Of several blocks the first in reverse postorder runs first, so that lanes meet again where their paths
do.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bitverdict.harness.emulator.ptx.meanings import meaning
from bitverdict.harness.emulator.ptx.opcodes import CARRY, DTYPES, Meaning, UnknownOpcode, Words, bits
from bitverdict.harness.emulator.ptx.text import Function, Module, NotPtx, Statement
from bitverdict.reference.scalar_arithmetic import fp32
from bitverdict.reference.special_functions import constant_division
from bitverdict.reference.special_functions.instructions import INSTRUCTIONS

LANES = 1 << 14  # worked on at once: the registers of a function stay in the second-level cache
DATA = 1 << 40  # address of constant data
SPECIAL = ("%tid.x", "%tid.y", "%tid.z", "%ctaid.x", "%ctaid.y", "%ctaid.z", "%laneid")  # 0 in every lane
_MEMORY_OR_EXIT = ("ld", "st", "call", "ret", "exit")  # what leaves the registers, or the statement
_WITHOUT_EFFECT = ("bar", "membar", "fence", "prefetch", "nanosleep")

Read = "str | Words | tuple[Any, ...]"
Run = Callable[["Frame", Any], None]


class Divergence(RuntimeError):
    """Lanes that should agree do not, or a result was not written by every lane."""


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


class Program:
    """A function of a module, ready to run. UnknownOpcode for what is not known, before anything runs."""

    def __init__(self, module: Module, function: Function) -> None:
        self.module, self.function = module, function
        self.blocks = _blocks(self, function)
        self.order = _reverse_postorder(self.blocks)
        self.called = self._called_programs()
        self._fold()
        needed = set().union(*(block.needs for block in self.blocks)) if self.blocks else set()
        for block in self.blocks:
            block.gives &= needed
        self.data = np.frombuffer(bytes(module.data) + b"\0" * (-len(module.data) % 8), np.uint32)

    def _called_programs(self) -> dict[str, Program]:
        """Functions that this one calls. UnknownOpcode for one without a body."""
        names = {step.statement.operands[-2] for block in self.blocks for step in block.steps if step.memory == "call"}
        if missing := sorted(name for name in names if not self.module.functions[name].blocks):
            raise UnknownOpcode(f"call of {', '.join(missing)}, which no library defines")
        return {name: Program(self.module, self.module.functions[name]) for name in names}

    def run(self, parameters: Mapping[str, Words], lanes: int) -> Frame:
        """Execute with `parameters` (words [lanes] or [1], by name, "name+8" for what lies 8 bytes in) on so many lanes."""
        return self.frame({f"[{name}]": words for name, words in parameters.items()}, lanes)

    def frame(self, registers: Mapping[str, Words], lanes: int) -> Frame:
        """Execute with these registers, a parameter's name in brackets, on so many lanes."""
        frame = Frame(self, lanes)
        frame.registers.update(registers)
        with np.errstate(all="ignore"):
            frame.run()
        return frame

    @property
    def approximates(self) -> bool:
        """Whether it has an instruction that ptxas computes itself where it knows the operand."""
        steps = (step for block in self.blocks for step in block.steps)
        return any(step.statement.opcode in PTXAS_CONSTANTS for step in steps) or any(
            called.approximates for called in self.called.values()
        )

    def _fold(self) -> None:
        """Take ptxas's own result for each approximate instruction of a constant. UnknownOpcode where that is not known."""
        steps = [step for block in self.blocks for step in block.steps]
        writers = Counter(name for step in steps for name in step.writes)
        constants: set[str] = set()
        for step in steps:  # a register is defined before it is read, in the order of the text
            reads = [read for read in (*step.reads, step.base, step.guard or None) if isinstance(read, str)]
            if not constants.issuperset(reads) or step.memory:
                if step.statement.opcode.startswith("div.") and (step.reads[1].__class__ is not str or step.reads[1] in constants):
                    step.compute = _computed_by_ptxas(step)
                continue
            if not step.guard:
                constants.update(name for name in step.writes if writers[name] == 1)
            if step.statement.opcode in PTXAS_CONSTANTS:
                step.compute = _computed_by_ptxas(step)

    def run_kernel(self, arguments: list[Words], out: Words) -> Words:
        """Run a kernel on the words `arguments`, its first parameters (any shapes that broadcast), one lane an element. Returns the
        words that it stores at `out`, the parameter behind them.

        Divergence where a lane stores nothing.
        """
        shape = np.broadcast_shapes(*(words.shape for words in arguments))
        flat = [np.broadcast_to(words, shape).reshape(-1) for words in arguments]  # (elements,) each
        names = self.function.parameters
        other_parameters = {name: np.zeros(1, np.uint64) for name in names[len(arguments) :]} | {names[len(arguments)]: out}
        parts = []
        for start in range(0, math.prod(shape), LANES):
            part = [words[start : start + LANES] for words in flat]
            lanes = min(LANES, math.prod(shape) - start)
            frame = self.run(dict(zip(names, part, strict=False)) | other_parameters, lanes)
            has_stored, words_of_part = frame.stored.get(int(out[0]), (np.zeros(1, bool), out))
            if not has_stored.all():
                raise Divergence(f"{self.function.name}: a lane stored no result")
            parts.append(words_of_part)
        return np.concatenate(parts).reshape(shape)


PTXAS_CONSTANTS: dict[str, Callable[..., Words] | None] = {
    name: None for name in INSTRUCTIONS if name.endswith(".f32") and "tanh" not in name
}
PTXAS_CONSTANTS |= {
    "rcp.approx.ftz.f32": lambda a: fp32.reciprocal(a.view(np.float32), flush=True).view(np.uint32),
    "div.full.f32": constant_division.divide,
    "div.approx.f32": constant_division.divide_approximately,
}
"""What ptxas computes itself of a constant (of a division: of a constant divisor), and as what; None where that is not known.

The machine code for sm_80, sm_90 and sm_100 has no MUFU for these; `tanh.approx` and what is of fp64 it leaves to the unit.
"""


def _computed_by_ptxas(step: Step) -> Callable[..., Words]:
    opcode = step.statement.opcode
    if opcode not in PTXAS_CONSTANTS:
        return step.compute
    if (compute := PTXAS_CONSTANTS[opcode]) is None:
        raise UnknownOpcode(f"{opcode} of a constant, which ptxas computes itself")
    return compute


class _LaneRegisters(dict):
    """The registers of some lanes: gathered when they are read, kept until the block ends."""

    def __init__(self, registers: dict[str, Words], lanes: np.ndarray) -> None:
        super().__init__()
        self.registers, self.lanes = registers, lanes

    def __missing__(self, name: str) -> Words:
        words = self.registers[name]
        lane_words = words if len(words) == 1 else words[self.lanes]
        self[name] = lane_words
        return lane_words


class Frame:
    """One run of a function: registers, local memory, and what was stored to global addresses."""

    def __init__(self, program: Program, lanes: int) -> None:
        self.program, self.lanes = program, lanes
        self.registers: dict[str, Words] = {}
        size = -(-program.function.local_bytes // 8) * 8
        self.local = np.zeros((lanes, size), np.uint8)
        self.stored: dict[int, tuple[np.ndarray, Words]] = {}  # by address: which lanes wrote there, and what; [lanes] each

    def run(self) -> None:
        blocks, order = self.program.blocks, self.program.order
        lanes_waiting: dict[int, list[np.ndarray | None]] = {0: [None]}
        while lanes_waiting:
            number = min(lanes_waiting, key=order.__getitem__)
            lanes = _union_of_lanes(lanes_waiting.pop(number), self.lanes)
            branching_lanes, other_lanes = self._block(blocks[number], lanes)
            if branching_lanes is not _NO_LANES and blocks[number].target >= 0:
                lanes_waiting.setdefault(blocks[number].target, []).append(branching_lanes)
            if other_lanes is not _NO_LANES and blocks[number].next_block >= 0:
                lanes_waiting.setdefault(blocks[number].next_block, []).append(other_lanes)

    def _block(self, block: Block, lanes: np.ndarray | None) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Run a block; the lanes that branch and those that go on."""
        registers = self.registers if lanes is None else _LaneRegisters(self.registers, lanes)
        for step in block.steps:
            self._step(step, registers, lanes)
        if lanes is not None:
            for name in block.gives:
                if name in registers:
                    self._merge(name, registers[name], lanes)
        if block.branch is None:
            return _NO_LANES, lanes
        name, is_negated, _ = block.branch
        if not name:
            return lanes, _NO_LANES
        branches = registers[name]
        if is_negated:
            branches = ~branches
        if branches.all():
            return lanes, _NO_LANES
        if not branches.any():
            return _NO_LANES, lanes
        lane_numbers = np.arange(self.lanes) if lanes is None else lanes
        return lane_numbers[branches], lane_numbers[~branches]

    def _merge(self, name: str, words: Words, lanes: np.ndarray) -> None:
        earlier_words = self.registers.get(name)
        if earlier_words is None or len(earlier_words) == 1:
            merged_words: Words = np.empty(self.lanes, words.dtype)
            if earlier_words is not None:
                merged_words[:] = earlier_words
        else:
            merged_words = earlier_words.copy()
        merged_words[lanes] = words
        self.registers[name] = merged_words

    def _step(self, step: Step, registers: dict[str, Words], lanes: np.ndarray | None) -> None:
        if step.memory:
            _MEMORY[step.memory](self, step, registers, lanes)
            return
        result = step.compute(*[registers[read] if read.__class__ is str else read for read in step.reads])
        if step.guard:
            self._write_guarded(step, result, registers)
        elif len(step.writes) == 1:
            registers[step.writes[0]] = result
        else:
            registers.update(zip(step.writes, result, strict=False))

    def _write_guarded(self, step: Step, result: Any, registers: dict[str, Words]) -> None:
        is_executed = registers[step.guard]
        if step.is_negated:
            is_executed = ~is_executed
        results = (result,) if len(step.writes) == 1 else result
        for name, words in zip(step.writes, results, strict=False):
            earlier_words = registers[name] if name in registers or name in self.registers else np.zeros(1, words.dtype)
            registers[name] = words if is_executed.all() else np.where(is_executed, words, earlier_words)

    # -- memory ---------------------------------------------------------------------------------------------------------
    def _address(self, step: Step, registers: dict[str, Words]) -> np.ndarray:
        base = registers[step.base] if step.base.__class__ is str else step.base
        return (base + base.dtype.type(step.offset % (1 << 8 * base.itemsize))).astype(np.int64)

    def _load(self, step: Step, registers: dict[str, Words], lanes: np.ndarray | None) -> None:
        address = self._address(step, registers)
        for number, name in enumerate(step.writes):
            element_address = address + number * step.size // 8
            words = (
                self._read_local(element_address, step.size, lanes)
                if address[0] < DATA
                else self._constant(element_address, step.size)
            )
            registers[name] = step.compute(words)

    def _constant(self, address: np.ndarray, size: int) -> Words:
        offset = address - DATA
        if size < 32:
            return self.program.data.view(DTYPES[size])[offset // (size // 8)]
        low = self.program.data[offset >> 2]
        return low if size == 32 else low | self.program.data[(offset >> 2) + 1].astype(np.uint64) << np.uint64(32)

    def _read_local(self, address: np.ndarray, size: int, lanes: np.ndarray | None) -> Words:
        rows: Any = slice(None) if lanes is None else lanes
        elements = address // (size // 8)
        memory = self.local.view(DTYPES[size])
        if len(elements) == 1:
            return memory[rows, elements[0]]
        return memory[np.arange(self.lanes) if lanes is None else lanes, elements]

    def _store(self, step: Step, registers: dict[str, Words], lanes: np.ndarray | None) -> None:
        address = self._address(step, registers)
        for number, read in enumerate(step.reads):
            words = registers[read] if read.__class__ is str else read
            element_address = address + number * step.size // 8
            if address[0] >= DATA:
                self._store_result(step, element_address, words, registers, lanes)
                continue
            rows = np.arange(self.lanes) if lanes is None else lanes
            self.local.view(DTYPES[step.size])[rows, element_address // (step.size // 8)] = words

    def _store_result(
        self, step: Step, address: np.ndarray, words: Words, registers: dict[str, Words], lanes: np.ndarray | None
    ) -> None:
        is_executed = registers[step.guard] if step.guard else np.ones(1, bool)
        if len(address) != 1 or not (~is_executed if step.is_negated else is_executed).all():
            raise Divergence(f"{step.statement}: lanes write to different places")
        empty_result = np.zeros(self.lanes, bool), np.zeros(self.lanes, words.dtype)
        has_stored, result_words = self.stored.setdefault(int(address[0]), empty_result)
        rows: Any = slice(None) if lanes is None else lanes
        has_stored[rows], result_words[rows] = True, words

    def _call(self, step: Step, registers: dict[str, Words], lanes: np.ndarray | None) -> None:
        *result_lists, name, arguments = step.statement.operands
        program = self.program.called[name]
        count = self.lanes if lanes is None else len(lanes)
        parameters = {}
        for parameter, argument in zip(program.function.parameters, _split_list(arguments), strict=True):
            for key in list(registers) + list(self.registers):
                if key.startswith((f"[{argument}]", f"[{argument}+")):
                    parameters[parameter + key[len(argument) + 1 : -1]] = registers[key]
        frame = program.run(parameters, count)
        for parameter, result in zip(program.function.returns, _split_list(result_lists[0]) if result_lists else [], strict=True):
            for key, words in frame.registers.items():
                if key.startswith((f"[{parameter}]", f"[{parameter}+")):
                    registers[f"[{result}{key[len(parameter) + 1 :]}"] = words


_MEMORY = {"load": Frame._load, "store": Frame._store, "call": Frame._call}
_NO_LANES: Any = np.empty(0, np.int64)


def _union_of_lanes(parts: list[np.ndarray | None], count: int) -> np.ndarray | None:
    """The lanes of all parts; None for every lane."""
    if any(part is None for part in parts):
        return None
    lanes = np.concatenate([part for part in parts if part is not None])
    return None if len(lanes) == count else lanes


def _split_list(text: str) -> list[str]:
    return [part.strip() for part in text.strip("()").split(",") if part.strip()]


# -- from statements to steps ----------------------------------------------------------------------------------------------
def _blocks(program: Program, function: Function) -> list[Block]:
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
                block.steps.append(step_of(program, statement))
        for step in block.steps:
            _note(block, step)
        if block.branch and block.branch[0]:
            block.needs |= {block.branch[0]} - block.gives
        blocks.append(block)
    return blocks


def _note(block: Block, step: Step) -> None:
    """What a block needs from before it, and what it gives."""
    reads = {read for read in (*step.reads, step.base, step.guard) if isinstance(read, str) and read}
    if step.guard:
        reads |= set(step.writes)
    block.needs |= reads - block.gives
    block.gives |= set(step.writes)
    if step.memory == "call":
        block.needs.add("")


def _reverse_postorder(blocks: list[Block]) -> list[int]:
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


def step_of(program: Program, statement: Statement) -> Step:
    """One statement, ready to run. UnknownOpcode, with the opcode's name, for one that is not known."""
    kind, *modifiers = statement.opcode.split(".")
    try:
        if kind in ("ld", "st"):
            step = _of_memory(program, statement, modifiers)
        elif kind == "call":
            step = Step(statement, (), (), lambda: None, memory="call")
        elif kind == "mov":
            step = _of_move(program, statement, modifiers)
        else:
            step = _of_meaning(program, statement, meaning(statement.opcode))
    except (IndexError, KeyError) as error:
        raise UnknownOpcode(f"{statement}: this form is not executed here ({error})") from error
    step.guard, step.is_negated = statement.guard, statement.is_negated
    return step


def _of_meaning(program: Program, statement: Statement, opcode_meaning: Meaning) -> Step:
    reads = [kind for kind in opcode_meaning.reads if kind != CARRY]
    writes = [kind for kind in opcode_meaning.writes if kind != CARRY]
    targets, sources = statement.operands[: len(writes)], statement.operands[len(writes) :]
    if len(sources) != len(reads) or any(re.search(r"[|{]", target) for target in targets):
        raise UnknownOpcode(f"{statement}: this form is not executed here")
    operands = tuple(_operand(program, text, kind) for text, kind in zip(sources, reads, strict=True))
    if CARRY in opcode_meaning.reads:
        operands += (CARRY,)
    names = targets + ((CARRY,) if CARRY in opcode_meaning.writes else ())
    widths = [program.function.registers.get(name) for name in targets]
    return Step(statement, operands, names, _convert_widths(opcode_meaning, operands, widths, program.function.registers))


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


def _of_move(program: Program, statement: Statement, modifiers: list[str]) -> Step:
    """mov: a register, an immediate, the address of a variable, or a vector packed or unpacked."""
    target, source = statement.operands
    width = bits(modifiers[-1])
    if target.startswith("{"):
        names = tuple(_split_list(target.strip("{}")))
        part = width // len(names)
        dtype = DTYPES[part]
        operands = (_operand(program, source, modifiers[-1]),)
        return Step(
            statement, operands, names, lambda a: tuple((a >> a.dtype.type(part * i)).astype(dtype) for i in range(len(names)))
        )
    if source.startswith("{"):
        parts = tuple(
            _operand(program, part_text, f"b{width // len(_split_list(source.strip('{}')))}")
            for part_text in _split_list(source.strip("{}"))
        )
        result_dtype = DTYPES[width]

        def pack(*words: Words) -> Words:
            result = words[0].astype(result_dtype)
            for number, part_words in enumerate(words[1:], 1):
                result = result | part_words.astype(result_dtype) << result_dtype.type(width // len(words) * number)
            return result

        return Step(statement, parts, (target,), pack)
    return Step(statement, (_operand(program, source, modifiers[-1]),), (target,), lambda a: a)


_PLACE = re.compile(r"\[\s*([%\w$@]+)\s*(?:\+\s*(-?\w+))?\s*\]")


def _of_memory(program: Program, statement: Statement, modifiers: list[str]) -> Step:
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
    if unknown or not {"param", "global", "const", "local"} & set(modifiers):
        raise UnknownOpcode(f"{statement.opcode} is a PTX opcode that is not executed here")
    kind, offset = modifiers[-1], int(address_match[2] or "0", 0)
    names = tuple(_split_list(value_text.strip("{}")))
    if "param" in modifiers:
        key = f"[{address_match[1]}{f'+{offset}' if offset else ''}]"
        if loads:
            return Step(statement, (key,), names, _conversion_of_load(kind, program.function.registers[names[0]]))
        return Step(statement, (_operand(program, value_text, kind),), (key,), lambda a: a)
    base = _operand(program, address_match[1], "u64")
    if loads:
        convert = _conversion_of_load(kind, program.function.registers[names[0]])
        return Step(statement, (), names, convert, memory="load", size=bits(kind), base=base, offset=offset)
    operands = tuple(_operand(program, name, kind) for name in names)
    return Step(statement, operands, (), lambda: None, memory="store", size=bits(kind), base=base, offset=offset)


def _conversion_of_load(kind: str, width: int) -> Callable[[Words], Words]:
    """How a register of `width` bits holds a word that was loaded as `kind` (PTX ISA 9.4.1)."""
    if bits(kind) >= width:
        return lambda a: a
    if kind.startswith("s"):
        return lambda a: a.view(f"i{a.itemsize}").astype(f"i{width // 8}").view(DTYPES[width])
    return lambda a: a.astype(DTYPES[width])


def _operand(program: Program, text: str, kind: str) -> Any:
    """The name of a register, or the constant words [1] that an operand writes out."""
    function = program.function
    if text in function.registers:
        return text
    if text.startswith("!") and text[1:] in function.registers:
        raise UnknownOpcode(f"the negated predicate {text} is not executed here")
    if text in SPECIAL and not function.is_inline:
        return np.zeros(1, np.uint32)
    if text in function.locals:
        return np.array([function.locals[text]], DTYPES[max(bits(kind), 32)])
    if text in program.module.offsets:
        return np.array([DATA + program.module.offsets[text]], np.uint64)
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
    if re.fullmatch(r"-?(0[xX][0-9A-Fa-f]+|\d+)U?", text):
        value = int(text.rstrip("U"), 0) if not re.fullmatch(r"-?0\d+U?", text) else int(text.rstrip("U"), 8)
        if kind in ("f32", "f64"):
            return _immediate(f"{value}.0", kind)
        return np.array([value % (1 << bits(kind))], np.uint64).astype(dtype)
    if re.fullmatch(r"-?(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d+)?", text):
        number = np.array([float(text)])
        return number.view(np.uint64) if bits(kind) == 64 else number.astype(np.float32).view(np.uint32)
    raise NotPtx(f"{text!r} is neither a register that is declared nor a constant")

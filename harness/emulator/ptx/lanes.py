"""Executing PTX with one lane an element: registers are arrays, branches split the lanes, joins bring them together.

A register holds a word a lane, or one word where all lanes agree: constants and loop counters stay single words. A block runs for
the lanes that wait there. Of several blocks the first in reverse postorder runs first, so that lanes meet again where their paths
do.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import repeat
from typing import Any

import numpy as np

from bitverdict.harness.emulator.ptx.opcodes import DTYPES, UnknownOpcode, Words
from bitverdict.harness.emulator.ptx.steps import DATA, Block, Step, blocks_of, reverse_postorder, split_list
from bitverdict.harness.emulator.ptx.text import Function, Module
from bitverdict.reference.scalar_arithmetic import fp32
from bitverdict.reference.special_functions import constant_division
from bitverdict.reference.special_functions.instructions import INSTRUCTIONS

LANES = 1 << 14  # worked on at once: the registers of a function stay in the second-level cache


class Divergence(RuntimeError):
    """Lanes that should agree do not, or a result was not written by every lane."""


class Program:
    """A function of a module, ready to run. UnknownOpcode for what is not known, before anything runs."""

    def __init__(self, module: Module, function: Function) -> None:
        self.module, self.function = module, function
        self.blocks = blocks_of(module, function)
        self.order = reverse_postorder(self.blocks)
        self.called = self._called_programs()
        self._fold()
        self.data = np.frombuffer(bytes(module.data) + b"\0" * (-len(module.data) % 8), np.uint32)

    def _called_programs(self) -> dict[str, Program]:
        """Functions that this one calls. UnknownOpcode for one without a body."""
        names = {step.statement.operands[-2] for block in self.blocks for step in block.steps if step.memory == "call"}
        if missing := sorted(name for name in names if not self.module.functions[name].blocks):
            raise UnknownOpcode(f"call of {', '.join(missing)}, which no library defines")
        return {name: Program(self.module, self.module.functions[name]) for name in names}

    def run(self, parameters: Mapping[str, Words], lanes: int, caller: tuple[Frame, np.ndarray] | None = None) -> Frame:
        """Execute with `parameters` (words [lanes] or [1], by name, "name+8" for what lies 8 bytes in) on so many lanes."""
        return self.frame({f"[{name}]": words for name, words in parameters.items()}, lanes, caller)

    def frame(self, registers: Mapping[str, Words], lanes: int, caller: tuple[Frame, np.ndarray] | None = None) -> Frame:
        """Execute with these registers, a parameter's name in brackets, on so many lanes."""
        frame = Frame(self, lanes, caller)
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
    """One run of a function: registers, local memory, and what was stored to global addresses. `caller`: the frame that called it,
    and which lanes of that one its lanes are."""

    def __init__(self, program: Program, lanes: int, caller: tuple[Frame, np.ndarray] | None = None) -> None:
        self.program, self.lanes, self.caller = program, lanes, caller
        self.registers: dict[str, Words] = {}
        size = -(-program.function.local_end // 8) * 8 if program.function.locals else 0
        self.local = np.zeros((lanes, size), np.uint8)  # by address
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
        for step, last_uses in zip(block.steps, block.last_uses or repeat(())):
            self._step(step, registers, lanes)
            for name in last_uses:
                registers.pop(name, None)
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
            if address[0] >= DATA:
                words = self._constant(element_address, step.size)
            else:
                memory, rows, elements = self._local(element_address, step.size, lanes)
                words = memory[rows, elements]
            registers[name] = step.compute(words)

    def _constant(self, address: np.ndarray, size: int) -> Words:
        offset = address - DATA
        if size < 32:
            return self.program.data.view(DTYPES[size])[offset // (size // 8)]
        low = self.program.data[offset >> 2]
        return low if size == 32 else low | self.program.data[(offset >> 2) + 1].astype(np.uint64) << np.uint64(32)

    def _local(self, address: np.ndarray, size: int, lanes: np.ndarray | None) -> tuple[Words, np.ndarray, np.ndarray]:
        """Local memory [lanes, elements] of the frame whose variables lie at `address`, and which lane and element is whose."""
        frame, rows = self, np.arange(self.lanes) if lanes is None else lanes
        while not frame.program.function.local_start <= address.min() <= address.max() < frame.program.function.local_end:
            if (caller := frame.caller) is None:
                raise Divergence(
                    f"{self.program.function.name}: address {address.min()} is no local variable of a function that runs"
                )
            frame, rows = caller[0], caller[1][rows]
        return frame.local.view(DTYPES[size]), rows, address // (size // 8)

    def _store(self, step: Step, registers: dict[str, Words], lanes: np.ndarray | None) -> None:
        address = self._address(step, registers)
        for number, read in enumerate(step.reads):
            words = registers[read] if read.__class__ is str else read
            element_address = address + number * step.size // 8
            if address[0] >= DATA:
                self._store_result(step, element_address, words, registers, lanes)
                continue
            memory, rows, elements = self._local(element_address, step.size, lanes)
            memory[rows, elements] = words

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
        rows = np.arange(self.lanes) if lanes is None else lanes
        parameters = {}
        for parameter, argument in zip(program.function.parameters, split_list(arguments), strict=True):
            for key in list(registers) + list(self.registers):
                if key.startswith((f"[{argument}]", f"[{argument}+")):
                    parameters[parameter + key[len(argument) + 1 : -1]] = registers[key]
        frame = program.run(parameters, len(rows), (self, rows))
        for parameter, result in zip(program.function.returns, split_list(result_lists[0]) if result_lists else [], strict=True):
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

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
from bitverdict.reference.special_functions import folded
from bitverdict.reference.special_functions.instructions import INSTRUCTIONS

LANES = 1 << 14  # worked on at once: the registers of a function stay in the second-level cache
DATA = 1 << 40  # address of constant data
SPECIAL = ("%tid.x", "%tid.y", "%tid.z", "%ctaid.x", "%ctaid.y", "%ctaid.z", "%laneid")  # 0 in every lane
_LEAVING = ("ld", "st", "call", "ret", "exit")  # what leaves the registers, or the statement
_NOTHING = ("bar", "membar", "fence", "prefetch", "nanosleep")

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
    negated: bool = False
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
    next: int = -1  # -1 ends the function
    needs: set[str] = field(default_factory=set)
    gives: set[str] = field(default_factory=set)


class Program:
    """A function of a module, ready to run. UnknownOpcode for what is not known, before anything runs."""

    def __init__(self, module: Module, function: Function) -> None:
        self.module, self.function = module, function
        self.blocks = _blocks(self, function)
        self.order = _reverse_postorder(self.blocks)
        self.called = self._called()
        self._fold()
        needed = set().union(*(block.needs for block in self.blocks)) if self.blocks else set()
        for block in self.blocks:
            block.gives &= needed
        self.data = np.frombuffer(bytes(module.data) + b"\0" * (-len(module.data) % 8), np.uint32)

    def _called(self) -> dict[str, Program]:
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
        return any(step.statement.opcode in FOLDED for step in steps) or any(called.approximates for called in self.called.values())

    def _fold(self) -> None:
        """Take ptxas's own result for each approximate instruction of a constant. UnknownOpcode where that is not known."""
        steps = [step for block in self.blocks for step in block.steps]
        writers = Counter(name for step in steps for name in step.writes)
        known: set[str] = set()
        for step in steps:  # a register is defined before it is read, in the order of the text
            reads = [read for read in (*step.reads, step.base, step.guard or None) if isinstance(read, str)]
            if not known.issuperset(reads) or step.memory:
                if step.statement.opcode.startswith("div.") and (step.reads[1].__class__ is not str or step.reads[1] in known):
                    step.compute = _folded(step)
                continue
            if not step.guard:
                known.update(name for name in step.writes if writers[name] == 1)
            if step.statement.opcode in FOLDED:
                step.compute = _folded(step)

    def stored(self, given: list[Words], out: Words) -> Words:
        """What a kernel stores at `out`, its parameter behind the words `given` (any shapes that broadcast), one lane an element.

        Divergence where a lane stores nothing.
        """
        shape = np.broadcast_shapes(*(words.shape for words in given))
        flat = [np.broadcast_to(words, shape).reshape(-1) for words in given]  # (elements,) each
        names = self.function.parameters
        rest = {name: np.zeros(1, np.uint64) for name in names[len(given) :]} | {names[len(given)]: out}
        parts = []
        for start in range(0, math.prod(shape), LANES):
            part = [words[start : start + LANES] for words in flat]
            lanes = min(LANES, math.prod(shape) - start)
            frame = self.run(dict(zip(names, part, strict=False)) | rest, lanes)
            written, found = frame.stored.get(int(out[0]), (np.zeros(1, bool), out))
            if not written.all():
                raise Divergence(f"{self.function.name}: a lane stored no result")
            parts.append(found)
        return np.concatenate(parts).reshape(shape)


FOLDED: dict[str, Callable[..., Words] | None] = {
    name: None for name in INSTRUCTIONS if name.endswith(".f32") and "tanh" not in name
}
FOLDED |= {
    "rcp.approx.ftz.f32": lambda a: fp32.reciprocal(a.view(np.float32), flush=True).view(np.uint32),
    "div.full.f32": folded.divide,
    "div.approx.f32": folded.divide_approximately,
}
"""What ptxas computes itself of a constant (of a division: of a constant divisor), and as what; None where that is not known.

The machine code for sm_80, sm_90 and sm_100 has no MUFU for these; `tanh.approx` and what is of fp64 it leaves to the unit.
"""


def _folded(step: Step) -> Callable[..., Words]:
    opcode = step.statement.opcode
    if opcode not in FOLDED:
        return step.compute
    if (found := FOLDED[opcode]) is None:
        raise UnknownOpcode(f"{opcode} of a constant, which ptxas computes itself")
    return found


class _Some(dict):
    """The registers of some lanes: gathered when they are read, kept until the block ends."""

    def __init__(self, registers: dict[str, Words], lanes: np.ndarray) -> None:
        super().__init__()
        self.registers, self.lanes = registers, lanes

    def __missing__(self, name: str) -> Words:
        words = self.registers[name]
        found = words if len(words) == 1 else words[self.lanes]
        self[name] = found
        return found


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
        waiting: dict[int, list[np.ndarray | None]] = {0: [None]}
        while waiting:
            at = min(waiting, key=order.__getitem__)
            lanes = _together(waiting.pop(at), self.lanes)
            taken, rest = self._block(blocks[at], lanes)
            if taken is not _NO_LANES and blocks[at].target >= 0:
                waiting.setdefault(blocks[at].target, []).append(taken)
            if rest is not _NO_LANES and blocks[at].next >= 0:
                waiting.setdefault(blocks[at].next, []).append(rest)

    def _block(self, block: Block, lanes: np.ndarray | None) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Run a block; the lanes that branch and those that go on."""
        some = self.registers if lanes is None else _Some(self.registers, lanes)
        for step in block.steps:
            self._step(step, some, lanes)
        if lanes is not None:
            for name in block.gives:
                if name in some:
                    self._merge(name, some[name], lanes)
        if block.branch is None:
            return _NO_LANES, lanes
        name, negated, _ = block.branch
        if not name:
            return lanes, _NO_LANES
        goes = some[name]
        if negated:
            goes = ~goes
        if goes.all():
            return lanes, _NO_LANES
        if not goes.any():
            return _NO_LANES, lanes
        every = np.arange(self.lanes) if lanes is None else lanes
        return every[goes], every[~goes]

    def _merge(self, name: str, words: Words, lanes: np.ndarray) -> None:
        old = self.registers.get(name)
        if old is None or len(old) == 1:
            held: Words = np.empty(self.lanes, words.dtype)
            if old is not None:
                held[:] = old
        else:
            held = old.copy()
        held[lanes] = words
        self.registers[name] = held

    def _step(self, step: Step, some: dict[str, Words], lanes: np.ndarray | None) -> None:
        if step.memory:
            _MEMORY[step.memory](self, step, some, lanes)
            return
        found = step.compute(*[some[read] if read.__class__ is str else read for read in step.reads])
        if step.guard:
            self._guarded(step, found, some)
        elif len(step.writes) == 1:
            some[step.writes[0]] = found
        else:
            some.update(zip(step.writes, found, strict=False))

    def _guarded(self, step: Step, found: Any, some: dict[str, Words]) -> None:
        goes = some[step.guard]
        if step.negated:
            goes = ~goes
        results = (found,) if len(step.writes) == 1 else found
        for name, words in zip(step.writes, results, strict=False):
            old = some[name] if name in some or name in self.registers else np.zeros(1, words.dtype)
            some[name] = words if goes.all() else np.where(goes, words, old)

    # -- memory ---------------------------------------------------------------------------------------------------------
    def _address(self, step: Step, some: dict[str, Words]) -> np.ndarray:
        base = some[step.base] if step.base.__class__ is str else step.base
        return (base + base.dtype.type(step.offset % (1 << 8 * base.itemsize))).astype(np.int64)

    def _load(self, step: Step, some: dict[str, Words], lanes: np.ndarray | None) -> None:
        address = self._address(step, some)
        for number, name in enumerate(step.writes):
            at = address + number * step.size // 8
            found = self._loaded(at, step.size, lanes) if address[0] < DATA else self._constant(at, step.size)
            some[name] = step.compute(found)

    def _constant(self, address: np.ndarray, size: int) -> Words:
        at = address - DATA
        if size < 32:
            return self.program.data.view(DTYPES[size])[at // (size // 8)]
        low = self.program.data[at >> 2]
        return low if size == 32 else low | self.program.data[(at >> 2) + 1].astype(np.uint64) << np.uint64(32)

    def _loaded(self, address: np.ndarray, size: int, lanes: np.ndarray | None) -> Words:
        rows: Any = slice(None) if lanes is None else lanes
        at = address // (size // 8)
        memory = self.local.view(DTYPES[size])
        if len(at) == 1:
            return memory[rows, at[0]]
        return memory[np.arange(self.lanes) if lanes is None else lanes, at]

    def _store(self, step: Step, some: dict[str, Words], lanes: np.ndarray | None) -> None:
        address = self._address(step, some)
        for number, read in enumerate(step.reads):
            words = some[read] if read.__class__ is str else read
            at = address + number * step.size // 8
            if address[0] >= DATA:
                self._kept(step, at, words, some, lanes)
                continue
            rows = np.arange(self.lanes) if lanes is None else lanes
            self.local.view(DTYPES[step.size])[rows, at // (step.size // 8)] = words

    def _kept(self, step: Step, address: np.ndarray, words: Words, some: dict[str, Words], lanes: np.ndarray | None) -> None:
        goes = some[step.guard] if step.guard else np.ones(1, bool)
        if len(address) != 1 or not (~goes if step.negated else goes).all():
            raise Divergence(f"{step.statement}: lanes write to different places")
        given = np.zeros(self.lanes, bool), np.zeros(self.lanes, words.dtype)
        written, found = self.stored.setdefault(int(address[0]), given)
        rows: Any = slice(None) if lanes is None else lanes
        written[rows], found[rows] = True, words

    def _call(self, step: Step, some: dict[str, Words], lanes: np.ndarray | None) -> None:
        *returned, name, given = step.statement.operands
        program = self.program.called[name]
        count = self.lanes if lanes is None else len(lanes)
        parameters = {}
        for own, passed in zip(program.function.parameters, _listed(given), strict=True):
            for key in list(some) + list(self.registers):
                if key.startswith((f"[{passed}]", f"[{passed}+")):
                    parameters[own + key[len(passed) + 1 : -1]] = some[key]
        frame = program.run(parameters, count)
        for own, taken in zip(program.function.returns, _listed(returned[0]) if returned else [], strict=True):
            for key, words in frame.registers.items():
                if key.startswith((f"[{own}]", f"[{own}+")):
                    some[f"[{taken}{key[len(own) + 1 :]}"] = words


_MEMORY = {"load": Frame._load, "store": Frame._store, "call": Frame._call}
_NO_LANES: Any = np.empty(0, np.int64)


def _together(parts: list[np.ndarray | None], count: int) -> np.ndarray | None:
    """The lanes of all parts; None for every lane."""
    if any(part is None for part in parts):
        return None
    lanes = np.concatenate([part for part in parts if part is not None])
    return None if len(lanes) == count else lanes


def _listed(text: str) -> list[str]:
    return [each.strip() for each in text.strip("()").split(",") if each.strip()]


# -- from statements to steps ----------------------------------------------------------------------------------------------
def _blocks(program: Program, function: Function) -> list[Block]:
    labels = {label: number for number, (label, _) in enumerate(function.blocks) if label}
    found = []
    for number, (_, statements) in enumerate(function.blocks):
        block = Block(next=number + 1 if number + 1 < len(function.blocks) else -1)
        for statement in statements:
            kind = statement.opcode.partition(".")[0]
            if function.alone and kind in (*_NOTHING, *_LEAVING):
                raise UnknownOpcode(f"{statement.opcode} is not executed in inline assembly that computes")
            if kind == "bra":
                block.branch = (statement.guard, statement.negated, statement.operands[0])
                block.target = labels[statement.operands[0]]
                if not statement.guard:
                    block.next = -1
            elif kind in ("ret", "exit") and not statement.guard:
                block.next = -1
            elif kind not in _NOTHING:
                block.steps.append(step_of(program, statement))
        for step in block.steps:
            _note(block, step)
        if block.branch and block.branch[0]:
            block.needs |= {block.branch[0]} - block.gives
        found.append(block)
    return found


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
    seen, finished = set(), []
    stack: list[tuple[int, Iterable[int]]] = [(0, iter(_after(blocks[0])))] if blocks else []
    seen.add(0)
    while stack:
        at, following = stack[-1]
        for each in following:
            if each not in seen:
                seen.add(each)
                stack.append((each, iter(_after(blocks[each]))))
                break
        else:
            finished.append(at)
            stack.pop()
    place = {at: number for number, at in enumerate(reversed(finished))}
    return [place.get(at, len(blocks)) for at in range(len(blocks))]


def _after(block: Block) -> list[int]:
    return [each for each in (block.target, block.next) if each >= 0]


def step_of(program: Program, statement: Statement) -> Step:
    """One statement, ready to run. UnknownOpcode, with the opcode's name, for one that is not known."""
    kind, *modifiers = statement.opcode.split(".")
    try:
        if kind in ("ld", "st"):
            found = _of_memory(program, statement, modifiers)
        elif kind == "call":
            found = Step(statement, (), (), lambda: None, memory="call")
        elif kind == "mov":
            found = _of_move(program, statement, modifiers)
        else:
            found = _of_meaning(program, statement, meaning(statement.opcode))
    except (IndexError, KeyError) as error:
        raise UnknownOpcode(f"{statement}: this form is not executed here ({error})") from error
    found.guard, found.negated = statement.guard, statement.negated
    return found


def _of_meaning(program: Program, statement: Statement, known: Meaning) -> Step:
    reads = [kind for kind in known.reads if kind != CARRY]
    writes = [kind for kind in known.writes if kind != CARRY]
    targets, sources = statement.operands[: len(writes)], statement.operands[len(writes) :]
    if len(sources) != len(reads) or any(re.search(r"[|{]", target) for target in targets):
        raise UnknownOpcode(f"{statement}: this form is not executed here")
    given = tuple(_operand(program, text, kind) for text, kind in zip(sources, reads, strict=True))
    if CARRY in known.reads:
        given += (CARRY,)
    names = targets + ((CARRY,) if CARRY in known.writes else ())
    widths = [program.function.registers.get(name) for name in targets]
    return Step(statement, given, names, _fitting(known, given, widths, program.function.registers))


def _fitting(known: Meaning, given: tuple[Any, ...], targets: list[int | None], registers: Mapping[str, int]) -> Callable[..., Any]:
    """The computation between registers that may be wider than the types of the opcode (PTX ISA 9.4.1)."""
    narrower = [
        DTYPES[bits(kind)] if isinstance(each, str) and registers.get(each, bits(kind)) > bits(kind) else None
        for each, kind in zip(given, (kind for kind in known.reads if kind != CARRY), strict=False)
    ]
    wider = targets[0] if targets and targets[0] and targets[0] > bits(known.writes[0]) else None
    if not any(each is not None for each in narrower) and wider is None:
        return known.compute

    def compute(*words: Words) -> Any:
        cut = [each if dtype is None else each.astype(dtype) for each, dtype in zip(words, narrower, strict=False)]
        found = known.compute(*cut, *words[len(cut) :])
        if wider is None:
            return found
        if known.writes[0].startswith("s"):
            return found.view(f"i{found.itemsize}").astype(f"i{wider // 8}").view(DTYPES[wider])
        return found.astype(DTYPES[wider])

    return compute


def _of_move(program: Program, statement: Statement, modifiers: list[str]) -> Step:
    """mov: a register, an immediate, the address of a variable, or a vector packed or unpacked."""
    target, source = statement.operands
    width = bits(modifiers[-1])
    if target.startswith("{"):
        names = tuple(_listed(target.strip("{}")))
        part = width // len(names)
        dtype = DTYPES[part]
        given = (_operand(program, source, modifiers[-1]),)
        return Step(
            statement, given, names, lambda a: tuple((a >> a.dtype.type(part * i)).astype(dtype) for i in range(len(names)))
        )
    if source.startswith("{"):
        parts = tuple(
            _operand(program, each, f"b{width // len(_listed(source.strip('{}')))}") for each in _listed(source.strip("{}"))
        )
        whole = DTYPES[width]

        def pack(*words: Words) -> Words:
            found = words[0].astype(whole)
            for number, each in enumerate(words[1:], 1):
                found = found | each.astype(whole) << whole.type(width // len(words) * number)
            return found

        return Step(statement, parts, (target,), pack)
    return Step(statement, (_operand(program, source, modifiers[-1]),), (target,), lambda a: a)


_PLACE = re.compile(r"\[\s*([%\w$@]+)\s*(?:\+\s*(-?\w+))?\s*\]")


def _of_memory(program: Program, statement: Statement, modifiers: list[str]) -> Step:
    loads = statement.opcode.startswith("ld")
    place, other = statement.operands[::-1] if loads else statement.operands
    found = _PLACE.match(place)
    if not found:
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
    kind, offset = modifiers[-1], int(found[2] or "0", 0)
    names = tuple(_listed(other.strip("{}")))
    if "param" in modifiers:
        key = f"[{found[1]}{f'+{offset}' if offset else ''}]"
        if loads:
            return Step(statement, (key,), names, _loaded_as(kind, program.function.registers[names[0]]))
        return Step(statement, (_operand(program, other, kind),), (key,), lambda a: a)
    base = _operand(program, found[1], "u64")
    if loads:
        held = _loaded_as(kind, program.function.registers[names[0]])
        return Step(statement, (), names, held, memory="load", size=bits(kind), base=base, offset=offset)
    given = tuple(_operand(program, name, kind) for name in names)
    return Step(statement, given, (), lambda: None, memory="store", size=bits(kind), base=base, offset=offset)


def _loaded_as(kind: str, width: int) -> Callable[[Words], Words]:
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
    if text in SPECIAL and not function.alone:
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
    if found := re.fullmatch(r"(-?)0[fF]([0-9A-Fa-f]{8})", text):
        word = np.uint32(int(found[2], 16)) ^ (np.uint32(1 << 31) if found[1] else np.uint32(0))
        return np.array([word]) if bits(kind) == 32 else np.array([word]).view(np.float32).astype(np.float64).view(np.uint64)
    if found := re.fullmatch(r"(-?)0[dD]([0-9A-Fa-f]{16})", text):
        wide = np.array([int(found[2], 16) ^ (1 << 63 if found[1] else 0)], np.uint64)
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

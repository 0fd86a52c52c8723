"""One kernel of a PTX module, ready to run: its parameters, shared variables and blocks of steps.

What computes on registers alone is `bitverdict.harness.emulator.ptx`'s, each instruction by its definition in the PTX ISA. What
reaches memory, other threads or barriers is a `ThreadStep`, built by the tables of `access`, `warp_instructions` and
`synchronisation`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.emulator.faults import BadArgument, EmulatedFault
from bitverdict.harness.emulator.ptx.opcodes import DTYPES, UnknownOpcode, Words, bits
from bitverdict.harness.emulator.ptx.steps import (
    DATA,
    Block,
    Step,
    note_last_uses,
    note_registers,
    operand,
    reverse_postorder,
    split_list,
    step_of,
)
from bitverdict.harness.emulator.ptx.text import Function, Module, NotPtx, Statement, parse_module
from bitverdict.harness.ptx_machine.calls import insert_calls
from bitverdict.harness.ptx_machine.quotients import contract_quotients

if TYPE_CHECKING:
    from bitverdict.harness.ptx_machine.threads import Active

SPECIAL_REGISTERS = {
    **{
        f"%{name}.{axis}": 32
        for name in ("tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")
        for axis in "xyz"
    },
    **{f"%cluster_{name}": 32 for name in ("ctarank", "nctarank")},
    "%is_explicit_cluster": 1,
    **{f"%{name}": 32 for name in ("laneid", "warpid", "nwarpid", "dynamic_smem_size")},
    **{f"%lanemask_{name}": 32 for name in ("lt", "le", "gt", "ge", "eq")},
}
"""Bits of the registers that the machine fills (PTX ISA, chapter 10). Any other, that of a multiprocessor, is refused by name."""
CLOCKS = ("%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi")  # which only mov reads


PARAMETERS = 0xF0000000  # where parameters lie, each from a multiple of 256: of a tensor map or a struct a kernel takes the address


@dataclass
class ThreadStep(Step):
    """A statement that reaches memory, other threads or a barrier: `execute` does it for the threads that are active there and
    whose guard holds."""

    execute: Callable[[Active, ThreadStep], None] = field(default=lambda *_: None)
    options: Any = None  # what the builder has read off the opcode
    ends_block: bool = False  # threads may have to wait here
    line: int = 0  # of the PTX text, from 1
    place: str = ""  # "file:line" of the source, by `.loc`
    is_strong: bool = False  # a load or a store that does not race with its like


Builder = Callable[["StatementReader"], ThreadStep | None]
BUILDERS: dict[str, list[Builder]] = {}


def instruction(*kinds: str) -> Callable[[Builder], Builder]:
    """Register a builder of the instructions of these kinds. It returns None for a form that another builder may know."""

    def register(builder: Builder) -> Builder:
        for kind in kinds:
            BUILDERS.setdefault(kind, []).append(builder)
        return builder

    return register


@dataclass
class StatementReader:
    """One statement, as a builder takes it apart."""

    module: Module
    function: Function
    statement: Statement
    modifiers: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.modifiers = self.statement.opcode.split(".")[1:]

    @property
    def operands(self) -> tuple[str, ...]:
        return self.statement.operands

    def accept(self, *names: str) -> None:
        """UnknownOpcode for a modifier that is none of `names`: a form that is not known is never taken for a simpler one."""
        unknown = [name for name in self.modifiers if name not in names and not name.startswith(("L1::", "L2::"))]
        if unknown:
            raise UnknownOpcode(f"{self.statement.opcode}: .{unknown[0]} is not executed here")

    def operand(self, text: str, kind: str) -> Any:
        """The name of a register, or constant words [1]."""
        return operand(self.module, self.function, text, kind)

    def names(self, text: str) -> tuple[str, ...]:
        """The registers of a vector "{%r1, %r2}", or the one."""
        return tuple(split_list(text.strip("{} ")))

    def address(self, text: str) -> tuple[Any, int]:
        """The register (or constant words) and the offset of "[%rd1 + 16]". UnknownOpcode for another form."""
        found = re.fullmatch(r"\[\s*([%\w$@]+)\s*(?:\+\s*(-?\w+)\s*)?\]", text)
        if not found:
            raise UnknownOpcode(f"{self.statement}: the address {text} is not executed here")
        return operand(self.module, self.function, found[1], "u64"), int(found[2] or "0", 0)


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel: `kind` as PTX writes it ("u64", "f32"; "b8" of a struct), `size` in bytes."""

    name: str
    kind: str
    size: int


@dataclass(eq=False)
class KernelProgram:
    """A kernel, ready to run on any grid."""

    text: str
    function: Function
    module: Module
    parameters: tuple[Parameter, ...]
    shared: dict[str, int]  # name -> offset
    shared_bytes: int  # of variables with a size
    has_dynamic_shared: bool
    blocks: list[Block]
    order: list[int]
    required_threads: tuple[int, ...]  # `.reqntid`; () where the kernel does not say
    cluster: tuple[int, ...]  # `.reqnctapercluster`, likewise
    unit: int  # bytes of the narrowest access to memory
    arch: str  # "sm_80"
    opcodes: list[str] = field(init=False)
    has_async_proxy: bool = field(init=False)
    has_relaxed_arrivals: bool = field(init=False)
    fragments: frozenset[str] = field(init=False)  # registers of wgmma
    short_lived: set[str] = field(init=False)  # registers that are dropped behind their last use: unrolled loops have thousands

    def __post_init__(self) -> None:
        self.opcodes = sorted({step.statement.opcode for block in self.blocks for step in block.steps})
        self.has_async_proxy = any(
            re.match(r"wgmma|tcgen05|cp\.(reduce\.)?async\.bulk|fence\.proxy\.async", name) for name in self.opcodes
        )
        self.has_relaxed_arrivals = any(re.match(r"m?barrier\..*relaxed", name) for name in self.opcodes)
        steps = [step for block in self.blocks for step in block.steps if step.statement.opcode.startswith("wgmma.mma")]
        self.fragments = frozenset(name for step in steps for name in (*step.reads, *step.writes))
        self.short_lived = set() if self.fragments else note_last_uses(self.blocks)  # a wgmma in flight has its registers

    @property
    def reads_clock(self) -> bool:
        return any(operand in CLOCKS for block in self.blocks for step in block.steps for operand in step.statement.operands)

    @property
    def sums_that_may_be_fused(self) -> int:
        """Sums that take a product, where neither names a rounding: ptxas may make one instruction of the two (PTX ISA 9.7.3)."""
        steps = [step for block in self.blocks for step in block.steps]
        products = {name for step in steps if _PRODUCT.fullmatch(step.statement.opcode) for name in step.writes}
        sums = [step for step in steps if _SUM.fullmatch(step.statement.opcode)]
        return sum(any(isinstance(name, str) and name in products for name in step.reads) for step in sums)

    def fields(self, parameter: str, value: bytes) -> dict[str, Words]:
        """The words [1] that loads take of a parameter that is a struct, by "[name+8]"."""
        words = {}
        for step in (step for block in self.blocks for step in block.steps):
            for key in step.reads:
                place = re.fullmatch(rf"\[{re.escape(parameter)}(?:\+(\d+))?\]", key) if isinstance(key, str) else None
                if place:
                    dtype = DTYPES[bits(step.statement.opcode.rpartition(".")[2])]
                    words[key] = np.frombuffer(value, dtype, 1, int(place[1] or 0))
        return words

    def data(self, constants: Sequence[tuple[str, object]]) -> np.ndarray:
        """The bytes of the module's variables, with those that the host wrote. BadArgument for one that the module lacks."""
        data = np.frombuffer(bytearray(self.module.data), np.uint8)
        for name, value in constants:
            offsets = self.module.offsets
            if name not in offsets:
                raise BadArgument(f"constant {name!r}: the module has {', '.join(sorted(offsets)) or 'none'}")
            raw, offset = np.frombuffer(value, np.uint8), offsets[name]  # type: ignore[call-overload]  # any buffer
            end = min([at for at in offsets.values() if at > offset], default=data.size)
            if raw.size > end - offset:
                raise BadArgument(f"constant {name!r}: {raw.size} bytes, and it has {end - offset}")
            data[offset : offset + raw.size] = raw
        return data


_PRODUCT = re.compile(r"mul(\.ftz)?(\.sat)?\.b?f\d+(x2)?")
_SUM = re.compile(r"(add|sub)(\.ftz)?(\.sat)?\.b?f\d+(x2)?")
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s*(?:\.ptr\s*(?:\.(?!align)\w+\s*)?(?:\.align\s+\d+\s*)?)?([\w$]+)(?:\[(\d+)\])?"
)
_SHARED = re.compile(r"(\.extern\s+)?\.shared\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$]+)\s*(?:\[(\d*)\])?\s*;")
_LOC = re.compile(r"^[ \t]*\.loc[ \t]+(\d+)[ \t]+(\d+)[^\n]*", re.M)
_FILE = re.compile(r'^[ \t]*\.file[ \t]+(\d+)[ \t]+"([^"]*)"(?:[ \t]+"([^"]*)")?', re.M)


@lru_cache(maxsize=64)
def read_kernel(text: str, name: str = "") -> KernelProgram:
    """The kernel `name` of a PTX module, or its first one. NotPtx for a text that cannot be read, UnknownOpcode, with opcode and
    line, for an instruction that is not executed here."""
    entry_names, text = _ENTRY.findall(text), _without_other_kernels(text, name)
    shared, shared_bytes, dynamic = _shared_variables(text)
    files = {number: second or first for number, first, second in _FILE.findall(text)}
    text = re.sub(r"\bWARP_SZ\b", "32", text)
    marked = _mark_lines(_SHARED.sub(lambda found: "\n" * found[0].count("\n"), text))
    module = parse_module(marked)
    kernels = [function for function in module.functions.values() if function.kernel]
    function = next((each for each in kernels if name in ("", each.name)), None)
    if function is None:
        raise NotPtx(f"no kernel {name!r} in this module; it has {', '.join(entry_names) or 'none'}")
    target = re.search(r"\.target\s+(sm_\d+)", text)
    if target is None:
        raise NotPtx("this module names no .target")
    function.registers |= SPECIAL_REGISTERS
    function.registers |= dict.fromkeys(shared, 32)
    parameters = _parameters(text, function.name)
    starts = accumulate((-(-parameter.size // 256) * 256 for parameter in parameters), initial=PARAMETERS)
    function.locals |= {parameter.name: start for parameter, start in zip(parameters, starts, strict=False)}
    insert_calls(module, function)
    blocks = _blocks(module, function, files)
    return KernelProgram(
        text,
        function,
        module,
        parameters,
        shared,
        shared_bytes,
        dynamic,
        blocks,
        reverse_postorder(blocks),
        _required_sizes(text, function.name, "reqntid"),
        _required_sizes(text, function.name, "reqnctapercluster"),
        min([step.size // 8 for block in blocks for step in block.steps if isinstance(step, ThreadStep) and step.size] or [4]),
        target[1],
    )


_ENTRY = re.compile(r"\.entry\s+([\w$]+)")


def _without_other_kernels(text: str, name: str) -> str:
    """The text without the kernels that are not `name` (not the first, where it is empty): what they have is not read."""
    parts, position = [], 0
    entries = list(_ENTRY.finditer(text))
    wanted = name or (entries[0][1] if entries else "")
    for entry in entries:
        start = text.find("{", entry.end())
        if entry[1] == wanted or start < 0 or ";" in text[entry.end() : start]:
            continue
        depth, end = 1, start + 1
        while depth and (brace := _BRACE.search(text, end)):
            depth, end = depth + (1 if brace[0] == "{" else -1), brace.end()
        begin = max(text.rfind("\n", 0, entry.start()), 0)
        parts += [text[position:begin], "\n" * text.count("\n", begin, end)]
        position = end
    return "".join([*parts, text[position:]])


_BRACE = re.compile(r"[{}]")


def _mark_lines(text: str) -> str:
    """The text with a statement ``loc.FILE.LINE.N`` before each instruction that begins line N, which `_blocks` takes off. Inside
    of inline assembly LLVM counts lines of its text, so the place before it holds there."""
    lines, place, depth, is_open = [], "0.0", 0, False  # depth of braces at the start of a line; an instruction that goes on
    is_inline = False
    for number, raw in enumerate(text.split("\n"), 1):
        if "inline asm" in raw:
            is_inline = "begin inline asm" in raw
        if found := _LOC.match(raw):
            place = place if is_inline else f"{found[1]}.{found[2]}"
            lines.append("")
            continue
        depth += raw.startswith("{") - raw.startswith("}")
        code = raw.split("//")[0].strip()
        if depth and code and not is_open and not code.startswith((".", "}", "{")) and not code.endswith(":"):
            raw = f"loc.{place}.{number}; {raw}"
        if depth and code:
            is_open = code[-1] not in ";{}:"
        lines.append(raw)
    return "\n".join(lines)


def _parameters(text: str, name: str) -> tuple[Parameter, ...]:
    header = re.search(rf"\.entry\s+{re.escape(name)}\s*\((.*?)\)", text, re.S)
    return tuple(
        Parameter(found[2], found[1], bits(found[1]) // 8 * int(found[3] or 1))
        for found in _PARAMETER.finditer(header[1] if header else "")
    )


def _required_sizes(text: str, name: str, directive: str) -> tuple[int, ...]:
    header = re.search(rf"\.entry\s+{re.escape(name)}\s*(?:\([^)]*\))?([^{{]*)", text, re.S)
    sizes = re.search(rf"\.{directive}\s+([\d, ]+)", header[1]) if header else None
    return tuple(int(size) for size in sizes[1].split(",")) if sizes else ()


def _shared_variables(text: str) -> tuple[dict[str, int], int, bool]:
    """Offsets by name, bytes of those with a size, and whether one takes what the launch gives (`.extern`, which lies behind)."""
    offsets: dict[str, int] = {}
    size, dynamic = 0, []
    for variable in _SHARED.finditer(text):
        align = int(variable[2] or bits(variable[3]) // 8)
        if variable[1] or variable[5] == "":
            dynamic.append((variable[4], align))
            continue
        size = -(-size // align) * align
        offsets[variable[4]] = size
        size += bits(variable[3]) // 8 * int(variable[5] or 1)
    for name, align in dynamic:
        offsets[name] = -(-size // max(align, 16)) * max(align, 16)
    return offsets, size, bool(dynamic)


def _blocks(module: Module, function: Function, files: dict[str, str]) -> list[Block]:
    """The function's blocks, each also ended behind what threads may wait at."""
    block_of_label: dict[str, int] = {}
    blocks: list[Block] = []
    targets: list[tuple[Block, str]] = []
    line, place = 0, ""
    for label, statements in function.blocks:
        if label:
            block_of_label[label] = len(blocks)
        block = Block()
        blocks.append(block)
        for statement in statements:
            kind = statement.opcode.partition(".")[0]
            if kind == "loc":
                _, file, source_line, number = statement.opcode.split(".")
                line, place = int(number), f"{files[file]}:{source_line}" if file in files and source_line != "0" else ""
            elif kind == "bra":
                block.branch = (statement.guard, statement.is_negated, statement.operands[0])
                targets.append((block, statement.operands[0]))
                block.next_block = len(blocks) if statement.guard else -1
                break  # the reader ends a block here
            elif kind in ("ret", "exit"):
                if statement.guard:
                    block.branch = (statement.guard, statement.is_negated, "")
                block.next_block = len(blocks) if statement.guard else -1
                break
            else:
                step = _step(module, function, statement, line, place)
                block.steps.append(step)
                if isinstance(step, ThreadStep) and step.ends_block:
                    block.next_block = len(blocks)
                    block = Block()
                    blocks.append(block)
        else:
            block.next_block = len(blocks)
    blocks[-1].next_block = -1
    for block in blocks:
        if block.next_block == len(blocks):
            block.next_block = -1
    for block, label in targets:
        block.target = block_of_label[label]
    contract_quotients(blocks)
    note_registers(blocks)
    return blocks


def _step(module: Module, function: Function, statement: Statement, line: int, place: str) -> Step:
    """UnknownOpcode, with opcode and line, for a statement that is not executed here."""
    kind = statement.opcode.partition(".")[0]
    try:
        for builder in BUILDERS.get(kind, []):
            thread_step = builder(StatementReader(module, function, statement))
            if thread_step is not None:
                thread_step.guard, thread_step.is_negated = statement.guard, statement.is_negated
                thread_step.line, thread_step.place = line, place
                return thread_step
        step = step_of(module, function, statement)
    except (UnknownOpcode, NotPtx, ValueError) as error:
        raise UnknownOpcode(f"line {line} of the PTX: {error}{f' ({place})' if place else ''}") from error
    if step.memory:
        raise UnknownOpcode(f"line {line} of the PTX: {statement.opcode} is not executed here")
    return step


def fault(outcome: str, message: str, step: ThreadStep, **details: object) -> EmulatedFault:
    """A fault at `step`: at the line of the source by `.loc`, with the line and the text of the PTX in its details."""
    return EmulatedFault(outcome, message, step.place, {"instruction": str(step.statement), "PTX line": step.line, **details})


__all__ = ["BUILDERS", "DATA", "KernelProgram", "Parameter", "StatementReader", "ThreadStep", "fault", "instruction", "read_kernel"]

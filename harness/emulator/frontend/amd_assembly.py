"""From a tile program to the machine code that Triton's AMD backend makes of it: each instruction under the line of the tile
program that it came from, with names for what registers hold.

`contraction` asks which sums LLVM took a product into. AMDGCN names registers, which are written again and again. Here each write
has a name of its own, and where ways meet a name stands for each value that may have come. Opcodes of floats are called as PTX
calls them ("fma.rn.f32"), so that one reader serves both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from triton.backends.amd.compiler import HIPBackend
from triton.backends.compiler import GPUTarget

from bitverdict.harness.emulator.compiler_process import NotAssembled, in_compiler_process
from bitverdict.harness.emulator.frontend.assembly import Instruction, placed_lines
from bitverdict.harness.emulator.frontend.module_text import read_back
from bitverdict.harness.model.architectures import architecture

_PLACE = re.compile(r" loc\(#loc\d*\)$")
_STATEMENT = re.compile(r"\s+([a-z][a-z0-9_]*)\s+(.*)$")
_LABEL = re.compile(r"(\.LBB\w+):")
_OPERAND = re.compile(r"\[[^\]]*\]|\([^)]*\)|[^,]")
_REGISTER = re.compile(r"[-|]*\b(?:neg\(|abs\()?([vas])(?:(\d+)|\[(\d+):(\d+)\])")
_ARITHMETIC = re.compile(r"v_(pk_)?(add|sub|subrev|mul|fma|fmac)_(f16|f32|f64|bf16)(?:_e32|_e64|_dpp|_sdwa)?$")
_MIXED_FMA = re.compile(r"v_(?:fma|mad)_mix(?:lo|hi)?_(?:f32|f16|bf16)$")
_TAKES_AWAY = "fma.minus"  # of a fused multiply-add whose addend changes its sign
_MOVES = re.compile(
    r"(v_mov_b32(_e32|_e64)?|v_mov_b64(_e32|_e64)?|v_accvgpr_(read|write)\w*|v_readlane_b32|v_readfirstlane_b32|s_mov_b\d+)$"
)
_STORES = tuple("s_cbranch s_branch s_barrier s_waitcnt s_endpgm buffer_store global_store ds_write flat_store s_nop".split())


@cache
def _backend(arch: str) -> HIPBackend:
    return HIPBackend(GPUTarget("hip", arch, architecture(arch).threads_per_warp))


@in_compiler_process
def amdgcn(program: str, arch: str, warps: int) -> str:
    """AMDGCN of the tile program `program` (its text, as `stop_compiler` leaves it), with fusion. NotAssembled where the compiler
    refuses. Line n of the text (from 0) is ``.loc 1 n+1`` there."""
    placed = "\n".join(_PLACE.sub(f' loc("tile program":{n}:1)', line) for n, line in enumerate(program.split("\n"), 1))
    backend, metadata = _backend(arch), {"num_ctas": 1}
    options: Any = backend.parse_options({"enable_fp_fusion": True, "num_warps": warps})
    try:
        return backend.make_amdgcn(backend.make_llir(read_back(placed), metadata, options), metadata, options)
    except RuntimeError as error:
        raise NotAssembled(f"{arch}: {error}") from error


def instructions(text: str, apart_lines: frozenset[int]) -> Iterator[Instruction]:
    """The instructions of AMDGCN in order, packed ones of fp32 by their halves. Those under `apart_lines` are no sums and products
    of the program: the compiler's own, of a division or a function."""
    reader = _Reader(text)
    for line, raw in placed_lines(text):
        if found := _LABEL.match(raw):
            yield from reader.join(found[1])
        elif found := _STATEMENT.match(raw.partition(";")[0].rstrip()):
            yield from reader.statement(found[1], found[2], line, own=line in apart_lines)


class _Reader:
    """What each register holds, by name, on the way through the text."""

    def __init__(self, text: str) -> None:
        self.held: dict[str, str] = {}
        self.count = 0
        self.left: dict[str, list[dict[str, str]]] = {}  # label -> what is held where a branch goes there
        self.loops = _loops(text)
        self.passed: set[str] = set()

    def fresh(self, register: str) -> str:
        self.count += 1
        return f"%{register}.{self.count}"

    def read(self, register: str) -> str:
        return self.held.setdefault(register, f"%{register}.0")

    def join(self, label: str) -> Iterator[Instruction]:
        """At `label`: names for what may have come by several ways."""
        self.passed.add(label)
        ways = [self.held, *self.left.pop(label, [])]
        for register in sorted(set(self.loops.get(label, ())).union(*ways)):
            values = dict.fromkeys(way.get(register, f"%{register}.0") for way in ways)
            if register in self.loops.get(label, ()):
                values[_loop_register(label, register)] = None
            if len(values) > 1:
                name = self.fresh(register)
                yield Instruction("mov.met", (name,), tuple(values), -1)
                self.held[register] = name

    def branch(self, label: str) -> Iterator[Instruction]:
        """A branch to `label`, back or forward."""
        if label in self.passed:
            for register in sorted(self.loops[label]):
                yield Instruction("mov.back", (_loop_register(label, register),), (self.read(register),), -1)
        else:
            self.left.setdefault(label, []).append(dict(self.held))

    def statement(self, opcode: str, rest: str, line: int, *, own: bool) -> Iterator[Instruction]:
        operands = [part.strip() for part in _split(rest)]
        if opcode.startswith(("s_cbranch", "s_branch")):
            yield from self.branch(operands[0])
            return
        if opcode.startswith(_STORES) or not operands:
            return
        modifiers = " ".join(part.partition(" ")[2] for part in operands[-1:])
        arithmetic_match = _ARITHMETIC.match(opcode)
        if arithmetic_match:
            halves = range(2 if arithmetic_match[1] and arithmetic_match[3] == "f32" else 1)
            yield from self._write_all(
                [self._scalar(arithmetic_match, operands, modifiers, line, half, own=own) for half in halves]
            )
            return
        reads = tuple(self.read(register) for operand in operands[1:] for register in _registers(operand))
        if _MIXED_FMA.match(opcode):
            name, taken = _decode_mixed_fma(
                [part.split()[0] for part in operands[1:]], [self._read_operand(part) for part in operands[1:]]
            )
            yield from self._write_all([(name if not own else f"own.{opcode}", tuple(_registers(operands[0])), taken, line)])
            return
        name = "mov.b32" if _MOVES.match(opcode) else f"{'own.' if own else ''}{opcode}"
        yield from self._write_all([(name, tuple(_registers(operands[0])), reads, line)])

    def _read_operand(self, operand: str, half: int = 0) -> str:
        """The name of what the operand holds; of a literal itself."""
        listed = _registers(operand)
        return self.read(listed[min(half, len(listed) - 1)]) if listed else operand.split()[0]

    def _scalar(
        self, opcode_match: re.Match, operands: list[str], modifiers: str, line: int, half: int, *, own: bool
    ) -> tuple[str, tuple[str, ...], tuple[str, ...], int]:
        """The arithmetic of one `half` of a packed instruction, or of a whole one: opcode, registers written, names read, line."""
        packed, kind, form = bool(opcode_match[1]), opcode_match[2], opcode_match[3]
        chosen = _selection(modifiers, half, len(operands)) if packed and form == "f32" else [0] * len(operands)
        reads = [self._read_operand(each, chosen[place]) for place, each in enumerate(operands[1:])]
        target = _registers(operands[0])
        written_registers = (target[half],) if packed and form == "f32" else tuple(target)
        if opcode_match[0].endswith("_dpp"):
            reads[0] = self.fresh("lane")  # another thread's
        if kind == "fmac":
            reads.append(self.read(target[0]))
        name = {"fmac": "fma", "subrev": "sub"}.get(kind, kind)
        if kind == "fma" and (operands[-1][0] == "-" or re.search(rf"\bneg_{'hi' if half else 'lo'}:\[\d,\d,1\]", modifiers)):
            name = _TAKES_AWAY
        if opcode_match[1] and form != "f32":
            form += "x2"
        return f"{'own.' if own else ''}{name}.rn.{form}", written_registers, tuple(reads), line

    def _write_all(self, listed: list[tuple[str, tuple[str, ...], tuple[str, ...], int]]) -> Iterator[Instruction]:
        """Instructions that all read before one of them writes."""
        for opcode, registers, reads, line in listed:
            names = {register: self.fresh(register) for register in registers}
            yield Instruction(opcode, tuple(names.values()) or ("%none",), reads, line)
            self.held |= names


def _decode_mixed_fma(operands: list[str], reads: list[str]) -> tuple[str, tuple[str, ...]]:
    """v_fma_mix by what it computes: by one a sum, on zero a product."""
    for place in (0, 1):
        if operands[place].lstrip("-") == "1.0":
            return "add.rn.f32", (reads[1 - place], reads[2])
    if re.fullmatch(r"-?(?:neg\()?0\)?", operands[2]):
        return "mul.rn.f32", (reads[0], reads[1])
    return f"{_TAKES_AWAY if operands[2][0] == '-' else 'fma'}.rn.f32", tuple(reads)


def _selection(modifiers: str, half: int, count: int) -> list[int]:
    """Which half of each operand a packed instruction takes for the `half` of its result."""
    name, default = ("op_sel_hi", 1) if half else ("op_sel", 0)
    found = re.search(rf"\b{name}:\[([\d,]+)\]", modifiers)
    return [int(each) for each in found[1].split(",")] if found else [default] * count


def _split(rest: str) -> list[str]:
    """`rest` at its commas outside of brackets."""
    parts, at = [""], 0
    for found in _OPERAND.finditer(rest):
        if "," in rest[at : found.start()]:
            parts.append("")
        parts[-1] += found[0]
        at = found.end()
    return parts


def _registers(operand: str) -> list[str]:
    """The registers that an operand names, the lowest first."""
    found = _REGISTER.match(operand.strip())
    if found is None:
        return []
    if found[2] is not None:
        return [f"{found[1]}{found[2]}"]
    return [f"{found[1]}{number}" for number in range(int(found[3]), int(found[4]) + 1)]


def _loop_register(label: str, register: str) -> str:
    return f"%{label}.{register}"


def _loops(text: str) -> dict[str, set[str]]:
    """Labels that a later branch goes back to, and the registers that are written in between."""
    lines, label_lines, loops = text.splitlines(), dict[str, int](), dict[str, set[str]]()
    for number, raw in enumerate(lines):
        if label := _LABEL.match(raw):
            label_lines[label[1]] = number
        elif (statement := _STATEMENT.match(raw.partition(";")[0].rstrip())) and statement[1].startswith(("s_cbranch", "s_branch")):
            target = statement[2].strip()
            if target in label_lines:
                inside = filter(
                    None, (_STATEMENT.match(each.partition(";")[0].rstrip()) for each in lines[label_lines[target] : number])
                )
                loops.setdefault(target, set()).update(
                    register for each in inside if not each[1].startswith(_STORES) for register in _registers(_split(each[2])[0])
                )
    return loops


__all__ = ["amdgcn", "instructions"]

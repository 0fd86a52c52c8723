"""Machine code of NVIDIA GPUs executed on words: the straight lines that ptxas makes of one instruction, with their branches.

Enough of SASS for approximate instructions. What the special-function unit computes is asked of the reference. An operation that is
not known here raises KeyError with its name. Lanes are independent; a branch must go one way in all of them.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend

from bitverdict.reference.scalar_arithmetic import fp32, fp64
from bitverdict.reference.special_functions import units
from bitverdict.reference.special_functions.instructions import INSTRUCTIONS

_LINE = re.compile(r"/\*[0-9a-f]+\*/\s+(?:(@!?U?P\d|@!?PT)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
_MUFU = {
    "RCP": units.rcp, "RSQ": units.rsqrt, "SQRT": units.sqrt, "EX2": units.ex2, "LG2": units.lg2, "SIN": units.sin,
    "COS": units.cos, "TANH": units.tanh, "RCP64H": units.rcp64h, "RSQ64H": units.rsqrt64h,
}  # fmt: skip
_COMPARE: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "GT": np.greater, "GE": np.greater_equal, "LT": np.less, "EQ": np.equal, "NE": np.not_equal,
    "NEU": lambda a, b: ~(a == b), "GEU": lambda a, b: ~(a < b), "GTU": lambda a, b: ~(a <= b),
}  # fmt: skip
_ADDRESSES = {
    "IMAD", "LOP3", "IADD3", "LEA", "UIADD3", "ULEA", "UMOV", "MOV", "USHF", "SHF", "UIMAD", "IADD", "UIADD", "VIADD", "ULOP3",
}  # fmt: skip
_NOTHING = {"S2R", "LDC", "ULDC", "LDCU", "NOP", "S2UR", "R2UR", "MOVM", "WARPSYNC", "BSSY", "BSYNC"}


def assembled(text: str, capability: int) -> bytes:
    """The cubin that Triton's ptxas makes of PTX."""
    backend = CUDABackend(GPUTarget("cuda", capability, 32))
    return backend.make_cubin(text, {}, backend.parse_options({"enable_fp_fusion": True}), capability)


def listing(cubin: bytes) -> dict[str, list[str]]:
    """Lines of machine code and labels of each function of a cubin, as nvdisasm writes them."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        told = subprocess.run([knobs.nvidia.nvdisasm.path, "-c", file.name], check=True, capture_output=True, text=True).stdout
    found: dict[str, list[str]] = {}
    for line in told.splitlines():
        if named := re.match(r"\.text\.(\w+):", line):
            found[named[1]] = []
        elif found and (_LINE.search(line) or re.match(r"\s*[.$][\w$.]+:", line)):
            found[list(found)[-1]].append(line.strip())
    return found


@dataclass
class Lanes:
    """Registers of many threads. `operands` are the words behind the first pointer by byte offset, [lanes] uint32 each."""

    operands: dict[int, np.ndarray]
    registers: dict[str, np.ndarray] = field(default_factory=dict)
    predicates: dict[str, np.ndarray] = field(default_factory=dict)
    stored: dict[int, np.ndarray] = field(default_factory=dict)  # by byte offset
    executed: list[str] = field(default_factory=list)  # operations, without moves and addresses

    @property
    def count(self) -> int:
        return len(next(iter(self.operands.values())))

    def run(self, lines: list[str]) -> Lanes:
        """Execute to EXIT, and return this."""
        labels = {line.rstrip(":"): at for at, line in enumerate(lines) if line.endswith(":") and not line.startswith("/*")}
        with np.errstate(all="ignore"):
            at, back = 0, []
            while True:
                found = _LINE.search(lines[at])
                at += 1
                if not found:
                    continue
                guard, opcode, rest = found.groups()
                where = self._guard(guard)
                kind = opcode.partition(".")[0]
                if kind in ("EXIT", "BRA", "CALL", "RET"):
                    if not where.any():
                        continue
                    assert where.all(), f"{found[0]}: lanes part"
                    if kind == "EXIT":
                        return self
                    if kind == "CALL":
                        back.append(at)
                    at = back.pop() if kind == "RET" else labels[re.search(r"`\((.*?)\)", rest)[1]]  # type: ignore[index]
                elif kind not in _NOTHING:
                    self._operation(opcode, [each.strip() for each in re.sub(r"\.reuse\b", "", rest).split(", ")], where)

    def _guard(self, text: str | None) -> np.ndarray:
        if text is None:
            return np.ones(self.count, bool)
        found = self._predicate(text.removeprefix("@"))
        return found

    def _predicate(self, name: str) -> np.ndarray:
        plain = name.removeprefix("!")
        value = np.ones(self.count, bool) if plain in ("PT", "UPT") else self.predicates[plain]
        return ~value if name.startswith("!") else value

    def _write(self, name: str, words: np.ndarray, where: np.ndarray) -> None:
        words = np.broadcast_to(words, (self.count,)).astype(np.uint32)
        self.registers[name] = words if where.all() else np.where(where, words, self.registers.get(name, np.uint32(0)))

    def _write_pair(self, name: str, values: np.ndarray, where: np.ndarray) -> None:
        words = np.broadcast_to(values, (self.count,)).astype(np.float64).view(np.uint64)
        self._write(name, (words & np.uint64(0xFFFFFFFF)).astype(np.uint32), where)
        self._write(_after(name), (words >> np.uint64(32)).astype(np.uint32), where)

    def _words(self, name: str) -> np.ndarray:
        """An operand of 32 bits; a sign or bars around it are of fp32."""
        if name.startswith("~"):
            return ~self._words(name[1:])
        if name.startswith("-") and not re.match(r"-[\d.]", name) and name != "-INF":
            return self._words(name[1:]) ^ np.uint32(0x80000000)
        if name.startswith("|"):
            return self._words(name.strip("|")) & np.uint32(0x7FFFFFFF)
        if name in ("RZ", "URZ"):
            return np.zeros(self.count, np.uint32)
        if re.match(r"U?R\d", name):
            register, _, half = name.partition(".")
            words = self.registers[register]
            return words >> np.uint32(16) if half == "H1" or half == "H1_H1" else words
        if name.endswith("INF"):
            return np.full(self.count, 0xFF800000 if name.startswith("-") else 0x7F800000, np.uint32)
        if re.fullmatch(r"-?0x[0-9a-f]+", name):
            return np.full(self.count, int(name, 16) & 0xFFFFFFFF, np.uint32)
        return np.full(self.count, float(name), np.float32).view(np.uint32)

    def _float(self, name: str) -> np.ndarray:
        return self._words(name).view(np.float32)

    def _double(self, name: str) -> np.ndarray:
        if name.startswith("|"):
            return np.abs(self._double(name.strip("|")))
        if re.match(r"-[R|]", name):
            return -self._double(name[1:])
        if name == "RZ":
            return np.zeros(self.count)
        if re.match(r"R\d", name):
            high = self.registers[_after(name)].astype(np.uint64) << np.uint64(32)
            return (high | self.registers[name]).view(np.float64)
        return np.full(self.count, float(name.replace("INF", "inf")))

    def _operation(self, opcode: str, names: list[str], where: np.ndarray) -> None:
        kind, *modifiers = opcode.split(".")
        if kind not in ("HFMA2", "CS2R", "PRMT", "LDG", "STG", *_ADDRESSES):
            self.executed.append(opcode)
        try:
            getattr(self, f"_{kind}", self._unknown)(modifiers, names, where)
        except (KeyError, AssertionError, ValueError):
            if kind not in _ADDRESSES:
                raise
            self.registers.pop(names[0], None)  # of an address: whoever computes with it fails by the register's name

    def _unknown(self, modifiers: list[str], names: list[str], where: np.ndarray) -> None:
        raise KeyError(f"operation with {modifiers} on {names}")

    # -- moves ----------------------------------------------------------------------------------------------------------
    def _LDG(self, modifiers: list[str], names: list[str], where: np.ndarray) -> None:
        offset = _offset(names[1])
        self._write(names[0], self.operands[offset], where)
        if "64" in modifiers:
            self._write(_after(names[0]), self.operands[offset + 4], where)

    def _STG(self, modifiers: list[str], names: list[str], where: np.ndarray) -> None:
        offset = _offset(names[0])
        self.stored[offset] = self._words(names[1])
        if "64" in modifiers:
            self.stored[offset + 4] = self._words(_after(names[1]))

    def _MOV(self, modifiers: list[str], names: list[str], where: np.ndarray) -> None:
        if not names[1].startswith("c["):  # a pointer
            self._write(names[0], self._words(names[1]), where)

    _UMOV = _MOV

    def _IMAD(self, modifiers: list[str], names: list[str], where: np.ndarray) -> None:
        if "MOV" in modifiers and not names[3].startswith("c["):
            self._write(names[0], self._words(names[3]), where)
        elif "MOV" not in modifiers and "WIDE" not in modifiers:
            raise KeyError(f"IMAD with {modifiers} on {names}")

    def _HFMA2(self, modifiers: list[str], names: list[str], where: np.ndarray) -> None:
        """How ptxas writes a constant: its two halves as fp16, added to -0 * 0."""
        assert names[1:3] == ["-RZ", "RZ"], names
        high, low = (np.float16(float(name)).view(np.uint16) for name in names[3:])
        self._write(names[0], np.uint32(int(high) << 16 | int(low)), where)

    def _CS2R(self, modifiers: list[str], names: list[str], where: np.ndarray) -> None:
        assert names[1] == "SRZ"
        self._write_pair(names[0], np.zeros(1), where)

    def _PRMT(self, modifiers: list[str], names: list[str], where: np.ndarray) -> None:
        source = np.stack([self._words(names[1]), self._words(names[3])], axis=-1)  # (lanes, 2)
        octets = np.ascontiguousarray(source).view(np.uint8)  # (lanes, 8)
        chosen = [int(names[2], 16) >> 4 * i & 7 for i in range(4)]
        self._write(names[0], np.ascontiguousarray(octets[:, chosen]).view(np.uint32)[:, 0], where)

    def _LOP3(self, modifiers: list[str], names: list[str], where: np.ndarray) -> None:
        if names[1].startswith("R") and names[1] not in self.registers:
            return  # of a thread's number
        a, b, c = (self._words(name) for name in names[1:4])
        table, found = int(names[4], 16), np.zeros(self.count, np.uint32)
        for i in range(8):
            if table >> i & 1:
                found |= (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
        self._write(names[0], found, where)

    def _IADD3(self, modifiers: list[str], names: list[str], where: np.ndarray) -> None:
        self._write(names[0], sum(self._integer(name) for name in names[-3:]), where)  # type: ignore[arg-type]

    def _VIADD(self, modifiers: list[str], names: list[str], where: np.ndarray) -> None:
        self._write(names[0], self._integer(names[1]) + self._integer(names[2]), where)

    def _integer(self, name: str) -> np.ndarray:
        if name.startswith("-") and name[1:2] == "R":
            return (0 - self._words(name[1:])).astype(np.uint32)
        return self._words(name)

    # -- arithmetic -----------------------------------------------------------------------------------------------------
    def _FMUL(self, modifiers: list[str], names: list[str], where: np.ndarray) -> None:
        rounding = "rz" if "RZ" in modifiers else "rn"
        found = fp32.multiply(self._float(names[1]), self._float(names[2]), rounding, "FTZ" in modifiers)
        self._write(names[0], found.view(np.uint32), where)

    def _FADD(self, modifiers: list[str], names: list[str], where: np.ndarray) -> None:
        found = fp32.add(self._float(names[1]), self._float(names[2]), flush="FTZ" in modifiers)
        self._write(names[0], found.view(np.uint32), where)

    def _FFMA(self, modifiers: list[str], names: list[str], where: np.ndarray) -> None:
        found = fp32.fma(*(self._float(name) for name in names[1:4]), flush="FTZ" in modifiers)
        self._write(names[0], found.view(np.uint32), where)

    def _FMNMX(self, modifiers: list[str], names: list[str], where: np.ndarray) -> None:
        a, b = self._float(names[1]), self._float(names[2])
        self._write(names[0], np.where(self._predicate(names[3]), np.fmin(a, b), np.fmax(a, b)).view(np.uint32), where)

    def _FMNMX3(self, modifiers: list[str], names: list[str], where: np.ndarray) -> None:
        a, b, c = (self._float(name) for name in names[1:4])
        low, high = np.fmin(np.fmin(a, b), c), np.fmax(np.fmax(a, b), c)
        self._write(names[0], np.where(self._predicate(names[4]), low, high).view(np.uint32), where)

    def _FSEL(self, modifiers: list[str], names: list[str], where: np.ndarray) -> None:
        self._write(names[0], np.where(self._predicate(names[3]), self._words(names[1]), self._words(names[2])), where)

    _SEL = _FSEL

    def _FSETP(self, modifiers: list[str], names: list[str], where: np.ndarray) -> None:
        a, b = self._float(names[2]), self._float(names[3])
        if "FTZ" in modifiers:
            a, b = fp32.flush_subnormals(a), fp32.flush_subnormals(b)
        self._set(names, _COMPARE[modifiers[0]](a, b), where)

    def _DSETP(self, modifiers: list[str], names: list[str], where: np.ndarray) -> None:
        self._set(names, _COMPARE[modifiers[0]](self._double(names[2]), self._double(names[3])), where)

    def _ISETP(self, modifiers: list[str], names: list[str], where: np.ndarray) -> None:
        a, b = self._integer(names[2]), self._integer(names[3])
        if "U32" not in modifiers:
            a, b = a.view(np.int32), b.view(np.int32)
        self._set(names, _COMPARE[modifiers[0]](a, b), where)

    def _set(self, names: list[str], found: np.ndarray, where: np.ndarray) -> None:
        assert names[1] == "PT" and names[4] == "PT", names
        self.predicates[names[0]] = np.where(where, found, self.predicates.get(names[0], False))

    def _DMUL(self, modifiers: list[str], names: list[str], where: np.ndarray) -> None:
        self._write_pair(names[0], self._double(names[1]) * self._double(names[2]), where)

    def _DADD(self, modifiers: list[str], names: list[str], where: np.ndarray) -> None:
        self._write_pair(names[0], self._double(names[1]) + self._double(names[2]), where)

    def _DFMA(self, modifiers: list[str], names: list[str], where: np.ndarray) -> None:
        self._write_pair(names[0], fp64.fma(*(self._double(name) for name in names[1:4])), where)

    def _MUFU(self, modifiers: list[str], names: list[str], where: np.ndarray) -> None:
        unit, *form = modifiers
        words = self._words(names[1])
        if form:
            flush = ".ftz" if unit == "EX2" and form[0] == "BF16" else ""
            instruction = INSTRUCTIONS[f"{unit.lower()}.approx{flush}.{form[0].lower()}"]
            self._write(names[0], instruction(words.astype(np.uint16)).astype(np.uint32), where)
        else:
            self._write(names[0], _MUFU[unit](words), where)

    def _CREDUX(self, modifiers: list[str], names: list[str], where: np.ndarray) -> None:
        """The largest of a warp's 32 lanes."""
        assert modifiers == ["MAX", "F32"]
        largest = np.fmax.reduce(self._float(names[1]).reshape(-1, 32), axis=1)
        self._write(names[0], np.repeat(largest, 32).view(np.uint32), where)

    def _SHFL(self, modifiers: list[str], names: list[str], where: np.ndarray) -> None:
        """Lanes in groups of 32 are a warp's."""
        assert modifiers == ["BFLY"] and names[0] == "PT"
        words = self._words(names[2]).reshape(-1, 32)
        self._write(names[1], words[:, np.arange(32) ^ int(names[3], 16)].reshape(-1), where)


def _after(name: str) -> str:
    """The next register."""
    return f"R{int(name[1:].partition('.')[0]) + 1}"


def _offset(name: str) -> int:
    found = re.search(r"\+(-?0x[0-9a-f]+)\]", name)
    return int(found[1], 16) if found else 0


@cache
def of_kernel(kernel: Any, capability: int) -> list[str]:
    """Machine code of a Triton kernel of one input and one output, fp32, one warp."""
    import triton
    from triton.compiler import ASTSource

    names = kernel.arg_names
    source = ASTSource(kernel, dict.fromkeys(names, "*fp32"), {})
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": 1})
    ((_, lines),) = listing(compiled.asm["cubin"]).items()
    return lines

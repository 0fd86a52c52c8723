"""PTX executed by its definition: the threads of one program in step, each register a row of words, branches the same for all.

An independent way to the words of a kernel, with which the emulated GPU's are compared: this reads the PTX that Triton's own stages
make, and knows no tile program. Floats are computed by `ptx_numbers`.
Opcodes that it does not know raise NotImplementedError by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from tests.support.ptx_numbers import FORMS, bits_of, compare, conversion, converted, instruction, value

_STATEMENT = re.compile(r"(?:@(!?)(%\w+)\s+)?([a-z][\w.:]*)\s*([^;]*);")
_PART = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*")
Words = np.ndarray  # (threads,) uint64


class Threads:
    """`count` threads of program 0 that run `text`, PTX of one kernel; `arguments` are its parameters (addresses, integers)."""

    def __init__(self, text: str, arguments: list[int], memory: DeviceMemory, count: int = 128) -> None:
        body = text[text.index(".visible .entry") :]
        self.parameters = re.findall(r"\.param [^,()]*?(\w+)(?=[,\n)])", body[: body.index("{")])
        self.arguments = dict(zip(self.parameters, [*arguments, *[0] * len(self.parameters)], strict=False))
        self.registers: dict[str, Words] = {}
        self.memory, self.count = memory, count
        self.shared = np.zeros(228 * 1024, np.uint8)
        self.lines = self._lines(body)
        self.seen: list[str] = []  # opcodes in the order they ran

    @staticmethod
    def _lines(body: str) -> list[str]:
        found = []
        for raw in body.splitlines():
            line = raw.partition("//")[0].strip()
            if line.startswith((".section", ".file")):
                break
            for part in re.findall(r"[^;]*;|[$\w]+:", line) or []:
                found.append(part.strip().lstrip("{ "))
        return found

    def run(self) -> None:
        """To the end of all threads. Where they parted at a branch, those furthest behind go first, so that they meet again."""
        labels = {line[:-1]: at for at, line in enumerate(self.lines) if line.endswith(":")}
        at, end = np.zeros(self.count, np.int64), len(self.lines)
        for _ in range(100_000):
            here = int(at.min())
            if here == end:
                return
            line, now = self.lines[here], at == here
            at[now] += 1
            if line.endswith(":") or line.startswith("."):
                continue
            found = _STATEMENT.match(line)
            if not found:
                raise NotImplementedError(f"PTX: {line}")
            when = now & (self.registers[found[2]].astype(bool) ^ bool(found[1])) if found[2] else now
            operands = [part.strip() for part in _PART.findall(found[4])]
            if found[3].split(".")[0] == "bra":
                at[when] = labels[operands[-1]]
            elif found[3] == "ret":
                at[when] = end
            else:
                self.seen.append(found[3])
                self.execute(found[3], operands, when)
        raise RuntimeError("the PTX does not end")

    # -- registers ----------------------------------------------------------------------------------------------------
    def read(self, name: str) -> Words:
        if name.startswith("%tid.x"):
            return np.arange(self.count, dtype=np.uint64)
        if name.startswith(("%tid", "%ctaid")):
            return np.zeros(self.count, np.uint64)
        if name.startswith("%nctaid"):
            return np.ones(self.count, np.uint64)
        if name.startswith("%") or name in self.registers:  # inline assembly names its own without %
            return self.registers.get(name, np.zeros(self.count, np.uint64))
        if name.startswith(("0f", "0d")):
            return np.full(self.count, int(name[2:], 16), np.uint64)
        if name == "global_smem":
            return np.zeros(self.count, np.uint64)
        return np.full(self.count, int(name, 0) & (1 << 64) - 1, np.uint64)

    def write(self, name: str, words: Words, when: np.ndarray, bits: int) -> None:
        words = words.astype(np.uint64) & np.uint64((1 << bits) - 1)
        before = self.registers.get(name, np.zeros(self.count, np.uint64))
        self.registers[name] = np.where(when, words, before)

    # -- instructions -------------------------------------------------------------------------------------------------
    def execute(self, opcode: str, operands: list[str], when: np.ndarray) -> None:
        parts = opcode.split(".")
        kind, last = parts[0], parts[-1]
        if kind == "bar":
            return
        if opcode.startswith("ld.param"):
            self.write(operands[0], self.read(str(self.arguments[operands[1].strip("[]")])), when, bits_of(last))
        elif kind == "shfl":
            self._shuffle(parts[2], operands, when)
        elif kind == "redux":
            self._combine_lanes(parts, operands, when)
        elif kind == "prmt":
            self._permute(operands, when)
        elif kind in ("ldmatrix", "stmatrix"):
            self._matrices(parts, operands, when)
        elif kind in ("ld", "st"):
            self._move(kind == "ld", "shared" in opcode, bits_of(last), operands, when)
        elif kind == "mov":
            self._copy(operands, when, bits_of(last))
        elif kind == "selp":
            first, second, chosen = (self.read(o) for o in operands[1:4])
            self.write(operands[0], np.where(chosen != 0, first, second), when, bits_of(last))
        elif parts[:2] == ["testp", "infinite"]:
            found = [value(int(word), last) in (float("inf"), -float("inf")) for word in self.read(operands[1])]
            self.write(operands[0], np.array(found, np.uint64), when, 1)
        elif opcode == "set.nan.f16x2.f16x2":  # 1.0 in each half where an operand is NaN there
            halves = [self.read(o).astype(np.uint32).view(np.float16).reshape(-1, 2) for o in operands[1:]]
            found = np.where(np.isnan(halves).any(0), np.float16(1), np.float16(0)).view(np.uint32)[:, 0]
            self.write(operands[0], found, when, 32)
        elif kind == "setp":
            for half, name in enumerate(operands[0].split("|")):
                self.write(name, self._compare(parts, operands[1:], half), when, 1)
        elif last.removesuffix("x2") in FORMS and kind != "cvt":
            self._float(parts, operands, when)
        elif kind == "cvt":
            self._convert(parts, operands, when)
        else:
            self.write(operands[0], self._integer(parts, operands[1:]), when, bits_of(last) * (2 if "wide" in parts else 1))

    def _shuffle(self, how: str, operands: list[str], when: np.ndarray) -> None:
        """shfl.sync of all lanes of a warp (PTX ISA 9.7.9.6): a lane whose source lies outside keeps its own word."""
        into, source, distance, clamp, members = operands
        if int(clamp, 0) != (0 if how == "up" else 31) or int(members, 0) != -1 or not when.all():
            raise NotImplementedError(f"PTX: shfl.sync.{how} with {clamp}, {members}")
        lane, by, words = np.arange(self.count) % 32, self.read(distance).astype(np.int64), self.read(source)
        other = {"bfly": lane ^ by, "up": lane - by, "idx": by & 31}[how]
        self.write(into, words[np.arange(self.count) - lane + np.where(other < 0, lane, other)], when, 32)

    def _combine_lanes(self, parts: list[str], operands: list[str], when: np.ndarray) -> None:
        """redux.sync of all lanes of a warp (PTX ISA 9.7.13.6)."""
        if "NaN" in parts or (self.read(operands[2]).astype(np.uint32) != 0xFFFFFFFF).any() or not when.all():
            raise NotImplementedError(f"PTX: {'.'.join(parts)} of {operands[2]}")
        form = {"f32": np.float32, "s32": np.int32}.get(parts[-1], np.uint32)
        words = self.read(operands[1]).astype(np.uint32).view(form).reshape(-1, 32)
        run = {"add": np.add, "max": np.fmax, "min": np.fmin, "xor": np.bitwise_xor, "or": np.bitwise_or, "and": np.bitwise_and}
        found = run[parts[2]].reduce(words, 1, dtype=form)
        self.write(operands[0], np.repeat(found, 32).view(np.uint32).astype(np.uint64), when, 32)

    def _permute(self, operands: list[str], when: np.ndarray) -> None:
        """prmt.b32: each digit of the constant names a byte of the pair, from 8 on its sign alone (PTX ISA 9.7.9.7)."""
        chosen = int(operands[3].rstrip("U"), 0)
        pair, found = self.read(operands[1]) | self.read(operands[2]) << np.uint64(32), np.zeros(self.count, np.uint64)
        for i in range(4):
            digit = chosen >> (4 * i) & 15
            byte = pair >> np.uint64(8 * (digit & 7)) & np.uint64(255)
            found |= (np.where(byte > 127, np.uint64(255), np.uint64(0)) if digit > 7 else byte) << np.uint64(8 * i)
        self.write(operands[0], found, when, 32)

    def _matrices(self, parts: list[str], operands: list[str], when: np.ndarray) -> None:
        """ldmatrix and stmatrix of 8 x 8 elements of 16 bits (PTX ISA 9.7.15.5): lane i has elements 2 (i % 4) and the next of row
        i / 4, of column i / 4 with .trans; the addresses of the rows of matrix j are those of lanes 8 j to 8 j + 7."""
        if parts[3] != "m8n8" or not when.all():
            raise NotImplementedError(f"PTX: {'.'.join(parts)}")
        load = parts[0] == "ldmatrix"
        names, place = operands if load else operands[::-1]
        base, _, offset = place.strip("[] ").partition("+")
        address = (self.read(base.strip()) + np.uint64(int(offset or "0", 0))).astype(np.int64)
        lane = np.arange(self.count) % 32
        major, minor = (lane // 4)[:, None], 2 * (lane % 4)[:, None] + np.arange(2)  # (threads, 1), (threads, 2)
        row, column = (minor, major) if "trans" in parts else (major, minor)
        for j, name in enumerate(names.strip("{}").split(",")):
            start = address[(np.arange(self.count) - lane)[:, None] + 8 * j + row] + 2 * column  # (threads, 2)
            places = (start[..., None] + np.arange(2)).reshape(self.count, 4)
            if load:
                self.write(name.strip(), self.shared[places].copy().view("<u4")[:, 0], when, 32)
            else:
                turn = self._turns(1)
                self.shared[places[turn]] = self.read(name.strip()).astype("<u4").view(np.uint8).reshape(-1, 4)[turn]

    def _turns(self, lanes: int) -> np.ndarray:
        """The threads in the order of their stores to shared memory, of which the last stays: a warp stores in `lanes` turns, and
        in one turn the lowest lane wins (on an H100; PTX ISA 9.7.9.12 leaves it undefined)."""
        lane = np.arange(32)
        order = np.lexsort((-lane, lane * lanes // 32))
        return (np.arange(0, self.count, 32)[:, None] + order).reshape(-1)

    def _copy(self, operands: list[str], when: np.ndarray, bits: int) -> None:
        into, source = operands
        if into.startswith("{"):
            names = [n.strip() for n in into.strip("{}").split(",")]
            words, each = self.read(source), bits // len(names)
            for i, name in enumerate(names):
                if name != "_":
                    self.write(name, words >> np.uint64(each * i), when, each)
        elif source.startswith("{"):
            names = [n.strip() for n in source.strip("{}").split(",")]
            each = bits // len(names)
            total = sum((self.read(name) << np.uint64(each * i) for i, name in enumerate(names)), np.zeros(self.count, np.uint64))
            self.write(into, total, when, bits)
        else:
            self.write(into, self.read(source), when, bits)

    def _move(self, load: bool, shared: bool, bits: int, operands: list[str], when: np.ndarray) -> None:
        group, place = (operands[0], operands[1]) if load else (operands[1], operands[0])
        names = [n.strip() for n in group.strip("{}").split(",")]
        base, _, offset = place.strip("[] ").partition("+")
        address = self.read(base.strip()) + np.uint64(int(offset or "0", 0))
        size = bits // 8
        turn = self._turns(max(size * len(names) // 4, 1)) if shared and not load else np.arange(self.count)
        address, when, asked = address[turn], when[turn], when
        for i, name in enumerate(names):
            at = (address + np.uint64(i * size))[when]
            if not at.size:
                continue
            array, start = (self.shared, 0) if shared else self.memory.array_at(int(at[0]))
            places = (at - np.uint64(start)).astype(np.int64)[:, None] + np.arange(size)  # (threads, size)
            if load:
                held = np.zeros((at.size, 8), np.uint8)
                held[:, :size] = array[places]
                words = np.zeros(self.count, np.uint64)
                words[when] = held.view("<u8")[:, 0]
                self.write(name, words, asked, bits)
            else:
                array[places] = self.read(name)[turn][when].astype("<u8").view(np.uint8).reshape(-1, 8)[:, :size]

    def _compare(self, parts: list[str], operands: list[str], half: int) -> Words:
        a, b = (self.read(o) for o in operands[:2])
        how, form = parts[1], parts[-1].removesuffix("x2")
        if len(parts) != 3:
            raise NotImplementedError(f"PTX: {'.'.join(parts)}")
        if form in FORMS:
            a, b = ((w >> np.uint64(half * FORMS[form][0])) & np.uint64((1 << FORMS[form][0]) - 1) for w in (a, b))
            found = [compare(value(int(x), form), value(int(y), form), how) for x, y in zip(a, b, strict=True)]
            return np.array(found, np.uint64)
        left, right = (_signed(w, bits_of(form)) if form[0] == "s" else w & np.uint64((1 << bits_of(form)) - 1) for w in (a, b))
        run = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
        return run[how](left, right).astype(np.uint64)

    def _integer(self, parts: list[str], operands: list[str]) -> Words:
        kind, bits = parts[0], bits_of(parts[-1])
        signed = parts[-1][0] == "s"
        words = [_signed(self.read(o), bits) if signed else self.read(o) & np.uint64((1 << bits) - 1) for o in operands]
        if kind == "mad" and "wide" in parts:
            words[2] = self.read(operands[2]).astype(words[0].dtype)
        with np.errstate(over="ignore"):
            simple: dict[str, Callable] = {
                "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "add": np.add, "sub": np.subtract,
                "mul": np.multiply, "min": np.minimum, "max": np.maximum,
            }  # fmt: skip
            if kind in simple and "hi" not in parts:
                return simple[kind](*words).astype(np.uint64)
            if kind == "mul" and "lo" not in parts:
                products = [int(x) * int(y) >> bits for x, y in zip(*words, strict=True)]
                return np.array([each & (1 << 64) - 1 for each in products], np.uint64)
            if kind == "mad":
                return (words[0] * words[1] + words[2]).astype(np.uint64)
            if kind == "lop3":  # bit i of the table: what becomes of the bits i has (PTX ISA 9.7.8.6)
                table, found = int(words[3][0]), np.zeros(self.count, np.uint64)
                for i in (i for i in range(8) if table >> i & 1):
                    found |= np.bitwise_and.reduce([w if i >> (2 - k) & 1 else ~w for k, w in enumerate(words[:3])])
                return found
            if kind == "not":
                return ~words[0].astype(np.uint64)
            if kind == "bfe":
                taken = (words[0] >> (words[1] & words[0].dtype.type(255))).astype(np.uint64)
                size = int(words[2][0])
                return _signed(taken, size).astype(np.uint64) if signed else taken & np.uint64((1 << size) - 1)
            if kind in ("neg", "abs"):
                word = words[0].astype(np.int64)
                return (-word if kind == "neg" else np.abs(word)).astype(np.uint64)
            if kind in ("div", "rem"):
                pairs = [(int(x), int(y) or 1) for x, y in zip(*words, strict=True)]  # by zero it is undefined
                whole_ = [abs(x) // abs(y) * (-1 if (x < 0) != (y < 0) else 1) for x, y in pairs]
                found = whole_ if kind == "div" else [x - y * q for (x, y), q in zip(pairs, whole_, strict=True)]
                return np.array([each & (1 << 64) - 1 for each in found], np.uint64)
            if kind in ("shl", "shr"):
                amount = self.read(operands[1]) & np.uint64(0xFFFFFFFF)
                inside = np.minimum(amount, np.uint64(63)).astype(words[0].dtype)
                moved = np.left_shift(words[0], inside) if kind == "shl" else np.right_shift(words[0], inside)
                return np.where((amount < np.uint64(bits)) | signed, moved.astype(np.uint64), np.uint64(0))
        raise NotImplementedError(f"PTX: {'.'.join(parts)}")

    def _float(self, parts: list[str], operands: list[str], when: np.ndarray) -> None:
        packed = 2 if parts[-1].endswith("x2") else 1
        form, *given = [each.removesuffix("x2") for each in parts if each.removesuffix("x2") in FORMS]
        bits = FORMS[form][0]
        words = [self.read(each) for each in operands[1:]]
        if given:  # add.f32.bf16: all but the addend are narrow, and widened without rounding
            narrow, last = words[:-1], words[-1]
            mask = np.uint64((1 << FORMS[given[0]][0]) - 1)
            words = [np.array([converted(int(w & mask), given[0], form) for w in each], np.uint64) for each in narrow] + [last]
        run = instruction([each for each in parts if each not in given], form)
        found = np.zeros(self.count, np.uint64)
        for half in range(packed):
            shift = np.uint64(half * bits)
            lanes = [(each >> shift) & np.uint64((1 << bits) - 1) for each in words]
            found |= np.array([run(*map(int, each)) for each in zip(*lanes, strict=True)], np.uint64) << shift
        self.write(operands[0], found, when, bits * packed)

    def _convert(self, parts: list[str], operands: list[str], when: np.ndarray) -> None:
        into, source, modifiers = parts[-2], parts[-1], set(parts[1:-2])
        words = self.read(operands[1]) & np.uint64((1 << bits_of(source)) - 1)
        if into.endswith("x2"):  # the first operand becomes the upper half
            run = conversion([*parts[:-2], into[:-2], source])
            low = self.read(operands[2]) & np.uint64((1 << bits_of(source)) - 1)
            found = np.array([run(int(a)) << 16 | run(int(b)) for a, b in zip(words, low, strict=True)], np.uint64)
        elif into not in FORMS and source not in FORMS and not modifiers:
            found = _signed(words, bits_of(source)).astype(np.uint64) if source[0] == "s" else words
        else:
            run = conversion(parts)
            found = np.array([run(int(w)) for w in words], np.uint64)
        self.write(operands[0], found, when, bits_of(into))


class DeviceMemory:
    """Global memory: arrays by address. The threads of one instruction reach one array."""

    def __init__(self, *arrays: np.ndarray) -> None:
        self.arrays = [(array.view(np.uint8).reshape(-1), array.__array_interface__["data"][0]) for array in arrays]

    def array_at(self, address: int) -> tuple[np.ndarray, int]:
        """The bytes of the array that `address` lies in, and where they begin."""
        return next((array, start) for array, start in self.arrays if start <= address < start + array.size)


def _signed(words: Words, bits: int) -> np.ndarray:
    shift = np.uint64(64 - bits)
    return (words << shift).astype(np.int64) >> np.int64(64 - bits)

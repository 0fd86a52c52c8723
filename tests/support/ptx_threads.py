"""PTX executed by its definition: the threads of one program in step, each register a row of words, branches the same for all.

An independent way to the words of a kernel, with which the emulated GPU's are compared: this reads the PTX that Triton's own stages
make, and knows no tile program. Rounding is exact rational arithmetic here, one rounding an instruction (PTX ISA, 9.7.3 and 9.7.4).
Opcodes that it does not know raise NotImplementedError by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from math import ceil, floor, isqrt, trunc

import numpy as np

FORMS = {"f16": (16, 11, -14), "bf16": (16, 8, -126), "f32": (32, 24, -126), "f64": (64, 53, -1022)}
"""Bits, bits of significand, exponent of the smallest normal number."""
NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": 0x7FF8000000000000}
_STATEMENT = re.compile(r"(?:@(!?)(%\w+)\s+)?([a-z][\w.:]*)\s*([^;]*);")
_PART = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*")
Words = np.ndarray  # (threads,) uint64


def value(word: int, form: str) -> Fraction | float:
    """What `word` stands for: a Fraction, or a float for infinities, NaN and -0."""
    bits, precision, low = FORMS[form]
    sign = -1 if word >> (bits - 1) else 1
    magnitude = word & ((1 << (bits - 1)) - 1)
    exponent, fraction = magnitude >> (precision - 1), magnitude & ((1 << (precision - 1)) - 1)
    if exponent == (1 << (bits - precision)) - 1:
        return float("nan") if fraction else sign * float("inf")
    if magnitude == 0:
        return Fraction(0) if sign > 0 else -0.0
    hidden = (1 << (precision - 1)) if exponent else 0
    return sign * Fraction(hidden + fraction) * Fraction(2) ** (max(exponent, 1) - 1 + low - precision + 1)


def rounded(exact: Fraction, form: str, *, negative_zero: bool = False, nearest: bool = True) -> int:
    """The word nearest to `exact`, ties to the even one; beyond the largest an infinity. Toward zero where not `nearest`."""
    bits, precision, low = FORMS[form]
    if exact == 0:
        return 1 << (bits - 1) if negative_zero else 0
    sign, size = (1 << (bits - 1) if exact < 0 else 0), abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, low) - precision + 1)
    units = round(size / unit) if nearest else size // unit  # Python rounds a Fraction's half to even
    field = (max(exponent, low) - low) * (1 << (precision - 1)) + units  # a carry moves on into the exponent
    infinity = ((1 << (bits - precision)) - 1) << (precision - 1)
    return sign | min(field, infinity if nearest else infinity - 1)


def flushed(word: int, form: str) -> int:
    """A subnormal `word` as a zero of its sign (.ftz)."""
    bits, precision, _ = FORMS[form]
    magnitude = word & ((1 << (bits - 1)) - 1)
    return word - magnitude if magnitude < 1 << (precision - 1) else word


def _special(a: Fraction | float) -> bool:
    return isinstance(a, float) and a != 0


def _below(a: Fraction | float) -> bool:
    """Whether the sign of `a` is set."""
    return bool(np.signbit(a)) if isinstance(a, float) else a < 0


def _size(a: Fraction | float) -> np.float64:
    """`a` where it is special, else a number of its sign that is zero where it is."""
    return np.float64(a) if _special(a) else np.float64((a > 0) - (a < 0))


def multiply_add(a: int, b: int | None, c: int | None, form: str, *, nearest: bool = True) -> int:
    """a * b + c, rounded once; without b the sum a + c, without c the product."""
    x, y, z = value(a, form), 1 if b is None else value(b, form), None if c is None else value(c, form)
    if any(_special(each) for each in (x, y, z)):
        with np.errstate(all="ignore"):
            found = _size(x) * _size(y) + (np.float64(0) if z is None or not _special(z) else np.float64(z))
        if np.isnan(found):
            return NAN[form]
        bits, precision, _ = FORMS[form]
        return (1 << (bits - 1) if found < 0 else 0) | ((1 << (bits - precision)) - 1) << (precision - 1)
    exact = Fraction(x) * Fraction(y) + Fraction(0 if z is None else z)
    if exact:
        return rounded(exact, form, nearest=nearest)
    both_below = _below(x) != _below(y) and (z is None or (z == 0 and _below(z)))  # a zero keeps the sign that all of it has
    return rounded(exact, form, negative_zero=both_below)


def narrowed_nan(word: int) -> int:
    """cvt.f32.f64 of a NaN: quiet, with its sign and what fits of its payload (words of an H100)."""
    return word >> 32 & 1 << 31 | 0x7FC00000 | word >> 29 & (1 << 22) - 1


def quotient(a: int, b: int, form: str, *, nearest: bool = True) -> int:
    """a / b, rounded once."""
    x, y = value(a, form), value(b, form)
    negative = _below(x) != _below(y)
    infinite = [_special(each) and each == each for each in (x, y)]
    if any(each != each for each in (x, y)) or all(infinite) or (x == 0 and y == 0):
        return NAN[form]
    bits, precision, _ = FORMS[form]
    if infinite[0] or y == 0:
        return negative << (bits - 1) | ((1 << (bits - precision)) - 1) << (precision - 1)
    if infinite[1] or x == 0:
        return negative << (bits - 1)
    return rounded(Fraction(x) / Fraction(y), form, negative_zero=negative, nearest=nearest)


def root(a: int, form: str, *, nearest: bool = True) -> int:
    """The square root of a, rounded once."""
    x = value(a, form)
    if x == 0 or (_special(x) and x > 0):
        return a
    if x != x or x < 0:
        return NAN[form]
    scaled = Fraction(x) * Fraction(4) ** 700  # at least 2^300: its root has far more bits than any form
    low = isqrt(scaled.numerator // scaled.denominator)
    exact = low * low == scaled
    return rounded(Fraction(2 * low + (0 if exact else 1), 2) / 2**700, form, nearest=nearest)


def whole(word: int, form: str, mode: str) -> int:
    """A float of no fraction: downward (rmi), upward (rpi), toward zero (rzi), to nearest even (rni)."""
    x = value(word, form)
    if x != x:
        return NAN[form]
    if _special(x) or x == 0:
        return word
    found = {"rmi": floor, "rpi": ceil, "rzi": trunc, "rni": round}[mode](Fraction(x))
    return rounded(Fraction(found), form, negative_zero=_below(x))


def to_integer(word: int, form: str, bits: int, *, signed: bool, mode: str = "rzi") -> int:
    """cvt to an integer of `bits`: clamped to its range, NaN to zero, as a word."""
    x = value(word, form)
    least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    if x != x:
        return 0
    if _special(x):
        found = most if x > 0 else least
    else:
        found = min(max({"rmi": floor, "rpi": ceil, "rzi": trunc, "rni": round}[mode](Fraction(x)), least), most)
    return found & ((1 << bits) - 1)


def least_or_most(a: int, b: int, form: str, *, most: bool, keep_nan: bool) -> int:
    """min and max: -0 lies below +0; a NaN is left out, or kept (.NaN)."""
    x, y = value(a, form), value(b, form)
    lost = [isinstance(each, float) and each != each for each in (x, y)]
    if any(lost):
        return NAN[form] if keep_nan or all(lost) else (b if lost[0] else a)
    if x == y:
        negative = [bool(word >> (FORMS[form][0] - 1)) for word in (a, b)]
        return a if negative[0] != most else b
    return a if (x > y) == most else b


class Threads:
    """`count` threads of program 0 that run `text`, PTX of one kernel; `arguments` are its parameters (addresses, integers)."""

    def __init__(self, text: str, arguments: list[int], memory: VerdictCache, count: int = 128) -> None:
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
        if name.startswith("%"):
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
            self.write(operands[0], self.read(str(self.arguments[operands[1].strip("[]")])), when, _bits(last))
        elif kind == "shfl":
            self._shuffle(parts[2], operands, when)
        elif kind == "prmt":
            self._permute(operands, when)
        elif kind in ("ldmatrix", "stmatrix"):
            self._matrices(parts, operands, when)
        elif kind in ("ld", "st"):
            self._move(kind == "ld", "shared" in opcode, _bits(last), operands, when)
        elif kind == "mov":
            self._copy(operands, when, _bits(last))
        elif kind == "selp":
            first, second, chosen = (self.read(o) for o in operands[1:4])
            self.write(operands[0], np.where(chosen != 0, first, second), when, _bits(last))
        elif parts[:2] == ["testp", "infinite"]:
            found = [value(int(word), last) in (float("inf"), -float("inf")) for word in self.read(operands[1])]
            self.write(operands[0], np.array(found, np.uint64), when, 1)
        elif kind == "setp":
            for half, name in enumerate(operands[0].split("|")):
                self.write(name, self._compare(parts, operands[1:], half), when, 1)
        elif last.removesuffix("x2") in FORMS and kind != "cvt":
            self._float(parts, operands, when)
        elif kind == "cvt":
            self._convert(parts, operands, when)
        else:
            self.write(operands[0], self._integer(parts, operands[1:]), when, _bits(last) * (2 if "wide" in parts else 1))

    def _shuffle(self, how: str, operands: list[str], when: np.ndarray) -> None:
        """shfl.sync of all lanes of a warp (PTX ISA 9.7.9.6): a lane whose source lies outside keeps its own word."""
        into, source, distance, clamp, members = operands
        if int(clamp, 0) != (0 if how == "up" else 31) or int(members, 0) != -1 or not when.all():
            raise NotImplementedError(f"PTX: shfl.sync.{how} with {clamp}, {members}")
        lane, by, words = np.arange(self.count) % 32, self.read(distance).astype(np.int64), self.read(source)
        other = {"bfly": lane ^ by, "up": lane - by, "idx": by & 31}[how]
        self.write(into, words[np.arange(self.count) - lane + np.where(other < 0, lane, other)], when, 32)

    def _permute(self, operands: list[str], when: np.ndarray) -> None:
        """prmt.b32: each digit of the constant names a byte of the pair (PTX ISA 9.7.9.7), none with its sign spread."""
        chosen = int(operands[3].rstrip("U"), 0)
        pair, found = self.read(operands[1]) | self.read(operands[2]) << np.uint64(32), np.zeros(self.count, np.uint64)
        for i in range(4):
            digit = chosen >> (4 * i) & 15
            if digit > 7:
                raise NotImplementedError(f"PTX: prmt.b32 by {operands[3]}")
            found |= (pair >> np.uint64(8 * digit) & np.uint64(255)) << np.uint64(8 * i)
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
            room, start = (self.shared, 0) if shared else self.memory.room(int(at[0]))
            places = (at - np.uint64(start)).astype(np.int64)[:, None] + np.arange(size)  # (threads, size)
            if load:
                held = np.zeros((at.size, 8), np.uint8)
                held[:, :size] = room[places]
                words = np.zeros(self.count, np.uint64)
                words[when] = held.view("<u8")[:, 0]
                self.write(name, words, asked, bits)
            else:
                room[places] = self.read(name)[turn][when].astype("<u8").view(np.uint8).reshape(-1, 8)[:, :size]

    def _compare(self, parts: list[str], operands: list[str], half: int) -> Words:
        a, b = (self.read(o) for o in operands[:2])
        how, form = parts[1], parts[-1].removesuffix("x2")
        if len(parts) != 3:
            raise NotImplementedError(f"PTX: {'.'.join(parts)}")
        if form in FORMS:
            a, b = ((w >> np.uint64(half * FORMS[form][0])) & np.uint64((1 << FORMS[form][0]) - 1) for w in (a, b))
            found = [_order(value(int(x), form), value(int(y), form), how) for x, y in zip(a, b, strict=True)]
            return np.array(found, np.uint64)
        left, right = (_signed(w, _bits(form)) if form[0] == "s" else w & np.uint64((1 << _bits(form)) - 1) for w in (a, b))
        run = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
        return run[how](left, right).astype(np.uint64)

    def _integer(self, parts: list[str], operands: list[str]) -> Words:
        kind, bits = parts[0], _bits(parts[-1])
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
        words = self.read(operands[1]) & np.uint64((1 << _bits(source)) - 1)
        if into.endswith("x2"):  # the first operand becomes the upper half
            run = conversion([*parts[:-2], into[:-2], source])
            low = self.read(operands[2]) & np.uint64((1 << _bits(source)) - 1)
            found = np.array([run(int(a)) << 16 | run(int(b)) for a, b in zip(words, low, strict=True)], np.uint64)
        elif into not in FORMS and source not in FORMS and not modifiers:
            found = _signed(words, _bits(source)).astype(np.uint64) if source[0] == "s" else words
        else:
            run = conversion(parts)
            found = np.array([run(int(w)) for w in words], np.uint64)
        self.write(operands[0], found, when, _bits(into))


def conversion(parts: list[str]) -> Callable[[int], int]:
    """What a cvt that is no plain move computes on a word. NotImplementedError for one that is not known."""
    into, source, modifiers = parts[-2], parts[-1], set(parts[1:-2])
    mode = next((m for m in ("rmi", "rpi", "rzi", "rni") if m in modifiers), None)
    flush = "ftz" in modifiers
    if modifiers - {"rn", "rz", "ftz", mode}:
        raise NotImplementedError(f"PTX: {'.'.join(parts)}")
    if source in FORMS and into == source and mode:
        return lambda w: whole(flushed(w, source) if flush else w, source, mode)
    if source in FORMS and into in FORMS and not mode and (modifiers or FORMS[into][1] > FORMS[source][1]):
        return lambda w: converted(flushed(w, source) if flush else w, source, into, nearest="rz" not in modifiers)
    if source in FORMS and into not in FORMS and mode:
        return lambda w: to_integer(flushed(w, source) if flush else w, source, _bits(into), signed=into[0] == "s", mode=mode)
    if source not in FORMS and into in FORMS and modifiers & {"rn", "rz"}:
        top = 1 << (_bits(source) - 1) if source[0] == "s" else 0
        return lambda w: rounded(Fraction((w ^ top) - top), into, nearest="rn" in modifiers)
    raise NotImplementedError(f"PTX: {'.'.join(parts)}")


def converted(word: int, source: str, into: str, *, nearest: bool = True) -> int:
    """cvt between floats."""
    held = value(word, source)
    if isinstance(held, float) and held != held:
        return narrowed_nan(word) if (source, into) == ("f64", "f32") else NAN[into]
    bits, precision, _ = FORMS[into]
    if _special(held):
        return (1 << (bits - 1) if held < 0 else 0) | ((1 << (bits - precision)) - 1) << (precision - 1)
    return rounded(Fraction(held), into, negative_zero=_below(held), nearest=nearest)


def instruction(parts: list[str], form: str) -> Callable[..., int]:
    """What the float instruction whose opcode has `parts` computes on words of `form`. NotImplementedError for a modifier or an
    opcode that is not known."""
    kind, modifiers = parts[0], [m for m in parts[1:] if m not in (form, f"{form}x2")]
    known = {"ftz", "NaN"} if kind in ("min", "max") else {"rn", "rz", "ftz"}
    if set(modifiers) - known:
        raise NotImplementedError(f"PTX: {'.'.join(parts)}")
    top, nearest = 1 << (FORMS[form][0] - 1), "rz" not in modifiers
    table: dict[str, Callable[..., int]] = {
        "add": lambda a, b: multiply_add(a, None, b, form, nearest=nearest),
        "sub": lambda a, b: multiply_add(a, None, b ^ top, form, nearest=nearest),
        "mul": lambda a, b: multiply_add(a, b, None, form, nearest=nearest),
        "fma": lambda a, b, c: multiply_add(a, b, c, form, nearest=nearest),
        "div": lambda a, b: quotient(a, b, form, nearest=nearest),
        "sqrt": lambda a: root(a, form, nearest=nearest),
        "neg": lambda a: a ^ top,
        "abs": lambda a: a & ~top,
        "min": lambda *words: reduce(lambda a, b: least_or_most(a, b, form, most=False, keep_nan="NaN" in modifiers), words),
        "max": lambda *words: reduce(lambda a, b: least_or_most(a, b, form, most=True, keep_nan="NaN" in modifiers), words),
    }
    if kind not in table or (kind in ("div", "sqrt") and not {"rn", "rz"} & set(modifiers)):
        raise NotImplementedError(f"PTX: {'.'.join(parts)}")
    run = table[kind]
    if "ftz" not in modifiers:
        return run
    return lambda *words: flushed(run(*(flushed(w, form) for w in words)), form)


class VerdictCache:
    """Global memory: arrays by address. The threads of one instruction reach one array."""

    def __init__(self, *arrays: np.ndarray) -> None:
        self.rooms = [(array.view(np.uint8).reshape(-1), array.__array_interface__["data"][0]) for array in arrays]

    def room(self, address: int) -> tuple[np.ndarray, int]:
        """The bytes of the array that `address` lies in, and where they begin."""
        return next((held, start) for held, start in self.rooms if start <= address < start + held.size)


def _bits(typed: str) -> int:
    return 1 if typed == "pred" else int(re.sub(r"\D", "", typed.removesuffix("x2"))) * (2 if typed.endswith("x2") else 1)


def _signed(words: Words, bits: int) -> np.ndarray:
    shift = np.uint64(64 - bits)
    return (words << shift).astype(np.int64) >> np.int64(64 - bits)


def _order(x: Fraction | float, y: Fraction | float, how: str) -> bool:
    lost = any(isinstance(each, float) and each != each for each in (x, y))
    if how in ("num", "nan"):
        return lost == (how == "nan")
    if lost:
        return how.endswith("u")
    plain = how.removesuffix("u")
    return {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}[plain]

"""What a PTX opcode gives for the operands of one lane, by its definition (PTX ISA 9.7): Python integers and exact fractions.

The emulator's executor of PTX is held to this. It computes on arrays of words; this computes one result at a time, and shares
nothing with it but the numbers of `ptx_numbers.value`.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor, isqrt, trunc

from tests.support.ptx_numbers import FORMS, NAN, narrowed_nan, value

WHOLE = {"rni": round, "rzi": trunc, "rmi": floor, "rpi": ceil}
Real = Fraction | float


def bits(kind: str) -> int:
    return (
        1
        if kind == "pred"
        else {"tf32": 32}.get(kind)
        or int("".join(filter(str.isdigit, kind.removesuffix("x2")))) * (2 if kind.endswith("x2") else 1)
    )


def integer(word: int, kind: str) -> int:
    """`word` as a number of an integer type."""
    width = bits(kind)
    word &= (1 << width) - 1
    return word - (1 << width) if kind[0] == "s" and word >> (width - 1) else word


def negative(x: Real) -> bool:
    return str(x).startswith("-")


def infinite(x: Real) -> bool:
    return isinstance(x, float) and x in (float("inf"), float("-inf"))


def nan(x: Real) -> bool:
    return x != x


def flushed(word: int, form: str) -> int:
    width, precision, _ = FORMS[form]
    size = word & ((1 << (width - 1)) - 1)
    return word - size if size < 1 << (precision - 1) else word


def rounded(exact: Real, form: str, mode: str = "rn", *, flush: bool = False, zero_below: bool = False) -> int:
    """The word of `exact` in `form`, rounded once; an exact zero is -0 where `zero_below`. With `flush`, what is below the smallest
    normal number after rounding to its digits, whatever the exponent, is zero."""
    width, precision, least = FORMS[form]
    sign = 1 << (width - 1)
    top = ((1 << (width - precision)) - 1) << (precision - 1)
    if nan(exact):
        return NAN[form]
    if infinite(exact):
        return top | (sign if exact < 0 else 0)
    if exact == 0:
        return sign if zero_below or (isinstance(exact, float) and negative(exact)) else 0
    below, size = exact < 0, abs(Fraction(exact))

    def units(quantum: Fraction) -> int:
        if mode == "rn":
            return round(size / quantum)
        outward = mode == ("rm" if below else "rp")
        return ceil(size / quantum) if outward else floor(size / quantum)

    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > size
    quantum = Fraction(2) ** (exponent - precision + 1)
    if flush and units(quantum) * quantum < Fraction(2) ** least:
        return sign if below else 0
    shown = max(exponent, least)
    found = units(Fraction(2) ** (shown - precision + 1)) + (shown - least) * (1 << (precision - 1))
    if found >= top:
        found = top if mode == "rn" or mode == ("rm" if below else "rp") else top - 1
    return found | (sign if below else 0)


class Opcode:
    """The parts of an opcode: `kind`, `types`, and the modifiers in `said`."""

    def __init__(self, text: str) -> None:
        self.kind, *rest = text.split(".")
        known = ("pred", "f16", "bf16", "f32", "f64", "f16x2", "bf16x2", "f32x2", "u16x2", "s16x2")
        self.types = [part for part in rest if part in known or (part[0] in "bus" and part[1:].isdigit())]
        self.said = [part for part in rest if part not in self.types]
        self.flush = "ftz" in self.said
        self.mode = next((part for part in self.said if part in ("rn", "rz", "rm", "rp")), "rn")

    @property
    def type(self) -> str:
        return self.types[-1]


def expected(text: str, *words: int) -> int:
    """The result word of the opcode `text` on operand `words`. NotImplementedError, by name, for an opcode that is not here."""
    op = Opcode(text)
    if op.types[0].endswith("x2") and op.kind != "cvt":
        half = bits(op.types[0]) // 2
        single = text.replace(op.types[0], op.types[0].removesuffix("x2"))
        parts = [expected(single, *(word >> shift & ((1 << half) - 1) for word in words)) for shift in (0, half)]
        return parts[0] | parts[1] << half
    if op.kind in ("setp", "selp", "cvt", "testp", "slct"):
        return {"setp": _setp, "selp": _selp, "cvt": _cvt, "testp": _testp, "slct": _slct}[op.kind](op, words)
    if op.type in FORMS:
        return _float(op, words)
    return _integer(op, words) & (
        (1 << (2 if "wide" in op.said else 1) * (32 if op.kind in ("clz", "popc", "bfind") else bits(op.type))) - 1
    )


# -- integers --------------------------------------------------------------------------------------------------------------
def _integer(op: Opcode, words: tuple[int, ...]) -> int:
    kind, width = op.type, bits(op.type)
    a, *rest = (integer(word, kind) for word in words)
    b, c = (*rest, 0, 0)[:2]
    unsigned = [word & ((1 << width) - 1) for word in words]
    if op.kind in ("mul", "mad", "mul24"):
        if op.kind == "mul24":
            a, b = (integer(word << 8 & 0xFFFFFFFF, kind) >> 8 for word in words[:2])
        product = a * b
        if "hi" in op.said:
            product >>= width
        if "wide" in op.said and op.kind == "mad":
            c = words[2]
        return product + (c if op.kind == "mad" else 0)
    simple = {
        "add": lambda: a + b, "sub": lambda: a - b, "neg": lambda: -a, "abs": lambda: abs(a), "min": lambda: min(a, b),
        "max": lambda: max(a, b), "sad": lambda: c + abs(a - b), "and": lambda: a & b, "or": lambda: a | b, "xor": lambda: a ^ b,
        "not": lambda: ~a, "cnot": lambda: int(a == 0), "popc": lambda: unsigned[0].bit_count(),
        "clz": lambda: width - unsigned[0].bit_length(), "brev": lambda: int(f"{unsigned[0]:0{width}b}"[::-1], 2),
        "div": lambda: trunc(Fraction(a, b)) if b else -1, "rem": lambda: a - b * trunc(Fraction(a, b)) if b else a,
        "shl": lambda: a << min(words[1], 64), "shr": lambda: a >> min(words[1], 64), "mov": lambda: a,
    }  # fmt: skip
    if op.kind in simple:
        found = simple[op.kind]()
        return max(min(found, (1 << 31) - 1), -1 << 31) if "sat" in op.said else found
    if op.kind == "shf":
        by = words[2] % 32 if "wrap" in op.said else min(words[2], 32)
        pair = words[1] << 32 | words[0]
        return pair << by >> 32 if "l" in op.said else pair >> by
    if op.kind == "lop3":
        places = range(32)
        return sum((words[3] >> ((words[0] >> i & 1) << 2 | (words[1] >> i & 1) << 1 | words[2] >> i & 1) & 1) << i for i in places)
    if op.kind == "prmt":
        octets = (words[1] << 32 | words[0]).to_bytes(8, "little")
        found = 0
        for place in range(4):
            nibble = words[2] >> 4 * place & 15
            octet = octets[nibble & 7]
            found |= (255 * (octet >> 7) if nibble & 8 else octet) << 8 * place
        return found
    if op.kind == "bfe":
        at, length = words[1] & 255, words[2] & 255
        sign = 0
        if kind[0] == "s" and length:
            sign = unsigned[0] >> min(at + length - 1, width - 1) & 1
        return sum((unsigned[0] >> at + i & 1 if i < length and at + i < width else sign) << i for i in range(width))
    if op.kind == "bfi":
        at, length = words[2] & 255, words[3] & 255
        found = unsigned[1]
        for i in range(length):
            if at + i < width:
                found = found & ~(1 << at + i) | (unsigned[0] >> i & 1) << at + i
        return found
    if op.kind == "bfind":
        size = ~a if a < 0 else a
        at = size.bit_length() - 1
        return -1 if at < 0 else width - 1 - at if "shiftamt" in op.said else at
    raise NotImplementedError(op.kind)


# -- floats ----------------------------------------------------------------------------------------------------------------
def _float(op: Opcode, words: tuple[int, ...]) -> int:
    form = op.type
    sign = 1 << (FORMS[form][0] - 1)
    if op.flush:
        words = tuple(flushed(word, form) for word in words)
    if op.kind in ("neg", "abs") and nan(value(words[0], form)) and (op.kind, form) != ("neg", "f32"):  # open: an H100's
        return words[0] | 1 << 51 if form == "f64" else sign - 1
    if op.kind in ("neg", "abs"):
        return words[0] ^ sign if op.kind == "neg" else words[0] & ~sign
    if op.kind == "copysign":
        return words[0] & sign | words[1] & ~sign
    if "xorsign" in op.said:
        found = _extreme(words[0] & ~sign, words[1] & ~sign, form, op.kind == "max", "NaN" in op.said)
        return found if nan(value(found, form)) else found | (words[0] ^ words[1]) & sign
    if op.kind in ("min", "max"):
        return _extreme(words[0], words[1], form, op.kind == "max", "NaN" in op.said)
    exact, zero_below = _exact(op, [value(word, form) for word in words])
    found = rounded(exact, form, op.mode, flush=op.flush, zero_below=zero_below)
    if "sat" in op.said:
        shown = value(found, form)
        return 0 if nan(shown) or not shown > 0 else min(found, rounded(Fraction(1), form))
    if "relu" in op.said:
        return found if nan(exact) or not negative(value(found, form)) else 0
    return found


def _extreme(a: int, b: int, form: str, largest: bool, keep: bool) -> int:
    x, y = value(a, form), value(b, form)
    if nan(x) or nan(y):
        return NAN[form] if keep or (nan(x) and nan(y)) else (b if nan(x) else a)
    if x == y:
        return a if negative(x) != largest else b
    return a if (x > y) == largest else b


def _exact(op: Opcode, given: list[Real]) -> tuple[Real, bool]:
    """The result before rounding, and whether an exact zero has its sign set."""
    x = given[0]
    if any(nan(each) for each in given):
        return float("nan"), False
    if op.kind in ("sub", "add"):
        y = given[1]
        if op.kind == "sub":
            y = float(-y) if infinite(y) or y == 0 else -y
            y = -0.0 if given[1] == 0 and not negative(given[1]) else y
        return _sum(x, y, op.mode)
    if op.kind in ("mul", "fma", "mad"):
        product = _product(x, given[1])
        if op.kind == "mul" or nan(product):
            return product, negative(x) != negative(given[1])
        return _sum(product, given[2], op.mode)
    if op.kind in ("div", "rcp"):
        x, y = (x, given[1]) if op.kind == "div" else (Fraction(1), x)
        below = negative(x) != negative(y)
        if (infinite(x) and infinite(y)) or (x == 0 and y == 0):
            return float("nan"), False
        if infinite(x) or y == 0:
            return float("-inf" if below else "inf"), below
        return (Fraction(0) if infinite(y) else Fraction(x) / Fraction(y)), below
    if op.kind == "sqrt":
        if x == 0 or (infinite(x) and x > 0):
            return x, negative(x)
        if x < 0:
            return float("nan"), False
        scaled = Fraction(x) * 4**1200
        low = isqrt(scaled.numerator // scaled.denominator)
        return Fraction(2 * low + (low * low != scaled), 2 * 2**1200), False
    raise NotImplementedError(op.kind)


def _product(x: Real, y: Real) -> Real:
    if infinite(x) or infinite(y):
        return float("nan") if x == 0 or y == 0 else float("-inf" if negative(x) != negative(y) else "inf")
    exact = Fraction(x) * Fraction(y)
    return exact if exact or negative(x) == negative(y) else -0.0


def _sum(x: Real, y: Real, mode: str) -> tuple[Real, bool]:
    if infinite(x) or infinite(y):
        if infinite(x) and infinite(y) and x != y:
            return float("nan"), False
        return (x if infinite(x) else y), False
    both, differ = negative(x) and negative(y), negative(x) != negative(y)
    return Fraction(x) + Fraction(y), both or (mode == "rm" and differ)


# -- comparison, selection, conversion -------------------------------------------------------------------------------------
_ORDER = {"eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
          "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b, "lo": lambda a, b: a < b, "ls": lambda a, b: a <= b,
          "hi": lambda a, b: a > b, "hs": lambda a, b: a >= b}  # fmt: skip


def _setp(op: Opcode, words: tuple[int, ...]) -> int:
    name, kind = op.said[0], op.type
    if kind not in FORMS:
        return int(_ORDER[name](integer(words[0], kind), integer(words[1], kind)))
    a, b = (value(flushed(word, kind) if op.flush else word, kind) for word in words)
    lost = nan(a) or nan(b)
    if name in ("nan", "num"):
        return int(lost == (name == "nan"))
    if lost:
        return int(name.endswith("u"))
    return int(_ORDER[name.removesuffix("u") if name not in _ORDER else name](a, b))


def _selp(op: Opcode, words: tuple[int, ...]) -> int:
    return words[0] if words[2] else words[1]


def _slct(op: Opcode, words: tuple[int, ...]) -> int:
    return words[0] if integer(words[2], "s32") >= 0 else words[1]


def _testp(op: Opcode, words: tuple[int, ...]) -> int:
    x = value(words[0], op.type)
    subnormal = x != 0 and flushed(words[0], op.type) != words[0]
    return int({
        "finite": not nan(x) and not infinite(x), "infinite": infinite(x), "number": not nan(x), "notanumber": nan(x),
        "normal": not nan(x) and not infinite(x) and x != 0 and not subnormal, "subnormal": subnormal,
    }[op.said[0]])  # fmt: skip


def _cvt(op: Opcode, words: tuple[int, ...]) -> int:
    target, source = op.types
    if target.endswith("x2"):
        single = f"cvt.{'.'.join((*op.said, target.removesuffix('x2'), source))}"
        return expected(single, words[0]) << 16 | expected(single, words[1])
    way = next((part for part in op.said if part in WHOLE), "")
    width = bits(target)
    if source not in FORMS:
        number = integer(words[0], source)
        if target in FORMS:
            return rounded(Fraction(number), target, op.mode)
        if "sat" in op.said:
            least, most = (-1 << width - 1, (1 << width - 1) - 1) if target[0] == "s" else (0, (1 << width) - 1)
            number = min(max(number, least), most)
        return number & ((1 << width) - 1)
    word = flushed(words[0], source) if op.flush and source == "f32" else words[0]
    x = value(word, source)
    if target not in FORMS:
        least, most = (-1 << width - 1, (1 << width - 1) - 1) if target[0] == "s" else (0, (1 << width) - 1)
        if nan(x):
            return 1 << width - 1 if source == "f64" or width == 64 else 0
        found = (most if x > 0 else least) if infinite(x) else min(max(WHOLE[way](Fraction(x)), least), most)
        return found & ((1 << width) - 1)
    if way and not nan(x) and not infinite(x) and x != 0:
        x = Fraction(WHOLE[way](Fraction(x))) or (-0.0 if x < 0 else Fraction(0))
    if "relu" in op.said and not nan(x) and (negative(x) or x == 0):
        x = Fraction(0)
    if "sat" in op.said:
        x = Fraction(0) if nan(x) or not x > 0 else min(x, Fraction(1))
    if nan(x) and (source, target) == ("f64", "f32"):
        return narrowed_nan(words[0])
    return rounded(x, target, op.mode, flush=op.flush and target == "f32")

"""Integer, logic, comparison and selection instructions of PTX (PTX ISA 9.7.1, 9.7.2, 9.7.6 to 9.7.8)."""

# One file because it is one table of instructions, in the order of the PTX ISA's chapters.
from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bitverdict.harness.emulator.ptx.opcodes import (
    CARRY,
    DTYPES,
    Meaning,
    Opcode,
    UnknownOpcode,
    Words,
    as_signed,
    bits,
    opcode,
    view_of_type,
)

_INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")


def _integer(op: Opcode) -> str | None:
    """The one integer type of `op`; None where it has another."""
    return op.types[0] if len(op.types) == 1 and op.types[0] in _INTEGERS else None


def _meaning_of_one_type(kind: str, count: int, compute: Callable[..., Words]) -> Meaning:
    return Meaning((kind,) * count, (kind,), compute)


def _add_with_carry(a: Words, b: Words, carry: Words | int) -> tuple[Words, Words]:
    """a + b + carry and the carry out, at the operands' width."""
    low = a + b
    total = low + np.asarray(carry, a.dtype)
    return total, (low < a) | (total < low)


def _subtract_with_borrow(a: Words, b: Words, borrow: Words | int) -> tuple[Words, Words]:
    low = a - b
    total = low - np.asarray(borrow, a.dtype)
    return total, (a < b) | (low < total)


@opcode("add", "sub")
def add(op: Opcode) -> Meaning | None:
    kind = _integer(op)
    if kind is None:
        return None
    adds = op.kind == "add"
    if op.take("cc"):
        step = _add_with_carry if adds else _subtract_with_borrow
        return Meaning((kind, kind), (kind, CARRY), lambda a, b: step(a, b, 0))
    if op.take("sat"):
        if kind != "s32":
            raise UnknownOpcode(f"{op.text}: .sat is of s32 alone (PTX ISA, add)")
        return _meaning_of_one_type(
            kind,
            2,
            lambda a, b: _saturate_to_s32(as_signed(a).astype(np.int64) + (1 if adds else -1) * as_signed(b).astype(np.int64)),
        )
    return _meaning_of_one_type(kind, 2, (lambda a, b: a + b) if adds else (lambda a, b: a - b))


def _saturate_to_s32(wide: np.ndarray) -> Words:
    return np.clip(wide, -(1 << 31), (1 << 31) - 1).astype(np.int32).view(np.uint32)


@opcode("addc", "subc")
def add_with_carry(op: Opcode) -> Meaning | None:
    kind = _integer(op)
    if kind is None:
        return None
    step = _add_with_carry if op.kind == "addc" else _subtract_with_borrow
    if op.take("cc"):
        return Meaning((kind, kind, CARRY), (kind, CARRY), step)
    return Meaning((kind, kind, CARRY), (kind,), lambda a, b, carry: step(a, b, carry)[0])


def _doubled_type(kind: str) -> str:
    return f"{kind[0]}{2 * bits(kind)}"


def _high(kind: str) -> Callable[[Words, Words], Words]:
    """The upper half of a product."""
    width = bits(kind)
    if width < 64:
        as_kind, target = view_of_type(kind), np.int64 if kind.startswith("s") else np.uint64
        narrow = DTYPES[width]
        return lambda a, b: (
            (as_kind(a).astype(target) * as_kind(b).astype(target) >> target(width)).astype(f"i{width // 8}").view(narrow)
        )
    low32, half = np.uint64(0xFFFFFFFF), np.uint64(32)

    def high(a: Words, b: Words) -> Words:
        a0, a1, b0, b1 = a & low32, a >> half, b & low32, b >> half
        middle = a1 * b0 + (a0 * b0 >> half)
        cross_sum = a0 * b1 + (middle & low32)
        upper_half = a1 * b1 + (middle >> half) + (cross_sum >> half)
        if kind.startswith("s"):
            upper_half = upper_half - np.where(as_signed(a) < 0, b, np.uint64(0)) - np.where(as_signed(b) < 0, a, np.uint64(0))
        return upper_half

    return high


def _product(op: Opcode, kind: str) -> tuple[Callable[[Words, Words], Words], str]:
    """How `op` multiplies, and the type of what comes out."""
    form = op.take("lo", "hi", "wide")
    if form == "wide" and bits(kind) < 64:
        as_kind, target = view_of_type(kind), np.dtype(f"{'i' if kind.startswith('s') else 'u'}{bits(kind) // 4}")
        return lambda a, b: (as_kind(a).astype(target) * as_kind(b).astype(target)).view(DTYPES[2 * bits(kind)]), _doubled_type(
            kind
        )
    if form == "hi":
        return _high(kind), kind
    if form != "lo":
        raise UnknownOpcode(f"{op.text} is neither .lo, .hi nor .wide")
    return (lambda a, b: a * b), kind


@opcode("mul", "mul24")
def multiply(op: Opcode) -> Meaning | None:
    kind = _integer(op)
    if kind is None:
        return None
    compute, result_kind = _product(op, kind)
    if op.kind == "mul":
        return Meaning((kind, kind), (result_kind,), compute)
    if result_kind != kind or bits(kind) != 32 or "hi" in op.text:
        raise UnknownOpcode(f"{op.text}: only mul24.lo is executed here")
    return _meaning_of_one_type(kind, 2, lambda a, b: _low_24(a, kind) * _low_24(b, kind))


def _low_24(words: Words, kind: str) -> Words:
    low = words << np.uint32(8)
    return (as_signed(low) >> np.int32(8)).view(np.uint32) if kind == "s32" else low >> np.uint32(8)


@opcode("mad", "madc")
def multiply_add(op: Opcode) -> Meaning | None:
    kind = _integer(op)
    if kind is None:
        return None
    compute, result_kind = _product(op, kind)
    reads = (kind, kind, result_kind)
    if op.kind == "madc":
        if op.take("cc"):
            return Meaning((*reads, CARRY), (result_kind, CARRY), lambda a, b, c, carry: _add_with_carry(compute(a, b), c, carry))
        return Meaning((*reads, CARRY), (result_kind,), lambda a, b, c, carry: _add_with_carry(compute(a, b), c, carry)[0])
    if op.take("cc"):
        return Meaning(reads, (result_kind, CARRY), lambda a, b, c: _add_with_carry(compute(a, b), c, 0))
    return Meaning(reads, (result_kind,), lambda a, b, c: compute(a, b) + c)


@opcode("div", "rem")
def divide(op: Opcode) -> Meaning | None:
    """Toward zero; all ones for a zero divisor, of which the ISA says nothing."""
    kind = _integer(op)
    if kind is None:
        return None
    as_kind, quotient = view_of_type(kind), op.kind == "div"

    def compute(a: Words, b: Words) -> Words:
        a, b = np.broadcast_arrays(as_kind(a), as_kind(b))
        divisor = np.where(b == 0, np.array(1, b.dtype), b)
        rest = np.fmod(a, divisor)
        results = ((a - rest) // divisor if quotient else rest).view(DTYPES[bits(kind)])
        return np.where(b == 0, ~np.zeros(1, results.dtype) if quotient else a.view(results.dtype), results)

    return _meaning_of_one_type(kind, 2, compute)


@opcode("neg")
def negate(op: Opcode) -> Meaning | None:
    kind = _integer(op)
    return None if kind is None else _meaning_of_one_type(kind, 1, lambda a: np.zeros(1, a.dtype) - a)


@opcode("abs")
def magnitude(op: Opcode) -> Meaning | None:
    kind = _integer(op)
    return None if kind is None else _meaning_of_one_type(kind, 1, lambda a: np.abs(as_signed(a)).view(a.dtype))


@opcode("min", "max")
def extremes(op: Opcode) -> Meaning | None:
    kind = _integer(op)
    if kind is None:
        return None
    as_kind, choose = view_of_type(kind), np.minimum if op.kind == "min" else np.maximum
    return _meaning_of_one_type(kind, 2, lambda a, b: choose(as_kind(a), as_kind(b)).view(a.dtype))


@opcode("add", "sub", "min", "max")
def of_pairs(op: Opcode) -> Meaning | None:
    """On both 16-bit halves of a register (sm_90)."""
    if op.types not in (["u16x2"], ["s16x2"]):
        return None
    half = np.dtype(np.int16 if op.types == ["s16x2"] else np.uint16)
    compute = {"add": np.add, "sub": np.subtract, "min": np.minimum, "max": np.maximum}[op.kind]

    def run(*words: Words) -> Words:
        result: Words = compute(*(np.ascontiguousarray(each).view(half) for each in np.broadcast_arrays(*words))).view(np.uint32)
        return result

    return _meaning_of_one_type(op.types[0], 2, run)


@opcode("sad")
def sum_of_differences(op: Opcode) -> Meaning | None:
    kind = _integer(op)
    if kind is None:
        return None
    as_kind = view_of_type(kind)
    return _meaning_of_one_type(kind, 3, lambda a, b, c: c + np.where(as_kind(a) < as_kind(b), b - a, a - b))


@opcode("dp4a")
def dot_of_bytes(op: Opcode) -> Meaning | None:
    left, right = op.types
    views = [np.int8 if kind.startswith("s") else np.uint8 for kind in (left, right)]

    def compute(a: Words, b: Words, c: Words) -> Words:
        a, b, c = np.broadcast_arrays(a, b, c)
        split = [np.ascontiguousarray(x).view(view).reshape(-1, 4).astype(np.int64) for x, view in zip((a, b), views, strict=True)]
        return ((split[0] * split[1]).sum(axis=1).astype(np.uint32) + c).astype(np.uint32)

    return Meaning((left, right, "u32"), ("u32",), compute)


# -- logic and shifts ------------------------------------------------------------------------------------------------------
@opcode("and", "or", "xor")
def logic(op: Opcode) -> Meaning | None:
    return _meaning_of_one_type(op.type, 2, {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[op.kind])


@opcode("not")
def complement(op: Opcode) -> Meaning | None:
    return _meaning_of_one_type(op.type, 1, np.invert)


@opcode("cnot")
def logical_not(op: Opcode) -> Meaning | None:
    return _meaning_of_one_type(op.type, 1, lambda a: (a == 0).astype(a.dtype))


@opcode("lop3")
def any_logic(op: Opcode) -> Meaning | None:
    def compute(a: Words, b: Words, c: Words, table: Words) -> Words:
        result = np.zeros(1, np.uint32)
        for i in range(8):
            if int(table[0]) >> i & 1:
                result = result | (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
        return result

    return Meaning(("b32", "b32", "b32", "b32"), ("b32",), compute)


@opcode("shl", "shr")
def shift(op: Opcode) -> Meaning | None:
    """Amounts beyond the width shift everything out."""
    kind = op.type
    width, as_kind = bits(kind), view_of_type(kind)
    arithmetic = op.kind == "shr" and kind.startswith("s")

    def compute(a: Words, amount: Words) -> Words:
        is_beyond_width = amount >= width
        amount_in_width = np.minimum(amount, width - 1).astype(a.dtype)
        if arithmetic:
            return (as_kind(a) >> as_signed(amount_in_width)).view(a.dtype)
        shifted_words = a << amount_in_width if op.kind == "shl" else a >> amount_in_width
        return np.where(is_beyond_width, np.zeros(1, a.dtype), shifted_words) if is_beyond_width.any() else shifted_words

    return Meaning((kind, "u32"), (kind,), compute)


@opcode("shf")
def funnel_shift(op: Opcode) -> Meaning | None:
    """shf.l: the upper word of {b, a} << c; shf.r: the lower word of {b, a} >> c."""
    left, wraps = op.take("l", "r") == "l", op.take("wrap", "clamp") == "wrap"

    def compute(a: Words, b: Words, c: Words) -> Words:
        amount = (c & np.uint32(31) if wraps else np.minimum(c, np.uint32(32))).astype(np.uint64)
        pair = b.astype(np.uint64) << np.uint64(32) | a
        return ((pair << amount >> np.uint64(32)) if left else pair >> amount).astype(np.uint32)

    return Meaning(("b32", "b32", "u32"), ("b32",), compute)


@opcode("bfe")
def extract(op: Opcode) -> Meaning | None:
    kind = op.type
    width = bits(kind)

    def compute(a: Words, position: Words, length: Words) -> Words:
        position, length = (np.minimum(each & np.uint32(255), np.uint32(64)) for each in (position, length))
        field_words = np.where(position < width, a >> np.minimum(position, width - 1).astype(a.dtype), np.zeros(1, a.dtype))
        if kind.startswith("s"):
            field_words = (as_signed(a) >> np.minimum(position, width - 1).astype(f"i{width // 8}")).view(a.dtype)
        upper_bits = (width - np.clip(length.astype(np.int64), 1, width)).astype(f"i{width // 8}")
        at_top = as_signed(field_words << upper_bits.view(a.dtype))
        field_words = (
            (at_top >> upper_bits).view(a.dtype) if kind.startswith("s") else at_top.view(a.dtype) >> upper_bits.view(a.dtype)
        )
        return np.where(length == 0, np.zeros(1, a.dtype), field_words)

    return Meaning((kind, "u32", "u32"), (kind,), compute)


@opcode("bfi")
def insert(op: Opcode) -> Meaning | None:
    kind = op.type
    width = bits(kind)

    def compute(a: Words, b: Words, position: Words, length: Words) -> Words:
        position, length = (np.minimum(each & np.uint32(255), np.uint32(width)).astype(np.uint64) for each in (position, length))
        ones = np.where(
            length >= 64, np.uint64(0xFFFFFFFFFFFFFFFF), (np.uint64(1) << np.minimum(length, np.uint64(63))) - np.uint64(1)
        )
        is_outside = position >= width
        place = np.minimum(position, np.uint64(width - 1))
        mask = np.where(is_outside, np.uint64(0), ones << place).astype(a.dtype)
        return b & ~mask | (a.astype(np.uint64) << place).astype(a.dtype) & mask

    return Meaning((kind, kind, "u32", "u32"), (kind,), compute)


def bit_length(words: Words) -> np.ndarray:
    """Position after the highest set bit, 0 for none; int64."""
    if words.itemsize < 8:
        return np.frexp(words.astype(np.float64))[1].astype(np.int64)
    high = words >> np.uint64(32)
    low = np.frexp((words & np.uint64(0xFFFFFFFF)).astype(np.float64))[1]
    return np.where(high != 0, 32 + np.frexp(high.astype(np.float64))[1], low).astype(np.int64)


@opcode("clz")
def leading_zeros(op: Opcode) -> Meaning | None:
    width = bits(op.type)
    return Meaning((op.type,), ("u32",), lambda a: (width - bit_length(a)).astype(np.uint32))


@opcode("bfind")
def find_highest(op: Opcode) -> Meaning | None:
    """The highest bit that is not a copy of the sign; 0xFFFFFFFF for none."""
    kind, width, amount = op.type, bits(op.type), op.take("shiftamt")

    def compute(a: Words) -> Words:
        magnitude_bits = np.where(as_signed(a) < 0, ~a, a) if kind.startswith("s") else a
        position = bit_length(magnitude_bits) - 1
        return np.where(position < 0, -1, width - 1 - position if amount else position).astype(np.int32).view(np.uint32)

    return Meaning((kind,), ("u32",), compute)


@opcode("popc")
def count_bits(op: Opcode) -> Meaning | None:
    return Meaning((op.type,), ("u32",), lambda a: np.bitwise_count(a).astype(np.uint32))


_REVERSED_BYTES = np.array([int(f"{i:08b}"[::-1], 2) for i in range(256)], np.uint8)


@opcode("brev")
def reverse_bits(op: Opcode) -> Meaning | None:
    def compute(a: Words) -> Words:
        octets = np.ascontiguousarray(a).view(np.uint8).reshape(len(a), -1)[:, ::-1]
        return np.ascontiguousarray(_REVERSED_BYTES[octets]).view(a.dtype)[:, 0]

    return _meaning_of_one_type(op.type, 1, compute)


@opcode("prmt")
def permute_bytes(op: Opcode) -> Meaning | None:
    """The default mode: each nibble of the selector names a byte of {b, a}; its high bit replicates that byte's sign."""

    def compute(a: Words, b: Words, selector: Words) -> Words:
        pair = b.astype(np.uint64) << np.uint64(32) | a
        result = np.zeros(1, np.uint32)
        for place in range(4):
            nibble = selector >> np.uint32(4 * place) & np.uint32(15)
            octet = (pair >> (8 * (nibble & np.uint32(7))).astype(np.uint64)).astype(np.uint32) & np.uint32(255)
            octet = np.where(nibble & 8, np.where(octet & 128, np.uint32(255), np.uint32(0)), octet)
            result = result | octet << np.uint32(8 * place)
        return result

    return Meaning(("b32", "b32", "b32"), ("b32",), compute)


# -- comparison and selection ----------------------------------------------------------------------------------------------
COMPARISONS = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
_COMPARE = {**COMPARISONS, "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal}
_JOIN: dict[str, Callable[[Words, Words], Words]] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def meaning_of_setp(op: Opcode, kind: str, compare: Callable[[Words, Words], Words]) -> Meaning:
    """The meaning of a setp: the comparison, and its negation for q, each joined to c by .and, .or or .xor (PTX ISA 9.7.6.2)."""
    if not (name := op.take("and", "or", "xor")):
        return Meaning((kind, kind), ("pred",), compare, lambda a, b: ~compare(a, b))
    join = _JOIN[name]
    first, second = lambda a, b, c: join(compare(a, b), c), lambda a, b, c: join(~compare(a, b), c)
    return Meaning((kind, kind, "pred"), ("pred",), first, second)


@opcode("setp")
def compare(op: Opcode) -> Meaning | None:
    kind = op.type
    if kind not in (*_INTEGERS, "b16", "b32", "b64") or len(op.types) != 1 or not (comparison := op.take(*_COMPARE)):
        return None
    compute, as_kind = _COMPARE[comparison], view_of_type(kind)
    return meaning_of_setp(op, kind, lambda a, b: compute(as_kind(a), as_kind(b)))


@opcode("selp")
def select(op: Opcode) -> Meaning | None:
    return Meaning((op.type, op.type, "pred"), (op.type,), lambda a, b, p: np.where(p, a, b))


@opcode("slct")
def select_by_sign(op: Opcode) -> Meaning | None:
    kind, by = op.types
    if by != "s32":
        return None
    return Meaning((kind, kind, by), (kind,), lambda a, b, c: np.where(as_signed(c) >= 0, a, b))


@opcode("mov")
def move(op: Opcode) -> Meaning | None:
    return Meaning((op.type,), (op.type,), lambda a: a)

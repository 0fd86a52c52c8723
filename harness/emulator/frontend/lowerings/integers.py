"""Integer operations: words wrap, division goes toward zero (LLVM LangRef: add, sdiv, srem; PTX ISA 9.7.1)."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from bitverdict.harness.emulator.frontend.translator import NotModelled, Translator, lowers
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.mlir_types import Type, element_dtype
from bitverdict.harness.emulator.numerics.scalar_ops import divide, divide_scalar, remainder, remainder_scalar, wrap

_UNSIGNED_DTYPES = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
_SIGNS = ("==", "!=", "<", "<=", ">", ">=", "<", "<=", ">", ">=")  # arith.cmpi: eq ne slt sle sgt sge ult ule ugt uge
COMPARISONS = tuple(f"{{}} {sign} {{}}" for sign in _SIGNS)


@lowers("arith.constant")
def constant(t: Translator, op: Operation) -> None:
    kind = t.result(op)
    value = constant_word(op, kind)
    t.assign(op, value if kind.kind == "scalar" else np.broadcast_to(np.asarray(value, kind.dtype), kind.shape))


def constant_word(op: Operation, kind: Type) -> int | np.ndarray:
    """The word that is the constant `op`, or each element of it."""
    text = op.attributes["value"]
    if kind.kind == "scalar":
        return scalar(text.split(" : ")[0], kind)
    found = re.match(r"dense<(.*?)> : ", text)
    if not found or found[1].startswith(("[", '"')):
        raise NotModelled(op, "a constant tensor of different elements")
    return scalar(found[1], kind)


def scalar(text: str, kind: Type) -> int | np.ndarray:
    """The word that `text` (true, 12, 1.0e+00, 0x7FC00000) stands for in an element of `kind`."""
    if not kind.is_float:
        return int(text == "true") if text in ("true", "false") else wrap(int(text, 0), kind.bits)
    if text.startswith("0x"):
        return np.array(int(text, 16), {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[kind.itemsize]).view(kind.dtype)
    from bitverdict.harness.emulator.numerics.scalar_ops import narrow

    if kind.element == "f32":
        return np.array(float(text), np.float32)
    return narrow(np.array(float(text)), kind.format)


def _apply_operation(t: Translator, op: Operation, array: Callable, single: Callable) -> None:
    """`single` on Python ints for scalars, `array` on NumPy words for tensors."""
    kind = t.result(op)
    if kind.kind == "scalar":
        bits = kind.bits
        t.call(op, (lambda a, b: wrap(single(a, b), bits)))
    else:
        t.call(op, array)


def _on_unsigned_words(function: Callable) -> Callable:
    def run(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        unsigned = _UNSIGNED_DTYPES[8 * a.dtype.itemsize]
        return function(a.view(unsigned), b.view(unsigned)).view(a.dtype)

    return run


def _mod(value: int, bits: int) -> int:
    return value & ((1 << bits) - 1)


def _nonzero(divisor: np.ndarray) -> np.ndarray:
    """Division by zero is undefined: any word will do."""
    return np.where(divisor == 0, 1, divisor).astype(divisor.dtype)


_BINARY: dict[str, tuple[Callable, Callable]] = {
    "arith.addi": (np.add, lambda a, b: a + b),
    "arith.subi": (np.subtract, lambda a, b: a - b),
    "arith.muli": (np.multiply, lambda a, b: a * b),
    "arith.divsi": (divide, divide_scalar),
    "arith.remsi": (remainder, remainder_scalar),
    "arith.minsi": (np.minimum, min),
    "arith.maxsi": (np.maximum, max),
    "arith.andi": (np.bitwise_and, lambda a, b: a & b),
    "arith.ori": (np.bitwise_or, lambda a, b: a | b),
    "arith.xori": (np.bitwise_xor, lambda a, b: a ^ b),
    "arith.ceildivsi": (lambda a, b: -(-a // _nonzero(b)), lambda a, b: -(-a // b) if b else -1),
    "arith.floordivsi": (lambda a, b: a // _nonzero(b), lambda a, b: a // b if b else -1),
}
_BINARY_UNSIGNED: dict[str, tuple[Callable, Callable]] = {
    "arith.divui": (lambda a, b: a // _nonzero(b), lambda a, b: a // b if b else -1),
    "arith.remui": (lambda a, b: a % _nonzero(b), lambda a, b: a % b if b else a),
    "arith.ceildivui": (
        lambda a, b: a // _nonzero(b) + (a % _nonzero(b) != 0).astype(a.dtype),
        lambda a, b: -(-a // b) if b else -1,
    ),
    "arith.minui": (np.minimum, min),
    "arith.maxui": (np.maximum, max),
}


@lowers(*_BINARY)
def binary(t: Translator, op: Operation) -> None:
    array, single = _BINARY[op.name]
    if t.result(op).bits == 1 and op.name in ("arith.addi", "arith.subi", "arith.muli"):
        array = {"arith.addi": np.bitwise_xor, "arith.subi": np.bitwise_xor, "arith.muli": np.bitwise_and}[op.name]
    _apply_operation(t, op, array, single)


@lowers(*_BINARY_UNSIGNED)
def binary_unsigned(t: Translator, op: Operation) -> None:
    array, single = _BINARY_UNSIGNED[op.name]
    bits = t.result(op).bits
    _apply_operation(t, op, _on_unsigned_words(array), lambda a, b: single(_mod(a, bits), _mod(b, bits)))


@lowers("tt.mulhiui")
def upper_product(t: Translator, op: Operation) -> None:
    """The upper half of the product of two unsigned words (mul.hi.u32, mul.hi.u64)."""
    bits = t.result(op).bits
    if bits not in (32, 64):
        raise NotModelled(op, f"on {t.result(op).element}")
    array = _upper_32 if bits == 32 else _upper_64
    _apply_operation(t, op, _on_unsigned_words(array), lambda a, b: _mod(a, bits) * _mod(b, bits) >> bits)


def _upper_32(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a.astype(np.uint64) * b >> np.uint64(32)).astype(np.uint32)


def _upper_64(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """By four products of halves, the carries of the middle ones taken along."""
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    (a1, a0), (b1, b0) = ((each >> half, each & low) for each in (a, b))
    middle = a1 * b0 + (a0 * b0 >> half)
    return a1 * b1 + (middle >> half) + (a0 * b1 + (middle & low) >> half)


@lowers("math.absi")
def magnitude(t: Translator, op: Operation) -> None:
    """Of the least number itself: its negative is no word."""
    if t.result(op).kind == "scalar":
        bits = t.result(op).bits
        t.call(op, lambda a: wrap(abs(a), bits))
    else:
        t.call(op, np.abs)


@lowers("arith.shli", "arith.shrsi", "arith.shrui")
def shift(t: Translator, op: Operation) -> None:
    """By as many bits as there are, or more: nothing is left, or the sign. The amount is its low 32 bits (PTX ISA, shl and shr)."""
    bits = t.result(op).bits

    def array(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        unsigned_dtype = _UNSIGNED_DTYPES[bits]
        amount = b.view(unsigned_dtype) & unsigned_dtype(min((1 << bits) - 1, 0xFFFFFFFF))
        inside = amount < bits
        amount = np.where(inside, amount, 0).astype(unsigned_dtype)
        if op.name == "arith.shrsi":
            return np.where(inside, a >> amount.view(a.dtype), a >> (bits - 1)).astype(a.dtype)
        moved = a.view(unsigned_dtype) << amount if op.name == "arith.shli" else a.view(unsigned_dtype) >> amount
        return np.where(inside, moved, 0).astype(unsigned_dtype).view(a.dtype)

    def single(a: int, b: int) -> int:
        amount = _mod(b, min(bits, 32))
        if op.name == "arith.shrsi":
            return a >> min(amount, bits - 1)
        if amount >= bits:
            return 0
        return a << amount if op.name == "arith.shli" else _mod(a, bits) >> amount

    _apply_operation(t, op, array, single)


@lowers("arith.cmpi")
def compare(t: Translator, op: Operation) -> None:
    predicate = op.integer("predicate")
    kind = t.operand(op, 0)
    a, b = (t.value(n) for n in op.operands)
    if predicate >= 6:
        if kind.kind == "scalar":
            mask = (1 << kind.bits) - 1
            a, b = (t.code("({} & {})", each, mask) for each in (a, b))
        elif kind.bits > 1:
            a, b = (t.code("{}.view({})", each, _UNSIGNED_DTYPES[kind.bits]) for each in (a, b))
    t.assign(op, t.code(COMPARISONS[predicate], a, b))


@lowers("arith.select")
def select(t: Translator, op: Operation) -> None:
    if t.operand(op, 0).kind == "scalar":
        condition, yes, no = t.operands(op, "condition", "true", "false")
        t.assign(op, t.code("{} if {} else {}", yes, condition, no))
    else:
        t.call(op, np.where)


@lowers("arith.extsi", "arith.extui", "arith.trunci", "arith.index_cast", "arith.index_castui")
def resize(t: Translator, op: Operation) -> None:
    source, target = t.operand(op, 0), t.result(op)
    zero = op.name in ("arith.extui", "arith.index_castui")
    if target.kind == "scalar":
        value = t.code("int({})", t.value(op.operands[0]))
        if source.bits == 1:
            value = t.code("{} & 1" if zero else "-({} & 1)", value)
        elif zero:
            value = t.code("{} & {}", value, (1 << source.bits) - 1)
        t.assign(op, t.apply(wrap, value, target.bits))
        return
    if source.bits == 1:
        t.call(op, (lambda a: a.astype(target.dtype)) if zero else (lambda a: -a.astype(target.dtype)))
    elif target.bits == 1:
        t.call(op, lambda a: (a & 1).astype(np.bool_))
    elif zero:
        t.call(op, lambda a: a.view(_UNSIGNED_DTYPES[source.bits]).astype(_UNSIGNED_DTYPES[target.bits]).view(target.dtype))
    else:
        t.call(op, lambda a: a.astype(target.dtype))


@lowers("arith.bitcast", "tt.bitcast")
def bitcast(t: Translator, op: Operation) -> None:
    source, target = t.operand(op, 0), t.result(op)
    if source.pointers or target.pointers:
        if source.bits != target.bits:
            raise NotModelled(op, "between widths")
        t.alias(op, op.operands[0])
    elif target.kind == "scalar" and not (source.is_float or target.is_float):
        t.alias(op, op.operands[0])
    elif target.kind == "scalar" and not target.is_float:
        t.call(op, lambda a: int(np.asarray(a).view(target.dtype)))
    else:
        held = element_dtype(source.element)
        t.call(op, lambda a: np.asarray(a, held).view(target.dtype))

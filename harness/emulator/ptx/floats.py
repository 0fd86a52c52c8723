"""Floating-point instructions of PTX (PTX ISA 9.7.3 to 9.7.5), with the arithmetic of `reference`.

fp32 and fp64 results are those of `scalar_arithmetic`, approximate instructions those of `special_functions`. fp16 and bf16 are
computed in float64, where a sum, a product and a fused multiply-add rounded to odd round again as once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bitverdict.harness.emulator.ptx.integers import COMPARISONS, meaning_of_setp
from bitverdict.harness.emulator.ptx.opcodes import DTYPES, Meaning, Opcode, UnknownOpcode, Words, bits, opcode
from bitverdict.reference.formats import FORMATS, encode
from bitverdict.reference.scalar_arithmetic import fp32, fp64
from bitverdict.reference.scalar_arithmetic.exact import Rounding, round_to_odd, two_sum
from bitverdict.reference.special_functions.instructions import INSTRUCTIONS

_VIEWS: dict[str, type] = {"f32": np.float32, "f64": np.float64}
_NARROW = {"f16": "fp16", "bf16": "bf16"}
_SIGN: dict[str, Any] = {
    "f32": np.uint32(1 << 31),
    "f64": np.uint64(1 << 63),
    "f16": np.uint16(1 << 15),
    "bf16": np.uint16(1 << 15),
}
_INFINITY: dict[str, Any] = {
    "f32": np.uint32(0x7F800000),
    "f64": np.uint64(0x7FF << 52),
    "f16": np.uint16(0x7C00),
    "bf16": np.uint16(0x7F80),
}
_QUIET = np.uint64(1 << 51)  # of f64; of two NaN the second comes out, made quiet (`fp64`)
_PACKED_TYPES = {"f16x2": "f16", "bf16x2": "bf16", "f32x2": "f32"}


def _float(op: Opcode, *others: str) -> str | None:
    """The one type of `op` when it is fp32, fp64 or one of `others`."""
    return op.types[0] if len(op.types) == 1 and op.types[0] in (*_VIEWS, *others) else None


def _rounding(op: Opcode) -> Rounding:
    return op.take("rn", "rz", "rm", "rp") or "rn"  # type: ignore[return-value]


def _on_words(kind: str, compute: Callable[..., np.ndarray]) -> Callable[..., Words]:
    """`compute` of float arrays, as a function of words."""
    view = _VIEWS[kind]

    def run(*words: Words) -> Words:
        return compute(*(each.view(view) for each in words)).view(words[0].dtype)

    return run


def _of_format(op: Opcode, count: int, functions: dict[str, Callable[..., np.ndarray]]) -> Meaning | None:
    """fp32 and fp64 forms of an operation of `count` operands, whose functions take a rounding (and, of fp32, whether to flush)."""
    kind = _float(op)
    if kind is None:
        return None
    rounding, flush, saturate = _rounding(op), bool(op.take("ftz")), bool(op.take("sat"))
    if kind == "f64":
        if flush or saturate:
            raise UnknownOpcode(f"{op.text}: fp64 has neither .ftz nor .sat")
        broadcast = _broadcast(lambda *values: functions["f64"](*values, rounding))
        return Meaning((kind,) * count, (kind,), _on_words(kind, broadcast))
    if saturate:
        run = lambda *values: _saturate(functions["f32"](*values, rounding, flush))
    else:
        run = lambda *values: functions["f32"](*values, rounding, flush)
    return Meaning((kind,) * count, (kind,), _on_words(kind, run))


def _broadcast(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    return lambda *values: function(*(np.ascontiguousarray(each) for each in np.broadcast_arrays(*values)))


def _saturate(values: np.ndarray) -> np.ndarray:
    """`.sat`: to [0, 1], NaN to +0."""
    return np.where(values > 0, np.minimum(values, np.float32(1)), np.float32(0))


# -- fp16 and bf16 ---------------------------------------------------------------------------------------------------------
def widen_words(words: Words, kind: str) -> np.ndarray:
    """Exact float64 values of fp16 or bf16 words."""
    if kind == "f16":
        return words.view(np.float16).astype(np.float64)
    return (words.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)


def words_of_narrow_values(values: np.ndarray, kind: str) -> Words:
    """fp16 or bf16 words of float64 values that are exact or rounded to odd, to nearest even; NaN is 0x7FFF."""
    with np.errstate(all="ignore"):
        words = values.astype(np.float16).view(np.uint16) if kind == "f16" else encode(FORMATS["bf16"], values).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FFF), words)


def _flush_narrow(words: Words) -> Words:
    """fp16 subnormals as zero of their sign."""
    return np.where(words & np.uint16(0x7C00), words, words & np.uint16(0x8000))


def _narrow(op: Opcode, count: int, compute: Callable[..., np.ndarray]) -> Meaning | None:
    """The forms of 16 bits of an operation of `count` operands. `compute` gives exact results, or such that are rounded to odd."""
    kind = op.types[0] if len(op.types) == 1 else ""
    single = _PACKED_TYPES.get(kind, kind)
    if single not in _NARROW:
        return None
    if _rounding(op) != "rn":
        raise UnknownOpcode(f"{op.text}: 16-bit forms round to nearest even alone")
    flush, saturate, positive = bool(op.take("ftz")), bool(op.take("sat")), bool(op.take("relu"))

    def run(*words: Words) -> Words:
        operands = [_flush_narrow(each) for each in words] if flush else words
        results = words_of_narrow_values(compute(*(widen_words(each, single) for each in operands)), single)
        if flush:
            results = _flush_narrow(results)
        if saturate or positive:
            value = widen_words(results, single)
            results = np.where(value > 0, results, np.where(np.isnan(value) & positive, np.uint16(0x7FFF), np.uint16(0)))
            one = np.uint16(0x3C00 if single == "f16" else 0x3F80)
            results = np.where(saturate & (widen_words(results, single) > 1), one, results)
        return results

    return Meaning((kind,) * count, (kind,), on_halves(run, kind))


def on_halves(compute: Callable[..., Words], kind: str) -> Callable[..., Words]:
    """`compute`, on both halves of each word when `kind` is a packed type."""
    if kind not in _PACKED_TYPES:
        return compute
    half, whole, shift = (np.uint32, np.uint64, 32) if kind == "f32x2" else (np.uint16, np.uint32, 16)

    def run(*words: Words) -> Words:
        low, high = (compute(*((word >> whole(by)).astype(half) for word in words)) for by in (0, shift))
        return low.astype(whole) | high.astype(whole) << whole(shift)

    return run


def _fused_multiply_add(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return round_to_odd(*two_sum(*(np.ascontiguousarray(each) for each in np.broadcast_arrays(a * b, c))))


def _pairs(op: Opcode, count: int, function: Callable[..., np.ndarray]) -> Meaning | None:
    """add, mul and fma of f32x2: fp32 on both halves of 64 bits (sm_100)."""
    if op.types != ["f32x2"]:
        return None
    rounding, flush = _rounding(op), bool(op.take("ftz"))
    run = _on_words("f32", lambda *values: function(*values, rounding, flush))
    return Meaning(("f32x2",) * count, ("f32x2",), on_halves(run, "f32x2"))


def _mixed_formats(op: Opcode, count: int, function: Callable[..., np.ndarray]) -> Meaning | None:
    """add, sub and fma of fp32 whose operands but the last are fp16 or bf16, widened without rounding (sm_100)."""
    if len(op.types) != 2 or op.types[0] != "f32" or op.types[1] not in _NARROW:
        return None
    rounding, narrow = _rounding(op), op.types[1]
    if op.take("sat"):
        raise UnknownOpcode(f"{op.text}: .sat is not executed here")

    def run(*words: Words) -> Words:
        operands = [widen_words(each, narrow).astype(np.float32) for each in words[:-1]]
        return function(*operands, words[-1].view(np.float32), rounding, False).view(np.uint32)

    return Meaning((*[narrow] * (count - 1), "f32"), ("f32",), run)


# -- arithmetic ------------------------------------------------------------------------------------------------------------
@opcode("add")
def add(op: Opcode) -> Meaning | None:
    return (_mixed_formats(op, 2, fp32.add) or _of_format(op, 2, {"f32": fp32.add, "f64": fp64.add}) or _pairs(op, 2, fp32.add)
            or _narrow(op, 2, lambda a, b: a + b))  # fmt: skip


@opcode("sub")
def subtract(op: Opcode) -> Meaning | None:
    negate_and_add = lambda a, b, *how: fp32.add(a, -b, *how)
    return (_mixed_formats(op, 2, negate_and_add) or _of_format(op, 2, {"f32": negate_and_add, "f64": fp64.subtract})
            or _pairs(op, 2, negate_and_add) or _narrow(op, 2, lambda a, b: a - b))  # fmt: skip


@opcode("mul")
def multiply(op: Opcode) -> Meaning | None:
    return (_of_format(op, 2, {"f32": fp32.multiply, "f64": fp64.multiply}) or _pairs(op, 2, fp32.multiply)
            or _narrow(op, 2, lambda a, b: a * b))  # fmt: skip


@opcode("fma", "mad")
def fused_multiply_add(op: Opcode) -> Meaning | None:
    if op.kind == "mad" and _float(op) is None:
        return None
    return (_mixed_formats(op, 3, fp32.fma) or _of_format(op, 3, {"f32": fp32.fma, "f64": fp64.fma}) or _pairs(op, 3, fp32.fma)
            or _narrow(op, 3, _fused_multiply_add))  # fmt: skip


@opcode("div")
def divide(op: Opcode) -> Meaning | None:
    if op.text in INSTRUCTIONS:
        return _approximate(op, 2)
    return _of_format(op, 2, {"f32": fp32.divide, "f64": fp64.divide})


@opcode("sqrt")
def square_root(op: Opcode) -> Meaning | None:
    if op.text in INSTRUCTIONS:
        return _approximate(op, 1)
    return _of_format(op, 1, {"f32": fp32.sqrt, "f64": fp64.sqrt})


@opcode("rcp")
def reciprocal(op: Opcode) -> Meaning | None:
    if op.text in INSTRUCTIONS:
        return _approximate(op, 1)
    return _of_format(op, 1, {"f32": fp32.reciprocal, "f64": fp64.reciprocal})


@opcode("ex2", "lg2", "rsqrt", "sin", "cos", "tanh")
def approximate(op: Opcode) -> Meaning | None:
    return _approximate(op, 1) if op.text in INSTRUCTIONS else None


def _approximate(op: Opcode, count: int) -> Meaning:
    op.modifiers.clear()
    return Meaning((op.type,) * count, (op.type,), INSTRUCTIONS[op.text])


# -- sign, extremes, comparison --------------------------------------------------------------------------------------------
def _flush_subnormals(words: Words, flush: bool) -> Words:
    return fp32.flush_subnormals(words.view(np.float32)).view(np.uint32) if flush else words


@opcode("neg", "abs")
def sign(op: Opcode) -> Meaning | None:
    """A bit, but for NaN, which PTX leaves open: an H100 gives the canonical one, of f64 the operand's own, made quiet. `neg.f32`
    is a bit for NaN too, as in libdevice, where it is folded into what takes it; by itself it gives the canonical one."""
    kind = op.types[0] if len(op.types) == 1 else ""
    single, flush = _PACKED_TYPES.get(kind, kind), bool(op.take("ftz"))
    if single not in _SIGN:
        return None
    top = _SIGN[single]
    infinity = _INFINITY[single]

    def change(words: Words) -> Words:
        changed_words = words ^ top if op.kind == "neg" else words & ~top
        nan = (words & ~top) > infinity
        if op.kind == "neg" and single == "f32":
            return changed_words
        return np.where(nan, words | _QUIET if single == "f64" else ~top, changed_words) if nan.any() else changed_words

    if flush and single == "f32":
        return Meaning((kind,), (kind,), on_halves(lambda a: change(_flush_subnormals(a, True)), kind))
    if flush:
        return Meaning((kind,), (kind,), on_halves(lambda a: change(_flush_narrow(a)), kind))
    return Meaning((kind,), (kind,), on_halves(change, kind))


@opcode("copysign")
def copy_sign(op: Opcode) -> Meaning | None:
    kind = _float(op)
    if kind is None:
        return None
    top = _SIGN[kind]
    return Meaning((kind, kind), (kind,), lambda a, b: a & top | b & ~top)


@opcode("min", "max")
def extremes(op: Opcode) -> Meaning | None:
    """+0 is above -0. Of a NaN and a number the number, or with .NaN the NaN; .xorsign: of sizes, with the product's sign."""
    kind = op.types[0] if len(op.types) == 1 else ""
    single = _PACKED_TYPES.get(kind, kind)
    if single not in _SIGN or kind == "f32x2":
        return None
    flush, keep, largest = bool(op.take("ftz")), bool(op.take("NaN")), op.kind == "max"
    by_size = single != "f64" and "xorsign" in op.modifiers and bool(op.take("abs") and op.take("xorsign"))

    def run(a: Words, b: Words) -> Words:
        if flush:
            a, b = (_flush_subnormals(each, True) if single == "f32" else _flush_narrow(each) for each in (a, b))
        x, y = (each.view(_VIEWS[single]) if single in _VIEWS else widen_words(each, single) for each in (a, b))
        if largest:
            takes_first = (x > y) | ((x == y) & ~np.signbit(x))
        else:
            takes_first = (x < y) | ((x == y) & np.signbit(x))
        if not keep:
            takes_first = takes_first | np.isnan(y)
        chosen_words = np.where(takes_first, a, b)
        is_nan = (np.isnan(x) | np.isnan(y)) if keep else np.isnan(x) & np.isnan(y)
        return np.where(is_nan, b | _QUIET if single == "f64" else _NAN[single], chosen_words)

    def run_by_size(a: Words, b: Words) -> Words:
        top = _SIGN[single]
        words = run(a & ~top, b & ~top)
        return np.where(words > _INFINITY[single], words, words | (a ^ b) & top)

    return Meaning((kind, kind), (kind,), on_halves(run_by_size if by_size else run, kind))


_NAN: dict[str, Any] = {"f32": np.uint32(0x7FFFFFFF), "f16": np.uint16(0x7FFF), "bf16": np.uint16(0x7FFF)}


def _comparison(name: str) -> Callable[[np.ndarray, np.ndarray], np.ndarray] | None:
    """lt and its like are false for a NaN, ltu and its like true; nan and num ask for one."""
    if name == "num":
        return lambda a, b: ~(np.isnan(a) | np.isnan(b))
    if name == "nan":
        return lambda a, b: np.isnan(a) | np.isnan(b)
    if name == "ne":
        return lambda a, b: (a != b) & ~(np.isnan(a) | np.isnan(b))
    if name in COMPARISONS:
        return COMPARISONS[name]
    if name.removesuffix("u") in COMPARISONS:
        compare = COMPARISONS[name.removesuffix("u")]
        return lambda a, b: compare(a, b) | np.isnan(a) | np.isnan(b)
    return None


@opcode("setp")
def compare_halves(op: Opcode) -> Meaning | None:
    """Of f16x2 and bf16x2: a predicate for the low halves and one for the high ones."""
    kind = op.types[0]
    if len(op.types) != 1 or _PACKED_TYPES.get(kind) not in _NARROW:
        return None
    single = compare(Opcode(op.text.replace(kind, _PACKED_TYPES[kind])))
    if single is None:
        return None

    def of_half(by: int) -> Callable[..., Words]:
        return lambda a, b, *c: single.compute(*((word >> np.uint32(by)).astype(np.uint16) for word in (a, b)), *c)

    op.modifiers.clear()  # `compare` has accounted for them
    return Meaning((kind, kind, *single.reads[2:]), ("pred", "pred"), of_half(0), of_half(16))


@opcode("setp")
def compare(op: Opcode) -> Meaning | None:
    kind = _float(op, *_NARROW)
    if kind is None or not op.modifiers:
        return None
    compute = _comparison(op.modifiers.pop(0))
    if compute is None:
        return None
    flush = bool(op.take("ftz"))

    def run(a: Words, b: Words) -> Words:
        if kind in _NARROW:
            a, b = (_flush_narrow(each) for each in (a, b)) if flush else (a, b)
            return compute(widen_words(a, kind), widen_words(b, kind))
        return compute(*(_flush_subnormals(each, flush).view(_VIEWS[kind]) for each in (a, b)))

    return meaning_of_setp(op, kind, run)


@opcode("set")
def compare_to_words(op: Opcode) -> Meaning | None:
    """1.0, or all ones of an integer, where the comparison holds, else 0 (PTX ISA 9.7.7.1); of each half of a packed type."""
    if len(op.types) != 2 or not op.modifiers:
        return None
    result, kind = op.types
    single, is_packed = _PACKED_TYPES.get(kind, kind), kind in _PACKED_TYPES
    compute = _comparison(op.modifiers.pop(0))
    if compute is None or single not in (*_NARROW, "f32") or (is_packed and result != kind) or kind == "f32x2":
        return None
    flush = bool(op.take("ftz"))
    true_word = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}.get(_PACKED_TYPES.get(result, result), (1 << bits(result)) - 1)
    dtype = DTYPES[bits(single) if is_packed else bits(result)]

    def run(a: Words, b: Words) -> Words:
        if single == "f32":
            values = [_flush_subnormals(words, flush).view(np.float32) for words in (a, b)]
        else:
            values = [widen_words(_flush_narrow(words) if flush else words, single) for words in (a, b)]
        return np.where(compute(*values), dtype.type(true_word), dtype.type(0))

    return Meaning((kind, kind), (result,), on_halves(run, kind) if is_packed else run)


@opcode("testp")
def test_property(op: Opcode) -> Meaning | None:
    kind = _float(op)
    property_name = op.take("finite", "infinite", "number", "notanumber", "normal", "subnormal")
    if kind is None or not property_name:
        return None
    least = np.finfo(_VIEWS[kind]).smallest_normal
    tests: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "finite": np.isfinite, "infinite": np.isinf, "number": lambda x: ~np.isnan(x), "notanumber": np.isnan,
        "normal": lambda x: np.isfinite(x) & (np.abs(x) >= least), "subnormal": lambda x: (x != 0) & (np.abs(x) < least),
    }  # fmt: skip
    return Meaning((kind,), ("pred",), lambda a: tests[property_name](a.view(_VIEWS[kind])))

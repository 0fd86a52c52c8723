"""The conversions of PTX: `cvt` in its many forms (PTX ISA 9.7.9.22).

Of a float to an integer: clamped to the range of the integer; NaN gives 0, or the lowest signed number where the source is fp64
or the integer has 64 bits (as PTX ISA has it). Narrow formats are those of `reference.formats`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bitverdict.harness.emulator.ptx.floats import widen_words, words_of_narrow_values
from bitverdict.harness.emulator.ptx.opcodes import DTYPES, Meaning, Opcode, UnknownOpcode, Words, bits, opcode, view_of_type
from bitverdict.reference.formats import FORMATS, Overflow, decode, encode
from bitverdict.reference.formats import Rounding as FormatRounding
from bitverdict.reference.scalar_arithmetic import fp32, fp64
from bitverdict.reference.scalar_arithmetic.exact import Rounding, round_to_odd, step_result, two_sum

_FLOATS = ("f16", "bf16", "f32", "f64")
_NARROW_PAIRS = {"e4m3x2": "e4m3", "e5m2x2": "e5m2", "e2m1x2": "e2m1", "e2m3x2": "e2m3", "e3m2x2": "e3m2"}
_PAIRS = {"f16x2": "f16", "bf16x2": "bf16"}
_INTEGER_ROUNDINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "rni": np.rint,
    "rzi": np.trunc,
    "rmi": np.floor,
    "rpi": np.ceil,
}


def values(words: Words, kind: str, flush: bool = False) -> np.ndarray:
    """Exact float64 values of words of a float type; `flush` makes fp32 subnormals zero."""
    if kind == "f64":
        return words.view(np.float64)
    if kind == "f32":
        single = words.view(np.float32)
        return (fp32.flush_subnormals(single) if flush else single).astype(np.float64)
    return widen_words(words, kind)


def words_of(exact: np.ndarray, kind: str, rounding: Rounding = "rn", flush: bool = False) -> Words:
    """Words of a float type for float64 values that are exact or rounded to odd. fp64 must be exact."""
    if kind == "f64":
        return exact.view(np.uint64)
    if kind == "f32":
        return fp32.convert_from_fp64(exact, rounding, flush).view(np.uint32)
    if rounding == "rn":
        return words_of_narrow_values(exact, kind)
    how = {"rz": FormatRounding.TOWARD_ZERO, "rm": FormatRounding.TOWARD_NEGATIVE, "rp": FormatRounding.TOWARD_POSITIVE}[rounding]
    name = {"f16": "fp16", "bf16": "bf16"}[kind]
    return np.where(np.isnan(exact), np.uint16(0x7FFF), encode(FORMATS[name], exact, rounding=how).astype(np.uint16))


@opcode("cvta")
def local_address(op: Opcode) -> Meaning | None:
    """Of a local variable the generic address is the local one."""
    op.take("to")
    return Meaning((op.type,), (op.type,), lambda a: a) if op.take("local") else None


@opcode("cvt")
def between_integers(op: Opcode) -> Meaning | None:
    if len(op.types) != 2 or any(kind[0] not in "su" for kind in op.types):
        return None
    target, source = op.types
    as_source, saturates = view_of_type(source), bool(op.take("sat"))
    width = bits(target)
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if target.startswith("s") else (0, (1 << width) - 1)

    def compute(a: Words) -> Words:
        numbers = as_source(a)
        if saturates:
            limits = np.iinfo(numbers.dtype)
            numbers = np.clip(numbers, max(low, limits.min), min(high, limits.max))
        return numbers.astype(DTYPES[width])

    return Meaning((source,), (target,), compute)


@opcode("cvt")
def from_integer(op: Opcode) -> Meaning | None:
    if len(op.types) != 2 or op.types[0] not in _FLOATS or op.types[1][0] not in "su":
        return None
    target, source = op.types
    rounding: Rounding = op.take("rn", "rz", "rm", "rp") or "rn"  # type: ignore[assignment]
    as_source = view_of_type(source)

    def compute(a: Words) -> Words:
        if bits(source) < 64:
            return words_of(as_source(a).astype(np.float64), target, rounding)
        low = (a & np.uint64(0xFFFFFFFF)).astype(np.float64)
        total, error = two_sum((as_source(a) >> as_source(a).dtype.type(32)).astype(np.float64) * 2.0**32, low)
        if target == "f64":
            return step_result(total, error, rounding).view(np.uint64)
        return words_of(round_to_odd(total, error), target, rounding)

    return Meaning((source,), (target,), compute)


@opcode("cvt")
def to_integer(op: Opcode) -> Meaning | None:
    if len(op.types) != 2 or op.types[0][0] not in "su" or op.types[1] not in _FLOATS:
        return None
    target, source = op.types
    way = op.take(*_INTEGER_ROUNDINGS)
    if not way:
        return None
    op.take("sat")  # it is clamped in any case
    flush, round_to_integer, width = bool(op.take("ftz")), _INTEGER_ROUNDINGS[way], bits(target)
    is_signed = target.startswith("s")
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if is_signed else (0, (1 << width) - 1)
    nan_result = 1 << width - 1 if source == "f64" or width == 64 else 0
    storage = np.dtype(f"{'i' if is_signed else 'u'}{width // 8}")

    def compute(a: Words) -> Words:
        with np.errstate(all="ignore"):
            real = values(a, source, flush)
            nan = np.isnan(real)
            real = round_to_integer(np.where(nan, 0.0, real))
            inside = np.maximum(real, float(low))
            clamped_words = np.where(
                inside >= float(high), storage.type(high), np.where(inside >= float(high), 0.0, inside).astype(storage)
            )
        return np.where(nan, DTYPES[width].type(nan_result), clamped_words.view(DTYPES[width]))

    return Meaning((source,), (target,), compute)


@opcode("cvt")
def between_floats(op: Opcode) -> Meaning | None:
    if len(op.types) != 2 or any(kind not in _FLOATS for kind in op.types):
        return None
    target, source = op.types
    way = op.take(*_INTEGER_ROUNDINGS)
    rounding: Rounding = op.take("rn", "rz", "rm", "rp") or "rn"  # type: ignore[assignment]
    flush, saturates, positive = (bool(op.take(name)) for name in ("ftz", "sat", "relu"))

    def compute(a: Words) -> Words:
        with np.errstate(all="ignore"):
            real = values(a, source, flush)
            if way:
                real = np.copysign(_INTEGER_ROUNDINGS[way](real), real)
            if positive:
                real = np.where(real > 0, real, np.where(np.isnan(real), real, 0.0))
            if saturates:
                real = np.where(real > 0, np.minimum(real, 1.0), 0.0)
            found = words_of(real, target, rounding, flush and target == "f32")
            if source == "f64" and target == "f32":  # of fp64 alone a NaN keeps its sign and payload
                found = np.where(np.isnan(real), fp64.to_fp32(real).view(np.uint32), found)
            return found

    return Meaning((source,), (target,), compute)


@opcode("cvt")
def to_pairs(op: Opcode) -> Meaning | None:
    """cvt.rn.f16x2.f32 d, a, b and its like: a becomes the upper half."""
    if len(op.types) != 2 or op.types[1] != "f32" or op.types[0] not in (*_PAIRS, *_NARROW_PAIRS):
        return None
    target = op.types[0]
    rounding = op.take("rn", "rz", "rp")
    finite, positive = bool(op.take("satfinite")), bool(op.take("relu"))
    if target in _NARROW_PAIRS and not finite:
        return None
    single = _half(target, rounding or "rn", finite)
    half = bits(target) // 2

    def compute(a: Words, b: Words) -> Words:
        a, b = np.broadcast_arrays(a, b)
        whole: Any = DTYPES[bits(target)]
        upper, lower = (single(_positive(each.view(np.float32), positive)).astype(whole) for each in (a, b))
        return upper << whole.type(half) | lower

    return Meaning(("f32", "f32"), (target,), compute)


def _positive(real: np.ndarray, only: bool) -> np.ndarray:
    """`.relu`: what is negative becomes +0; NaN stays."""
    return np.where((real > 0) | np.isnan(real), real, np.float32(0)) if only else real


def _half(target: str, rounding: str, finite: bool) -> Callable[[np.ndarray], np.ndarray]:
    """Codes of one half of a packed type, for float arrays."""
    how = {"rn": FormatRounding.NEAREST_EVEN, "rz": FormatRounding.TOWARD_ZERO, "rp": FormatRounding.TOWARD_POSITIVE}[rounding]
    name = _NARROW_PAIRS.get(target) or {"f16x2": "fp16", "bf16x2": "bf16"}[target]
    overflow = Overflow.SATURATE if finite else Overflow.INFINITY
    return lambda real: encode(FORMATS[name], real, rounding=how, overflow=overflow)


@opcode("cvt")
def to_scales(op: Opcode) -> Meaning | None:
    """cvt.rp.satfinite.ue8m0x2.f32 d, a, b, and of bf16x2: the exponent of each magnitude, upwards where .rp and it is no power of
    two (2^-127 is 0). Infinity, and what is rounded beyond 2^127, is NaN (0xff), or with .satfinite 2^127. NaN stays. CUDA's own
    definition for GPUs without the instruction (cuda_fp8.hpp, `__nv_cvt_bfloat16raw_to_e8m0`); no sm_100 was asked."""
    if len(op.types) != 2 or op.types[0] != "ue8m0x2" or op.types[1] not in ("f32", "bf16x2"):
        return None
    rounding, finite = op.take("rz", "rp"), bool(op.take("satfinite"))
    if not rounding:
        return None

    def scale(bits32: Words) -> Words:
        """(...) uint16 code of fp32 words."""
        magnitude = bits32 & np.uint32(0x7FFFFFFF)
        code = magnitude >> np.uint32(23)
        if rounding == "rp":
            up = (magnitude & np.uint32(0x7FFFFF) != 0) & (magnitude > np.uint32(1 << 22)) & (magnitude < np.uint32(0x7F800000))
            code = code + up
        if finite:
            code = np.where((code == 0xFF) & (magnitude <= np.uint32(0x7F800000)), 0xFE, code)
        return code.astype(np.uint16)

    def of_pair(a: Words) -> Words:
        return scale(a & np.uint32(0xFFFF0000)) << np.uint16(8) | scale(a << np.uint32(16))

    if op.types[1] == "bf16x2":
        return Meaning(("bf16x2",), ("ue8m0x2",), of_pair)

    def of_two(a: Words, b: Words) -> Words:
        a, b = np.broadcast_arrays(a, b)
        return scale(a) << np.uint16(8) | scale(b)

    return Meaning(("f32", "f32"), ("ue8m0x2",), of_two)


@opcode("cvt")
def small_to_pairs(op: Opcode) -> Meaning | None:
    """cvt.rn.f16x2.e4m3x2 and its like: exact."""
    if len(op.types) != 2 or op.types[0] not in _PAIRS or op.types[1] not in _NARROW_PAIRS:
        return None
    target, source = op.types
    op.take("rn")
    positive, single, half = bool(op.take("relu")), _PAIRS[target], bits(source) // 2

    def compute(a: Words) -> Words:
        mask = (1 << half) - 1
        halves = [a & a.dtype.type(mask), a >> a.dtype.type(half)]
        low, high = (
            words_of_narrow_values(_real(decode(FORMATS[_NARROW_PAIRS[source]], each.astype(np.uint8)), positive), single)
            for each in halves
        )
        return low.astype(np.uint32) | high.astype(np.uint32) << np.uint32(16)

    return Meaning((source,), (target,), compute)


def _real(found: np.ndarray, positive: bool) -> np.ndarray:
    return np.where((found > 0) | np.isnan(found), found, 0.0) if positive else found


@opcode("cvt")
def pairs_to_small(op: Opcode) -> Meaning | None:
    """cvt.rn.satfinite.e4m3x2.f16x2."""
    if len(op.types) != 2 or op.types[0] not in _NARROW_PAIRS or op.types[1] not in _PAIRS or not op.take("satfinite"):
        return None
    target, source = op.types
    single = _half(target, op.take("rn", "rz", "rp") or "rn", True)
    positive, half = bool(op.take("relu")), bits(target) // 2

    def compute(a: Words) -> Words:
        halves = [(a & np.uint32(0xFFFF)).astype(np.uint16), (a >> np.uint32(16)).astype(np.uint16)]
        whole: Any = DTYPES[bits(target)]
        low, high = (single(_real(widen_words(each, _PAIRS[source]), positive)).astype(whole) for each in halves)
        return low | high << whole.type(half)

    return Meaning((source,), (target,), compute)


@opcode("cvt")
def to_tf32(op: Opcode) -> Meaning | None:
    if op.types != ["tf32", "f32"]:
        return None
    how = {"rna": FormatRounding.NEAREST_AWAY, "rn": FormatRounding.NEAREST_EVEN, "rz": FormatRounding.TOWARD_ZERO}
    rounding = op.take(*how)
    if not rounding or op.take("relu"):
        raise UnknownOpcode(f"{op.text} is not executed here")
    overflow = Overflow.SATURATE if op.take("satfinite") else Overflow.INFINITY
    return Meaning(
        ("f32",), ("b32",), lambda a: encode(FORMATS["tf32"], a.view(np.float32), rounding=how[rounding], overflow=overflow)
    )

"""Floating-point operations whose lowering rounds once, but for sums (`sums`)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bitverdict.harness.emulator.faults import EmulatedFault
from bitverdict.harness.emulator.frontend.translator import NotModelled, Translator, lowers
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.numerics.scalar_ops import (
    binary,
    canonical,
    convert_float,
    float_from_int,
    flush_subnormals,
    fma,
    int_from_float,
    narrow,
    narrow_fma,
    negative,
    toward_zero,
    widen,
)
from bitverdict.reference.formats.convert import conversion
from bitverdict.reference.scalar_arithmetic import fp64

# arith.cmpf: false oeq ogt oge olt ole one ord ueq ugt uge ult ule une uno true
_COMPARE = {1: np.equal, 2: np.greater, 3: np.greater_equal, 4: np.less, 5: np.less_equal, 13: np.not_equal}


@lowers("arith.mulf")
def multiply(t: Translator, op: Operation) -> None:
    t.call(op, binary(np.multiply, t.result(op).format))


@lowers("math.fma")
def lower_fma(t: Translator, op: Operation) -> None:
    kind = t.result(op)
    if kind.format in ("fp16", "bf16"):
        t.call(op, narrow_fma(kind.format))
    elif kind.element == "f32":
        t.call(op, fma)
    elif kind.element == "f64":
        t.call(op, fp64.fma)
    else:
        raise NotModelled(op, f"on {kind.element}")


@lowers("arith.negf")
def negate(t: Translator, op: Operation) -> None:
    t.call(op, negative(t.result(op).format))


@lowers("math.absf")
def magnitude(t: Translator, op: Operation) -> None:
    kind = t.result(op)
    if kind.element in ("f32", "f64"):
        t.call(op, np.abs)
    else:
        top = kind.dtype.type(1 << (kind.bits - 1))
        t.call(op, lambda a: a & ~top)


@lowers("arith.cmpf")
def compare(t: Translator, op: Operation) -> None:
    predicate, fmt = op.integer("predicate"), t.operand(op, 0).format

    def run(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return outcome(predicate, *((a, b) if fmt == "fp32" else (widen(a, fmt), widen(b, fmt))))

    t.call(op, run)


def outcome(predicate: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The comparison `predicate` of arith.cmpf of two floats."""
    if predicate in _COMPARE:
        return _COMPARE[predicate](a, b)
    has_nan = np.isnan(a) | np.isnan(b)
    if predicate in (7, 14):
        return ~has_nan if predicate == 7 else has_nan
    if predicate in (0, 15):
        return np.full(has_nan.shape, predicate == 15)
    if predicate == 6:
        return np.not_equal(a, b) & ~has_nan
    return _COMPARE[predicate - 7](a, b) | has_nan


@lowers("arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf")
def extremes(t: Translator, op: Operation) -> None:
    """max.f32 and min.f32, with .NaN for the *imum forms (PTX ISA 9.7.3.11); +0 is above -0."""
    t.call(op, extremum(t.result(op).format, keep_nan=op.name.endswith("imumf"), largest="max" in op.name))


def extremum(fmt: str | None, *, keep_nan: bool, largest: bool) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """The larger or the smaller of two floats in the format `fmt`."""
    if fmt == "fp32":
        return lambda a, b: _extreme_of_fp32(np.asarray(a), np.asarray(b), largest=largest, keep_nan=keep_nan)
    return lambda a, b: narrow(_extreme(widen(a, fmt), widen(b, fmt), largest=largest, keep_nan=keep_nan), fmt)


def _extreme_of_fp32(x: np.ndarray, y: np.ndarray, *, largest: bool, keep_nan: bool) -> np.ndarray:
    """As `_extreme`, of float32: NumPy's own, which leaves the sign of zero open."""
    run = (np.maximum if keep_nan else np.fmax) if largest else (np.minimum if keep_nan else np.fmin)
    found = canonical(run(x, y))
    zeros = (x == 0) & (y == 0)
    if zeros.any():
        join = np.bitwise_and if largest else np.bitwise_or
        found = np.where(zeros, join(x.view(np.uint32), y.view(np.uint32)).view(np.float32), found)
    return found


def _extreme(x: np.ndarray, y: np.ndarray, *, largest: bool, keep_nan: bool) -> np.ndarray:
    """The larger or the smaller of two float64; a NaN is left out unless both are, or kept."""
    chosen = (x > y) | ((x == y) & ~np.signbit(x)) if largest else (x < y) | ((x == y) & np.signbit(x))
    found = np.where(chosen, x, y)
    if keep_nan:
        return np.where(np.isnan(x) | np.isnan(y), np.nan, found)
    return fp64.with_nan(np.where(np.isnan(x), y, np.where(np.isnan(y), x, found)), y)


_TOWARD_ZERO, _NEAREST_EVEN = "0", "1"  # of tt.fp_to_fp (TritonAttrDefs)
_OVERFLOW = (
    "arith.truncf", "arith.addf", "arith.subf", "arith.mulf", "arith.divf", "arith.sitofp", "arith.uitofp", "math.", "tt.dot",
    "tt.reduce", "tt.scan", "tt.fp_to_fp", "tt.precise_", "tt.extern_elementwise",
)  # fmt: skip
"""How operations begin whose results may be larger than fp16's largest number."""


@lowers("arith.truncf", "arith.extf", "tt.fp_to_fp")
def convert(t: Translator, op: Operation) -> None:
    source, target = t.operand(op, 0), t.result(op)
    rounding = op.attributes.get("rounding", op.attributes.get("roundingmode", _NEAREST_EVEN)).split(" ")[0]
    if source.bits > target.bits and rounding != _NEAREST_EVEN:
        if (
            rounding != _TOWARD_ZERO or op.name != "tt.fp_to_fp" or source.element != "f32" or target.element == "f8E4M3FN"
        ):  # the compiler has no other
            raise NotModelled(op, f"rounding {rounding} from {source.element} to {target.element}")
        t.call(op, toward_zero(target.format or ""))
        return
    if target.element == "f64":
        t.call(op, lambda a: widen(a, source.format))
        return
    if source.element == "f64":
        if target.bits == 8:
            raise NotModelled(op, f"from f64 to {target.element}")
        t.call(op, fp64.to_fp32 if target.format == "fp32" else lambda a: narrow(a, target.format))
        return
    if source.format is None or target.format is None:
        raise NotModelled(op, f"from {source.element} to {target.element}")
    if t.backend.narrows_through_fp16 and target.bits == 8:
        _nothing_overflows_in_fp16(t, op)
    if t.backend.refuses_missing_conversions and source.format != target.format:
        _there_is_a_conversion(t, op, source.format, target.format)
    t.call(op, convert_float(source.format, target.format, t.arch))


def _there_is_a_conversion(t: Translator, op: Operation, source: str, target: str) -> None:
    """A conversion that the target has not, between two kinds of fp8 for one, passes the verifier; what follows refuses it."""
    try:
        conversion(source, target, t.arch)
    except ValueError as error:
        raise EmulatedFault("refused", str(error), op.location, {"operation": op.brief, "layer": "ptxas"}) from error


def _nothing_overflows_in_fp16(t: Translator, op: Operation) -> None:
    """Where a program converts to fp8, Triton sets a mode (FP16_OVFL, CDNA3 ISA, "MODE register") in which fp16 has no overflow."""
    for other in t.program.operations():
        made = {each.element for each in other.outputs if each is not None}
        if "f16" in made and other.name.startswith(_OVERFLOW):
            raise NotModelled(op, f"to fp8 in a program that has {other.name} of f16: the mode for fp8 changes its overflow")


@lowers("arith.sitofp", "arith.uitofp")
def from_integer(t: Translator, op: Operation) -> None:
    source, target = t.operand(op, 0), t.result(op)
    if target.bits == 8:
        raise NotModelled(op, f"from {source.element} to {target.element}")
    t.call(op, float_from_int(source.bits, target.format, t.arch, is_signed=op.name == "arith.sitofp"))


@lowers("arith.fptosi", "arith.fptoui")
def to_integer(t: Translator, op: Operation) -> None:
    source, target = t.operand(op, 0), t.result(op)
    run = int_from_float(source.format, target.bits, is_signed=op.name == "arith.fptosi")
    t.call(op, (lambda a: int(run(a))) if target.kind == "scalar" else run)


@lowers("tt.precise_divf", "tt.precise_sqrt")
def correctly_rounded(t: Translator, op: Operation) -> None:
    """div.rn.f32 and sqrt.rn.f32 round once, as NumPy does."""
    if t.result(op).element != "f32":
        raise NotModelled(op, f"on {t.result(op).element}")
    run = np.divide if op.name == "tt.precise_divf" else np.sqrt
    t.call(op, lambda *values: canonical(run(*values)))


@lowers("math.floor", "math.ceil")
def round_to_integer(t: Translator, op: Operation) -> None:
    """cvt.rmi.ftz and cvt.rpi.ftz: libdevice's, compiled to flush unless the launch asks for the other. fp64 is never flushed."""
    run = np.floor if op.name == "math.floor" else np.ceil
    if t.result(op).element == "f64":
        t.call(op, lambda a: fp64.with_nan(run(a), a))
    elif t.result(op).element == "f32":
        t.call(op, (lambda a: canonical(run(flush_subnormals(a)))) if t.flushes else lambda a: canonical(run(a)))
    else:
        raise NotModelled(op, f"on {t.result(op).element}")


@lowers("tt.clampf")
def clamp(t: Translator, op: Operation) -> None:
    """min(max(x, low), high) by the instructions of `extremes`; NaN gives the bound unless it propagates."""
    fmt, keep_nan = t.result(op).format, op.integer("propagateNan") != 0
    if keep_nan and fmt is None:
        raise NotModelled(op, "that keeps NaN, on f64, which has no such instruction")

    def run(x: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        raised = _extreme(widen(x, fmt), widen(low, fmt), largest=True, keep_nan=keep_nan)
        return narrow(_extreme(raised, widen(high, fmt), largest=False, keep_nan=keep_nan), fmt)

    t.call(op, run)

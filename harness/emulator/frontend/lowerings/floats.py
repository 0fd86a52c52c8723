"""Floating-point operations whose lowering rounds once, but for sums (`sums`)."""

from __future__ import annotations

import numpy as np

from bitverdict.harness.emulator.frontend.translate import NotModelled, Translator, lowers
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.numerics.scalar_ops import (
    binary,
    canonical,
    convert_float,
    float_from_int,
    flushed,
    fma,
    int_from_float,
    narrow,
    narrow_fma,
    negative,
    widen,
)

# arith.cmpf: false oeq ogt oge olt ole one ord ueq ugt uge ult ule une uno true
_COMPARE = {1: np.equal, 2: np.greater, 3: np.greater_equal, 4: np.less, 5: np.less_equal, 13: np.not_equal}


@lowers("arith.mulf")
def multiply(t: Translator, op: Operation) -> None:
    t.call(op, binary(np.multiply, t.result(op).format))


@lowers("math.fma")
def fused(t: Translator, op: Operation) -> None:
    kind = t.result(op)
    if kind.format in ("fp16", "bf16"):
        t.call(op, narrow_fma(kind.format))
    elif kind.element == "f32":
        t.call(op, fma)
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
        a, b = (a, b) if fmt == "fp32" else (widen(a, fmt), widen(b, fmt))
        if predicate in _COMPARE:
            return _COMPARE[predicate](a, b)
        neither = np.isnan(a) | np.isnan(b)
        if predicate in (7, 14):
            return ~neither if predicate == 7 else neither
        if predicate in (0, 15):
            return np.full(neither.shape, predicate == 15)
        if predicate == 6:
            return np.not_equal(a, b) & ~neither
        return _COMPARE[predicate - 7](a, b) | neither

    t.call(op, run)


@lowers("arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf")
def extremes(t: Translator, op: Operation) -> None:
    """max.f32 and min.f32, with .NaN for the *imum forms (PTX ISA 9.7.3.11); +0 is above -0."""
    fmt = t.result(op).format
    keep_nan, largest = op.name.endswith("imumf"), "max" in op.name

    def run(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        x, y = widen(a, fmt), widen(b, fmt)
        chosen = (x > y) | ((x == y) & ~np.signbit(x)) if largest else (x < y) | ((x == y) & np.signbit(x))
        found = np.where(chosen, x, y)
        found = (
            np.where(np.isnan(x) | np.isnan(y), np.nan, found)
            if keep_nan
            else np.where(np.isnan(x), y, np.where(np.isnan(y), x, found))
        )
        return narrow(found, fmt)

    t.call(op, run)


_NEAREST_EVEN = "1"  # of tt.fp_to_fp


@lowers("arith.truncf", "arith.extf", "tt.fp_to_fp")
def convert(t: Translator, op: Operation) -> None:
    source, target = t.operand(op, 0), t.result(op)
    rounding = op.attributes.get("rounding", op.attributes.get("roundingmode", _NEAREST_EVEN)).split(" ")[0]
    if source.bits > target.bits and rounding != _NEAREST_EVEN:  # TritonAttrDefs: 0 is RTZ; arith writes none but others
        raise NotModelled(op, f'rounding {rounding} (fp_downcast_rounding="rtz"): only rtne, to nearest even, is known')
    if source.format is None or target.format is None:
        if target.element == "f64":
            t.call(op, lambda a: widen(a, source.format))
            return
        raise NotModelled(op, f"from {source.element} to {target.element}")
    t.call(op, convert_float(source.format, target.format, t.arch))


@lowers("arith.sitofp", "arith.uitofp")
def from_integer(t: Translator, op: Operation) -> None:
    source, target = t.operand(op, 0), t.result(op)
    if target.format is None or target.bits == 8:
        raise NotModelled(op, f"from {source.element} to {target.element}")
    t.call(op, float_from_int(source.bits, target.format, t.arch, signed=op.name == "arith.sitofp"))


@lowers("arith.fptosi", "arith.fptoui")
def to_integer(t: Translator, op: Operation) -> None:
    source, target = t.operand(op, 0), t.result(op)
    run = int_from_float(source.format, target.bits, signed=op.name == "arith.fptosi")
    t.call(op, (lambda a: int(run(a))) if target.kind == "scalar" else run)


@lowers("tt.precise_divf", "tt.precise_sqrt")
def correctly_rounded(t: Translator, op: Operation) -> None:
    """div.rn.f32 and sqrt.rn.f32 round once, as NumPy does."""
    if t.result(op).element != "f32":
        raise NotModelled(op, f"on {t.result(op).element}")
    run = np.divide if op.name == "tt.precise_divf" else np.sqrt
    t.call(op, lambda *values: canonical(run(*values)))


@lowers("math.floor", "math.ceil")
def whole(t: Translator, op: Operation) -> None:
    """cvt.rmi.ftz and cvt.rpi.ftz: libdevice's, compiled to flush."""
    if t.result(op).element != "f32":
        raise NotModelled(op, f"on {t.result(op).element}")
    run = np.floor if op.name == "math.floor" else np.ceil
    t.call(op, lambda a: canonical(run(flushed(a))))


@lowers("tt.clampf")
def clamp(t: Translator, op: Operation) -> None:
    """min(max(x, low), high); NaN gives the bound unless it propagates."""
    if t.result(op).element != "f32":
        raise NotModelled(op, f"on {t.result(op).element}")
    propagate = op.integer("propagateNan") != 0
    if propagate:
        t.call(op, lambda x, low, high: canonical(np.minimum(np.maximum(x, low), high)))
    else:
        t.call(op, lambda x, low, high: canonical(np.fmin(np.fmax(x, low), high)))


@lowers("arith.divf")
def divide(t: Translator, op: Operation) -> None:
    raise NotModelled(op, "a division by div.full.f32, which does not round correctly; write tl.div_rn for one that does")

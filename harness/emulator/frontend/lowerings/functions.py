"""Functions that PTX has an approximate instruction for: exponentials, roots, quotients, and the remainder that is made of one.

What decides the bits is `bitverdict.reference.special_functions`: the instruction, and the sequence that ptxas makes of it. An
instruction of libdevice flushes subnormals (`.ftz`) unless the launch asks for `enable_reflect_ftz=False`. ptxas computes one of a
constant itself, and rounds it correctly: so the same division has other words where its divisor is a constant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from bitverdict.harness.emulator.frontend.lane_words import SPREAD
from bitverdict.harness.emulator.frontend.lowerings.amd_functions import divide_fp32, write_approximation
from bitverdict.harness.emulator.frontend.natural_loops import loop_of
from bitverdict.harness.emulator.frontend.translator import LOWERINGS, NotModelled, Translator, lowers
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.reference.scalar_arithmetic import fp64
from bitverdict.reference.special_functions import constant_division, sequences
from bitverdict.reference.special_functions.instructions import INSTRUCTIONS, division_factors

if TYPE_CHECKING:
    from bitverdict.harness.emulator.numerics.real_values import TileValue

_MOVES = ("tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "tt.unsplat", "ttg.convert_layout", SPREAD)


def on_values(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """`function` of fp32 words as one of values as the emulator holds them (float32, or a Python float)."""

    def run(*values: TileValue) -> np.ndarray:
        return function(*(np.asarray(each, np.float32).view(np.uint32) for each in values)).view(np.float32)

    return run


_exp, _divide, _remainder = on_values(sequences.exp), on_values(sequences.divide), on_values(sequences.remainder)
_divide_by_constant, _reciprocal_of_constant = (
    on_values(constant_division.divide),
    on_values(constant_division.divide_approximately),
)
_divide_approximately = on_values(INSTRUCTIONS["div.approx.f32"])


def _split(function: Callable[..., tuple[np.ndarray, np.ndarray]]) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    def run(a: TileValue, b: TileValue) -> tuple[np.ndarray, np.ndarray]:
        left, right = function(*(np.asarray(each, np.float32).view(np.uint32) for each in np.broadcast_arrays(a, b)))
        return left.view(np.float32), right.view(np.float32)

    return run


factors, factors_by_constant = _split(division_factors), _split(constant_division.factors)
"""Of dividend and divisor (float32): the two numbers whose product div.full.f32 is."""


@lowers("math.exp")
def exponential(t: Translator, op: Operation) -> None:
    """mul.f32 by log2(e), ex2.approx.f32; of fp64 libdevice's."""
    if not t.backend.has_function_words:
        write_approximation(t, op)
        return
    _run(t, op, _exp)


@lowers("math.exp2", "math.sqrt", "math.rsqrt")
def of_libdevice(t: Translator, op: Operation) -> None:
    """ex2, sqrt and rsqrt.approx.ftz.f32; of fp64 libdevice's exp2, sqrt.rn.f64 and rsqrt.approx.f64."""
    if not t.backend.has_function_words:
        write_approximation(t, op)
        return
    name = {"math.exp2": "ex2", "math.sqrt": "sqrt", "math.rsqrt": "rsqrt"}[op.name]
    if t.result(op).element == "f64" and name == "sqrt":
        t.call(op, fp64.sqrt)
    elif t.result(op).element == "f64" and name == "rsqrt":
        t.call(op, lambda a: INSTRUCTIONS["rsqrt.approx.f64"](np.asarray(a, np.float64).view(np.uint64)).view(np.float64))
    else:
        _run(t, op, on_values(INSTRUCTIONS[f"{name}.approx{'.ftz' if t.flushes else ''}.f32"]))


@lowers("arith.divf")
def quotient(t: Translator, op: Operation) -> None:
    """div.full.f32, div.rn.f64."""
    if t.result(op).element == "f64":
        t.call(op, fp64.divide)
        return
    if t.result(op).element != "f32":
        raise NotModelled(op, f"on {t.result(op).element}")
    if not t.backend.has_function_words:
        t.call(op, divide_fp32)
        return
    t.call(op, _divide_by_constant if folds(t, op, op.operands[1]) else _divide)


@lowers("tt.approx_divf")
def approximate_quotient(t: Translator, op: Operation) -> None:
    """div.approx.f32: what Triton makes of a division by a constant is its reciprocal, and a product."""
    if t.result(op).element != "f32" or not t.backend.has_function_words:
        raise NotModelled(op, f"on {t.result(op).element}")
    t.call(op, _reciprocal_of_constant if folds(t, op, op.operands[1]) else _divide_approximately)


@lowers("arith.remf")
def remainder(t: Translator, op: Operation) -> None:
    """div.rn.f32, cvt.rzi.f32.f32, fma.rn.f32, testp.infinite.f32, selp.f32; the same in fp64."""
    if t.result(op).element not in ("f32", "f64") or not t.backend.has_function_words:
        raise NotModelled(op, f"on {t.result(op).element}")
    t.call(op, _remainder if t.result(op).element == "f32" else _remainder_of_doubles)


def _remainder_of_doubles(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(np.isinf(b), a, fp64.fma(-np.trunc(fp64.divide(a, b)), b, a))


def _run(t: Translator, op: Operation, function: Callable) -> None:
    if t.result(op).element == "f64":
        LOWERINGS["tt.extern_elementwise"](t, op)
        return
    if t.result(op).element != "f32":
        raise NotModelled(op, f"on {t.result(op).element}")
    if folds(t, op, op.operands[0]):
        raise NotModelled(op, "of a constant, which ptxas computes itself")
    t.call(op, function)


def folds(t: Translator, op: Operation, name: str) -> bool:
    """Whether ptxas knows the value `name` that `op` takes: it is a constant. NotModelled where it may, once a loop is unrolled.

    What a loop carries out is known only where it is known how often the loop runs."""
    at: Operation | None = t.defined.get(name)
    while at is not None and at.name in _MOVES:
        at = t.defined.get(at.operands[0])
    if at is not None and at.name == "arith.constant":
        return True
    carried = carried_by_constants(t, name)
    if carried is None:
        return False
    for argument in carried:
        loop = loop_of(t.program, argument, op)
        if loop is not None and not loop.holds(op) and any(carried_by_constants(t, each) is None for each in loop.conditions):
            return False
    raise NotModelled(op, "of a number that the compiler knows once it has unrolled the loop; ptxas may compute it itself")


def carried_by_constants(t: Translator, name: str) -> list[str] | None:
    """The arguments of blocks through which the value `name` is computed of constants alone; None where it is of something else."""
    seen, worklist, carried_arguments = set[str](), [name], list[str]()
    while worklist:
        name = worklist.pop()
        if name in seen:
            continue
        seen.add(name)
        if (at := t.defined.get(name)) is not None:
            operands = [] if at.name == "arith.constant" else at.operands
            if not operands and at.name != "arith.constant":
                return None
        else:
            operands = t.incoming.get(name, [])
            if not operands:
                return None
            carried_arguments.append(name)
        worklist += operands
    return carried_arguments

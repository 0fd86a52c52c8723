"""Functions of floats: `math`'s, libdevice's, and what clamps."""

from __future__ import annotations

from collections.abc import Callable

from bitverdict.harness.emulator.frontend.carried_reals import CarriedReals, carries
from bitverdict.harness.emulator.frontend.lowerings.packed_arithmetic import ADD, FMA, LARGEST, LEAST, MULTIPLY, SUBTRACT
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.numerics import real_functions
from bitverdict.harness.emulator.numerics.real_assembly import RealAssembly
from bitverdict.harness.emulator.numerics.real_values import EXTREMES, Real, add, fma, multiply, subtract

_NAMES = ("exp", "exp2", "log", "log2", "sin", "cos", "erf", "rsqrt", "floor", "ceil")


@carries(*(f"math.{name}" for name in _NAMES))
def function(r: CarriedReals, op: Operation) -> None:
    r.hold(op, r.t.apply(real_functions.FUNCTIONS[op.name.removeprefix("math.")], *r.reals_of(op)))


@carries("arith.remf")
def remainder(r: CarriedReals, op: Operation) -> None:
    r.hold(op, r.t.apply(real_functions.remainder, *r.reals_of(op)))


_PACKED_FUNCTIONS: dict[int, Callable[..., Real]] = {
    ADD: add, SUBTRACT: subtract, MULTIPLY: multiply, FMA: fma,
    LEAST: EXTREMES["arith.minnumf"], LARGEST: EXTREMES["arith.maxnumf"],
}  # fmt: skip


@carries("ttng.packed_arith")
def carry_packed(r: CarriedReals, op: Operation) -> None:
    r.hold(op, r.t.apply(_PACKED_FUNCTIONS[op.integer("op_kind")], *r.reals_of(op)))


@carries("tt.clampf")
def clamp(r: CarriedReals, op: Operation) -> None:
    """The smaller of the upper bound and the larger of value and lower bound."""
    raised, cut = ("maximumf", "minimumf") if op.integer("propagateNan") else ("maxnumf", "minnumf")
    value, low, high = r.reals_of(op)
    found = r.t.apply(EXTREMES[f"arith.{raised}"], value, low)
    r.hold(op, r.t.apply(EXTREMES[f"arith.{cut}"], found, high))


@carries("tt.extern_elementwise")
def extern(r: CarriedReals, op: Operation) -> None:
    """A function of libdevice that is known by its symbol."""
    symbol = op.string("symbol")
    run = real_functions.libdevice_function(symbol)
    floats = [kind for kind in (*op.inputs, *op.outputs) if kind is not None and kind.is_float]
    if run is None or len(floats) != len(op.operands) + 1:
        r.lose_results(op, symbol)
    else:
        r.hold(op, r.t.apply(run, *r.reals_of(op)))


@carries("tt.elementwise_inline_asm")
def assembly(r: CarriedReals, op: Operation) -> None:
    """Instructions on whole floats, one after another; of any other form nothing is known."""
    kinds = (*op.inputs, *op.outputs)
    if op.integer("packed_element", 1) == 1 and all(kind is not None and kind.is_float and kind.bits >= 32 for kind in kinds):
        try:
            run = RealAssembly(op.string("asm_string"), len(op.results), len(op.operands))
        except ValueError:
            pass
        else:
            r.hold(op, r.t.apply(run, *r.reals_of(op)))
            return
    r.lose_results(op)

"""Atomic operations on global memory: one after another, in an order that the schedule draws over programs.

A sum of floats depends on that order; it is taken, and an advice says so.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from harness.emulator.arithmetic import binary
from harness.emulator.program import Operation
from harness.emulator.translate import NotModelled, Translator, lowers

_UNSIGNED = {4: np.dtype(np.uint32), 8: np.dtype(np.uint64)}


def _unsigned(function: Callable) -> Callable:
    def run(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        wide = _UNSIGNED[a.dtype.itemsize]
        return function(a.view(wide), b.view(wide)).view(a.dtype)

    return run


# RMWOp of TritonAttrDefs.td
_UPDATES: dict[int, Callable] = {
    1: np.bitwise_and,
    2: np.bitwise_or,
    3: np.bitwise_xor,
    4: np.add,
    6: np.maximum,
    7: np.minimum,
    8: _unsigned(np.maximum),
    9: _unsigned(np.minimum),
    10: lambda old, new: new,
}
_FADD = 5


@lowers("tt.atomic_rmw")
def update(t: Translator, op: Operation) -> None:
    kind, what = t.operand(op, 1), op.integer("atomic_rmw_op")
    if what == _FADD:
        function = binary(np.add, kind.format)
    elif what in _UPDATES and not (kind.is_float and what != 10):
        function = _UPDATES[what]
    else:
        raise NotModelled(op, f"update {what} on {kind.element}")
    pointer, value, *mask = (t.value(n) for n in op.operands)
    single = kind.kind == "scalar"
    t.check_vectors(op, pointer, mask[0] if mask else "None")
    t.emit(
        f"{t.target(op)}m.atomic({t.constant(op)}, {t.constant(function)}, {pointer}, {value}, {mask[0] if mask else 'None'}, "
        f"{t.constant(kind.dtype)}, {single}, {what == _FADD})"
    )


@lowers("tt.atomic_cas")
def compare_and_swap(t: Translator, op: Operation) -> None:
    kind = t.operand(op, 2)
    pointer, expected, value = (t.value(n) for n in op.operands)
    t.emit(
        f"{t.target(op)}m.compare_and_swap({t.constant(op)}, {pointer}, {expected}, {value}, {t.constant(kind.dtype)}, "
        f"{kind.kind == 'scalar'})"
    )

"""Atomic operations on global memory: one after another, in an order that the schedule draws over programs.

A sum of floats depends on that order; it is taken, and an advice says so.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bitverdict.harness.emulator.frontend.translate import NotModelled, Translator, lowers
from bitverdict.harness.emulator.memory.global_atomics import ROUNDS
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.mlir_types import Type
from bitverdict.harness.emulator.numerics.scalar_ops import binary

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
}
_FADD, _EXCHANGE = 5, 10


@lowers("tt.atomic_rmw")
def update(t: Translator, op: Operation) -> None:
    kind, what = t.operand(op, 1), op.integer("atomic_rmw_op")
    function: Callable | None
    if what == _FADD:
        function = binary(np.add, kind.format)
        t.emit(f"m.notes.add(({ROUNDS!r}, {op.location!r}))")
    elif what in _UPDATES and not kind.is_float:
        function = _UPDATES[what]
    elif what == _EXCHANGE:
        function = None
    else:
        raise NotModelled(op, f"update {what} on {kind.element}")
    pointer, value, *mask = (t.value(n) for n in op.operands)
    t.check_vectors(op, pointer, mask[0] if mask else "None")
    _atomic(t, op, pointer, mask[0] if mask else "None", kind, f"value={value}, update={t.constant(function)}")


@lowers("tt.atomic_cas")
def compare_and_swap(t: Translator, op: Operation) -> None:
    pointer, expected, value = (t.value(n) for n in op.operands)
    _atomic(t, op, pointer, "None", t.operand(op, 2), f"value={value}, expected={expected}")


@lowers("tt.atomic_load")
def atomic_load(t: Translator, op: Operation) -> None:
    pointer, *mask = (t.value(n) for n in op.operands)
    _atomic(t, op, pointer, mask[0] if mask else "None", t.result(op), "")


@lowers("tt.atomic_store")
def atomic_store(t: Translator, op: Operation) -> None:
    pointer, value, *mask = (t.value(n) for n in op.operands)
    _atomic(t, op, pointer, mask[0] if mask else "None", t.operand(op, 1), f"value={value}")


@lowers("tt.atomic_poll")
def atomic_poll(t: Translator, op: Operation) -> None:
    if len(op.operands) > 2:
        raise NotModelled(op, "with a timeout: time is not modelled")
    _scratch(t, op)
    pointer, expected = (t.value(n) for n in op.operands)
    given = f"{t.constant(t.operand(op, 1).dtype)}, {op.integer('sem')}, {op.integer('scope')}"
    t.emit(f"{t.target(op)}yield from m.await_words({t.constant(op)}, {pointer}, {expected}, {given})")


def _atomic(t: Translator, op: Operation, pointer: str, mask: str, kind: Type, given: str) -> None:
    meets = _scratch(t, op)
    said = f"{kind.kind == 'scalar'}, {op.integer('sem')}, {op.integer('scope')}, {meets}, {id(op) in t.facts.polling}"
    t.emit(f"{t.target(op)}yield from m.atomic({t.constant(op)}, {pointer}, {mask}, {t.constant(kind.dtype)}, {said}, {given})")


def _scratch(t: Translator, op: Operation) -> bool:
    """Whether the result goes to other threads through shared memory, behind a barrier; what lay there is lost."""
    size = op.integer("allocation.size", 0)
    if not size or "allocation.offset" not in op.attributes:
        return False
    t.emit(f"m.scratch({t.constant(op)}, {op.integer('allocation.offset')}, {size})")
    return True

"""Loads and stores of global memory, and atomic operations on it: these one after another, in an order that the schedule draws over
programs. A sum of floats depends on that order; it is taken, and an advice says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from bitverdict.harness.emulator.advice import Advice, Note
from bitverdict.harness.emulator.execution.cta import Cta
from bitverdict.harness.emulator.execution.global_access import GlobalAccess
from bitverdict.harness.emulator.frontend.generated_code import bound
from bitverdict.harness.emulator.frontend.translator import NotModelled, Translator, lowers
from bitverdict.harness.emulator.memory.global_atomics import GlobalAtomics
from bitverdict.harness.emulator.memory.global_order import ACQUIRES, RELEASES
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.mlir_types import Type
from bitverdict.harness.emulator.numerics.scalar_ops import binary, canonical, flush_subnormals
from bitverdict.harness.emulator.releases import installed_release

if TYPE_CHECKING:
    from bitverdict.harness.emulator.numerics.real_values import TileValue

_UNSIGNED_DTYPES = {4: np.dtype(np.uint32), 8: np.dtype(np.uint64)}


def on_unsigned_words(function: Callable) -> Callable:
    def run(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        wide = _UNSIGNED_DTYPES[a.dtype.itemsize]
        return function(a.view(wide), b.view(wide)).view(a.dtype)

    return run


# RMWOp of TritonAttrDefs.td
UPDATES: dict[int, Callable] = {
    1: np.bitwise_and,
    2: np.bitwise_or,
    3: np.bitwise_xor,
    4: np.add,
    6: np.maximum,
    7: np.minimum,
    8: on_unsigned_words(np.maximum),
    9: on_unsigned_words(np.minimum),
}
ADDS_FLOATS, EXCHANGES = 5, 10


@lowers("tt.atomic_rmw")
def update(t: Translator, op: Operation) -> None:
    kind, update_kind = t.operand(op, 1), op.integer("atomic_rmw_op")
    function: Callable | None
    if update_kind == ADDS_FLOATS:
        function = float_sum(kind.format)
        t.emit("{}", t.calls(_rounds, op))
    elif update_kind in UPDATES and not kind.is_float:
        function = UPDATES[update_kind]
    elif update_kind == EXCHANGES:
        function = None
    else:
        raise NotModelled(op, f"update {update_kind} on {kind.element}")
    pointer, value, mask = t.operands(op, "pointer", "value", "mask?")
    t.check_vectors(op, pointer, mask)
    _atomic(t, op, pointer, mask, kind, value=value, update=function)


def float_sum(fmt: str | None) -> Callable:
    """What an atomic of global memory adds: to nearest even. Of fp32 subnormal operands and results count as zeros of their sign,
    where those of shared memory are kept (PTX ISA, atom: .add)."""
    if fmt != "fp32":
        return binary(np.add, fmt)
    return lambda a, b: flush_subnormals(canonical(flush_subnormals(a) + flush_subnormals(b)))


def _rounds(m: Cta, op: Operation) -> None:
    m.notes.add(Note(Advice.ATOMIC_SUM, op.location))


@lowers("tt.atomic_cas")
def compare_and_swap(t: Translator, op: Operation) -> None:
    pointer, expected, value = t.operands(op, "pointer", "expected", "value")
    _atomic(t, op, pointer, None, t.operand(op, 2), value=value, expected=expected)


@lowers("tt.atomic_load")
def atomic_load(t: Translator, op: Operation) -> None:
    pointer, mask = t.operands(op, "pointer", "mask?")
    _atomic(t, op, pointer, mask, t.result(op))


@lowers("tt.atomic_store")
def atomic_store(t: Translator, op: Operation) -> None:
    pointer, value, mask = t.operands(op, "pointer", "value", "mask?")
    _atomic(t, op, pointer, mask, t.operand(op, 1), value=value)


@lowers("tt.atomic_poll")
def atomic_poll(t: Translator, op: Operation) -> None:
    if len(op.operands) > 2:
        raise NotModelled(op, "with a timeout: time is not modelled")
    pointer, expected = t.operands(op, "pointer", "expected")
    t.scratch(op)
    t.machine(op, GlobalAtomics.await_words, pointer, expected, t.operand(op, 1).dtype, op.integer("sem"), op.integer("scope"))


def _atomic(
    t: Translator, op: Operation, pointer: TileValue, mask: TileValue | None, kind: Type, *, value: TileValue | None = None,
    expected: TileValue | None = None, update: Callable | None = None,
) -> None:  # fmt: skip
    sem, orders_threads = op.integer("sem"), installed_release().meets_at_atomics
    shares = t.scratch(op)  # the result goes to other threads through shared memory, behind a barrier
    meets = orders_threads and sem in RELEASES, shares or (orders_threads and sem in ACQUIRES)
    t.machine(
        op, GlobalAtomics.atomic, pointer, mask, kind.dtype, kind.kind == "scalar", sem, op.integer("scope"), meets,
        id(op) in t.facts.polling_operations, update=update, value=value, expected=expected,
    )  # fmt: skip


@lowers("tt.load")
def load(t: Translator, op: Operation) -> None:
    """A volatile load is a relaxed one. One in a loop that may look for what another program writes can wait there."""
    pointer, mask, fill_value = t.operands(op, "pointer", "mask?", "other?")
    kind = t.result(op)
    if not t.operand(op, 0).pointers:
        raise NotModelled(op, "through a block pointer")
    t.check_vectors(op, pointer, mask)
    function, single = GlobalAtomics.volatile if op.flag("isVolatile") else GlobalAccess.load, kind.kind == "scalar"
    if id(op) in t.facts.polling_operations:
        t.machine(op, GlobalAtomics.poll, bound(function), pointer, mask, fill_value, kind.dtype, single)
    else:
        t.machine(op, function, pointer, mask, fill_value, kind.dtype, single)


@lowers("tt.store")
def store(t: Translator, op: Operation) -> None:
    pointer, value, mask = t.operands(op, "pointer", "value", "mask?")
    t.check_vectors(op, pointer, mask)
    t.machine(op, GlobalAccess.store, pointer, value, mask, t.operand(op, 1).dtype)

"""Loads and stores of global memory."""

from __future__ import annotations

from bitverdict.harness.emulator.execution.global_access import GlobalAccess
from bitverdict.harness.emulator.frontend.generated_code import bound
from bitverdict.harness.emulator.frontend.translator import NotModelled, Translator, lowers
from bitverdict.harness.emulator.memory.global_atomics import GlobalAtomics
from bitverdict.harness.emulator.mlir_reader import Operation


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

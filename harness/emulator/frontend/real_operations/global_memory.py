"""Loads and stores of global memory."""

from __future__ import annotations

from bitverdict.harness.emulator.frontend.carried_reals import CarriedReals, carries
from bitverdict.harness.emulator.memory import real_memory
from bitverdict.harness.emulator.mlir_reader import Operation


@carries("tt.load")
def load(r: CarriedReals, op: Operation) -> None:
    names = op.named("pointer", "mask?", "other?")
    pointer, mask, other = (found[0] if (found := names[each]) else None for each in ("pointer", "mask", "other"))
    t, kind = r.t, r.t.result(op)
    hangs = r.taints((pointer, mask))
    where = t.value(mask) if mask else None
    found = t.calls(real_memory.loaded, op, t.value(op.results[0]), t.value(op.operands[0]), where, kind, r.of(other), hangs)
    r.hold(op, found)


@carries("tt.store")
def store(r: CarriedReals, op: Operation) -> None:
    pointer, value, mask = r.t.operands(op, "pointer", "value", "mask?")
    hangs = r.taints((op.operands[0], *op.operands[2:]))
    r.t.emit("{}", r.t.calls(real_memory.stored, op, pointer, value, mask, r.t.operand(op, 1).dtype, r.of(op.operands[1]), hangs))

"""Loads and stores of global memory."""

from __future__ import annotations

from bitverdict.harness.emulator.frontend.translate import NotModelled, Translator, lowers
from bitverdict.harness.emulator.mlir_reader import Operation


@lowers("tt.load")
def load(t: Translator, op: Operation) -> None:
    """A volatile load is a relaxed one. One in a loop that may look for what another program writes can wait there."""
    pointer, mask, other = op.segments()[:3]
    kind = t.result(op)
    if not t.operand(op, 0).pointers:
        raise NotModelled(op, "through a block pointer")
    arguments = [t.value(group[0]) if group else "None" for group in (pointer, mask, other)]
    t.check_vectors(op, arguments[0], arguments[1])
    call = "m.volatile" if op.flag("isVolatile") else "m.load"
    given = f"{', '.join(arguments)}, {t.constant(kind.dtype)}, {kind.kind == 'scalar'}"
    if id(op) in t.facts.polling:
        t.emit(f"{t.target(op)}yield from m.poll({t.constant(op)}, {call}, {given})")
    else:
        t.emit(f"{t.target(op)}{call}({t.constant(op)}, {given})")


@lowers("tt.store")
def store(t: Translator, op: Operation) -> None:
    arguments = [t.value(n) for n in op.operands] + ["None"] * (3 - len(op.operands))
    kind = t.operand(op, 1)
    t.check_vectors(op, arguments[0], arguments[2])
    t.emit(f"m.store({t.constant(op)}, {', '.join(arguments)}, {t.constant(kind.dtype)})")

"""Loads and stores of global memory."""

from __future__ import annotations

from harness.emulator.program import Operation
from harness.emulator.translate import NotModelled, Translator, lowers


@lowers("tt.load")
def load(t: Translator, op: Operation) -> None:
    pointer, mask, other = op.segments()[:3]
    kind = t.result(op)
    if not t.operand(op, 0).pointers:
        raise NotModelled(op, "through a block pointer")
    arguments = [t.value(group[0]) if group else "None" for group in (pointer, mask, other)]
    t.check_vectors(op, arguments[0], arguments[1])
    t.emit(f"{t.target(op)}m.load({t.constant(op)}, {', '.join(arguments)}, {t.constant(kind.dtype)}, {kind.kind == 'scalar'})")


@lowers("tt.store")
def store(t: Translator, op: Operation) -> None:
    arguments = [t.value(n) for n in op.operands] + ["None"] * (3 - len(op.operands))
    kind = t.operand(op, 1)
    t.check_vectors(op, arguments[0], arguments[2])
    t.emit(f"m.store({t.constant(op)}, {', '.join(arguments)}, {t.constant(kind.dtype)})")

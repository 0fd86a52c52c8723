"""Control flow, calls, assertions, and what is no operation at all on the way down."""

from __future__ import annotations

from bitverdict.harness.emulator.frontend.hints import assume
from bitverdict.harness.emulator.frontend.translate import NotModelled, Translator, lowers
from bitverdict.harness.emulator.mlir_reader import Operation


@lowers("tt.return")
def finish(t: Translator, op: Operation) -> None:
    t.emit(f"return {t.values(op.operands)}")


@lowers("tt.call")
def call(t: Translator, op: Operation) -> None:
    callee = op.attributes["callee"].lstrip("@").strip('"')
    if callee not in t.program.functions or not callee.isidentifier():
        raise NotModelled(op, f"callee {callee}")
    t.emit(f"{t.target(op)}yield from f_{callee}({', '.join(['m', *(t.value(n) for n in op.operands)])})")


@lowers("ttg.barrier", "gpu.barrier", "tt.debug_barrier")
def barrier(t: Translator, op: Operation) -> None:
    """bar.sync of all threads of the partition, the author's or the compiler's. In shared memory order among threads is membar's
    duty, and no agent of its own; in global memory it is the author's."""
    t.emit("m.meet()")


@lowers("llvm.intr.assume")
def assumption(t: Translator, op: Operation) -> None:
    t.emit(f"{t.constant(assume)}(m, {t.constant(op)}, {t.value(op.operands[0])})")


@lowers("cf.assert", "tt.assert")
def check(t: Translator, op: Operation) -> None:
    t.emit(f"m.check({t.constant(op)}, {t.value(op.operands[0])})")


@lowers("tt.print", "ttg.remark")
def say(t: Translator, op: Operation) -> None:
    """Printing changes no word of any result."""
